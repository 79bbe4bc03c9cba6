"""Which stages a method has, by what its class overrides and declares; read from its source, so without torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, get_args

from pflbench import names, usercode
from pflbench.errors import UsageError
from pflbench.spec import RunSpec, Stage

Shown = Literal["global", "personalized", "finetuned", "stored", "sampled", "local"]
"""What a table can show: what runs are scored at, and what is recorded with the stage "personalized"."""
SHOWN: Final[tuple[Shown, ...]] = get_args(Shown)
SCORED: Final[tuple[Stage, ...]] = get_args(Stage)
"""In the order in which a run's identity lists them."""
RECORDED: Final = tuple(stage for stage in SHOWN if stage not in SCORED)
"""What a method's `personalize` returns beside the stage "personalized", stored with it (pFedMe's local model)."""

_PROTOCOL = "pflbench.methods.base"
_OVERRIDES = {"personalize": "personal", "trained": "leaves"}
_BARE = ("Method", "Generic", "Protocol")
"""Bases that declare no stages, whatever module they come from."""
_DECLARED = ("global_model", "personal_of", "personal_from", "personal_needs", "records")


@dataclass(frozen=True)
class Stages:
    """What decides which stages a method has.

    `personal`: it overrides `personalize`; `leaves`: it overrides `trained`. `methods.base.Method` explains the rest.
    """

    global_model: Literal["trained", "start", "none"] = "trained"
    personal: bool = False
    personal_of: Literal["everyone", "training"] = "everyone"
    personal_from: Literal["server", "training"] = "server"
    personal_needs: str | None = None
    records: tuple[str, ...] = ()
    leaves: bool = False

    def there(self, hyper: Mapping[str, Any], *, moment: str, held_out: bool) -> tuple[Shown, ...]:
        """The stages that exist, in the order of `SHOWN`.

        Args:
            hyper: The method's hyperparameters.
            moment: When personal models are scored, as `Scoring.moment`.
            held_out: Whether clients are scored that never train.
        """
        found: set[str] = {
            "trained": {"global", "finetuned"},
            "start": {"finetuned"},
            "none": set[str](),
        }[self.global_model]
        if self.leaves:
            found |= {"stored", "sampled"}
        if self.personal and self._made(hyper, moment) and not (held_out and self.personal_of == "training"):
            found |= {"personalized", *self.records}
        return tuple(stage for stage in SHOWN if stage in found)

    def _made(self, hyper: Mapping[str, Any], moment: str) -> bool:
        """Whether something makes the personal models: a hyperparameter, if one is needed, or a round's training."""
        by_training = moment == "before-aggregation" and self.personal_from == "training"
        return by_training or self.personal_needs is None or hyper.get(self.personal_needs) is not None

    def below(self, own: Mapping[str, Any]) -> Stages:
        """Those of a class derived from one of these; `own`: what its body defines (None: not a literal)."""
        changes: dict[str, Any] = {field: True for name, field in _OVERRIDES.items() if name in own}
        if "personalize" in own:  # what the base declares is about another `personalize`
            changes |= {"personal_needs": None, "records": ()}
        return replace(self, **changes | {name: own[name] for name in _DECLARED if own.get(name) is not None})


def of_class(method: type) -> Stages:
    """The stages of a method's class."""
    found = Stages()
    for one in reversed(method.__mro__):
        if one.__module__ != _PROTOCOL:
            found = found.below(vars(one))
    return found


def of_run(spec: RunSpec, stages: Stages) -> tuple[Shown, ...]:
    """The stages that a run of a method of these stages has."""
    held_out = scores_held_out(spec.scoring.clients, spec.training_clients, spec.clients)
    return stages.there(spec.method.hyper, moment=spec.scoring.moment, held_out=held_out)


def scores_held_out(who: str, training: int, clients: int) -> bool:
    """Whether clients that never train are scored; `who`: as `Scoring.clients`."""
    return who == "held-out" or (who == "all" and training < clients)


def canonical(stages: Iterable[str]) -> tuple[Stage, ...]:
    """What a run is scored at for these stages to be there, each once, in the order of a run's identity."""
    wanted = set(stages)
    if wanted & set(RECORDED):
        wanted.add("personalized")
    return tuple(stage for stage in SCORED if stage in wanted)


def of_reference(reference: str) -> Stages:
    """The stages of the method behind `module:Class` or `file.py:Class`; imported only if its source does not tell."""
    return _read(reference) or of_class(names.load(reference))


def _read(reference: str) -> Stages | None:
    where, name = names.split_reference(reference)
    if where == _PROTOCOL:
        return Stages()
    try:
        path = names.source_file(reference)
    except UsageError:  # a module that is only found where its importer looks for it
        return None
    names_there = scope(usercode.syntax(path))
    node = names_there.classes.get(name)
    if node is None:
        return None
    found: list[Stages] = []
    for base in node.bases:
        base = base.value if isinstance(base, ast.Subscript) else base
        behind = names_there.behind(base.id, node, where) if isinstance(base, ast.Name) else None
        if behind is None and ast.unparse(base).rpartition(".")[2] in _BARE:
            continue
        above = _read(behind) if behind else None
        if above is None:
            return None
        found.append(above)
    if len(found) > 1:
        return None
    return (found[0] if found else Stages()).below(_body(node))


@dataclass(frozen=True)
class Scope:
    """What the names of a module mean: classes that stand there, and imported names with where they come from."""

    classes: Mapping[str, ast.ClassDef]
    imported: Mapping[str, str]

    def behind(self, name: str, below: ast.ClassDef, where: str) -> str | None:
        """The reference of what this name means in the module `where`, to a class that stands there."""
        own = self.classes.get(name)
        return f"{where}:{name}" if own is not None and own.lineno < below.lineno else self.imported.get(name)


@lru_cache(maxsize=256)
def scope(tree: ast.Module) -> Scope:
    """The classes of a module, and where its imported names come from."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    imported = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
    }
    return Scope(classes, imported)


def _body(node: ast.ClassDef) -> dict[str, Any]:
    """What a class defines, by name: literals with their values, all else as None."""
    found: dict[str, Any] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            found[item.name] = None
        elif isinstance(item, ast.AnnAssign | ast.Assign) and item.value is not None:
            for target in [item.target] if isinstance(item, ast.AnnAssign) else item.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = _literal(item.value)
    return found


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
