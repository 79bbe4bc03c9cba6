"""`pflbench claims` and `pb.claims`."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pandas as pd

import pflbench as pb

Cli = Callable[..., Any]


def test_without_runs_nothing_is_decided(cli: Cli) -> None:
    found = cli("claims", "--format", "csv")
    frame = pd.read_csv(io.StringIO(found.out))
    assert set(frame.word) == {"not run", "contradicted by the paper's own numbers"}
    assert set(frame.paper) == {"cafeme", "fedec", "pfedvem", "pfllib"}
    assert list(pb.claims().to_frame().claim) == list(frame.claim)


def test_a_claim_by_its_id_shows_the_commands_of_its_runs(cli: Cli) -> None:
    found = cli("claims", "fedec-l2-femnist")
    assert "pflbench run --suite fedec-table2 --column femnist-150-3 -m fedec-l2 -m fedec-wo" in found.out
    assert "fedec-cifar-first" not in found.out


def test_an_unknown_claim_or_format_is_refused(cli: Cli) -> None:
    assert "fedec-cifar-first" in cli("claims", "fedec-cifar-frist").err
    assert "xml" in cli("claims", "--format", "xml").err
