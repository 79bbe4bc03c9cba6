"""Which clients share a stack, against counts made client by client."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.engine import stack
from pflbench.engine.stack import MOST_PADDING, DrawShape, chunked

Lengths = tuple[tuple[int, ...], ...]
"""One client: per `Draw`, the rows of each minibatch."""


def shapes(client: Lengths) -> tuple[DrawShape, ...]:
    return tuple(stack.shape([np.zeros(n, np.int64) for n in take]) for take in client)


def computed(clients: list[Lengths], members: list[int]) -> tuple[int, int]:
    """Rows that these clients have, and cells of the tensors that hold them all."""
    real = sum(rows for i in members for take in clients[i] for rows in take)
    cells = 0
    for takes in zip(*[clients[i] for i in members], strict=True):
        box = np.zeros((len(members), max(map(len, takes)), max((n for t in takes for n in t), default=0)))
        cells += box.size
    return real, cells


@st.composite
def federations(draw: st.DrawFn) -> list[Lengths]:
    takes = draw(st.integers(1, 3))
    batches = st.lists(st.integers(1, 12), max_size=6).map(tuple)
    return draw(st.lists(st.tuples(*[batches] * takes), max_size=25))


@given(federations(), st.none() | st.integers(1, 6), st.sampled_from([1.0, MOST_PADDING, 2.0, math.inf]))
@settings(max_examples=200)
def test_every_client_is_in_one_chunk_that_is_full_enough(
    clients: list[Lengths], most: int | None, most_padding: float
) -> None:
    found = chunked([shapes(client) for client in clients], most, most_padding)
    assert sorted(i for chunk in found for i in chunk.members) == list(range(len(clients)))
    for chunk in found:
        assert chunk.members == sorted(chunk.members)
        assert most is None or len(chunk.members) <= most
        real, cells = computed(clients, chunk.members)
        assert (chunk.real_rows, chunk.padded_rows) == (real, cells)
        assert len(chunk.members) == 1 or cells <= most_padding * real


@given(federations(), st.none() | st.integers(1, 6))
def test_no_chunk_has_room_for_the_longest_client_of_the_next(clients: list[Lengths], most: int | None) -> None:
    for chunk, after in pairwise(chunked([shapes(client) for client in clients], most)):
        longest = max(after.members, key=lambda i: (computed(clients, [i])[0], -i))
        real, cells = computed(clients, [*chunk.members, longest])
        assert len(chunk.members) == most or cells > MOST_PADDING * real
        shortest = min(computed(clients, [i])[0] for i in chunk.members)
        assert shortest >= computed(clients, [longest])[0]


@given(st.integers(1, 60), st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 7))
def test_equal_clients_share_as_few_chunks_as_can_be(count: int, batch_sizes: list[int], most: int) -> None:
    client = shapes(((max(batch_sizes),) * len(batch_sizes),))
    (together,) = chunked([client] * count)
    assert together.members == list(range(count)) and together.padded_rows == together.real_rows
    assert len(chunked([client] * count, most)) == math.ceil(count / most)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=80))
def test_the_number_of_chunks_grows_with_the_logarithm_of_the_spread(sizes: list[int]) -> None:
    """A chunk ends at a client with less than 1 / MOST_PADDING of its longest client's rows."""
    found = chunked([shapes(((n,),)) for n in sizes])
    assert len(found) <= 1 + math.log(max(sizes) / min(sizes)) / math.log(MOST_PADDING)


def test_clients_that_are_ragged_themselves_stay_alone() -> None:
    ragged, full = shapes(((9, 1, 1),)), shapes(((4, 4, 3),))
    assert [chunk.members for chunk in chunked([ragged, ragged, full, full])] == [[0], [1], [2, 3]]


def test_no_clients_no_chunks() -> None:
    assert chunked([]) == []
