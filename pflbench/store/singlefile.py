"""A run in a Parquet file of its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.store import files, parquet, schema
from pflbench.store.header import Unfit


def read(path: Path) -> RunResult:
    """The file's run. Raises `Unfit` or `OSError`."""
    with path.open("rb") as file, parquet.checked():
        return schema.from_table(parquet.rows(file))


def write(path: Path, result: RunResult) -> None:
    """Write the run; the file is there only when all of it was read again and found equal. Raises `StoreError`."""
    table = schema.to_table(result)
    with files.replacing(path) as (file, temporary):
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)
        files.sync(file)
        try:
            same = schema.digest(read(temporary)) == schema.digest(result)
        except Unfit as error:
            raise StoreError(f"What was written to {str(path.parent)!r} cannot be read: {error}.") from error
        if not same:
            raise StoreError(f"What was written to {str(path.parent)!r} reads differently. Is its disk broken?")
        temporary.replace(path)
