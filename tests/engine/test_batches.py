from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.data.federation import Federation
from pflbench.engine.batches import Static, part_of, pieces, query_batches, support_streams
from pflbench.errors import UsageError
from pflbench.methods.base import Draw
from pflbench.spec import RunSpec
from pflbench.testing import tiny_federation, tiny_spec


def stream(count: int, size: int = 2) -> Static:
    """Batch i holds rows 10i, 10i+1, …"""
    return Static(np.concatenate([np.arange(10 * i, 10 * i + size) for i in range(count)]), size)


def numbers(drawn: list[np.ndarray]) -> list[int]:
    return [int(rows[0]) // 10 for rows in drawn]


def of_sizes(support: list[int], query: list[int] | None = None) -> Federation:
    rows = iter(range(10_000))
    held = [np.array([next(rows) for _ in range(n)], np.int64) for n in (*support, *(query or []))]
    return replace(tiny_federation(0), support=tuple(held[: len(support)]), query=tuple(held[len(support) :]))


def spec(**changes: Any) -> RunSpec:
    return tiny_spec().model_copy(update=changes)


def test_batches_are_cut_from_the_static_order_and_the_tail_is_dropped_or_kept() -> None:
    federation = of_sizes([13, 10])
    dropped, exact = support_streams(federation, spec(tail="drop"))
    kept, _ = support_streams(federation, spec(tail="keep"))
    assert [len(b) for b in dropped.batches] == [5, 5]
    assert [len(b) for b in kept.batches] == [5, 5, 3]
    assert np.concatenate(kept.batches).tolist() == federation.support[0].tolist()
    assert [len(b) for b in exact.batches] == [5, 5]


@pytest.mark.parametrize("tail", ["drop", "keep"])
def test_a_tiny_client_has_one_batch_of_all_its_rows(tail: str) -> None:
    federation = of_sizes([3, 20])
    (tiny, _) = support_streams(federation, spec(tail=tail))
    assert [b.tolist() for b in tiny.batches] == [federation.support[0].tolist()]


def test_a_tiny_client_is_an_error_if_the_suite_says_so() -> None:
    with pytest.raises(UsageError, match="Client 1 has 4 support rows, fewer than one batch of 5"):
        support_streams(of_sizes([20, 4]), spec(tail="drop", tiny_client="error"))


def test_steps_go_on_where_the_last_participation_stopped() -> None:
    s, takes = stream(4), (Draw(steps=3),)
    (first,), cursor = s.draw(takes, 0)
    (second,), cursor = s.draw(takes, cursor)
    (third,), cursor = s.draw(takes, cursor)
    assert numbers(first + second + third) == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert cursor == 1


def test_epochs_start_at_batch_zero_and_leave_the_cursor() -> None:
    drawn, cursor = stream(3).draw((Draw(steps=2), Draw(epochs=2), Draw(steps=2)), 2)
    assert [numbers(d) for d in drawn] == [[2, 0], [0, 1, 2, 0, 1, 2], [1, 2]]
    assert cursor == 0


@given(count=st.integers(1, 9), cursor=st.integers(0, 8), sizes=st.lists(st.integers(0, 12), max_size=4))
@settings(max_examples=50, deadline=None)
def test_draws_are_one_cyclic_walk(count: int, cursor: int, sizes: list[int]) -> None:
    cursor %= count
    drawn, after = stream(count).draw([Draw(steps=n) for n in sizes], cursor)
    walked = [n for d in drawn for n in numbers(d)]
    assert [len(d) for d in drawn] == sizes
    assert walked == [(cursor + i) % count for i in range(sum(sizes))]
    assert after == (cursor + sum(sizes)) % count


FIRST, SECOND = (0.0, 0.5), (0.5, 1.0)


@given(count=st.integers(1, 9), rounds=st.lists(st.tuples(*[st.integers(0, 6)] * 3), max_size=4))
@settings(max_examples=50, deadline=None)
def test_each_half_is_a_walk_by_itself(count: int, rounds: list[tuple[int, int, int]]) -> None:
    """Beside each other and beside the walk through all; one minibatch is both halves."""
    s, cursor, walked = stream(count), 0, {FIRST: [], SECOND: [], None: []}  # type: ignore[var-annotated]
    for amounts in rounds:
        draws = [Draw(steps=n, part=part) for n, part in zip(amounts, walked, strict=True)]
        drawn, cursor = s.draw(draws, cursor)
        for draw, d in zip(draws, drawn, strict=True):
            walked[draw.part] += numbers(d)  # type: ignore[index]
    middle = count // 2
    parts = {FIRST: range(middle), SECOND: range(middle, count), None: range(count)}
    for part, numbers_ in walked.items():
        found = parts[part] if count > 1 else range(1)
        assert numbers_ == [found[i % len(found)] for i in range(len(numbers_))]


def test_reshuffled_halves_are_of_the_examples() -> None:
    (stream, *_) = support_streams(of_sizes([11, 20]), spec(batches="reshuffled"))
    for part, rows in ((FIRST, range(5)), (SECOND, range(5, 11))):
        (steps, epochs), _ = stream.draw([Draw(steps=9, part=part), Draw(epochs=1, part=part)], 0, "round", 1)
        assert set(np.concatenate(steps).tolist()) == set(rows)
        assert sorted(np.concatenate(epochs).tolist()) == list(rows)


@given(rows=st.integers(1, 60), at=st.sampled_from([0.2, 0.5, 0.8, 0.9]), size=st.integers(1, 9))
@pytest.mark.parametrize("kind", ["static", "reshuffled"])
@settings(max_examples=50, deadline=None)
def test_two_parts_share_no_row_and_leave_none_out(kind: str, rows: int, at: float, size: int) -> None:
    """Whatever the size of the minibatches; where the first one is empty, both are all."""
    (s,) = support_streams(of_sizes([rows]), spec(batches=kind, tail="keep"))
    ((everything,),), _ = s.draw((Draw(whole=True),), 0, "round", 3)
    first, behind = Draw(epochs=1, batch=size, part=(0.0, at)), Draw(whole=True, part=(at, 1.0))
    (training, (validation,)), _ = s.draw((first, behind), 0, "round", 3)
    units = len(s.batches) if isinstance(s, Static) else rows
    trained = np.concatenate(training).tolist()
    if int(at * units):
        assert sorted([*trained, *validation.tolist()]) == everything.tolist()
        assert max(trained) < min(validation)
    else:
        assert sorted(trained) == validation.tolist() == everything.tolist()


def test_a_static_part_is_of_whole_minibatches_and_steps_walk_through_halves_alone() -> None:
    s = stream(9)
    (training, (validation,)), cursor = s.draw((Draw(epochs=2, part=(0.0, 0.8)), Draw(whole=True, part=(0.8, 1.0))), 4)
    assert numbers(training) == [0, 1, 2, 3, 4, 5, 6] * 2 and cursor == 4
    assert validation.tolist() == [70, 71, 80, 81]
    with pytest.raises(UsageError, match="of all of them or of a half"):
        s.draw((Draw(steps=1, part=(0.0, 0.8)),), 0)


@pytest.mark.parametrize("kind", ["static", "reshuffled"])
def test_a_random_part_is_in_a_row_and_has_one_place_in_a_local_update(kind: str) -> None:
    streams = support_streams(of_sizes([40, 40]), spec(batches=kind))
    draws = Draw(epochs=1, part=0.75), Draw(whole=True, part=0.75)
    starts: list[list[int]] = []
    for s in streams:
        starts.append([])
        for index in range(40):
            (passed, (whole,)), _ = s.draw(draws, 0, "round", index)
            assert sorted(np.concatenate(passed).tolist()) == whole.tolist()
            assert np.diff(whole).tolist() == [1] * 29
            starts[-1].append(int(whole[0] - s.support[0]))
    assert set(starts[0]) == set(range(0, 11, 5 if kind == "static" else 1)), "every place comes"
    assert starts[0] != starts[1], "each client draws its own"
    ((again,),), _ = streams[0].draw(draws[1:], 0, "round", 7)
    assert again[0] - streams[0].support[0] == starts[0][7]


@pytest.mark.parametrize("kind", ["static", "reshuffled"])
def test_a_random_part_moves_no_other_draw_and_that_of_share_one_is_all(kind: str) -> None:
    (s,) = support_streams(of_sizes([13]), spec(batches=kind))
    (plain, all_of_them), _ = s.draw((Draw(epochs=2), Draw(epochs=1)), 0, "round", 1)
    (beside, of_one), _ = s.draw((Draw(epochs=2), Draw(epochs=1, part=1.0)), 0, "round", 1)
    for one, two in ((plain, beside), (all_of_them, of_one)):
        assert [rows.tolist() for rows in one] == [rows.tolist() for rows in two]
    ((least,),), _ = s.draw((Draw(whole=True, part=0.01),), 0, "round", 1)
    assert len(least) == (5 if kind == "static" else 1), "never empty"


CAFEME = (Draw(steps=5), Draw(steps=6, merge=True))


def test_the_outer_batch_is_six_minibatches_in_one() -> None:
    (inner, outer), cursor = stream(16).draw(CAFEME, 0)
    assert numbers(inner) == [0, 1, 2, 3, 4] and len(outer) == 1
    assert outer[0].tolist() == [10 * i + j for i in range(5, 11) for j in range(2)]
    assert cursor == 11


def test_the_outer_batch_overlaps_the_inner_ones_on_a_short_stream() -> None:
    (inner, (outer,)), cursor = stream(8).draw(CAFEME, 0)  # CIFAR shards: 8 minibatches, 5 + 6 drawn
    assert numbers(inner) == [0, 1, 2, 3, 4]
    assert (outer[::2] // 10).tolist() == [5, 6, 7, 0, 1, 2]
    assert cursor == 3


def test_with_one_minibatch_the_outer_batch_is_six_copies_of_it() -> None:
    (inner, (outer,)), cursor = stream(1, size=3).draw(CAFEME, 0)
    assert numbers(inner) == [0] * 5 and outer.tolist() == [0, 1, 2] * 6 and cursor == 0


@pytest.mark.parametrize(
    ("rows", "sizes"), [(12, [5, 5, 2]), (11, [5, 5]), (10, [5, 5]), (6, [5]), (4, [4]), (1, [1]), (5, [5])]
)
def test_query_keeps_its_tail_but_a_lone_example_only_if_it_is_all(rows: int, sizes: list[int]) -> None:
    federation = of_sizes([5], [rows])
    for tail in ("drop", "keep"):
        assert [len(b) for b in query_batches(federation, 0, spec(tail=tail))] == sizes


RESHUFFLED = {"batches": "reshuffled"}


def test_reshuffled_epochs_are_permutations_that_keep_the_tail() -> None:
    federation = of_sizes([13])
    (s,) = support_streams(federation, spec(**RESHUFFLED))
    (drawn,), _ = s.draw((Draw(epochs=3),), 0, "round", 0)
    assert [len(b) for b in drawn] == [5, 5, 3] * 3
    epochs = [np.concatenate(drawn[i : i + 3]).tolist() for i in (0, 3, 6)]
    assert all(sorted(e) == sorted(federation.support[0].tolist()) for e in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_reshuffled_draws_depend_on_seed_client_and_moment_alone() -> None:
    def drawn(seed: int, client: int, *moment: Any) -> list[int]:
        federation = of_sizes([50, 50])
        federation = replace(federation, support=(federation.support[0],) * 2)
        s = support_streams(federation, spec(seed=seed, **RESHUFFLED))[client]
        return np.concatenate(s.draw((Draw(epochs=1),), 0, *moment)[0][0]).tolist()

    assert drawn(0, 0, "round", 1) == drawn(0, 0, "round", 1)
    others = [drawn(0, 0, "round", 2), drawn(0, 1, "round", 1), drawn(1, 0, "round", 1), drawn(0, 0, "x", 1)]
    assert all(other != drawn(0, 0, "round", 1) for other in others)


def test_single_reshuffled_batches_are_distinct_rows_of_any_size() -> None:
    federation = of_sizes([13, 3])
    large, small = support_streams(federation, spec(**RESHUFFLED))
    (drawn, merged), _ = large.draw((Draw(steps=40, batch=4), Draw(steps=3, merge=True)), 0)
    assert all(len(set(b.tolist())) == 4 and set(b) <= set(federation.support[0]) for b in drawn)
    assert len(merged) == 1 and len(merged[0]) == 15
    often = np.bincount(np.concatenate(drawn), minlength=13)
    assert often.min() > 0 and len({tuple(sorted(b.tolist())) for b in drawn}) > 20
    assert [len(b) for b in small.draw((Draw(steps=2, batch=10),), 0)[0][0]] == [3, 3]


def test_indexed_batches_know_their_places_and_whole_ones_are_in_order() -> None:
    federation = of_sizes([13])
    (s,) = support_streams(federation, spec(**RESHUFFLED))
    ((whole,), indexed), _ = s.draw((Draw(whole=True), Draw(epochs=1, batch=6, indexed=True)), 0)
    assert whole.tolist() == federation.support[0].tolist()
    for rows, places in indexed:
        assert whole[places].tolist() == rows.tolist()


@pytest.mark.parametrize("kind", ["static", "reshuffled"])
def test_nobody_draws_what_nobody_reads(kind: str) -> None:
    (s, *_) = support_streams(tiny_federation(0), spec(batches=kind))
    takes = (Draw(epochs=1), Draw(epochs=2, for_upload=True))
    (first, second), _ = s.draw(takes, 0, used=False)
    assert len(first) > 0 and second == []
    assert len(s.draw(takes, 0)[0][1]) == 2 * len(first)


def test_static_batches_of_another_size_are_cut_from_the_same_order() -> None:
    s = stream(3)
    ((threes, places), cursor) = s.draw((Draw(epochs=2, batch=3), Draw(epochs=1, indexed=True)), 1)
    assert [rows.tolist() for rows in threes] == [[0, 1, 10], [11, 20, 21]] * 2 and cursor == 1
    assert [(rows.tolist(), at.tolist()) for rows, at in places] == [
        ([0, 1], [0, 1]),
        ([10, 11], [2, 3]),
        ([20, 21], [4, 5]),
    ]
    with pytest.raises(UsageError, match="have the suite's size"):
        s.draw((Draw(steps=1, batch=3),), 0)
    ((whole,), fours), _ = Static(np.arange(13), 5).draw((Draw(whole=True), Draw(epochs=1, batch=4, indexed=True)), 0)
    assert [rows.tolist() for rows, at in fours] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert all(whole[at].tolist() == rows.tolist() for rows, at in fours), "places are in the whole"
    ((whole,),), _ = s.draw((Draw(whole=True),), 0)
    assert whole.tolist() == [0, 1, 10, 11, 20, 21]


def test_full_reshuffled_passes_leave_other_rows_out() -> None:
    large, small = support_streams(of_sizes([13, 3]), spec(batches="reshuffled-full", tail="keep"))
    (drawn,), _ = large.draw((Draw(epochs=30),), 0, "round", 1)
    assert [len(rows) for rows in drawn] == [5] * 60
    passes = [set(np.concatenate(drawn[i : i + 2]).tolist()) for i in range(0, 60, 2)]
    assert all(len(rows) == 10 for rows in passes) and set.union(*passes) == set(range(13))
    ((alone,),), _ = small.draw((Draw(epochs=1),), 0, "round", 1)
    assert sorted(alone.tolist()) == [13, 14, 15], "too few for a full one: one of all"


def test_rows_are_scored_in_large_pieces() -> None:
    assert [len(b) for b in pieces(np.arange(1203))] == [500, 500, 203]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"steps": 1, "epochs": 1},
        {"steps": -1},
        {"epochs": 2, "merge": True},
        {"steps": 0, "merge": True},
        {"whole": True, "epochs": 1},
        {"whole": True, "batch": 5},
        {"epochs": 1, "batch": 0},
        {"epochs": 1, "part": 0.0},
        {"epochs": 1, "part": 1.1},
        {"epochs": 1, "part": (0.5, 0.5)},
        {"epochs": 1, "part": (0.5, 1.5)},
        {"epochs": 1, "part": (-0.5, 0.5)},
    ],
)
def test_a_take_says_one_amount(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Draw"):
        Draw(**wrong)


def test_parts_are_not_cut_by_rounding() -> None:
    """0.7 of 90 is 63, although 1 - 0.3 times 90 is a little less."""
    assert (1 - 0.3) * 90 < 63
    first, last = (part_of(range(90), part, lambda: 0.0) for part in ((0.0, 1 - 0.3), (1 - 0.3, 1.0)))
    assert (len(first), len(last)) == (63, 27)
