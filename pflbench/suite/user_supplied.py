"""User-supplied methods, networks, datasets and partitions of a suite, each identified by its content.

Where one is not on this machine, or only its import would tell, a reader takes from stored runs what it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pflbench import names, trust
from pflbench.catalog import FieldInfo, Info, MethodInfo, describe, describe_options
from pflbench.errors import DataMissing, UsageError
from pflbench.spec import Named, RunSpec
from pflbench.stages import RECORDED, Stages
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.data.source import Source

Seen = Callable[[RunSpec], tuple[str, str | None, Mapping[str, Any]]]
"""Name, version and options of what a run has of a kind."""

Version = TypeVar("Version")
Equals = Callable[[], Mapping[str, Mapping[str, RunSpec]]]
"""Returns finished runs by the id of `RunSpec.with_code`, then by their own id; what was finished last is last."""

_SEEN: dict[names.Kind, Seen] = {
    "methods": lambda run: (run.method.name, run.method.version, run.method.hyper),
    "datasets": lambda run: (run.dataset.name, run.dataset.version, run.dataset.options),
    "partitions": lambda run: (run.partition.name, run.partition.version, run.partition.options),
    "models": lambda run: (run.model, run.model_version, {}),
}
_READING = ("dataset", "partition")


class Recorded(NamedTuple):
    """A stored run beside its spec. `finished`: it is no trial and has not failed.

    `suite`, `row`, `column`: what it was requested for; empty in runs from before this was recorded.
    """

    finished: bool
    suite: str = ""
    row: str = ""
    column: str = ""


def is_there(kind: names.Kind, reference: str) -> bool:
    """True if the file behind a reference is on this machine."""
    try:
        return names.source_file(names.locate(kind, reference)).is_file()
    except UsageError:
        return False


@dataclass(frozen=True, eq=False)
class UserSupplied:
    """Access to user-supplied code and data, with stored runs for what is missing.

    Attributes:
        root: The data root; None: data are not looked at, since a suite file is only checked.
        imports: Whether user-supplied code may be imported: only to train or check it. A reader takes from stored runs
            what the source does not tell.
        stored: Returns the stored runs' specs with what is recorded of them. They stand in for what is not on this
            machine; without them that is an error.
        suite: Name of the suite, whose recorded runs decide first.
        equals: Finished runs that stand for those that differ from them in comments alone.
        remarks: Sentences about what stored runs have in several versions.
    """

    root: Path | None = None
    imports: bool = False
    stored: Callable[[], Mapping[RunSpec, Recorded]] = dict
    equals: Equals = dict
    suite: str = ""
    remarks: list[str] = field(default_factory=list)
    _known: dict[str, dict[str, str | None]] = field(default_factory=dict)
    _chosen: dict[tuple[names.Kind, str], str] = field(default_factory=dict)

    def anew(self, suite: str) -> UserSupplied:
        """The same for a suite, without remarks and choices."""
        return replace(self, suite=suite, remarks=[], _chosen={})

    def method(self, reference: str, row: str = "") -> MethodInfo:
        """The method behind a reference or id, of a row; see `describe`."""
        info = self.options("methods", reference, row)
        if isinstance(info, MethodInfo):
            return info
        runs = [run for run in self.stored() if (run.method.name, run.method.version) == (info.name, info.version)]
        return MethodInfo(**vars(info), stages=_stages(runs))

    def standing_for(self, run: RunSpec, places: names.Places) -> RunSpec:
        """The finished run that was made with the same code but for comments and the like; without one, the run itself.

        `places`: paths of user-supplied code.
        """
        if not (known := self.equals()):
            return run
        there = known.get(run.with_code(_digests(places)).id, {})
        return run if run.id in there or not there else list(there.values())[-1]

    def contents(
        self, settings: Mapping[str, Any], places: names.Places, seed: int, column: str = ""
    ) -> dict[str, Named]:
        """A run's dataset and partition with the hash of what they read; empty for those that come with pflbench.

        What cannot be read here is taken from stored runs, or has no hash, and then no stored run agrees. `settings`:
        the run's fields, as far as they are known; `places`: paths of user-supplied code; `column`: the run's.
        """
        reading = {name: settings[name] for name in _READING if reads(name, settings[name])}
        if self.root is None or not reading:
            return {}
        data, division = settings["dataset"], settings["partition"]
        used = sorted((kind, place) for kind, place in places.items() if kind.startswith(("datasets", "partitions")))
        key = f"{self.root.absolute()} {data!r} {division!r} {settings['clients']} {seed} {used}"
        if key not in self._known:
            self._known[key] = self._read(key, data, division, settings["clients"], places, seed)
        there = self._known[key]
        if reading.keys() != there.keys():
            there = self._recorded_contents(settings, there, seed, column) | there
        return {name: one.model_copy(update={"content": there.get(name)}) for name, one in reading.items()}

    def _read(
        self, key: str, data: Named, division: Named, clients: int, places: names.Places, seed: int
    ) -> dict[str, str | None]:
        """Hashes of what dataset and partition read on this machine, if they are user-supplied and can be read.

        A command that imports user-supplied code notes under `key` what that reads, for those that do not.
        """
        from pflbench.data import content  # NumPy with it, which a suite without user-supplied data does not wait for

        root = self.root
        assert root is not None
        found = dict[str, content.Content]()
        failures = suppress(Exception, SystemExit)  # of user-supplied code, also where it is not imported

        @cache
        def source() -> Source:
            return content.pool(names.made("datasets", data, places), root, seed)

        if reads("dataset", data):
            with failures:
                made = names.made("datasets", data, places)
                found["dataset"] = content.Content(content.of_dataset(made, root, seed), content.files_of(made, root))
        if reads("partition", division):
            with failures:
                made = names.made("partitions", division, places)
                read = content.of_partition(made, root, source, clients, seed)
                found["partition"] = content.Content(read, content.files_of(made, root))
        if self.imports and (data.version or division.version):
            content.keep_content(key, found)
        told = {which: one.content for which, one in found.items()}
        return told if self.imports or len(told) == 2 else self._recalled(key, places) | told

    def _recalled(self, key: str, places: names.Places) -> dict[str, str | None]:
        """Contents that `_read` noted, of code that is still on this machine."""
        from pflbench.data import content

        kinds: tuple[names.Kind, names.Kind] = ("datasets", "partitions")
        there = {kind[:-1] for kind in kinds if kind in places and is_there(kind, places[kind])}
        return {which: one for which, one in content.kept_content(key).items() if which in there}

    def _recorded_contents(
        self, settings: Mapping[str, Any], there: Mapping[str, str | None], seed: int, column: str
    ) -> dict[str, str | None]:
        """Contents of dataset and partition in the stored runs that have these settings and read what is `there`."""

        def read(run: RunSpec) -> tuple[str | None, str | None]:
            return run.dataset.content, run.partition.content

        every = {run: one.finished for run, one in self.stored().items() if _has(run, settings)}
        runs = {run: done for run, done in every.items() if run.model_version == settings["model_version"]} or every
        for name, one in there.items():
            runs = {run: done for run, done in runs.items() if getattr(run, name).content == one} or runs
        chosen = majority(self._recorded(runs, "column", column), read, seed)
        found = dict(zip(_READING, chosen, strict=True)) if chosen else {}
        for name, content in found.items():
            if name not in there and reads(name, settings[name]):
                what = f"what {settings[name].name} reads, which is not read here"
                others = rivals(every, name, content, seed)
                self._remark(what, content or "nothing", others, attrgetter(f"{name}.content"))
        return found

    def _recorded(self, runs: Mapping[RunSpec, bool], axis: Literal["row", "column"], id_: str) -> dict[RunSpec, bool]:
        """Stored runs that this row or column requested, if one of them is finished; else all of these."""
        stored, place = self.stored(), (self.suite, id_)
        here = {run: done for run, done in runs.items() if (stored[run].suite, getattr(stored[run], axis)) == place}
        return here if id_ and any(here.values()) else dict(runs)

    def options(self, kind: names.Kind, reference: str, place: str = "") -> Info:
        """Describe the code at a reference or name; where it cannot be read here, by what stored runs say of it.

        `place`: id of the row of a method, or of the column of anything else.
        """
        if self.imports:
            trust.grant(reference)
        try:
            info = describe(reference) if kind == "methods" else describe_options(kind, reference)
        except trust.Untrusted as error:
            return self._as_stored(kind, reference, place, error, names.code(names.locate(kind, reference)).version)
        except UsageError as error:
            if is_there(kind, reference):
                raise
            return self._as_stored(kind, reference, place, error)
        if info.version is not None:  # with which goes what is chosen of the rest
            self._chosen[kind, info.name] = info.version
        return info

    def _as_stored(
        self, kind: names.Kind, reference: str, place: str, error: UsageError, here: str | None = None
    ) -> Info:
        """Describe, by stored runs, user-supplied code that is not on this machine or not imported.

        `here`: its version on this machine, which is taken if there are such runs. Raises the error if there are none.
        """
        seen, name = _SEEN[kind], names.without_folder(reference)
        stored = self.stored()
        runs = {run: stored[run].finished for run in stored if seen(run)[0] == name and seen(run)[1] is not None}
        if not runs:
            raise error

        def version(run: RunSpec) -> str:
            return str(seen(run)[1])

        if here is not None and here in map(version, runs):
            self._chosen[kind, name] = here
        elif (kind, name) not in self._chosen:
            recorded = self._recorded(runs, "row" if kind == "methods" else "column", place)
            agreeing = {run: done for run, done in recorded.items() if self._agrees(run)}
            self._chosen[kind, name] = str(majority(agreeing or recorded, version))
        chosen = self._chosen[kind, name]
        if chosen != here:
            where = "on this machine" if here is None else "imported here"
            self._remark(f"{name}, which is not {where}", chosen, runs, version)
        return Info(name, reference, _fields([seen(run)[2] for run in runs if version(run) == chosen]), "", chosen)

    def _agrees(self, run: RunSpec) -> bool:
        """True if a run has the versions that are chosen so far."""
        return all(self._chosen.get((kind, look(run)[0]), look(run)[1]) == look(run)[1] for kind, look in _SEEN.items())

    def _remark(
        self, what: str, chosen: str, runs: Mapping[RunSpec, bool], version: Callable[[RunSpec], str | None]
    ) -> None:
        """Note which other versions these runs have."""
        counted = Counter[str]()
        for run, done in runs.items():
            counted[version(run) or "nothing"] += done
        ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        left = ", ".join(f"{version} ({count(n, 'run')})" for version, n in ranked if version != chosen)
        remark = f"Of {what}, version {chosen} is shown and not {left}."
        if left and remark not in self.remarks:
            self.remarks.append(remark)


def _digests(places: names.Places) -> dict[str, str]:
    """The digest of each file that is on this machine, as a run records them."""
    found = {}
    for kind, reference in places.items():
        if kind in _SEEN and names.is_users(reference):
            with suppress(UsageError):
                found[kind[:-1]] = names.code(reference).digest
    return found


# The two functions that follow depend on the runs they get, each with whether it is finished, and not on their order.
_UNVERSIONED = {"version": None, "content": None}


def _has(run: RunSpec, settings: Mapping[str, Any]) -> bool:
    """True if a run's federation has these settings, whatever its dataset and partition read."""
    return run.clients == settings["clients"] and all(
        getattr(run, name).model_copy(update={"content": None}) == settings[name].model_copy(update={"content": None})
        for name in _READING
    )


