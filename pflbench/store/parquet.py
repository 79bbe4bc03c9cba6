"""Reading Parquet files: the one place that asks Arrow for it.

No thread is started. A thread of Arrow's that still holds a Python file when the interpreter ends aborts the process
after all its work is done ("terminate called without an active exception", apache/arrow#34314).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from pflbench.store.header import Unfit


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Arrow's exceptions in here become `Unfit`."""
    try:
        yield
    except pa.ArrowException as error:
        raise Unfit(str(error)) from error


def footer(file: IO[bytes]) -> pq.FileMetaData:
    """The file's footer. Raises `Unfit` or `OSError`."""
    with checked():
        return pq.read_metadata(file)


def rows(
    file: IO[bytes],
    group: int | None = None,
    columns: Sequence[str] | None = None,
    known: pq.FileMetaData | None = None,
) -> pa.Table:
    """The rows of one row group, or of the file, with checked pages; `known` is its footer, if that was read before.

    Raises:
        Unfit: The file is damaged.
        OSError: It cannot be read.
    """
    with checked():
        content = pq.ParquetFile(file, metadata=known, pre_buffer=False, page_checksum_verification=True)
        if group is None:
            return content.read(columns, use_threads=False)
        return content.read_row_group(group, columns, use_threads=False)
