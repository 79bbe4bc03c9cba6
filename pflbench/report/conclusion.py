"""Conclusions from a cell: the facts that bear on its number."""

from __future__ import annotations

from collections.abc import Iterator

from pflbench.commands import command
from pflbench.report.explain import Explanation
from pflbench.report.facts import Fact, facts
from pflbench.report.holdings import FederationSummary
from pflbench.report.stored import commit
from pflbench.report.text import difference_text, limits
from pflbench.report.verdict import ENOUGH_SEEDS, Label
from pflbench.units import count

_WORDS = {
    "dataset": "how the dataset is prepared",
    "partition": "how the partition is drawn",
    "model": "the network",
    "batch": "the batch size",
}
"""Names of settings that have one source as a whole."""
KINDS = {
    "text": "Other than the paper's text",
    "silence": "What the paper does not say, and how it is filled",
    "code": "Other than the code that is followed, or than what its authors ran",
}
"""The kinds of departures, the gravest first."""
_DIFFERS = (
    "Differs",
    "and until the authors' values are known, the difference speaks neither against the paper nor against the method.",
)
_LABELS: dict[Label | None, tuple[str, str]] = {
    "agrees": (
        "Agrees",
        "so the agreement does not show that the paper's experiment was repeated.",
    ),
    "close": (
        "Close",
        "so that the numbers are close does not show that the paper's experiment was repeated.",
    ),
    "inconclusive": (
        "Cannot be told whether it agrees",
        "so more seeds alone would not show whether the paper's experiment was repeated.",
    ),
    "differs": _DIFFERS,
}
"""By the label of a verdict: what it says, and what that is worth where the number rests on a guess."""
_DOMINATES = 2.0
"""From how many times the paper's ± on ours makes a difference look small by itself."""


def conclude(of: Explanation) -> Iterator[Fact]:
    """Facts of a cell, each once: the decisive ones, from which a conclusion follows, and what else bears on it."""
    if of.value.mean is None:
        yield from _nothing(of)
    else:
        yield from facts("verdict", *_verdict(of), severity="decisive")
    if grave := [one.what for one in of.departures if one.grave]:
        yield Fact("departures", f"Keep in mind: {', '.join(grave)}.", "decisive")
    if of.value.mean is not None:
        yield from facts("scores", *_on_test(of), severity="decisive")
        yield from facts("data", *_data(of), severity="decisive")
        if unchecked := [run.spec.id for run in of.ran if commit(run).endswith("+")]:
            yield Fact("runs", f"Computed with code that was changed and not committed: {', '.join(unchecked)}.")
    yield from facts("sources", *_sources(of))


def _nothing(of: Explanation) -> Iterator[Fact]:
    """Facts of a cell without a finished seed."""
    failed = f", {of.value.failed} failed" if of.value.failed else ""
    part = of.part.but(suites=[of.suite.called], columns=[of.head.column.id], methods=[of.cell.row.id])
    trains = f"`{command('run', part.options, of.shelf.root)}` trains them." if of.named else ""
    nothing = f"Nothing can be concluded: none of {count(of.value.expected, 'seed')} is done{failed}."
    yield from facts("verdict", nothing, trains, *_suspect(of), severity="decisive")


def _verdict(of: Explanation) -> list[str]:
    """Sentences on whether the number reproduces the paper's."""
    value = of.value
    if value.mixed:
        mixed = "the column mixes data or versions of a method, so its cells are not one experiment."
        return [f"Not to be trusted: {mixed}", *_suspect(of)]
    if of.table.shortfall.runs:
        no = "Not to be compared with the paper: " if of.table.published else ""
        less = f"{no}{of.table.shortfall.kind} ({of.table.shortfall.runs})."
        return [
            f"{less[0].upper()}{less[1:]} The number shows that the method runs, and little of how good it is.",
            *_suspect(of),
        ]
    if not of.table.published:
        return ["No paper has this table. pflbench's number stands for itself."]
    if value.reference is None:
        return ["There is no number of the paper here. pflbench's stands for itself."]
    if value.done < ENOUGH_SEEDS:
        early = (
            f"Too early to tell: {value.done} of {count(value.expected, 'seed')} {'is' if value.done == 1 else 'are'} "
            f"done, and with fewer than {ENOUGH_SEEDS} nobody knows how much of a difference is chance."
        )
        return [early, *_suspect(of)]
    if value.reference.suspect is not None:
        nothing = "so neither agreement nor difference says whether the method was reproduced."
        return [f"The paper's number is suspect: {value.reference.suspect}; {nothing}", _compared(of)]
    return [_compared(of), _meaning(of)]


def _judges_sources(of: Explanation) -> bool:
    """True where the verdict already says on which guesses the number rests."""
    value = of.value
    barred = value.mixed or bool(of.table.shortfall.runs) or value.done < ENOUGH_SEEDS
    return not barred and value.reference is not None and value.reference.suspect is None


