"""Judged claims as text: a list for the terminal or Markdown, CSV, and all the evidence of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pflbench.commands import DEFAULT_RESULTS, command
from pflbench.report.claims import CONTRADICTED, Judged, Missing, Side, title
from pflbench.report.decide import ERROR
from pflbench.report.screen import Screen, listed
from pflbench.report.statistics import mean_interval
from pflbench.report.text import NONE, in_csv, in_markdown, in_pipes, number, ranges
from pflbench.suite.claim import Claim
from pflbench.units import count

Format = Literal["terminal", "markdown", "csv"]
FORMATS: tuple[Format, ...] = ("terminal", "markdown", "csv")
COLUMNS = (
    *("paper", "claim", "source", "suite", "profile", "word", "seeds", "contradicted", "missing_runs"),
    *("core_hours", "equal_suite", "equal_word", "text"),
)
DIFFER = "Rests on cells that differ from the paper's"
SIGNS = {
    "holds": "✓",
    "holds, smaller than printed": "✓",
    "does not hold": "✗",
    "undecided": "?",
    "not run": "·",
    CONTRADICTED: "–",
}
"""Sign of each word on a claim, in the order in which words are listed."""
_HEAD = ("Claim", "Paper's protocol", "Equal terms", "Missing")


def text(papers: Mapping[str, Sequence[Judged]], format: Format = "terminal", *, full: bool = False) -> str:
    """The claims of each paper as text that ends with a newline.

    Args:
        papers: Judged claims by the paper's name.
        format: `csv` has a line for each claim, with `COLUMNS`.
        full: Add the comparisons of each claim with their differences, and the commands for missing runs.
    """
    if format == "csv":
        lines = [COLUMNS, *(fields(paper, one) for paper, judged in papers.items() for one in judged)]
        return "\n".join(map(in_csv, lines)) + "\n"
    marked = format == "markdown"
    parts = []
    for paper, judged in papers.items():
        head = f"{paper}: {summary(judged)}"
        parts.append(f"## {in_markdown(head)}" if marked else head)
        parts += [_evidence(one, marked) for one in judged] if full else [_list(judged, marked)]
    return "\n\n".join(parts) + "\n"


def summary(judged: Iterable[Judged]) -> str:
    """`9 claims: 2 hold, 5 undecided, 2 not run`."""
    words = Counter(one.word for one in judged)
    found = ", ".join(f"{words[word]} {_counted(word, words[word])}" for word in SIGNS if words[word])
    return f"{count(words.total(), 'claim')}: {found}"


def _counted(word: str, number: int) -> str:
    """The word on a claim behind a number."""
    word = word.replace(", smaller", " but smaller")
    return word if number == 1 else word.replace("holds", "hold").replace("does", "do")


def claims_line(papers: Mapping[str, Sequence[Judged]], results: Path = DEFAULT_RESULTS) -> str:
    """`Claims: 3 hold, 1 does not, 14 undecided: pflbench claims`."""
    words = Counter(one.word.split(",")[0] for judged in papers.values() for one in judged)
    holds, not_ = words["holds"], words["does not hold"]
    said = [f"{holds} {'holds' if holds == 1 else 'hold'}"] if holds else []
    said += [f"{not_} {'does' if not_ == 1 else 'do'} not{'' if holds else ' hold'}"] if not_ else []
    said += [f"{words[word]} {word}" for word in ("undecided", "not run") if words[word]]
    return f"Claims: {', '.join(said)}: {command('claims', results=results)}"


def _list(judged: Sequence[Judged], marked: bool) -> str:
    lines = [
        (
            f"{one.claim.text} ({one.claim.source})" if marked else one.claim.id,
            word_of(one.paper, one.word),
            word_of(one.equal) if one.equal else NONE,
            needs(one.paper) if not one.contrary else NONE,
        )
        for one in judged
    ]
    if not marked:
        screen = Screen()
        screen.show(listed(_HEAD, lines, _HEAD, _HEAD[:1]))
        return screen.text.rstrip("\n")
    from tabulate import tabulate

    return tabulate([tuple(map(in_pipes, line)) for line in lines], headers=_HEAD, tablefmt="pipe")


def word_of(side: Side, word: str = "") -> str:
    """`holds (3 seeds)`; a reduced profile by its name, since it decides nothing about the paper.

    `word`: the claim's word, if that may be another than the side's.
    """
    if word == CONTRADICTED:
        return word
    word = side.word + side.doubt
    if side.decision.seeds:
        word += f" ({side.decision.seeds} seeds)"
    return word if side.profile == "paper" else f"{word} [{side.profile}]"


def needs(side: Side, *, columns: bool = False) -> str:
    """`16 runs, seeds 45, 46, 9.2 core-hours`: runs that could decide an open claim; `columns`: also where."""
    if not side.open:
        return NONE
    seeds = sorted({seed for one in side.missing for seed in one.seeds})
    said = [count(len(side.runs), "run")]
    if columns or side.word == "undecided":
        said.append(f"{'seeds' if len(seeds) > 1 else 'seed'} {ranges(seeds)}")
    if columns:
        said.append(f"in {', '.join(dict.fromkeys(one.column for one in side.missing))}")
    if side.hours is not None:
        said.append(f"{number(side.hours, None, 1)} core-hours")
    return ", ".join(said)


def _evidence(one: Judged, marked: bool) -> str:
    """All that is known of a claim."""
    claim = one.claim
    lines = [f"### {claim.id}" if marked else claim.id, ""] if marked else [claim.id]
    said = f"{claim.text} ({claim.source})"
    lines.append(in_markdown(said) if marked else said)
    if one.contrary:
        lines.append(f"The paper's own numbers say otherwise: {'; '.join(one.contrary)}. Nothing is decided.")
    for name, side in (("Paper's protocol", one.paper), ("Equal terms", one.equal)):
        if side is not None:
            lines += _of_side(claim, name, side)
    mark = "- " if marked else "  "
    start = 3 if marked else 1
    return "\n".join([*lines[:start], *(mark + (in_markdown(line) if marked else line) for line in lines[start:])])


def _of_side(claim: Claim, name: str, side: Side) -> list[str]:
    lines = [f"{name} ({side.suite}): {word_of(side)}."]
    for title_, decision in side.columns.items() if len(side.columns) > 1 and not side.doubt else ():
        lines.append(f"{title_}: {decision.word}" + (f" ({decision.seeds} seeds)." if decision.seeds else "."))
    lines += [_comparison(claim, side, i) for i, values in enumerate(side.differences) if set(values) - {None}]
    if side.depends:
        lines.append("The last ten scored rounds say the opposite, so it depends on the rounds read.")
    lines += [f"Undecided, as compared runs differ: {line}" for line in side.mixed]
    if side.failed:
        lines.append(f"Failed, so that the seed is not compared: {'; '.join(side.failed)}.")
    if side.apart:
        lines.append(f"{DIFFER}: {differing(side)}.")
    if side.absent:
        lines.append(f"Not in {side.suite}: {', '.join(side.absent)}.")
    if side.open:
        lines += [f"Missing: {needs(side, columns=True)}.", *(f"`{one}`" for one in commands(side))]
    return lines


def differing(side: Side) -> str:
    """`pFedME, FMNIST 100 Clients (-3.0)`: cells of a claim that differ from the paper's numbers."""
    return "; ".join(f"{name} ({number(difference, None, 1, '+')})" for name, difference in side.apart)


