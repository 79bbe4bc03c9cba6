"""User-supplied methods, networks, datasets and partitions of a suite.

Verbs that train, check or draw import them: their version is the hash of their code and of what they read. Verbs that
read import nothing. They show the newest stored runs that a row and column of the suite requested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pflbench import names, trust
from pflbench.catalog import UNREAD, Info, MethodInfo, describe, describe_options
from pflbench.errors import DataMissing
from pflbench.spec import Named, RunSpec
from pflbench.stages import RECORDED, Stages

if TYPE_CHECKING:
    from pflbench.data.source import Source

_READING: dict[str, names.Kind] = {"dataset": "datasets", "partition": "partitions"}


class CellPath(NamedTuple):
    """A row and column of a suite under a profile. `file`: path of a user's suite file; empty if it is not recorded."""

    suite: str
    profile: str
    file: str
    row: str
    column: str


class Requested(NamedTuple):
    """A stored run and the places that requested it."""

    spec: RunSpec
    places: Collection[tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class UserSupplied:
    """Access to user-supplied code and data.

    Attributes:
        root: The data root; None: data are not looked at, since a suite file is only checked.
        imports: True for a command that trains or checks, so that user-supplied code may be imported.
        stored: For a command that reads: returns the stored runs, the newest first, finished ones before failed ones.
    """

    root: Path | None = None
    imports: bool = False
    stored: Callable[[], Sequence[Requested]] = tuple
    _known: dict[str, dict[str, str | None]] = field(default_factory=dict)

    def method(self, reference: str) -> MethodInfo:
        """Describe the method behind a reference or id; see `describe`."""
        if self._is_read(reference):
            return describe(reference)
        name = names.without_folder(reference)
        runs = [run.spec for run in self.stored() if run.spec.method.name == name]
        newest = [run.scoring.stages for run in runs if run.method.version == runs[0].method.version]
        return MethodInfo(name, reference, {}, "", version=UNREAD, stages=_stages({*chain(*newest)}))

    def options(self, kind: names.Kind, reference: str) -> Info:
        """Describe the dataset, partition or network behind a reference or name; see `describe_options`."""
        if self._is_read(reference):
            return describe_options(kind, reference)
        return Info(names.without_folder(reference), reference, {}, "", UNREAD)

    def _is_read(self, reference: str) -> bool:
        """True for code that may be imported, which is then granted; else nothing of it is looked up."""
        if self.imports:
            trust.grant(reference)
        return self.imports or not names.is_reference(reference) or not names.is_users(reference)

    def requested(self, wanted: Sequence[RunSpec], cell: CellPath) -> Sequence[RunSpec]:
        """For runs with unread user-supplied code or data, the newest stored ones that this cell requested.

        They agree with the wanted ones in all that is known, and with each other in all but the seed and what is read
        with it. A seed without such a run has one that is missing.
        """
        if self.imports or not _is_unread(wanted[0]):
            return wanted
        is_users = _is_users(wanted[0])
        result = [run.spec for run in self.stored() if not is_users or _is_requested_by(run, cell)]
        alike = {_plain(one): one for one in wanted}  # ids take a hundred times as long
        pairs = ((run, alike.get(_plain(run))) for run in result)
        newest = next((run for run, one in pairs if one and _agrees(run, one)), None)
        if newest is None:
            return wanted
        of_seeds = {run.seed: run for run in reversed(result) if _of_seed(newest, run).id == run.id}
        return [of_seeds.get(one.seed) or newest.model_copy(update={"seed": one.seed}) for one in wanted]

    def contents(self, settings: Mapping[str, Any], places: names.Places, seed: int) -> dict[str, Named]:
        """A run's dataset and partition with the hash of what they read; empty for those that read no user files.

        What cannot be read has no hash, and then no stored run agrees. `settings`: the run's fields, as far as they are
        known; `places`: paths of the column's user-supplied code and data.
        """
        reading = {name: settings[name] for name in _READING if reads(name, settings[name])}
        if self.root is None or not reading:
            return {}
        data, division = settings["dataset"], settings["partition"]
        key = f"{data!r} {division!r} {settings['clients']} {seed} {sorted(places.items())}"
        if key not in self._known:
            self._known[key] = self._contents(data, division, settings["clients"], places, seed)
        result = self._known[key]
        return {name: one.model_copy(update={"content": result.get(name)}) for name, one in reading.items()}

    def _contents(
        self, data: Named, division: Named, clients: int, places: names.Places, seed: int
    ) -> dict[str, str | None]:
        """Hashes of what dataset and partition read on this machine, if they read user files and can be read."""
        from pflbench.data import content  # NumPy with it, which a suite without user-supplied data does not wait for

        root = self.root
        assert root is not None
        result = dict[str, str | None]()

        @cache
        def source() -> Source:
            return content.pool(names.made("datasets", data, places), root, seed)

        if reads("dataset", data):
            with suppress(Exception, SystemExit):  # of user-supplied code; training says what is wrong
                result["dataset"] = content.of_dataset(names.made("datasets", data, places), root, seed)
        if reads("partition", division):
            with suppress(Exception, SystemExit):
                made = names.made("partitions", division, places)
                result["partition"] = content.of_partition(made, root, source, clients, seed)
        return result


def _is_unread(run: RunSpec) -> bool:
    """True if a run has user-supplied code that is not imported, or reads user files."""
    return UNREAD in _versions(run) or any(reads(name, getattr(run, name)) for name in _READING)


def _is_users(run: RunSpec) -> bool:
    """True if a run has unread user-supplied code, or a path names what it reads; FEMNIST's files have no path."""
    named = ((kind, getattr(run, name).name) for name, kind in _READING.items())
    return UNREAD in _versions(run) or any(describe_options(kind, name).paths for kind, name in named)


def _versions(run: RunSpec) -> set[str | None]:
    return {run.method.version, run.dataset.version, run.partition.version, run.model_version}


def _is_requested_by(run: Requested, cell: CellPath) -> bool:
    """True if a cell requested a run. Where no request of that suite recorded its file, the name decides."""
    files = {one.file for one in map(CellPath._make, run.places) if one._replace(file=cell.file) == cell}
    return cell.file in files or files == {""}


def _agrees(run: RunSpec, wanted: RunSpec) -> bool:
    """True if a stored run is a wanted one, with the same plain fields, in all that is known of that."""
    known: dict[str, Any] = {}
    if wanted.method.version == UNREAD:
        values = {key: None if value == "none" else value for key, value in wanted.method.hyper.items()}
        if any(run.method.hyper.get(key) != value for key, value in values.items()):
            return False
        scoring = run.scoring.model_copy(update={"stages": wanted.scoring.stages})
        known = {"method": wanted.method, "scoring": scoring}
    for name in _READING:
        stored_part, wanted_part = getattr(run, name), getattr(wanted, name)
        unread = wanted_part.version == UNREAD
        known[name] = wanted_part if unread else stored_part.model_copy(update={"content": wanted_part.content})
    if wanted.model_version == UNREAD:
        known["model_version"] = UNREAD
    return run.model_copy(update=known).id == wanted.id


def _plain(run: RunSpec) -> tuple[object, ...]:
    """Fields of a run that are always known."""
    return run.method.name, run.dataset.name, run.partition.name, run.model, run.clients, run.rounds, run.seed


def _of_seed(newest: RunSpec, run: RunSpec) -> RunSpec:
    """A run as `newest` is, with the seed of another one and with what that reads."""
    read = {name: getattr(newest, name).model_copy(update={"content": getattr(run, name).content}) for name in _READING}
    return newest.model_copy(update={**read, "seed": run.seed})


def lacking(spec: RunSpec, root: Path, places: names.Places) -> dict[str, str]:
    """Find missing files that a run's dataset and partition, if user-supplied, declare.

    A sentence for each, by its name. Raises `UsageError` if a user's code cannot be loaded, or has changed since.
    `root`: the data root; `places`: paths of user-supplied code.
    """
    from pflbench.data import content

    sentences = {}
    for name, kind in _READING.items():
        named = getattr(spec, name)
        if reads(name, named):
            try:
                content.check_files(names.made(kind, named, places), root)
            except DataMissing as error:
                what = f"The {name} {named.name!r}"
                sentences[named.name] = f"{what} lacks what it reads, so its columns are left out. {error}"
    return sentences


def reads(which: str, named: Named) -> bool:
    """True if the content that a dataset or partition (`which`) reads is part of a run's identity.

    It is of user-supplied ones, and of those that come with pflbench and read user files.
    """
    return named.version is not None or describe_options(_READING[which], named.name).reads


def _stages(scored: Collection[str]) -> Stages:
    """The stages of a method, by those that its stored runs are scored at; every stage if there is no run."""
    if not scored:
        return Stages("trained", personalizes=True, leaves=True, records=RECORDED)
    return Stages(
        global_model="trained" if "global" in scored else "start" if "finetuned" in scored else "none",
        personalizes="personalized" in scored,
        records=RECORDED if "personalized" in scored else (),
        leaves="stored" in scored,
    )
