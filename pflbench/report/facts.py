"""Facts: everything to be said of a cell, a table or a figure, each once. All formats choose from these records."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = (
    Literal[
        "mixed", "failed", "shortfall", "protocol", "departures", "scores", "seeds", "rounds", "sources", "progress"
    ]
    | Literal["runs", "data", "note", "missing", "left out", "verdict", "spread"]
)
"""Subject of a fact."""


class Fact(NamedTuple):
    """One thing to be said of a cell, a table or a figure.

    `severity`: a "warning" stands in every format; in `explain`, what is "decisive" stands under "In short".
    """

    kind: Kind
    text: str
    severity: Literal["note", "warning", "decisive"] = "note"


def facts(kind: Kind, *texts: str, severity: Literal["note", "warning", "decisive"] = "note") -> list[Fact]:
    """A fact for each of these texts that is not empty."""
    return [Fact(kind, text, severity) for text in texts if text]
