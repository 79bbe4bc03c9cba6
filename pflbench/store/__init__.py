"""Stored runs: Parquet files, one per run or packed, written atomically, shared by all suites."""

from pflbench.store.files import CorruptFile, ForeignFile
from pflbench.store.header import SCHEMA_VERSION, Stored
from pflbench.store.shown import ShownStore
from pflbench.store.store import MissingRun, Store

__all__ = [
    "SCHEMA_VERSION",
    "CorruptFile",
    "ForeignFile",
    "MissingRun",
    "ShownStore",
    "Store",
    "Stored",
]
