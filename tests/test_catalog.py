from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path

import pytest

from pflbench import names, package, trust
from pflbench.catalog import REQUIRED, FieldInfo, Info, coerce, complete, describe, describe_options, parse
from pflbench.errors import UsageError
from pflbench.methods.base import Round

SOURCE = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Optional

from pflbench.methods.base import Method, hyper


@dataclass(frozen=True)
class Fed(Method):
    """Fed, in one line.

    And more.
    """

    steps: int
    lr: float = hyper(1e-2, "Learning rate.", above=0)
    order: Literal["hf", "exact"] | None = "hf"
    nesterov: bool = False
    depth: Optional[int] = -1
    tag: str = "x"
'''
INFO = Info(
    "fed",
    "",
    {
        "lr": FieldInfo("float", 0.1),
        "steps": FieldInfo("int", 5),
        "flag": FieldInfo("bool", True),
        "order": FieldInfo("Literal['hf', 'exact'] | None", "hf", ("hf", "exact")),
        "tag": FieldInfo("str", ""),
        "sizes": FieldInfo("tuple[int, ...]", (1,)),
    },
    "",
)


def test_a_users_class_is_imported_if_it_was_granted(tmp_path: Path) -> None:
    path = tmp_path / "fed.py"
    path.write_text(SOURCE)
    with pytest.raises(trust.Untrusted):
        describe(f"{path}:Fed")
    trust.grant(f"{path}:Fed")
    info = describe(f"{path}:Fed")
    assert (info.name, info.doc, info.version) == ("fed.py:Fed", "Fed, in one line.", names.code(f"{path}:Fed").version)
    assert info.reference == f"{path}:Fed"
    assert list(info.fields) == ["steps", "lr", "order", "nesterov", "depth", "tag"]
    assert info.fields["lr"] == FieldInfo("float", 0.01, None, "Learning rate.", "greater than 0")
    assert info.fields["steps"].default is REQUIRED
    assert info.fields["order"].choices == ("hf", "exact")
    assert info.fields["depth"].default == -1


@pytest.mark.parametrize(("name", "reference"), names.BUILT_IN["methods"].items())
def test_built_in_methods(name: str, reference: str) -> None:
    info = describe(name)
    assert (info.name, info.reference) == (name, reference)
    assert info.version.isdecimal() and info.doc
    assert all(field.doc and field.default is not REQUIRED for field in info.fields.values())
    assert describe(reference).name == reference


@pytest.mark.parametrize("kind", ["datasets", "partitions"])
def test_built_in_datasets_and_partitions(kind: names.Kind) -> None:
    for name in names.BUILT_IN[kind]:
        assert describe_options(kind, name).doc  # type: ignore[arg-type]


def test_the_catalog_is_that_of_the_classes() -> None:
    """Else run `python tools/docs/catalog.py`."""
    made = run_path(str(Path(__file__).parents[1] / "tools/docs/catalog.py"))["catalog"]()
    assert json.loads(json.dumps(made, default=str)) == names.shipped()


def test_a_variant_comes_with_pflbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paper/variants").mkdir(parents=True)
    text = SOURCE.replace("    steps: int\n", "    version: ClassVar[int] = 3\n")
    (tmp_path / "paper/variants/fed.py").write_text(text)
    (tmp_path / "paper/fed.py").write_text(text)
    monkeypatch.setattr(names, "benchmarks", lambda: tmp_path)
    names.variant_files.cache_clear()
    try:
        name = names.anchored("variants/fed.py:Fed", tmp_path / "paper")
        assert name == names.anchored("fed.py:Fed", tmp_path / "paper/variants") == "paper/variants/fed.py:Fed"
        info = describe(name)  # needs no grant
        assert (info.name, info.version, names.is_users(info.reference)) == (name, "3", False)
        assert not names.is_reference(name) and names.load(name).__name__ == "Fed"
        users = names.anchored("fed.py:Fed", tmp_path / "paper")
        assert names.is_reference(users) and names.is_users(users)
    finally:
        names.variant_files.cache_clear()


def test_below_a_link_pflbench_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(package.FOLDER, target_is_directory=True)
    assert run_path(str(tmp_path / "link" / "package.py"))["FOLDER"] == package.FOLDER.resolve()


def test_a_subclass_is_imported_for_what_it_inherits(tmp_path: Path) -> None:
    path = tmp_path / "sub.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass, field\n"
        "@dataclass(frozen=True)\nclass Base:\n    lr: float = 0.5\n"
        "@dataclass(frozen=True)\nclass Sub(Base):\n    '''Sub.'''\n    steps: int = 2 + 2\n"
        "    need: int = field(kw_only=True)\n"
    )
    with pytest.raises(trust.Untrusted):
        describe(f"{path}:Sub")
    trust.grant(f"{path}:Sub")
    info = describe(f"{path}:Sub")
    assert {k: f.default for k, f in info.fields.items()} == {"lr": 0.5, "steps": 4, "need": REQUIRED}
    assert (info.fields["lr"].type, info.doc) == ("float", "Sub.")


HERE = (
    "from dataclasses import dataclass\n@dataclass\nclass Base:\n    version = 4\n@dataclass\nclass Old(Base): ...\n"
    "@dataclass\nclass New: ...\nclass Plain: ...\n"
)


def test_a_module_is_versioned_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fedlab_here.py").write_text(HERE)
    (tmp_path / "fedlab_again.py").write_text("from fedlab_here import Old\n")
    monkeypatch.syspath_prepend(tmp_path)
    for reference in ("fedlab_again:Old", "fedlab_here:Old", "fedlab_here:Plain"):
        trust.grant(reference)
    first = describe("fedlab_again:Old")
    assert (first.name, first.version) == ("fedlab_again:Old", names.code("fedlab_again:Old").version)
    assert describe("fedlab_here:Old").version == names.code("fedlab_here:Old").version
    (tmp_path / "fedlab_here.py").write_text(HERE.replace("4", "5"))
    assert describe("fedlab_again:Old").version != first.version
    assert names.load("fedlab_again:Old").version == 5
    with pytest.raises(UsageError, match="is not a dataclass"):
        describe("fedlab_here:Plain")


def test_an_entry_point_is_versioned_by_its_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fedlab_here.py").write_text(HERE)
    monkeypatch.syspath_prepend(tmp_path)
    entries = {"old": "fedlab_here:Old", "new": "fedlab_here:New"}
    monkeypatch.setattr(names, "_entry_points", lambda: dict.fromkeys(names.BUILT_IN, entries))
    monkeypatch.setattr(names, "known", lambda kind: entries)
    assert describe("old").version == "4"
    with pytest.raises(UsageError, match="declares no version"):
        describe("new")


def test_missing_things_have_near_matches(tmp_path: Path) -> None:
    path = tmp_path / "fed.py"
    path.write_text(SOURCE)
    for name in ("Fed", "Fedd"):
        trust.grant(f"{path}:{name}")
    with pytest.raises(UsageError, match=r"'Fedd'. Did you mean 'Fed'"):
        describe(f"{path}:Fedd")
    with pytest.raises(UsageError, match=r"Unknown method 'fedavgg'. Did you mean 'fedavg'"):
        describe("fedavgg")
    trust.grant(f"{tmp_path}/nowhere.py:Fed")
    with pytest.raises(UsageError, match="There is no file"):
        describe(f"{tmp_path}/nowhere.py:Fed")
    path.write_text("class Fed(\n")
    with pytest.raises(UsageError, match=r"fed\.py, line 1"):
        describe(f"{path}:Fed")


@pytest.mark.parametrize(
    ("key", "value", "result"),
    [
        ("lr", 1, 1.0),
        ("lr", 0.5, 0.5),
        ("steps", 3, 3),
        ("flag", False, False),
        ("order", "exact", "exact"),
        ("order", "none", None),
        ("tag", "none", "none"),
        ("tag", "3", "3"),
    ],
)
def test_coerce(key: str, value: object, result: object) -> None:
    found = coerce(INFO, key, value)
    assert found == result and type(found) is type(result)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lr", "0.1"),
        ("lr", "none"),
        ("lr", True),
        ("lr", float("nan")),
        ("lr", 10**400),
        ("steps", 1.0),
        ("steps", True),
        ("flag", 1),
        ("order", "h"),
        ("tag", 3),
        ("sizes", 3),
        ("step", 3),
    ],
)
def test_coerce_refuses(key: str, value: object) -> None:
    with pytest.raises(UsageError, match=key):
        coerce(INFO, key, value)


@pytest.mark.parametrize(
    ("key", "text", "result"),
    [
        ("lr", "0.1", 0.1),
        ("lr", "1", 1.0),
        ("lr", "1e-3", 1e-3),
        ("steps", "3", 3),
        ("flag", "true", True),
        ("flag", "false", False),
        ("order", "exact", "exact"),
        ("order", "none", None),
        ("tag", "0.1", "0.1"),
    ],
)
def test_parse(key: str, text: str, result: object) -> None:
    found = parse(INFO, key, text)
    assert found == result and type(found) is type(result)


@pytest.mark.parametrize(
    ("key", "text"), [("lr", "x"), ("lr", "nan"), ("lr", "1e999"), ("steps", "1.5"), ("flag", "1"), ("order", "hff")]
)
def test_parse_refuses(key: str, text: str) -> None:
    with pytest.raises(UsageError, match=key):
        parse(INFO, key, text)


def test_complete_fills_in_defaults_and_asks_for_the_rest() -> None:
    info = Info("fed", "", {"lr": FieldInfo("float", 0.1), "steps": FieldInfo("int")}, "")
    assert complete(info, {"steps": 2}) == {"lr": 0.1, "steps": 2}
    with pytest.raises(UsageError, match="fed needs a value for steps"):
        complete(info, {})


def test_which_methods_draw_minibatches_is_read_as_they_draw_them() -> None:
    for name, reference in names.BUILT_IN["methods"].items():
        method = names.load(reference)()
        drawn = [d for d in (*method.draws(Round(0, coin=1.0)), *method.personal_draws()) if not d.whole]
        assert describe(name).minibatches == bool(drawn), name
    assert not describe("pfedbayes").minibatches
