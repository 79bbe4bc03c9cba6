"""A report on a half-finished store says which runs are missing, and how to compute them."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pflbench.commands import command, public_folder
from pflbench.report.compact import compact
from pflbench.report.layout import lay_out
from pflbench.report.render import render
from pflbench.store import CorruptFile, ShownStore, Store

if TYPE_CHECKING:
    from conftest import Build


def test_nothing_is_said_of_a_table_with_all_its_runs(build: Build, store: Store) -> None:
    build.fill(store)
    assert lay_out(build.table(), store).missing == ""


def test_missing_failed_and_damaged_runs_are_named_exactly(build: Build, store: Store) -> None:
    build.fill(store)
    table = build.table()
    first, *_, last = table.cells
    gone, broken, bad = first.runs[0], first.runs[1], last.runs[2]
    store.path(gone.id).unlink()
    store.path(broken.id).write_bytes(b"PAR1 damaged")
    store.path(bad.id).unlink()
    store.write(build.failed(bad))
    before = {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}
    with pytest.warns(CorruptFile):
        found = lay_out(table, ShownStore(store.root))
    said = found.missing
    assert said.startswith(
        "Missing: FedAvg, FedAvg-FT: Digits Dir 0.3 (seeds 0, 1). "
        "Missing, as they failed: FedAvg, FedAvg-FT: Digits Dir 5 (seed 2). `pflbench run"
    )
    (typed,) = re.findall("`(.*)`", said)
    assert shlex.split(typed)[:2] == ["pflbench", "run"] and typed.endswith(f"--results {store.root}")
    assert "--redo failed" in typed
    assert said in compact(found).footer and f"`{found.fills}` computes them." in said
    for form in ("terminal", "markdown", "latex"):
        shown = " ".join(render(found, form).split())
        assert "Missing: " in shown and "Missing, as they failed: " in shown and str(store.root) not in shown
    assert before == {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}


def test_a_column_without_any_run_has_no_seeds_beside_it(build: Build, store: Store) -> None:
    table = build.table()
    assert lay_out(table, store).missing.startswith("No runs yet: `pflbench run")
    build.fill(store, seeds=1)
    assert "(seeds 1, 2)" in lay_out(replace(table), store).missing


@pytest.mark.parametrize("folder", ["results", "mine", "a folder", "/tmp/x y"])
def test_a_command_names_the_folder_that_was_asked_for(folder: str) -> None:
    typed = shlex.split(command("run", " --suite a", Path(folder)))
    assert typed[:4] == ["pflbench", "run", "--suite", "a"]
    assert typed[4:] == ([] if folder == "results" else ["--results", folder])


def test_texts_that_others_read_name_no_folder_of_ones_own() -> None:
    assert public_folder(Path("/home/me/results")) == public_folder(Path("~/x")) == Path("results")
    assert public_folder(Path("mine")) == Path("mine")