def _comparison(claim: Claim, side: Side, i: int) -> str:
    """A comparison in words: its difference over seeds, with its interval, and what is claimed of it."""
    look = side.decision.shown.get(i)
    values = [value for value in side.differences[i][:look] if value is not None]
    said = f"{title(side.compared[i])}: {number(sum(values) / len(values), None, 2, '+')} points over"
    said += f" {count(len(values), 'seed')}"
    level = 1 - 2 * ERROR / len(side.looks)
    if interval := mean_interval(values, level):
        low, high = (number(limit, None, 2, "+") for limit in interval)
        said += f", {number(100 * level, None, 1)} % interval {low} to {high}"
    said += f"; claimed: {_claimed(claim)}."
    if i in side.decision.small:
        said += " Less than half of the printed gap."
    return said + (" Speaks against the claim." if i in side.decision.against else "")


def _claimed(claim: Claim) -> str:
    """`first`, `better`, `grows` or `within ±0.5`."""
    if claim.margin is not None:
        return f"within ±{claim.margin:g}"
    return claim.test if claim.least is None else f"{claim.test}, by at least {claim.least:g}"


def commands(side: Side) -> list[str]:
    """Commands that make the missing runs of a claim, one for each set of rows that lack the same seeds of a column."""
    together: dict[tuple[str, tuple[int, ...]], list[Missing]] = {}
    for one in side.missing:
        together.setdefault((one.column, one.seeds), []).append(one)
    profile = "" if side.profile == "paper" else f" --profile {side.profile}"
    return [
        command(
            "run",
            f" --suite {side.suite}{profile} --column {column}"
            + "".join(f" -m {one.row}" for one in missing)
            + f" --seeds {','.join(map(str, seeds))}",
        )
        for (column, seeds), missing in together.items()
    ]


def fields(paper: str, one: Judged) -> tuple[object, ...]:
    """Values of `COLUMNS` for a claim."""
    side, equal = one.paper, one.equal
    lacks = len(side.runs), side.hours
    return (
        *(paper, one.claim.id, one.claim.source, side.suite, side.profile, one.word, side.decision.seeds),
        *(
            side.decision.contradicted,
            *(lacks if one.paper.open and not one.contrary else (0, 0.0)),
        ),
        *(equal.suite if equal else "", equal.word if equal else "", one.claim.text),
    )
