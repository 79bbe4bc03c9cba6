"""Pages of a Parquet file: their unpacked sizes, by their headers.

A footer may name any size. A page's header may not: Arrow takes the memory that the header names, and refuses a page
that unpacks to more. A header is a struct `PageHeader` of Parquet's format, in Thrift's compact protocol. Forms that
Arrow never writes are refused, so that it cannot read a header otherwise than this module does.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from pflbench.store.header import Unfit

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData

_KIND, _UNPACKED, _PACKED = 1, 2, 3
"""Fields of a page's header: its kind, and its size in bytes, unpacked and as it lies in the file."""
_DICTIONARY = 2
_VALUES = {0: 5, _DICTIONARY: 7, 3: 8}
"""By kind, the field with the number of a page's values."""
_TRUE, _FALSE, _INT32, _INT64, _BINARY, _STRUCT = 1, 2, 5, 6, 8, 12
"""Types of fields."""


def unpacked_bytes(file: IO[bytes], chunk: ColumnChunkMetaData) -> int:
    """Return the bytes that a column chunk's pages unpack to. Raises `Unfit` and `OSError`."""
    start, size = chunk.data_page_offset, chunk.total_compressed_size
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    if min(start, size) < 0 or start + size > file.seek(0, 2):
        raise Unfit("a column that is not in the file")
    file.seek(start)
    pages = file.read(size)
    total = values = place = 0
    try:
        while place < size:
            header, place = _struct(pages, place)
            total += header[_UNPACKED]
            place += header[_PACKED]
            several = header[_VALUES[header[_KIND]]]
            if header[_KIND] != _DICTIONARY:
                values += several
            elif several > header[_UNPACKED]:
                raise Unfit("a dictionary of more values than bytes")
    except (IndexError, KeyError, RecursionError) as error:
        raise Unfit("a page without a header") from error
    if place != size or values != chunk.num_values:  # Arrow reads on until it has the column's values
        raise Unfit("pages that do not fit their column")
    return total


def _struct(data: bytes, place: int) -> tuple[dict[int, int], int]:
    """The 32-bit integers of a struct, and the first one of each struct in it, by field; and the place after it.

    Raises `Unfit`, and `IndexError` at the end of the data.
    """
    found: dict[int, int] = {}
    field = number = 0
    while head := data[place]:
        field, kind, place = field + (head >> 4), head & 15, place + 1
        if not head >> 4 or field > 15:
            raise Unfit("a page with an odd header")
        if kind in (_INT32, _INT64, _BINARY):
            number, place = data[place], place + 1
            if number > 127:  # of several bytes
                number, place = _number(data, place - 1)
            if kind == _INT32:
                found[field] = number >> 1
            elif kind == _BINARY:
                place += number
        elif kind == _STRUCT:
            inner, place = _struct(data, place)
            found[field] = inner.get(1, 0)
        elif kind not in (_TRUE, _FALSE):
            raise Unfit("a page with an odd header")
    return found, place + 1


def _number(data: bytes, place: int) -> tuple[int, int]:
    """An unsigned integer, seven bits in a byte, and the place after it. Raises as `_struct`."""
    number = shift = 0
    while (byte := data[place]) > 127:
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if shift > 63:
            raise Unfit("a page with an odd header")
    return number | byte << shift, place + 1
