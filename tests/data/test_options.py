"""Options of datasets and partitions: values outside their range are refused, by name, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pflbench import names
from pflbench.catalog import coerce, describe_options
from pflbench.errors import UsageError

RANGES: list[tuple[names.Kind, str, dict[str, Any]]] = [
    ("partitions", "shards", {"shards": 0}),
    ("partitions", "dirichlet", {"alpha": 0.0}),
    ("partitions", "dirichlet", {"alpha": float("nan")}),
    ("partitions", "dirichlet", {"minimum": 0}),
    ("partitions", "natural", {"minimum": 0}),
    ("partitions", "random-slicing", {"rows": 0}),
    ("partitions", "class-shards", {"classes_per_client": 0}),
    ("partitions", "letter-users", {"users": 0}),
    ("partitions", "letter-users", {"scale": 0.0}),
    ("partitions", "letter-users", {"scale": 1.5}),
    ("partitions", "dirichlet-equal", {"alpha": 0.0}),
    ("partitions", "quantity-skew", {"beta": 0.0}),
    ("partitions", "quantity-skew", {"minimum": 0}),
    ("partitions", "classes-per-client", {"classes": 0}),
    ("partitions", "pfllib", {"alpha": 0.0}),
    ("partitions", "pfllib", {"train_ratio": 1.0}),
    ("partitions", "pfllib", {"first": 0}),
    ("datasets", "digits", {"channels": 0}),
    ("datasets", "digits", {"size": 0}),
    ("datasets", "digits", {"test": 1797}),
    ("datasets", "digits", {"sources": 0}),
    ("datasets", "digits", {"writers": 1798}),
    ("datasets", "rotated-digits", {"rotations": 0}),
    ("datasets", "digit-tasks", {"images": 1741}),
    ("datasets", "meta-dataset", {"tasks": 0}),
    ("datasets", "meta-dataset", {"ways": 1}),
    ("datasets", "meta-dataset", {"ways": 48}),
    ("datasets", "meta-dataset", {"images": 9}),
    ("datasets", "meta-dataset", {"sources": "birds,birds"}),
    ("datasets", "meta-dataset", {"swapped": "fc100"}),
    ("datasets", "digit-five", {"sources": "mnits"}),
    ("datasets", "arrays", {"file": Path("a.npz"), "size": 0}),
    ("datasets", "arrays", {"file": Path("a.npz"), "known_classes": 1}),
    ("datasets", "arrays", {"file": Path("a.npz"), "mean": 0.5}),
    ("datasets", "arrays", {"file": Path("a.npz"), "mean": 0.5, "std": "0.5,0"}),
    ("datasets", "arrays", {"file": Path("a.npz"), "mean": "half", "std": 0.5}),
    ("datasets", "image-folder", {"root": Path("a"), "normalize": "data", "mean": 0.5, "std": 0.5}),
]


@pytest.mark.parametrize(("kind", "name", "options"), RANGES, ids=str)
def test_a_value_outside_its_range_is_refused(kind: names.Kind, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{list(options)[-1]}|source|mean|std|half"):
        names.make(kind, names.locate(kind, name), options)


def test_digits_have_one_kind_of_kinds() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        names.make("datasets", names.locate("datasets", "digits"), {"coarse": True, "sources": 2})


@pytest.mark.parametrize("kind", ["datasets", "partitions"])
def test_every_option_has_help_or_is_a_path_and_choices_are_checked(kind: names.Kind) -> None:
    for name in names.BUILT_IN[kind]:
        info = describe_options(kind, name)
        for key, field in info.fields.items():
            assert field.doc, (name, key)
            if field.choices:
                with pytest.raises(UsageError):
                    coerce(info, key, "no such choice")
