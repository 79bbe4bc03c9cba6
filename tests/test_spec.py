"""A run's identity is that of its fields, whatever was asked of the object before."""

from __future__ import annotations

import pickle

from pflbench.spec import MethodSpec, Named, RunSpec, Scoring


def spec(seed: int = 0) -> RunSpec:
    return RunSpec(
        method=MethodSpec(name="fedavg", version="1"),
        dataset=Named(name="digits"),
        partition=Named(name="dirichlet"),
        model="cnn2",
        clients=4,
        training_clients=2,
        cohort=2,
        query=0.25,
        batch=10,
        rounds=3,
        scoring=Scoring(),
        seed=seed,
    )


def test_a_changed_copy_has_the_identity_of_its_own_fields() -> None:
    run = spec()
    before = run.id, run.setting()  # both are remembered by the object, and must not be by its copies
    other = run.model_copy(update={"seed": 1, "rounds": 4})
    assert other.id == RunSpec.model_validate_json(other.canonical()).id != before[0]
    assert other.setting() != before[1]
    assert run.model_copy().id == before[0]


def test_what_was_asked_of_a_run_does_not_make_it_another() -> None:
    asked, fresh = spec(), spec()
    assert asked.id and asked.setting()
    assert asked == fresh and pickle.loads(pickle.dumps(asked)) == fresh
    assert asked.model_dump() == fresh.model_dump() and asked.canonical() == fresh.canonical()
