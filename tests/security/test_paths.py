"""No text of a stored run becomes a path outside of its folder, and `merge` copies models alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from attack_kit import Cli, Lab, result

from pflbench import load_models
from pflbench.errors import StoreError, UsageError
from pflbench.store import Store, models


def elsewhere(lab: Lab) -> Path:
    """A folder of the user's that no command may touch."""
    folder = lab.folder / "elsewhere"
    (folder / "inner").mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    return folder


def test_a_line_with_another_id_is_left_out_and_named(lab: Lab, cli: Cli) -> None:
    id = lab.store(lab.honest(), packed=False)
    lines = [{"suite": "other", "profile": "paper", "runs": [one]} for one in (id, "../..", 5)]
    texts = [*map(json.dumps, lines), "[" * 100_000, '{"suite": "\\ud800", "profile": "p", "runs": []}']
    (lab.results / "runs" / "asked.jsonl").write_text("\n".join(texts))
    said = cli("report", "-s", "tiny.toml")
    assert said.code == 0
    for number in (2, 3, 4, 5):
        assert f"Line {number} of 'results/runs/asked.jsonl' cannot be read; remove it." in said.err


def kept(lab: Lab, id: str) -> Path:
    folder = models.models_folder(lab.results, id)
    folder.mkdir(parents=True)
    (folder / "global.safetensors").write_bytes(b"a model")
    (folder / models.INDEX).write_text(json.dumps({"run": id, "files": {"global": {"-1": "global.safetensors"}}}))
    return folder


def test_merge_copies_models_and_nothing_else(lab: Lab, cli: Cli) -> None:
    folder = elsewhere(lab)
    id = lab.store(lab.honest())
    mine = kept(lab, id)
    lab.evil(mine / "evil.py")
    (mine / "more.safetensors").symlink_to(folder / "thesis.tex")
    (mine / "sub.safetensors").mkdir()
    os.mkfifo(mine / "pipe.safetensors")
    assert cli("merge", "results", "--into", "merged").code == 0
    there = lab.folder / "merged" / "models" / id
    assert sorted(path.name for path in there.iterdir()) == ["global.safetensors", models.INDEX]


def test_merge_copies_no_file_that_a_link_leads_to(lab: Lab, cli: Cli) -> None:
    id, single = lab.store(lab.honest()), lab.store(result(lab.spec.model_copy(update={"seed": 1})), packed=False)
    src = lab.folder / "src"
    for mine in lab.results.rglob("*.parquet"):
        there = src / mine.relative_to(lab.results)
        there.parent.mkdir(parents=True)
        there.symlink_to(mine)
    said = cli("merge", "src", "--into", "merged")
    assert said.code == 1 and said.err.count("it is a link, which is not followed") == 2
    merged = Store(lab.folder / "merged")
    assert merged.status(id) == merged.status(single) == "missing"
    assert cli("merge", "results", "--into", "merged").code == 0 and merged.status(single) == "done"


def test_merge_and_rm_follow_no_link_in_the_place_of_models(lab: Lab, cli: Cli) -> None:
    folder = elsewhere(lab)
    (folder / models.INDEX).write_text("{}")
    id = lab.store(lab.honest())
    (lab.results / "models").mkdir()
    (lab.results / "models" / id).symlink_to(folder)
    assert cli("merge", "results", "--into", "merged").code == 0
    assert not (lab.folder / "merged" / "models").exists()
    assert cli("rm", id, "--yes").code == 0 and (folder / "thesis.tex").exists()


def test_no_verb_follows_a_link_in_the_place_of_all_models(lab: Lab, cli: Cli) -> None:
    id = lab.store(lab.honest())
    kept(lab, id)
    theirs = lab.folder / "theirs"
    (lab.results / "models").rename(theirs)
    (lab.results / "models").symlink_to(theirs)
    assert cli("merge", "results", "--into", "merged").code == 0
    assert not (lab.folder / "merged" / "models").exists()
    with pytest.raises(UsageError, match="models' is a link, which is not followed"):
        load_models(id, lab.results)
    with pytest.raises(OSError, match="is a link"):
        models.begin(lab.results, id)
    said = cli("rm", id, "--yes")
    assert said.code == 0 and "models' is a link" in said.err and "the models behind it stay" in said.err
    assert (theirs / id / "global.safetensors").read_bytes() == b"a model"


@pytest.mark.parametrize("name", ["../../../elsewhere/thesis.tex", "..", "evil.py", "link.safetensors", 5])
def test_an_index_of_models_names_files_beside_it_alone(lab: Lab, name: object) -> None:
    folder = elsewhere(lab)
    id = lab.store(lab.honest())
    mine = kept(lab, id)
    (mine / "link.safetensors").symlink_to(folder / "thesis.tex")
    (mine / models.INDEX).write_text(json.dumps({"run": id, "files": {"global": {"-1": name}}}))
    with pytest.raises(StoreError, match="is damaged"):
        models.read(mine, id)


@pytest.mark.parametrize("text", ["[" * 100_000, "5", '{"run": "\\ud800", "files": {}}'])
def test_an_odd_index_of_models_is_named(lab: Lab, text: str) -> None:
    id = lab.store(lab.honest())
    mine = kept(lab, id)
    (mine / models.INDEX).write_text(text)
    with pytest.raises(StoreError, match=r"models\.json' is damaged"):
        models.read(mine, id)
