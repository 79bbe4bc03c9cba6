"""What a suite file says of its values, its rows and its columns: where values come from, and what is told of cells.

Sources stand beside a value, or in `[sources]` where the value stands elsewhere; no source is part of a run's identity,
so giving one trains nothing again. What is said of rows and columns stands wherever these are shown, also in suites
that extend the one that says it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, get_args

from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from pflbench.names import without_folder
from pflbench.suite.strict import TomlTable, check_keys, fault

Source = Literal["paper", "code", "inferred", "guess", "tuned"]
KNOWN: tuple[str, ...] = get_args(Source)

SETTINGS = (
    "model",
    "batch",
    "rounds",
    "clients",
    "training_clients",
    "cohort",
    "query",
    "arrival",
    "weights",
    "batches",
    "augment",
    "tail",
    "tiny_client",
    "draws",
    "dataset",
    "partition",
    "finetune.steps",
    "finetune.lr",
    "finetune.decay",
    "finetune.every",
)
"""Settings that have a source, beside the methods' hyperparameters. `dataset`, `partition` and `model` mean all that is
not an option with a source of its own, such as `dataset.normalize`."""

_SINGLE = frozenset(name.rpartition(".")[2] for name in SETTINGS) | {"after"}


def flat(table: Any) -> Any:
    """`{"pfedme": {"inner_lr": "guess"}}` → `{"pfedme.inner_lr": "guess"}`; what is no table stays as it is."""
    if not isinstance(table, dict):
        return table
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= (
            {f"{key}.{name}": source for name, source in value.items()} if isinstance(value, dict) else {key: value}
        )
    return found


Sources = Annotated[dict[str, Source], BeforeValidator(flat)]
"""`[sources]`: by a setting's name, or by a method (or row) and its hyperparameter, with a dot between."""


class Settled(TomlTable):
    """A table whose single values may be written with their source: `batch = { value = 30, source = "code" }`."""

    _given: dict[str, Source] = PrivateAttr(default_factory=dict)

    @property
    def given(self) -> Mapping[str, Source]:
        """The sources that are written beside values, by key; an option's by `dataset.normalize`."""
        return self._given

    @model_validator(mode="wrap")
    @classmethod
    def _with_sources(cls, table: Any, handler: ModelWrapValidatorHandler[Settled]) -> Settled:
        if not isinstance(table, dict):
            return handler(table)
        plain, given = _parted(table, _SINGLE & cls.__pydantic_fields__.keys(), "")
        settled = handler(plain)
        settled._given = given
        return settled


def _parted(table: Mapping[str, Any], keys: Collection[str], prefix: str) -> tuple[dict[str, Any], dict[str, Source]]:
    """The table with plain values, and the sources that stood beside those of `keys`."""
    plain: dict[str, Any] = {}
    given: dict[str, Source] = {}
    for key, value in table.items():
        plain[key] = value
        if key not in keys or not isinstance(value, dict):
            continue
        if key in ("dataset", "partition") and not prefix:
            plain[key], options = _parted(value, value.keys() - {"name"}, key)
            given |= options
        elif "value" in value:
            plain[key] = value["value"]
            path = (prefix, key) if prefix else (key,)
            check_keys(path, value, ["value", "source"])
            if "source" in value and value["source"] not in KNOWN:
                raise fault((*path, "source"), f"one of {', '.join(KNOWN)}, not {value['source']!r}")
            if "source" in value:
                given[".".join(path)] = value["source"]
    return plain, given


Names = Annotated[list[str], Field(min_length=1)]


class _Row(Protocol):
    # As a suite file has it, or its table.
    @property
    def id(self) -> str: ...
    @property
    def method(self) -> str: ...


class Scoped(TomlTable):
    """Rows, by id or by their method, and columns, by id. Left out, an axis means all of it."""

    rows: Names | None = None
    methods: Names | None = None
    columns: Names | None = None

    @property
    def about_rows(self) -> bool:
        """Whether it names rows or methods."""
        return self.rows is not None or self.methods is not None

    def concerns(self, rows: Iterable[_Row], columns: Iterable[str]) -> bool:
        """Whether it is about some of these rows and of these columns, by id."""
        methods = {without_folder(method) for method in self.methods or ()}
        ids = self.rows or ()
        of_rows = not self.about_rows or any(row.id in ids or without_folder(row.method) in methods for row in rows)
        return of_rows and (self.columns is None or any(column in self.columns for column in columns))


class Note(Scoped):
    """A sentence below the table. `what`: in a suite that extends this one, a note of the same `what` replaces it."""

    text: str
    what: str | None = None


class _Somewhere(Scoped):
    @model_validator(mode="after")
    def _about_something(self) -> _Somewhere:
        if not self.about_rows and self.columns is None:
            raise fault((), "of what? Name rows, methods or columns")
        return self


class Suspicion(_Somewhere):
    """`[[suspect]]`: why the paper's numbers there may not be what they seem."""

    why: str


class Inference(_Somewhere):
    """`[[inferred]]`: a setting that was inferred from the paper's numbers there, so that they compare with nothing."""

    what: str


class Follows(_Somewhere):
    """`[[follows]]`: what the runs there follow, where it is not `suite.protocol`."""

    text: str


class Departure(Scoped):
    """`[[departure]]`: a difference from the paper's text: what it is about, what the paper says, what is done here.

    `paper` begins with "not said" where the text is silent. `code`: what the authors' code does, where we do not follow
    it. `source`: where ours comes from. `grave`: it can decide how the number is to be read, so conclusions name it.
    `unequal`: it treats rows unlike each other, so that their table says so and leads to the one on equal terms.
    """

    what: str
    paper: str
    here: str
    source: Source
    code: str = ""
    grave: bool = False
    unequal: bool = False

    @property
    def kind(self) -> Literal["code", "silence", "text"]:
        """What it departs from: the authors' code, the paper's silence, or its text."""
        if self.code:
            return "code"
        return "silence" if self.paper.startswith("not said") else "text"

    @property
    def told(self) -> str:
        """What the paper says, what its code does, and what is done here, in sentences."""
        code = f" Code: {self.code}." if self.code else ""
        return f"Paper: {self.paper}.{code} Here: {self.here}."


def carried(tables: Iterable[Any], heirs: Mapping[str, Mapping[str, Sequence[str]]]) -> list[Any]:
    """The raw scoped tables, and plain notes, as they hold in a suite that extends theirs.

    `heirs`: of "rows", "methods" and "columns" of the extended file, what has become of those that are still there. A
    table of which nothing is left is left out.
    """
    found: list[Any] = []
    for table in tables:
        if isinstance(table, str):  # a note of the whole table
            found.append(table)
            continue
        own = dict(table)
        for key, now in heirs.items():
            if key in own:
                own[key] = list(dict.fromkeys(new for name in own[key] for new in now.get(name, ())))
        of_rows = [own[key] for key in ("rows", "methods") if key in own]
        gone = (bool(of_rows) and not any(of_rows)) or own.get("columns") == []
        if not gone:
            found.append({key: value for key, value in own.items() if value != []})
    return found
