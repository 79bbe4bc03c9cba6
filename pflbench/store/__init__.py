"""Stored runs: Parquet files, one per run or packed, written atomically, shared by all suites."""

from pflbench.store.files import CorruptFile
from pflbench.store.header import Stored
from pflbench.store.store import MissingRun, ShownStore, Store

__all__ = ["CorruptFile", "MissingRun", "ShownStore", "Store", "Stored"]
