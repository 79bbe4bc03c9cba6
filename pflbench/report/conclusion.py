"""What may be concluded from a cell, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pflbench.commands import command
from pflbench.report import facts
from pflbench.report.evidence import Facts
from pflbench.report.explaining import Explanation
from pflbench.report.reading import WINDOW
from pflbench.report.runs import commit
from pflbench.report.text import apart, between, number, ranges
from pflbench.report.verdict import ENOUGH_SEEDS, Label
from pflbench.units import count

_WORDS = {
    "dataset": "how the dataset is prepared",
    "partition": "how the partition is drawn",
    "model": "the network",
    "batch": "the batch size",
}
"""What the settings are called of which a source speaks as a whole."""
_READINGS = {
    "code": "as the code that is followed has it",
    "paper": "as the paper has it",
    "inferred": "inferred",
    "tuned": "tuned by us",
    "guess": "guessed",
}
"""What is said of departures by where they come from."""
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


class Conclusion(NamedTuple):
    """`short`: what may be concluded, in a few sentences; `reasons`: what speaks for and against the number."""

    short: tuple[str, ...]
    reasons: tuple[str, ...]


def conclusion(of: Explanation) -> Conclusion:
    """What may be concluded from the cell, and why."""
    if of.value.mean is None:
        failed = f", {of.value.failed} failed" if of.value.failed else ""
        part = of.part.but(suites=[of.suite.called], columns=[of.head.column.id], methods=[of.cell.row.id])
        trains = [f"`{command('run', part.options, of.shelf.root)}` trains them."] if of.named else []
        nothing = f"Nothing can be concluded: none of {count(of.value.expected, 'seed')} is done{failed}."
        suspect = _of_the_paper(of)
        return Conclusion((nothing, *trains, *suspect), (*_of_the_values(of), *_of_departures(of), *suspect))
    minded = [f"Keep in mind: {one.what}. {one.told}" for one in of.departures if one.grave]
    short = [*_verdict(of), *minded, *_of_the_choice(of), *_of_the_data(of)]
    if of.value.recent is not None:
        mean, told = of.printed(of.value.recent.mean), _over_rounds(of)
        short.append(f"It is the last round's alone; the mean over the last {WINDOW} scored ones is {mean}{told}.")
    about: tuple[Callable[[Explanation], Iterable[str]], ...]
    about = _of_the_runs, _of_the_data, _of_the_values, _of_departures, _of_the_paper, _of_the_choice
    reasons = [line for said in (*about, _of_the_last_rounds) for line in said(of)]
    return Conclusion(tuple(short), tuple(reasons))


def _verdict(of: Explanation) -> list[str]:
    """Whether the number reproduces the paper's."""
    value = of.value
    if value.mixed:
        return [
            "Not to be trusted: the column mixes data or versions of a method, so its cells are not one experiment."
        ]
    if of.table.shortfall.runs:
        no = "Not to be compared with the paper: the" if of.table.published else "The"
        less = f"{no} runs follow less than the whole protocol, or another one."
        return [f"{less} The number shows that the method runs, and little of how good it is."]
    if not of.table.published:
        return ["No paper has this table. pflbench's number stands for itself."]
    if value.reference is None:
        return ["There is no number of the paper here. pflbench's stands for itself."]
    if value.done < ENOUGH_SEEDS:
        early = (
            f"Too early to tell: {value.done} of {count(value.expected, 'seed')} {'is' if value.done == 1 else 'are'} "
            f"done, and with fewer than {ENOUGH_SEEDS} nobody knows how much of a difference is chance."
        )
        return [early, *_of_the_paper(of)]
    if value.reference.suspect is not None:
        nothing = "so neither agreement nor difference says whether the method was reproduced."
        return [f"The paper's number is suspect: {value.reference.suspect}; {nothing}", _compared(of)]
    return [_compared(of), _meaning(of)]


def _compared(of: Explanation) -> str:
    """The difference from the paper's number with its interval, and how large our ± is beside the paper's."""
    value, reference, ours, decimals = of.value, of.value.reference, _own(of), of.table.layout.decimals
    label, _ = _LABELS.get(value.verdict.label if value.verdict else None, ("Not comparable", ""))
    if reference and reference.suspect is not None:
        label = "Beside the suspect number"
    so_far = "" if value.complete else f" (so far: {value.done} of {count(value.expected, 'seed')})"
    interval = value.verdict.interval if value.verdict else None
    digits = value.verdict.digits(decimals) if value.verdict else decimals
    to = f", 95 % interval {between(interval, digits).strip(' ()')}" if interval else ""
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
    """What the agreement or difference shows, given where the run's values come from."""
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