def majority(
    runs: Mapping[RunSpec, bool], version: Callable[[RunSpec], Version], seed: int | None = None
) -> Version | None:
    """The version with which a table can show most finished runs; None without runs.

    Runs that differ in versions alone count once. With a `seed`, a version that runs of a single seed have is made from
    the seed, and then the version is that of most runs of this seed.
    """

    def most(some: Iterable[RunSpec]) -> Version | None:
        counted: dict[Version, set[RunSpec]] = {}
        for run in some:
            counted.setdefault(version(run), set())
            if runs[run]:
                kinds = {kind: getattr(run, kind).model_copy(update=_UNVERSIONED) for kind in _READING}
                method = run.method.model_copy(update={"version": ""})
                alike = run.model_copy(update={**kinds, "method": method, "model_version": None})
                counted[version(run)].add(alike)
        return min(counted, key=lambda one: (-len(counted[one]), str(one)), default=None)

    chosen = most(runs)
    if seed is not None and len({run.seed for run in runs if version(run) == chosen}) < 2:
        return most(run for run in runs if run.seed == seed)
    return chosen


def rivals(runs: Mapping[RunSpec, bool], name: str, chosen: str | None, seed: int) -> dict[RunSpec, bool]:
    """Runs whose dataset or partition, `name`, could have read the same at a seed; `chosen` is what is read now.

    `runs` differ at most by method, seed, network and what they read. Data of other seeds do not count.
    """
    seeds: dict[str | None, set[int]] = {}
    for run in runs:
        seeds.setdefault(getattr(run, name).content, set()).add(run.seed)
    several = len(seeds.get(chosen, ())) > 1
    here = {one for one, found in seeds.items() if several or seed in found or len(found) > 1}
    return {run: done for run, done in runs.items() if getattr(run, name).content in here}


