"""Whether the data are there that runs need."""

from __future__ import annotations

from pathlib import Path

from pflbench import names
from pflbench.data.source import Dataset
from pflbench.errors import PflbenchError
from pflbench.names import Places
from pflbench.spec import RunSpec
from pflbench.suite.own import lacking


class DataCheck:
    """Looks, once for each dataset and partition, whether what they read is below the data root."""

    def __init__(self, root: Path):
        self.root = root
        self._known: dict[str, tuple[str, ...]] = {}

    def problems(self, spec: RunSpec, places: Places) -> tuple[str, ...]:
        """What is missing for a run, in sentences; empty if nothing is. `places`: where the user's own code is."""
        key = f"{spec.dataset!r} {spec.partition!r} {sorted(places.items())}"
        if key not in self._known:
            self._known[key] = self._look(spec, places)
        return self._known[key]

    def _look(self, spec: RunSpec, places: Places) -> tuple[str, ...]:
        named = spec.dataset
        reference = names.place("datasets", named.name, places)
        dataset: Dataset = names.make("datasets", reference, named.options, named.version)
        if not dataset.status(self.root).startswith("ready"):
            return (_missing(named.name, dataset, self.root),)
        return tuple(lacking(spec, self.root, places).values())


def _missing(name: str, dataset: Dataset, root: Path) -> str:
    try:
        dataset.load(root, 0)  # says what is missing, and how one gets it with these options
        how = dataset.status(root)
    except PflbenchError as error:
        how = str(error)
    except Exception:  # a user's dataset, which says so in words of its own
        how = dataset.status(root)
    return f"The dataset {name!r} is not there, so its columns are left out. {how}"
