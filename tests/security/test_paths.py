"""No text of a stored run becomes a path outside of its folder, and `merge` copies models alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from attack_kit import Cli, Lab
from safetensors.torch import save_file

from pflbench import load_models
from pflbench.errors import StoreError, UsageError
from pflbench.store import models


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
    path = models.path_of(lab.results, id)
    path.parent.mkdir(parents=True)
    save_file({}, path, {"run": id, "models": "{}", "provenance": "{}"})
    return path


def test_merge_copies_models_of_stored_runs_and_nothing_else(lab: Lab, cli: Cli) -> None:
    id = lab.store(lab.honest())
    path = kept(lab, id)
    lab.evil(path.with_name("evil.py"))
    path.with_name("0123456789abcdef.safetensors").write_bytes(path.read_bytes())
    assert cli("merge", "results", "--into", "merged").code == 0
    assert [one.name for one in (lab.folder / "merged" / "models").iterdir()] == [path.name]


@pytest.mark.parametrize("kind", ["folder", "pipe", "text", "models of another run"])
def test_what_are_no_models_is_not_copied(lab: Lab, cli: Cli, kind: str) -> None:
    path = kept(lab, lab.store(lab.honest()))
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "text":
        path.write_text("years of work")
    else:
        save_file({}, path, {"run": "0" * 16, "models": "{}", "provenance": "{}"})
    said = cli("merge", "results", "--into", "merged")
    assert said.code == 0 and "It is not merged." in said.err and not (lab.folder / "merged" / "models").exists()


def test_merge_and_rm_follow_no_link_in_the_place_of_models(lab: Lab, cli: Cli) -> None:
    folder = elsewhere(lab)
    id = lab.store(lab.honest())
    (lab.results / "models").mkdir()
    models.path_of(lab.results, id).symlink_to(folder / "thesis.tex")
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
    with pytest.raises(UsageError, match="where a link is not followed"):
        load_models(id, lab.results)
    with pytest.raises(StoreError, match="is a link"):
        models.write(lab.results, id, {}, {}, {})
    said = cli("rm", id, "--yes")
    assert said.code == 0 and "models' is a link" in said.err and "the models behind it stay" in said.err
    assert (theirs / f"{id}.safetensors").is_file()
