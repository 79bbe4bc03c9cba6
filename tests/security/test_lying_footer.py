"""A Parquet file whose footer names small sizes, and whose pages unpack to large ones, costs no memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attack_kit import Cli, Lab
from test_code import READING
from test_odd_runs import odd_run

from pflbench.store import Store, pages, schema
from pflbench.store.header import Unfit, encoded, metadata

SIZE, TOLD = 32 << 20, 4000
"""Bytes of the text in a file of some 20 KB, and bytes that the footer says."""


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """The memory that Arrow takes in a test."""
    before = pa.default_memory_pool()
    mine = pa.proxy_memory_pool(before)
    pa.set_memory_pool(mine)
    yield mine
    pa.set_memory_pool(before)


def varint(number: int, length: int = 0) -> bytes:
    """A number as Thrift writes it, with zeros up to a length."""
    number, digits = number << 1, bytearray()
    while number or not digits:
        digits.append(number & 127)
        number >>= 7
    digits += bytes(max(0, length - len(digits)))
    return bytes([*(digit | 128 for digit in digits[:-1]), digits[-1]])


def lie(path: Path) -> None:
    """Let the footer of a file name small sizes for all that is large."""
    content, told = path.read_bytes(), pq.read_metadata(path).row_group(0)
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = content[start:]
    for size in {told.total_byte_size, *(told.column(i).total_uncompressed_size for i in range(told.num_columns))}:
        if size > TOLD:
            footer = footer.replace(varint(size), varint(TOLD, len(varint(size))))
    path.write_bytes(content[:start] + footer)
    assert pq.read_metadata(path).row_group(0).total_byte_size == TOLD


def coded(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


@pytest.mark.parametrize(
    "codec, column, dictionary",
    [("zstd", "stage", True), ("zstd", "stage", False), ("brotli", "stage", True), ("zstd", "client", True)],
)
def test_pages_that_unpack_to_more_than_the_footer_says_are_not_unpacked(
    lab: Lab, cli: Cli, request: pytest.FixtureRequest, codec: str, column: str, dictionary: bool
) -> None:
    lab.store(lab.honest())
    run = odd_run(lab)
    path = Store(lab.results).path(lab.store(run, packed=False))
    table, text = schema.to_table(run).replace_schema_metadata(encoded(metadata(run))), "A" * SIZE
    place = table.column_names.index(column)
    texts = coded(text, len(table)) if dictionary else pa.array([text, *"B" * (len(table) - 1)])
    pq.write_table(table.set_column(place, column, texts), path, compression=codec, use_dictionary=dictionary)
    del texts
    lie(path)
    taken: pa.MemoryPool = request.getfixturevalue("pool")
    said = cli(*READING["report"])
    assert said.code == 0 and "50.00" in said.out and path.name in said.err
    assert (taken.max_memory() or 0) < SIZE / 8


@pytest.mark.parametrize("options", [{}, {"data_page_version": "2.0", "compression": "none"}, {"data_page_size": 100}])
def test_sizes_of_pages_are_those_of_an_honest_footer(options: dict[str, object]) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"a": range(5000), "b": [str(i % 7) for i in range(5000)]}), file, **options)
    told = pq.read_metadata(file).row_group(0)
    for chunk in map(told.column, range(2)):
        assert 0.9 * chunk.total_uncompressed_size < pages.unpacked_bytes(file, chunk) < chunk.total_uncompressed_size


@pytest.mark.parametrize(
    "change",
    [
        lambda page: b"\x1c" * len(page),  # a struct in a struct, and so on
        lambda page: b"\x15" + b"\xff" * (len(page) - 1),  # a number without an end
        lambda page: bytes(len(page)),  # headers of nothing
        lambda page: b"\x05\x02" + page[2:],  # a field by its number, which may be there twice
        lambda page: page.replace(b"\x15\x04", b"\x15\x02", 1),  # a page of an index, which Arrow skips
        lambda page: page[1:] + page[:1],
    ],
)
def test_an_odd_header_of_a_page_is_refused(change: Callable[[bytes], bytes]) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"a": ["text"] * 10_000}), file, data_page_size=100, compression="none")
    chunk = pq.read_metadata(file).row_group(0).column(0)
    start, size = chunk.dictionary_page_offset, chunk.total_compressed_size
    content = file.getvalue()
    changed = change(content[start : start + size])
    assert len(changed) == size and changed != content[start : start + size]
    with pytest.raises(Unfit):
        pages.unpacked_bytes(io.BytesIO(content[:start] + changed + content[start + size :]), chunk)
    with pytest.raises(Unfit):
        pages.unpacked_bytes(io.BytesIO(content[: start + size - 1]), chunk)