def lacking(spec: RunSpec, root: Path, places: names.Places) -> dict[str, str]:
    """Find missing files that a run's dataset and partition, if user-supplied, declare.

    A sentence for each, by its name. Raises `UsageError` if a user's code cannot be loaded, or has changed since.
    `root`: the data root; `places`: paths of user-supplied code.
    """
    from pflbench.data import content

    sentences = {}
    readers: tuple[tuple[names.Kind, Named], ...] = ("datasets", spec.dataset), ("partitions", spec.partition)
    for kind, named in readers:
        if reads(kind[:-1], named):
            try:
                content.check_files(names.made(kind, named, places), root)
            except DataMissing as error:
                what = f"The {kind[:-1]} {named.name!r}"
                sentences[named.name] = f"{what} lacks what it reads, so its columns are left out. {error}"
    return sentences


def reads(which: str, named: Named) -> bool:
    """True if the content that a dataset or partition (`which`) reads is part of a run's identity.

    It is of a user's own, and of those that come with pflbench and read the user's files.
    """
    kind: names.Kind = "datasets" if which == "dataset" else "partitions"
    return named.version is not None or describe_options(kind, named.name).reads


def _stages(runs: Iterable[RunSpec]) -> Stages:
    """The stages that a method's stored runs are scored at."""
    there = {stage for run in runs for stage in run.scoring.stages}
    return Stages(
        global_model="trained" if "global" in there else "start" if "finetuned" in there else "none",
        personalizes="personalized" in there,
        records=RECORDED if "personalized" in there else (),
        leaves="stored" in there,
    )


def _fields(options: Sequence[Mapping[str, Any]]) -> dict[str, FieldInfo]:
    """The options of a class as far as stored runs show them, each with its most frequent value as default."""
    fields = {}
    for key in dict.fromkeys(key for one in options for key in one):
        values = [one.get(key) for one in options]
        default, _ = Counter(map(repr, values)).most_common(1)[0]
        types = " | ".join(sorted({"None" if value is None else type(value).__name__ for value in values}))
        fields[key] = FieldInfo(types, next(value for value in values if repr(value) == default))
    return fields
