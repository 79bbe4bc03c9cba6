"""Runs to store, made up and drawn."""

from __future__ import annotations

from hypothesis import strategies as st

from pflbench.result import Metric, RunResult, Score
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.store import Store


def spec(seed: int = 0, name: str = "fedavg") -> RunSpec:
    return RunSpec(
        method=MethodSpec(name=name, version="1", hyper={"local_lr": 0.1}),
        dataset=Named(name="digits"),
        partition=Named(name="dirichlet", options={"alpha": 0.3}),
        model="cnn2",
        clients=4,
        training_clients=2,
        cohort=2,
        query=0.25,
        batch=10,
        rounds=3,
        scoring=Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=2, lr=0.1)),
        seed=seed,
    )


def done(seed: int = 0, **provenance: object) -> RunResult:
    scores = tuple(Score("global", 3, 0, c, c, 4, 0.5, c / 4) for c in (2, 3))
    return RunResult(spec(seed), scores, {"data_hash": "d1", "commit": "c0ffee", "dirty": False, **provenance})


def failed(seed: int = 0) -> RunResult:
    return RunResult(spec(seed), failure="Diverged: the loss is not finite")


def names(store: Store) -> list[str]:
    return sorted(p.name for p in store.runs.iterdir())


whole = st.integers(-(2**63), 2**63 - 1)
real = st.floats(allow_nan=False)
stored_text = st.text(st.characters(codec="utf-8"))
stages = stored_text.filter(lambda text: not text.startswith("metric/"))
scores = st.lists(st.builds(Score, stages, whole, whole, whole, whole, whole, real, real)).map(tuple)
metrics = st.lists(st.builds(Metric, whole, whole, stored_text, real)).map(tuple)
provenance = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | real | st.text())
any_spec = st.builds(spec, st.integers(0, 2**31), st.sampled_from(["fedavg", "ü/my.py:Föö"]))
finished = st.builds(
    RunResult, any_spec, scores, provenance.map(lambda p: p | {"wall_seconds": 1.5}), st.none(), metrics
)
# Lone surrogates included: that is how Python spells an undecodable file name inside an error message.
broken = st.builds(RunResult, any_spec, st.just(()), st.just({}), st.text(st.characters()))
