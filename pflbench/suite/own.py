"""What a suite names of the user's own: methods, networks, datasets and partitions, each by its content.

Where one is not on this machine, the specs of stored runs tell what it was, so that a table can be read without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pflbench import names
from pflbench.catalog import FieldInfo, Info, MethodInfo, describe, describe_options
from pflbench.errors import DataMissing, UsageError
from pflbench.spec import Named, RunSpec
from pflbench.stages import RECORDED, Stages
from pflbench.suite import versions
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.data.source import Source

Seen = Callable[[RunSpec], tuple[str, str | None, Mapping[str, Any]]]
"""Name, version and options of what a run has of a kind."""

_SEEN: dict[names.Kind, Seen] = {
    "methods": lambda run: (run.method.name, run.method.version, run.method.hyper),
    "datasets": lambda run: (run.dataset.name, run.dataset.version, run.dataset.options),
    "partitions": lambda run: (run.partition.name, run.partition.version, run.partition.options),
    "models": lambda run: (run.model, run.model_version, {}),
}
_READING = ("dataset", "partition")


def is_there(kind: names.Kind, reference: str) -> bool:
    """Whether the file of what is called so is on this machine."""
    try:
        return names.source_file(names.locate(kind, reference)).is_file()
    except UsageError:
        return False


@dataclass(frozen=True, eq=False)
class Own:
    """Where code and data of the user's own are looked for.

    Attributes:
        root: The data root; None: data are not looked at, since a suite file is only checked.
        stored: Returns the stored runs' specs, each with whether it is finished and no trial. They stand in for what is
            not on this machine; without them that is an error.
        remarks: Sentences about what stored runs have in several versions.
    """

    root: Path | None = None
    stored: Callable[[], Mapping[RunSpec, bool]] = dict
    remarks: list[str] = field(default_factory=list)
    _known: dict[str, dict[str, str | None]] = field(default_factory=dict)
    _chosen: dict[tuple[names.Kind, str], str] = field(default_factory=dict)

    def anew(self) -> Own:
        """The same without the remarks and choices."""
        return replace(self, remarks=[], _chosen={})

    def method(self, reference: str) -> MethodInfo:
        """The method behind a reference or id; see `describe`."""
        info = self.options("methods", reference)
        if isinstance(info, MethodInfo):
            return info
        runs = [run for run in self.stored() if (run.method.name, run.method.version) == (info.name, info.version)]
        return MethodInfo(**vars(info), stages=_stages(runs))

    def contents(self, settings: Mapping[str, Any], places: names.Places, seed: int) -> dict[str, Named]:
        """A run's dataset and partition with the hash of what they read; empty for those that come with pflbench.

        What cannot be read here is taken from stored runs, or has no hash, and then no stored run agrees. `settings`:
        the run's fields, as far as they are known; `places`: where the user's own code is.
        """
        data, division = settings["dataset"], settings["partition"]
        readers = [one for one in ("dataset", "partition") if reads(one, settings[one])]
        if self.root is None or not readers:
            return {}
        key = f"{data!r} {division!r} {settings['clients']} {seed} {sorted(places.items())}"
        if key not in self._known:
            self._known[key] = self._read(data, division, settings["clients"], places, seed)
        reading = {name: settings[name] for name in readers}
        there = self._known[key]
        if reading.keys() != there.keys():
            there = self._most_read(settings, there, seed) | there
        return {name: one.model_copy(update={"content": there.get(name)}) for name, one in reading.items()}

    def _read(
        self, data: Named, division: Named, clients: int, places: names.Places, seed: int
    ) -> dict[str, str | None]:
        """What is read on this machine by dataset and partition, if they are the user's own and can be read."""
        from pflbench.data import content  # NumPy with it, which a suite without the user's own does not wait for

        root = self.root
        assert root is not None
        contents: dict[str, str | None] = {}
        failures = suppress(Exception, SystemExit)  # of a user's own code

        @cache
        def source() -> Source:
            return content.pool(names.made("datasets", data, places), root, seed)

        if reads("dataset", data):
            with failures:
                contents["dataset"] = content.of_dataset(names.made("datasets", data, places), root, seed)
        if reads("partition", division):
            with failures:
                made = names.made("partitions", division, places)
                contents["partition"] = content.of_partition(made, root, source, clients, seed)
        return contents

    def _most_read(self, settings: Mapping[str, Any], there: Mapping[str, str | None], seed: int) -> dict[str, Any]:
        """What dataset and partition read in most stored runs that have these settings and read what is `there`."""

        def bare(named: Named) -> Named:
            return named.model_copy(update={"content": None})

        every = {
            run: done
            for run, done in self.stored().items()
            if all(bare(getattr(run, name)) == bare(settings[name]) for name in _READING)
            and run.clients == settings["clients"]
        }
        runs = {run: done for run, done in every.items() if run.model_version == settings["model_version"]} or every
        for name, one in there.items():
            runs = {run: done for run, done in runs.items() if getattr(run, name).content == one} or runs
        most = versions.most_read(runs, seed)
        for name, chosen in most.items():
            if name not in there and reads(name, settings[name]):
                rivals = versions.rivals(every, name, chosen, seed)
                what = f"what {settings[name].name} reads"
                self._remark(what, chosen or "nothing", rivals, attrgetter(f"{name}.content"))
        return most

    def options(self, kind: names.Kind, reference: str) -> Info:
        """What the code at a reference or name is or, where it is not on this machine, what stored runs say of it."""
        try:
            info = describe(reference) if kind == "methods" else describe_options(kind, reference)
            if info.version is not None:  # with which goes what is chosen of the rest
                self._chosen[kind, info.name] = info.version
            return info
        except UsageError:
            if is_there(kind, reference):
                raise
            seen, name = _SEEN[kind], names.without_folder(reference)
            runs = {run: d for run, d in self.stored().items() if seen(run)[0] == name and seen(run)[1] is not None}
            if not runs:
                raise

        def version(run: RunSpec) -> str:
            return str(seen(run)[1])

        if (kind, name) not in self._chosen:
            # Of the runs that have what is chosen so far, if there are any.
            agreeing = {
                run: done
                for run, done in runs.items()
                if all(self._chosen.get((k, look(run)[0]), look(run)[1]) == look(run)[1] for k, look in _SEEN.items())
            }
            self._chosen[kind, name] = versions.of_most(agreeing or runs, version)
        chosen = self._chosen[kind, name]
        self._remark(name, chosen, runs, version)
        return Info(name, reference, _fields([seen(run)[2] for run in runs if version(run) == chosen]), "", chosen)

    def _remark(
        self, what: str, chosen: str, runs: Mapping[RunSpec, bool], version: Callable[[RunSpec], str | None]
    ) -> None:
        """Note which other versions these runs have."""
        counted = Counter[str]()
        for run, done in runs.items():
            counted[version(run) or "nothing"] += done
        ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        left = ", ".join(f"{version} ({count(n, 'run')})" for version, n in ranked if version != chosen)
        remark = f"Of {what}, which is not on this machine, version {chosen} is shown and not {left}."
        if left and remark not in self.remarks:
            self.remarks.append(remark)


def lacking(spec: RunSpec, root: Path, places: names.Places) -> dict[str, str]:
    """Which files are missing that a run's dataset and partition, if they are the user's own, declare.

    A sentence for each, by its name. Raises `UsageError` if a user's code cannot be loaded, or has changed since.
    `root`: the data root; `places`: where the user's own code is.
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
    """Whether what a dataset or partition (`which`) reads is part of a run's identity.

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
