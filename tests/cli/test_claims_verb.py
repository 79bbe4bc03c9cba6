"""`pflbench claims` and `pb.claims`."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pflbench as pb
from pflbench.running.machine import Gradient, keep_measurements, processor

Cli = Callable[..., Any]


def test_without_runs_nothing_is_decided(cli: Cli) -> None:
    found = cli("claims", "--format", "csv")
    frame = pd.read_csv(io.StringIO(found.out))
    assert set(frame.word) == {"not run", "not in the paper"}
    assert set(frame.paper) == {"cafeme", "fedec", "pfedvem", "pfllib"}
    assert list(pb.claims().to_frame().claim) == list(frame.claim)


def test_a_claim_by_its_id_shows_the_commands_of_its_runs(cli: Cli) -> None:
    found = cli("claims", "fedec-l2-femnist")
    assert "pflbench run --suite fedec-table2 --column femnist-150-3 -m fedec-l2 -m fedec-wo" in found.out
    assert "fedec-cifar-first" not in found.out


CLAIM = """
[[claim]]
id = "ditto-better"
text = "Ditto is ahead."
source = "nowhere"
suite = "tiny.toml"
columns = ["shards"]
row = "ditto"
against = ["fedavg-ft"]
test = "better"
least = 1.0
looks = [2]
"""


@pytest.mark.usefixtures("no_training")
def test_times_that_no_run_tells_are_measured_for_a_plan(cli: Cli, folder: Path) -> None:
    (folder / "mine.toml").write_text(CLAIM)
    command = ("claims", "mine.toml")
    before = cli(*command).out
    assert " 4 runs" in before and "core-hours" not in before
    keep_measurements(processor(), {"cnn2": Gradient(batch=30, seconds_per_client_step=30.0)})
    known = cli(*command, "--plan")
    assert known.code == 0 and re.search(r"4 runs, \d+\.\d core-hours", known.out) and known.err == ""


def test_an_unknown_claim_or_format_is_refused(cli: Cli) -> None:
    assert "fedec-cifar-first" in cli("claims", "fedec-cifar-frist").err
    assert "xml" in cli("claims", "--format", "xml").err
