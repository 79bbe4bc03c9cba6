"""What a suite names of the user's own: methods, networks, datasets and partitions, each by its content.

Where one is not on this machine, the specs of stored runs tell what it was, so that a table can be read without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pflbench import names
from pflbench.catalog import FieldInfo, Info, MethodInfo, describe, describe_model, describe_options
from pflbench.data import content
from pflbench.data.source import Source
from pflbench.errors import UsageError
from pflbench.spec import Named, RunSpec
from pflbench.stages import RECORDED, Stages

Seen = Callable[[RunSpec], tuple[str, str | None, Mapping[str, Any]]]
"""Name, version and options of what a run has of a kind."""

_SEEN: dict[names.Kind, Seen] = {
    "methods": lambda run: (run.method.name, run.method.version, run.method.hyper),
    "datasets": lambda run: (run.dataset.name, run.dataset.version, run.dataset.options),
    "partitions": lambda run: (run.partition.name, run.partition.version, run.partition.options),
    "models": lambda run: (run.model, run.model_version, {}),
}
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Own:
    """Where the user's own is looked for.

    Attributes:
        root: The data root; None: nobody looks at data, as a suite file is only checked.
        stored: Returns the stored runs' specs, if what is not on this machine is to be taken from them; else that is an
            error.
        remarks: What was taken from stored runs that have several versions of it, in sentences.
    """

    root: Path | None = None
    stored: Callable[[], Sequence[RunSpec]] = tuple
    remarks: list[str] = field(default_factory=list)
    _known: dict[str, dict[str, Named]] = field(default_factory=dict)

    def anew(self) -> Own:
        """The same without the remarks."""
        return replace(self, remarks=[])

    def method(self, reference: str) -> MethodInfo:
        """The method behind a reference or id; see `describe`."""
        found = self._described(describe, "methods", reference)
        if isinstance(found, MethodInfo):
            return found
        runs = [run for run in self.stored() if (run.method.name, run.method.version) == (found.name, found.version)]
        return MethodInfo(**vars(found), stages=_stages(runs))

    def options(self, kind: Literal["datasets", "partitions"], reference: str) -> Info:
        """The dataset or partition behind a reference or name; see `describe_options`."""
        return self._described(lambda name: describe_options(kind, name), kind, reference)

    def model(self, reference: str) -> Info:
        """The network behind a reference or name; see `describe_model`."""
        return self._described(describe_model, "models", reference)

    def contents(self, settings: Mapping[str, Any], places: names.Places, seed: int) -> dict[str, Named]:
        """Dataset and partition of a run with what they read; empty for those that come with pflbench.

        Where that is not there, it is what stored runs read, or nothing is said of it: no run has that.

        Args:
            settings: The run's fields, as far as they are known.
            places: Where the user's own code is.
            seed: The run's.
        """
        data, division = settings["dataset"], settings["partition"]
        if self.root is None or data.version is division.version is None:
            return {}
        key = f"{data!r} {division!r} {settings['clients']} {seed} {sorted(places.items())}"
        if key not in self._known:
            self._known[key] = self._contents(data, division, settings["clients"], places, seed)
        return self._known[key]

    def _contents(
        self, data: Named, division: Named, clients: int, places: names.Places, seed: int
    ) -> dict[str, Named]:
        root = self.root
        assert root is not None
        found: dict[str, Named] = {}
        loaded: list[Source] = []

        def source() -> Source:
            if not loaded:
                loaded.append(content.pool(_made("datasets", data, places), root, seed))
            return loaded[0]

        if data.version is not None:
            read = _tried(lambda: content.of_dataset(_made("datasets", data, places), root, seed))
            found["dataset"] = self._filled(data, read, lambda run: run.dataset, lambda run: run.seed == seed)
        if division.version is not None:
            read = _tried(
                lambda: content.of_partition(_made("partitions", division, places), root, source, clients, seed)
            )
            found["partition"] = self._filled(
                division,
                read,
                lambda run: run.partition,
                lambda run: (
                    (run.seed, run.clients) == (seed, clients)
                    and (run.dataset.name, run.dataset.options) == (data.name, data.options)
                ),
            )
        return found

    def _filled(
        self,
        named: Named,
        read: tuple[str | None] | None,
        part: Callable[[RunSpec], Named],
        alike: Callable[[RunSpec], bool],
    ) -> Named:
        """A dataset or partition with the hash that was read, or with that of most of the stored runs that have it."""
        if read is not None:
            return named.model_copy(update={"content": read[0]})
        bare = named.model_copy(update={"content": None})
        runs = [run for run in self.stored() if alike(run) and part(run).model_copy(update={"content": None}) == bare]
        if not runs:
            return named
        chosen = self._most(f"what {named.name} reads", [part(run).content or "nothing" for run in runs])
        return next(part(run) for run in runs if (part(run).content or "nothing") == chosen)

    def _described(self, read: Callable[[str], _T], kind: names.Kind, reference: str) -> _T | Info:
        try:
            return read(reference)
        except UsageError:
            if _is_there(kind, reference):
                raise
            seen, name = _SEEN[kind], names.without_folder(reference)
            runs = [run for run in self.stored() if seen(run)[0] == name and seen(run)[1] is not None]
            if not runs:
                raise
        version = self._most(name, [str(seen(run)[1]) for run in runs])
        options = [seen(run)[2] for run in runs if seen(run)[1] == version]
        return Info(name, reference, _fields(options), "", version)

    def _most(self, what: str, versions: Iterable[str]) -> str:
        """The version that most runs have; a remark if there are others."""
        ranked = sorted(Counter(versions).items(), key=lambda item: (-item[1], item[0]))
        (chosen, _), *others = ranked
        if others:
            left = ", ".join(f"{version} ({count} runs)" for version, count in others)
            remark = f"Of {what}, which is not on this machine, version {chosen} is shown and not {left}."
            if remark not in self.remarks:
                self.remarks.append(remark)
        return chosen


def _is_there(kind: names.Kind, reference: str) -> bool:
    try:
        return names.source_file(names.locate(kind, reference)).is_file()
    except UsageError:
        return False


def _made(kind: names.Kind, named: Named, places: names.Places) -> Any:
    return names.make(names.place(kind, named.name, places), named.options, named.version)


def _tried(read: Callable[[], str | None]) -> tuple[str | None] | None:
    """What is read, or None where it cannot be: a run that needs it tells why."""
    try:
        return (read(),)
    except (Exception, SystemExit):  # a user's own code
        return None


def _stages(runs: Iterable[RunSpec]) -> Stages:
    """The stages that a method's stored runs are scored at."""
    there = {stage for run in runs for stage in run.scoring.stages}
    return Stages(
        global_model="trained" if "global" in there else "start" if "finetuned" in there else "none",
        personal="personalized" in there,
        records=RECORDED if "personalized" in there else (),
        leaves="stored" in there,
    )


def _fields(options: Sequence[Mapping[str, Any]]) -> dict[str, FieldInfo]:
    """What stored runs tell of a class: each option with the value that most of them have."""
    found = {}
    for key in dict.fromkeys(key for one in options for key in one):
        values = [one.get(key) for one in options]
        default, _ = Counter(map(repr, values)).most_common(1)[0]
        types = " | ".join(sorted({"None" if value is None else type(value).__name__ for value in values}))
        found[key] = FieldInfo(types, next(value for value in values if repr(value) == default))
    return found
