"""A run's identity is that of its fields, whatever was asked of the object before."""

from __future__ import annotations

import json
import pickle

from hypothesis import given
from hypothesis import strategies as st

from pflbench.spec import MethodSpec, RunSpec
from pflbench.testing import tiny_spec


def test_a_changed_copy_has_the_identity_of_its_own_fields() -> None:
    run = tiny_spec()
    before = run.id, run.setting()  # both are remembered by the object, and must not be by its copies
    other = run.model_copy(update={"seed": 1, "rounds": 4})
    assert other.id == RunSpec.model_validate_json(other.canonical()).id != before[0]
    assert other.setting() != before[1]
    assert run.model_copy().id == before[0]


def test_what_was_asked_of_a_run_does_not_make_it_another() -> None:
    asked, fresh = tiny_spec(), tiny_spec()
    assert asked.id and asked.setting()
    assert asked == fresh and pickle.loads(pickle.dumps(asked)) == fresh
    assert asked.model_dump() == fresh.model_dump() and asked.canonical() == fresh.canonical()


@given(
    hyper=st.dictionaries(st.text(max_size=6) | st.just("seed"), st.none() | st.integers() | st.text(max_size=6)),
    tail=st.sampled_from(["drop", "keep"]),
    seeds=st.tuples(*2 * [st.integers(0, 2**40)]),
)
def test_the_text_that_is_hashed_is_sorted_json_whatever_it_holds(
    hyper: dict[str, object], tail: str, seeds: tuple[int, int]
) -> None:
    method = MethodSpec(name="fedavg", version="1", hyper=hyper)
    run = tiny_spec(seeds[0], method, tail=tail)
    for one in (run, run.model_copy(update={"seed": seeds[1]})):
        fields = one.model_dump(mode="json", exclude_defaults=True)
        assert one.canonical() == json.dumps(fields, sort_keys=True, separators=(",", ":"))