def _compared(of: Explanation) -> str:
    """The difference from the paper's number with its interval, and how large our ± is beside the paper's."""
    value, reference, ours, decimals = of.value, of.value.reference, _own(of), of.table.layout.decimals
    label, _ = _LABELS.get(value.verdict.label if value.verdict else None, ("Not comparable", ""))
    if reference and reference.suspect is not None:
        label = "Beside the suspect number"
    so_far = "" if value.complete else f" (so far: {value.done} of {count(value.expected, 'seed')})"
    interval = value.verdict.interval if value.verdict else None
    digits = value.verdict.digits(decimals) if value.verdict else decimals
    to = f", 95 % interval {limits(interval, digits)}" if interval else ""
    away = _beside(of, value.difference or 0.0) + to
    theirs = reference.spread if reference else None
    own, paper = of.printed(ours), of.printed(theirs or 0.0)
    if theirs is None:
        sizes = f"the paper prints no ±, pflbench's is {own}"
    elif not theirs:
        sizes = f"pflbench's ± is {own}, the paper's {paper}"
    else:
        sizes = f"pflbench's ± ({own}) is {_times(ours / theirs)} the paper's ({paper})"
        if ours / theirs >= _DOMINATES and value.difference:
            sizes += f", and the difference {_times(abs(value.difference) / theirs)} the paper's alone"
    return f"{label}{so_far}: {away}; {sizes}."


def _meaning(of: Explanation) -> str:
    """Sentence on what the agreement or difference shows, given the sources of the run's values."""
    label = of.value.verdict.label if of.value.verdict else None
    guesses = _in_words(of, "guess") or [one.what for one in of.departures if one.source == "guess"]
    if guesses:
        return f"{_rests(guesses)}, {_LABELS.get(label, _DIFFERS)[1]}"
    known = f"o value behind it is {'known to be a guess' if of.of_source('') else 'a guess'}"
    if label == "inconclusive":
        return f"N{known}; more seeds would tell."
    if label == "differs":
        return (
            f"Not reproduced, though n{known}: what differs from the paper's text and "
            "from the code that is followed, or the paper's own runs, must make the difference."
        )
    if label == "close" and of.value.verdict is not None:
        small = f"beyond chance, and less than {of.value.verdict.margin:g} points"
        return f"N{known}; the difference is {small}: what remains to explain is small."
    other = [one.what for one in of.departures if one.grave and one.code]
    if other:
        return (
            f"N{known}, but the authors' runs probably differed ({', '.join(other)}): "
            "the result was reproduced, not every detail of the experiment."
        )
    return f"Reproduced{' with values that we tuned' if of.of_source('tuned') else ''}: n{known}."


def _data(of: Explanation) -> list[str]:
    """Warnings of the dataset here, if the runs were computed on it."""
    warnings = of.federation.warnings if isinstance(of.federation, FederationSummary) and of.of_the_data_here else ()
    return [f"The runs were computed on the same data as are here. {warning}" for warning in warnings]


def _sources(of: Explanation) -> Iterator[str]:
    """Sentences on where the values behind the number come from."""
    guesses, tuned = _in_words(of, "guess"), _in_words(of, "tuned")
    if not of.named:
        yield "The row is not the suite's: its own values are those of whoever ran it."
    if guesses and not _judges_sources(of):
        yield f"{_rests(guesses)}."
    if tuned:
        yield f"It rests on our tuning: {', '.join(tuned)} ({_trials(of)})."
    unsaid = ", ".join(of.of_source(""))
    if not of.named:
        return
    if unsaid and (of.part.overrides or of.part.rounds or of.part.profile not in (None, "paper")):
        yield f"Set by the profile or by options, or of no known source: {unsaid}."
    elif unsaid:
        yield f"The suite does not say where these values come from: {unsaid}."
    elif not (guesses or tuned):
        readings = ", ".join(one.what for one in of.departures if one.source in ("guess", "tuned"))
        but = f"; what the suite lists as guessed or tuned is {readings}" if readings else ""
        yield f"Every value is the paper's, that of the code that is followed, or inferred from these{but}."


def _trials(of: Explanation) -> str:
    """Clause on the stored trials of the tuned values."""
    own = [one for one in of.trials if one.same]
    if own := [one for one in own if one.read_as == of.cell.tuned_by] or own:
        no = "" if all(one.trials[0].chosen for one in own) else "not "
        return f"{no}the best of the stored trials, see below"
    if of.trials:
        return "the stored trials are of another setting, see below"
    return "no search is stored, so nobody can check it"


def _rests(guesses: list[str]) -> str:
    return f"It rests on {'a guess' if len(guesses) == 1 else 'guesses'} ({', '.join(guesses)})"


def _in_words(of: Explanation, source: str) -> list[str]:
    return [_WORDS.get(name, name) for name in of.of_source(source)]


def _suspect(of: Explanation) -> list[str]:
    suspect = of.value.reference and of.value.reference.suspect
    return [] if suspect is None else [f"The paper's number is suspect: {suspect}."]


def _on_test(of: Explanation) -> Iterator[str]:
    """Result of choosing from the grid on the test scores."""
    found, reference = of.value.on_test, of.value.reference
    if found is not None:
        apart = f", {_beside(of, found.mean - reference.mean)}" if reference else ""
        would = f"it would be {of.printed(found.mean, found.spread)}{apart}."
        yield f"With points chosen on the test scores, as the paper's wording may mean, {would}"


def difference_line(of: Explanation) -> str:
    """The difference to the paper's number with its interval; empty without one."""
    if of.value.difference is None:
        return ""
    text = difference_text(of.value.difference, of.value.verdict, of.table.layout.decimals)
    return f"pflbench minus paper, in points: {text}."


def _beside(of: Explanation, difference: float) -> str:
    return f"{of.printed(abs(difference))} points {'above' if difference > 0 else 'below'} the paper's number"


def _own(of: Explanation) -> float:
    return (of.value.std if of.table.spread.kind == "std" else of.value.sem) or 0.0


def _times(ratio: float) -> str:
    if f"{ratio:.1f}" == "1.0":
        return "as large as"
    return f"about {ratio:.0f} times" if ratio >= _DOMINATES else f"{ratio:.1f} times"
