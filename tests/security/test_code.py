"""Reading stored runs imports and calls nothing that only a run names; `rerun` only what the user names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attack_kit import Cli, Lab, result

from pflbench import names, trust
from pflbench.errors import UsageError
from pflbench.spec import MethodSpec, RunSpec
from pflbench.store import Store

READING = {
    "report": ("report", "-s", "tiny.toml", "--full"),
    "bare report": ("report",),
    "page": ("report", "-s", "tiny.toml", "--format", "html", "-o", "page.html"),
    "csv": ("report", "-s", "tiny.toml", "--format", "csv"),
    "fairness": ("report", "-s", "tiny.toml", "--fairness"),
    "explain": ("explain", "tiny.toml", "fedavg", "dirichlet", "--full"),
    "claims": ("claims", "claims.toml", "--full"),
    "status": ("status",),
    "list": ("ls", "runs"),
    "list of a suite": ("ls", "runs", "-s", "tiny.toml"),
    "scores": ("scores",),
    "compare": ("compare", "results", "results"),
    "plot": ("plot", "--curve", "-s", "tiny.toml", "-o", "plot.csv"),
    "cite": ("cite", "tiny.toml"),
    "plan": ("plan", "-s", "tiny.toml"),
    "merge": ("merge", "results", "--into", "merged"),
    "pack": ("pack",),
}


def attacks(lab: Lab, spec: RunSpec) -> dict[str, RunSpec]:
    """Runs that name code to import or to call."""
    evil = lab.evil(lab.folder / "elsewhere" / "evil.py")
    lab.evil(lab.folder / "evilpackage" / "__init__.py")
    (lab.folder / "evilpackage" / "inner.py").write_text("class Foo: ...\n")
    kept = lab.evil(lab.results / "models" / spec.id / "evil.py")
    version = names.code(f"{evil}:net").version

    def method(name: str, **hyper: Any) -> MethodSpec:
        return MethodSpec(name=name, version="1", hyper=hyper)

    return {
        "a function of pandas": spec.model_copy(
            update={"method": method("pandas:read_pickle", filepath_or_buffer=str(lab.bomb()))}
        ),
        "a file": spec.model_copy(update={"method": method(f"{evil}:Foo")}),
        "a file kept beside models": spec.model_copy(update={"method": method(f"{kept}:Foo")}),
        "a package here": spec.model_copy(update={"method": method("evilpackage.inner:Foo")}),
        "a network": spec.model_copy(update={"model": f"{evil}:net", "model_version": version}),
        "a network without a version": spec.model_copy(update={"model": f"{evil}:net"}),
        "a dataset": spec.model_copy(
            update={"dataset": spec.dataset.model_copy(update={"name": f"{evil}:Foo", "version": version})}
        ),
    }


NAMES = (
    "a function of pandas",
    "a file",
    "a file kept beside models",
    "a package here",
    "a network",
    "a network without a version",
    "a dataset",
)


@pytest.mark.parametrize("verb", READING)
def test_no_reading_verb_runs_code_that_a_run_names(lab: Lab, cli: Cli, verb: str) -> None:
    lab.store(lab.honest())
    for hostile in attacks(lab, lab.spec).values():
        lab.store(result(hostile))
    assert cli(*READING[verb]).code == 0
    assert not lab.mark.exists()


@pytest.mark.parametrize("attack", NAMES)
def test_neither_explain_nor_show_runs_code_that_a_run_names(lab: Lab, cli: Cli, attack: str) -> None:
    lab.store(lab.honest())
    hostile = attacks(lab, lab.spec)[attack]
    id = lab.store(result(hostile))
    name = hostile.method.name
    for row in dict.fromkeys((name, name.rpartition(":")[2])):
        cli("explain", "tiny.toml", row, "dirichlet", "--full")
        assert not lab.mark.exists()
    assert cli("show", id).code == 0 and not lab.mark.exists()


@pytest.mark.parametrize("attack", NAMES)
def test_rerun_imports_nothing_unless_its_folder_is_named(lab: Lab, cli: Cli, attack: str) -> None:
    id = lab.store(result(attacks(lab, lab.spec)[attack]))
    said = cli("rerun", id, "-q")
    assert said.code == 2 and len(said.err.splitlines()) == 1 and id in said.err
    assert cli("rerun", id, "-q", "--code", str(lab.folder / "results")).code == 2
    assert not lab.mark.exists()


def test_rerun_takes_no_path_out_of_the_folder_it_is_given(lab: Lab, cli: Cli) -> None:
    evil = lab.evil(lab.folder / "elsewhere" / "evil.py")
    (lab.folder / "code").mkdir()
    version = names.code(f"{evil}:net").version
    for where in (evil, "../elsewhere/evil.py"):
        spec = lab.spec.model_copy(update={"model": f"{where}:net", "model_version": version})
        id = lab.store(result(spec))
        said = cli("rerun", id, "-q", "--code", "code")
        assert said.code == 2 and "it may name a file without its folder only" in said.err and not lab.mark.exists()
    data = lab.spec.dataset.model_copy(update={"name": "arrays", "options": {"file": "../elsewhere/x.npz"}})
    id = lab.store(result(lab.spec.model_copy(update={"dataset": data})))
    said = cli("rerun", id, "-q", "--code", "code")
    assert said.code == 2 and "it may name a file without its folder only" in said.err


def test_rerun_takes_the_runs_version_alone(lab: Lab, cli: Cli) -> None:
    evil = lab.evil(lab.folder / "code" / "evil.py")
    version = names.code(f"{evil}:net").version
    for wrong in ("0" * 12, None):
        id = lab.store(result(lab.spec.model_copy(update={"model": "evil.py:net", "model_version": wrong})))
        said = cli("rerun", id, "-q", "--code", "code")
        assert said.code == 2 and "is another version than that of run" in said.err and not lab.mark.exists()
    id = lab.store(result(lab.spec.model_copy(update={"model": "evil.py:net", "model_version": version})))
    assert "evil.py" in cli("rerun", id, "-q").err and not lab.mark.exists()
    said = cli("rerun", id, "-q", "--code", "code")
    assert said.code == 1 and "another result" in said.out and lab.mark.exists()  # named by the user, so it ran


def test_rerun_refuses_another_version_of_a_built_in_method(lab: Lab, cli: Cli) -> None:
    old = lab.spec.method.model_copy(update={"version": "0"})
    said = cli("rerun", lab.store(result(lab.spec.model_copy(update={"method": old}))), "-q")
    assert said.code == 2 and "was made with version 0 of 'fedavg'; here it is version 1" in said.err


def test_a_suites_code_is_imported_to_train_it_and_not_to_read_it(lab: Lab, cli: Cli) -> None:
    lab.evil(lab.folder / "evil.py")  # its field's default is computed: the source alone does not tell it
    text = (lab.folder / "tiny.toml").read_text().replace('"fedavg"\nstages', '"evil.py:Foo"\nstages')
    (lab.folder / "own.toml").write_text(text.replace('"tiny"', '"own"'))
    for verb in (("report", "-s", "own.toml"), ("status", "-s", "own.toml"), ("ls", "runs", "-s", "own.toml")):
        assert cli(*verb).code in (0, 2) and not lab.mark.exists()
    assert cli("run", "-s", "own.toml", "--unchecked").code == 0 and lab.mark.exists()
    lab.mark.rmdir()
    trust.revoke_all()
    for verb in (("report", "-s", "own.toml", "--full"), ("explain", "own.toml", "fedavg", "dirichlet", "--full")):
        said = cli(*verb)
        assert said.code == 0 and "fedavg" in said.out.lower() and not lab.mark.exists()
    for name in ("page", "csv", "fairness", "list of a suite", "scores", "compare", "cite"):
        said = cli(*(one.replace("tiny.toml", "own.toml") for one in READING[name]))
        assert said.code == 0 and not lab.mark.exists(), (name, said.err)


@pytest.mark.parametrize(
    ("kind", "reference", "why"),
    [
        ("methods", "pandas:read_pickle", "is no method: it is a function, not a class"),
        ("methods", "evil.py:Other", "is not a pflbench method"),
        ("datasets", "evil.py:Other", "is no dataset: its class has no shape, classes, load, status"),
        ("partitions", "evil.py:Other", "write @dataclass"),
        ("partitions", "collections.abc:Callable", "is a module of Python itself"),
    ],
)
def test_a_class_is_checked_before_it_is_called(lab: Lab, kind: Any, reference: str, why: str) -> None:
    options = {"filepath_or_buffer": str(lab.bomb())}
    (lab.folder / "evil.py").write_text(
        "import pickle\n\n\nclass Other:\n    def __init__(self, filepath_or_buffer):\n"
        "        pickle.load(open(filepath_or_buffer, 'rb'))\n\n    def __call__(self): ...\n"
    )
    with pytest.raises(trust.Untrusted if "Python itself" not in why else UsageError):
        names.make(kind, reference, options)
    trust.grant(reference)
    with pytest.raises(UsageError, match=why):
        names.make(kind, reference, options)
    assert not lab.mark.exists()


def test_kept_models_import_nothing_unless_their_folder_is_named(lab: Lab) -> None:
    from safetensors.torch import save_file

    import pflbench as pb
    from pflbench.store import models

    evil = lab.evil(lab.folder / "code" / "evil.py")
    version = names.code(f"{evil}:net").version
    spec = lab.spec.model_copy(update={"model": "evil.py:net", "model_version": version})
    id = lab.store(result(spec), packed=False)
    path = models.path_of(lab.results, id)
    path.parent.mkdir(parents=True)
    save_file({}, path, {"run": id, "models": "{}", "provenance": "{}"})
    trust.revoke_all()
    with pytest.raises(UsageError, match="--code DIR"):
        _ = pb.load_models(id, lab.results).network
    assert not lab.mark.exists()
    assert pb.load_models(id, lab.results, code=Path("code")).network.shape == (1, 28, 28) and lab.mark.exists()
    assert Store(lab.results).status(id) == "done"
