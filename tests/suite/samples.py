"""Small suites as raw TOML tables, and a TOML writer for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st


def raw() -> dict[str, Any]:
    return {
        "suite": {
            "name": "tiny",
            "title": "Tiny",
            "paper": "none",
            "protocol": "code",
            "seeds": [0, 1],
            "spread": {"kind": "std", "ddof": 0},
        },
        "federation": {"clients": 10, "training_clients": 8, "cohort": 2, "query": 0.2},
        "evaluation": {"clients": "held-out", "average": "batches", "finetune": {"steps": 5}, "report": {"steps": [5]}},
        "column": [
            {
                "id": id_,
                "title": id_.upper(),
                "dataset": {"name": "rotated-digits", "degrees": 20},
                "partition": {"name": "shards", "shards": 20},
                "model": "cnn2",
                "rounds": 3,
                "batch": 10,
                "hyper": {"fedavg": {"epochs": 2}},
                "finetune": {"lr": 0.1, "cafeme": {"lr": 0.2}},
            }
            for id_ in ("a", "b")
        ],
        "row": [
            {"id": "fedavg", "title": "FedAvg", "method": "fedavg", "stage": "global"},
            {"id": "fedavg-ft", "title": "FedAvg-FT", "method": "fedavg", "stage": "finetuned"},
            {"id": "cafeme", "title": "CAFeMe", "method": "cafeme", "stage": "finetuned", "hyper": {"steps": 3}},
        ],
        "hyper": {"fedavg": {"lr": {"value": 0.01, "source": "code"}}},
        "reference": {"fedavg": {"a": [50.0, 1.5]}},
        "layout": {"decimals": 1},
        "profile": {"smoke": {"seeds": [0], "column": {"*": {"rounds": 1}, "b": {"rounds": 2}}}},
    }


def staged() -> dict[str, Any]:
    """A suite with several stages, a grid, derived rows and columns, and a column and a row like another."""
    table = raw()
    table["federation"] = {"clients": 10, "query": "test-split", "arrival": 0.5, "batches": "reshuffled"}
    table["evaluation"] = {
        "clients": "all",
        "average": "examples",
        "global_on": "test-set",
        "moment": "before-aggregation",
    }
    table["column"][0]["dataset"] = {"name": "digits", "test": 100}
    for key in ("finetune", "hyper"):
        del table["column"][0][key]
    table["column"][1] = {"id": "b", "like": "a", "title": "B", "subset": {"smallest": 3}}
    table["row"] = [
        {
            "id": "local",
            "title": "Local",
            "method": "fedavg",
            "stages": ["personalized"],
            "rounds": 2,
            "hyper": {"momentum": 0.9, "personal_epochs": 1},
            "grid": {"lr": [0.1, 0.01], "batch": {"value": [5, 10, 20], "source": "paper"}},
            "validation": 0.1,
        },
        {"id": "fedavg", "title": "FedAvg", "method": "fedavg", "stages": ["global"]},
        {"id": "ditto", "title": "Ditto", "method": "ditto", "stages": ["personalized", "global"]},
        {"id": "strong", "like": "ditto", "title": "Strong", "hyper": {"lam": 2.0}},
    ]
    table["derived"] = [
        {"id": "gain", "title": "Gain", "rows": ["strong", "ditto"]},
        {"id": "gap", "title": "Gap", "columns": ["b", "a"]},
    ]
    table["reference"] = {
        "local": {"a": [50.0, 0.5], "b": [49.0]},
        "ditto": {"a": {"personalized": [60.0, 0.1], "global": [55.0]}, "gap": {"global": [-1.0]}},
        "gain": {"b": {"personalized": [2.0]}},
    }
    table["layout"] = {"decimals": 1, "stages": {"personalized": "PM", "global": "GM"}, "blocks": "group"}
    return table


def dumps(table: dict[str, Any]) -> str:
    def inline(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(k)} = {inline(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(inline(v) for v in value) + "]"
        return json.dumps(value) if isinstance(value, str | bool) else repr(value)

    return "\n".join(f"{json.dumps(k)} = {inline(v)}" for k, v in table.items())


def write(path: Path, table: dict[str, Any]) -> str:
    path.write_text(dumps(table), encoding="utf-8")
    return str(path)


ids = st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*", fullmatch=True)
titles = st.text(st.characters(min_codepoint=32, max_codepoint=126))
rates = st.floats(1e-6, 10)


@st.composite
def suites(draw: st.DrawFn) -> dict[str, Any]:
    clients = draw(st.integers(2, 500))
    training = draw(st.integers(1, clients - 1))
    steps = draw(st.integers(1, 60))
    columns = [
        {
            "id": id_,
            "title": draw(titles),
            "group": draw(titles),
            "dataset": {"name": "digits", "size": draw(st.integers(8, 64))},
            "partition": {"name": "dirichlet", "alpha": draw(rates)},
            "model": draw(st.sampled_from(["cnn2", "cnn3"])),
            "rounds": draw(st.integers(1, 2000)),
            "batch": draw(st.integers(1, 100)),
            "finetune": {"lr": draw(rates), "decay": draw(rates), "ditto": {"lr": draw(rates)}},
            "weights": draw(st.sampled_from(["uniform", "examples"])),
            "arrival": draw(st.floats(0.01, 1)),
            "batches": draw(st.sampled_from(["static", "reshuffled"])),
            "augment": draw(st.sampled_from(["none", "crop-flip"])),
            "hyper": {"ditto": {"lam": draw(rates)}},
        }
        for id_ in draw(st.lists(ids, min_size=1, max_size=3, unique=True))
    ]
    rows = [{"id": "ditto", "title": draw(titles), "method": "ditto", "stage": "finetuned"}] + [
        {"id": id_, "title": draw(titles), "method": draw(st.sampled_from(["fedavg", "ifca"])), "stage": "global"}
        for id_ in draw(st.lists(ids.filter(lambda i: i != "ditto"), max_size=3, unique=True))
    ]
    return {
        "suite": {
            "name": draw(ids),
            "title": draw(titles),
            "paper": draw(titles),
            "protocol": "code",
            "seeds": draw(st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True)),
            "spread": {"kind": draw(st.sampled_from(["std", "sem"])), "ddof": draw(st.integers(0, 1))},
        },
        "federation": {
            "clients": clients,
            "training_clients": training,
            "cohort": draw(st.integers(1, training)),
            "query": draw(st.floats(0.01, 0.99) | st.sampled_from(["test-split", "partition"])),
        },
        "evaluation": {
            "clients": draw(st.sampled_from(["held-out", "training", "all"])),
            "average": draw(st.sampled_from(["batches", "examples"])),
            "first": draw(st.integers(1, 20)),
            "global_on": draw(st.sampled_from(["clients", "test-set"])),
            "moment": draw(st.sampled_from(["after-aggregation", "before-aggregation"])),
            "last": draw(st.integers(1, 20)),
            "features": draw(st.booleans()),
            "mean": draw(st.sampled_from(["clients", "examples"])),
            "finetune": {"steps": steps, "every": draw(st.integers(1, 9))},
            "report": {"steps": draw(st.lists(st.integers(0, steps), min_size=1, max_size=3))},
        },
        "column": columns,
        "row": rows,
        "hyper": {"ditto": {"steps": draw(st.integers(1, 9)), "lr": {"value": draw(rates), "source": "paper"}}},
        "reference": {rows[0]["id"]: {columns[0]["id"]: draw(st.lists(st.floats(0, 100), min_size=1, max_size=2))}},
    }
