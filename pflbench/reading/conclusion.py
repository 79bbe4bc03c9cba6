"""What may be concluded from a cell: sentences that follow from what is known of it."""

from __future__ import annotations

import math

from pflbench.reading.explaining import Explanation
from pflbench.report.statistics import ENOUGH_SEEDS
from pflbench.report.text import number, ranges

_WORDS = {
    "dataset": "how the dataset is prepared",
    "partition": "how the partition is drawn",
    "model": "the network",
    "batch": "the batch size",
}
"""What the settings are called of which a source speaks as a whole."""
_READINGS = {
    "code": "as in the code that is followed",
    "paper": "as the paper has it elsewhere",
    "inferred": "inferred",
    "tuned": "tuned by us",
    "guess": "guessed",
}
"""What is said of departures by where they come from."""


def conclusion(of: Explanation) -> list[str]:
    """Plain sentences on what speaks for and against the number; the last says what may be concluded."""
    if of.value.mean is None:
        return _without_a_number(of)
    lines = [*_of_the_runs(of), *_of_the_values(of), *_of_departures(of), *_of_the_paper(of), _verdict(of)]
    return [line for line in lines if line]


def _without_a_number(of: Explanation) -> list[str]:
    failed = f", {of.value.failed} failed" if of.value.failed else ""
    make = f"pflbench run --suite {of.table.suite} --column {of.head.column} --method {of.row.id}"
    profile = "" if of.table.profile == "paper" else f" --profile {of.table.profile}"
    done = f"There is no number of ours: none of {of.value.expected} seeds is done{failed}."
    return [f"{done} `{make}{profile}` trains them." if of.named else done, "Nothing can be concluded."]


def _verdict(of: Explanation) -> str:
    """Whether ours can stand for the paper's number."""
    value = of.value
    guesses = of.of_source("guess") or [departure.what for departure in of.departures if departure.source == "guess"]
    if value.mixed:
        return "Not to be trusted: the column mixes data or versions of a method, so its cells are not one experiment."
    if of.table.shortfall:
        return (
            "Not to be compared with the paper: the runs follow less than its protocol, or another one. The number "
            "shows that the method runs, and little of how good it is."
        )
    if value.reference is None:
        return "There is no number of the paper here. Ours stands for itself."
    if value.reference.suspect is not None:
        return (
            "The paper's number is suspect, so neither agreement nor difference says whether the method was reproduced."
        )
    if value.done < ENOUGH_SEEDS:
        are = "is" if value.done == 1 else "are"
        return (
            f"Too early to say: {value.done} of {_seeds(value.expected)} {are} done, and with fewer than "
            f"{ENOUGH_SEEDS} nobody knows how much of a difference is chance."
        )
    so_far = "" if value.complete else ", as far as the seeds that are done can tell"
    agrees = value.verdict is not None and value.verdict.label in ("within 1", "within 2")
    if agrees and not guesses:
        how = "Reproduced with values that we tuned" if of.of_source("tuned") else "Reproduced"
        known = "known to be " if of.of_source("") else ""
        return f"{how}: ours agrees with the paper's number, and no value behind it is {known}a guess{so_far}."
    if agrees:
        return (
            "Ours agrees with the paper's number, but rests on guesses. So the agreement does not show "
            f"that the paper's experiment was repeated{so_far}."
        )
    if guesses:
        return (
            "Ours differs from the paper's number, and rests on guesses. Until what they stand for is known, the "
            f"difference speaks neither against the paper nor against the method{so_far}."
        )
    return (
        "Not reproduced: ours differs from the paper's number, though no value behind it is a guess. What differs from "
        f"the paper's text, which is listed above, or the paper's own runs must make the difference{so_far}."
    )


def _of_the_runs(of: Explanation) -> list[str]:
    value = of.value
    lines = []
    if of.table.shortfall:
        lines.append(f"Less than the protocol: {of.table.shortfall}.")
    if 0 < value.done < value.expected and value.done >= ENOUGH_SEEDS:
        lines.append(f"Only {value.done} of {_seeds(value.expected)} are done (missing: {ranges(of.missing)}).")
    unchecked = [ran.run.run for ran in of.ran if ran.run.commit.endswith("+")]
    if unchecked:
        lines.append(f"Computed with code that was changed and not committed: {', '.join(unchecked)}.")
    return lines


def _of_the_values(of: Explanation) -> list[str]:
    if not of.named:
        return ["The row is not the suite's: its values are those of whoever ran it."]
    guesses, tuned = (_in_words(of.of_source(source)) for source in ("guess", "tuned"))
    unsaid = of.of_source("")
    lines = []
    if guesses:
        lines.append(f"It rests on {'a guess' if len(guesses) == 1 else 'guesses'}: {', '.join(guesses)}.")
    if tuned:
        lines.append(f"It rests on our tuning: {', '.join(tuned)} ({_trials(of)}).")
    if unsaid:
        lines.append(f"The suite does not say where these values come from: {', '.join(unsaid)}.")
    if not (guesses or tuned or unsaid):
        lines.append("Every value is the paper's, that of the code that is followed, or inferred from these.")
    return lines


def _trials(of: Explanation) -> str:
    """What the stored trials say of the tuned values."""
    own = [one for one in of.trials if one.same]
    if not own:
        return (
            "the trials stored are of another column" if of.trials else "no trial is stored, so this cannot be checked"
        )
    best = all(one.trials[0].chosen for one in own)
    return "the best of the trials listed above" if best else "not the best of the trials listed above"


def _in_words(names: list[str]) -> list[str]:
    return [_WORDS.get(name, name) for name in names]


def _of_departures(of: Explanation) -> list[str]:
    if not of.departures:
        return []
    kinds = []
    for source, words in _READINGS.items():
        mine = [departure.what for departure in of.departures if departure.source == source]
        named = "" if source in ("code", "paper") else f" ({', '.join(mine)})"
        kinds += [f"{len(mine)} {words}{named}"] if mine else []
    points = "1 point" if len(of.departures) == 1 else f"{len(of.departures)} points"
    return [f"The runs differ from the paper's text in {points}: {'; '.join(kinds)}."]


def _of_the_paper(of: Explanation) -> list[str]:
    reference = of.value.reference
    if reference is None or reference.suspect is None:
        return []
    return [f"Why the paper's number is suspect: {reference.suspect}."]


def spreads_apart(of: Explanation) -> str:
    """The difference to the paper's number, and how large it is beside both spreads; empty without one."""
    value, decimals = of.value, of.table.decimals
    if value.difference is None or value.reference is None:
        return ""
    text = f"Ours minus the paper's: {value.difference:+.{decimals}f} points"
    ratio = value.verdict.ratio if value.verdict else None
    if ratio is not None and not math.isinf(ratio):
        ours = value.std if of.table.spread.kind == "std" else value.sem
        joint = math.hypot(ours or 0.0, value.reference.spread or 0.0)
        kind = "both spreads taken together" if value.reference.spread is not None else "our spread alone"
        text += f", {ratio:.1f} times {kind} ({number(joint, None, decimals)})"
    return f"{text}."


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
