"""What runs left behind: one Parquet file per run, written atomically, shared by all suites."""

from pflbench.store.schema import SCHEMA_VERSION
from pflbench.store.store import CorruptFile, MissingRun, Store, Stored

__all__ = ["SCHEMA_VERSION", "CorruptFile", "MissingRun", "Store", "Stored"]