def _of_the_runs(of: Explanation) -> Iterator[str]:
    value = of.value
    if of.table.shortfall.runs:
        yield f"{of.table.shortfall.kind.capitalize()}: {of.table.shortfall.runs}."
    if ENOUGH_SEEDS <= value.done < value.expected:
        missing = ranges(of.missing)
        yield f"Only {value.done} of {count(value.expected, 'seed')} are done (missing: {missing})."
    if unchecked := [ran.spec.id for ran in of.ran if commit(ran).endswith("+")]:
        yield f"Computed with code that was changed and not committed: {', '.join(unchecked)}."


def _of_the_data(of: Explanation) -> list[str]:
    """Whether the runs were computed on files that are not the official ones, as far as the files here tell."""
    warnings = of.facts.warnings if isinstance(of.facts, Facts) and of.of_the_data_here else ()
    return [f"The runs were computed on the same data as are here. {warning}" for warning in warnings]


def _of_the_values(of: Explanation) -> Iterator[str]:
    guesses, tuned = _in_words(of, "guess"), _in_words(of, "tuned")
    if not of.named:
        yield "The row is not the suite's: its own values are those of whoever ran it."
    if guesses:
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
    """What the stored trials say of the tuned values."""
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


def _of_departures(of: Explanation) -> Iterator[str]:
    """How many departures of each kind there are, and those that are grave."""
    for kind, title in KINDS.items():
        by: dict[str, list[str]] = {words: [] for words in _READINGS.values()}
        for one in of.departures:
            if one.kind == kind:
                by[_READINGS[one.source]].append(one.what)
        if number := sum(map(len, by.values())):
            how = "; ".join(f"{words}: {', '.join(names)}" for words, names in by.items() if names)
            yield f"{title}: {count(number, 'point')} ({how})."
    yield from (f"Grave: {one.what}. {one.told}" for one in of.departures if one.grave)


def _of_the_paper(of: Explanation) -> list[str]:
    suspect = of.value.reference and of.value.reference.suspect
    return [] if suspect is None else [f"The paper's number is suspect: {suspect}."]


def _of_the_choice(of: Explanation) -> Iterator[str]:
    """What choosing from the grid on the test scores would have given."""
    found, reference = of.value.on_test, of.value.reference
    if found is not None:
        apart = f", {_beside(of, found.mean - reference.mean)}" if reference else ""
        would = f"it would be {of.printed(found.mean, found.spread)}{apart}."
        yield f"With points chosen on the test scores, as the paper's wording may mean, {would}"


def _of_the_last_rounds(of: Explanation) -> Iterator[str]:
    """How much the number depends on which round is the last."""
    if (recent := of.value.recent) is not None:
        mean, least, most = map(of.printed, (recent.mean, recent.least, recent.most))
        seeds = "" if len(recent.seeds) == of.value.done else f"; seeds {ranges(recent.seeds)}"
        yield (
            f"The number is the last round's alone. Over the last {WINDOW} scored rounds "
            f"({recent.rounds[0]}–{recent.rounds[1]}{seeds}) the mean is {mean}, single runs are between {least} and "
            f"{most}, and move by up to {number(recent.step, None, 1)} points from one to the next."
        )
    if recent is not None and of.value.swings and of.value.deviation is not None:
        rounds, seeds = (number(one, None, 1) for one in (recent.deviation, of.value.deviation))
        yield (
            f"Its curve swings: over these rounds a run's standard deviation is {rounds} points (the mean over seeds), "
            f"that over seeds {seeds} (both with ddof = 1)."
        )


def _over_rounds(of: Explanation) -> str:
    """The comparison of the last scored rounds with the paper's number; empty without one."""
    told = facts.over_rounds(of.value, of.table.layout.decimals)
    return f", {told}" if told else ""


def difference(of: Explanation) -> str:
    """The difference to the paper's number with its interval; empty without one."""
    if of.value.difference is None:
        return ""
    return f"pflbench minus paper, in points: {apart(of.value.difference, of.value.verdict, of.table.layout.decimals)}."


def _beside(of: Explanation, difference: float) -> str:
    return f"{of.printed(abs(difference))} points {'above' if difference > 0 else 'below'} the paper's number"


def _own(of: Explanation) -> float:
    return (of.value.std if of.table.spread.kind == "std" else of.value.sem) or 0.0


def _times(ratio: float) -> str:
    if f"{ratio:.1f}" == "1.0":
        return "as large as"
    return f"about {ratio:.0f} times" if ratio >= _DOMINATES else f"{ratio:.1f} times"
