"""The text of `pflbench explain`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pflbench.output import wrapped
from pflbench.report import table_facts
from pflbench.report.conclusion import KINDS, conclude, difference_line
from pflbench.report.explain import Explanation, Setting, value_text
from pflbench.report.holdings import FederationSummary
from pflbench.report.reading import WINDOW
from pflbench.report.stored import commit
from pflbench.report.text import ranges
from pflbench.report.trials import doubts_of
from pflbench.report.verdict import GLYPHS, SUSPECT
from pflbench.store import Stored
from pflbench.suite.sources import PROFILE
from pflbench.units import count

SOURCES = {
    "paper": "the paper says it",
    "code": "the code that is followed has it",
    "inferred": "neither says it, but it follows from what they say",
    "guess": "nothing that the authors published tells it; we took what seemed likely",
    "tuned": "we tried values and took one; the trials that are stored stand below",
    PROFILE: "the profile that was chosen sets it, which runs less than the whole protocol",
    "": "the suite does not say where it comes from",
}
"""Meanings of the sources of values, in the order in which they are shown."""
MORE = "--full adds values with their sources, trials, departures and runs."
"""Last line of the short form."""
_PREPARED = {"dataset": "how the {}, {}, is prepared", "partition": "how the {}, {}, is drawn"}
"""Settings whose source is not that of their name."""
_OPTION = re.compile(r"(?:\d+\. )?With `(\w+)`")
"""Beginning of a method's departure that is about an option."""


def explanation_text(of: Explanation, width: int = 100, *, full: bool = True) -> str:
    """The explanation in plain text of at most so many characters per line, where words allow.

    It begins with "In short"; `full`: everything else follows.
    """
    found = list(conclude(of))
    short = [(_in_a_line(of), ""), *((fact.text, "") for fact in found if fact.severity == "decisive")]
    blocks = [_section("In short", short, width)]
    if not full:
        return f"{blocks[0]}\n  {MORE}\n"
    blocks += [
        _head(of),
        _section("The number", [(line, "") for line in _numbers(of)], width),
        _section(
            "What speaks for and against the number",
            [(fact.text, "- ") for fact in found if fact.severity != "decisive"],
            width,
        ),
        _section("How it is read", [(line, "") for line in of.reading], width),
        _section(f"Hyperparameters of {of.cell.needed[0].method.name}", _settings(of.hyper), width),
        _section("Everything else that was set, by where it comes from", _by_source(of.settings), width),
        _section("Trials behind what is tuned", _trials(of), width),
        _section("What is followed, and what differs", _departures(of), width),
        _section("What the method departs from in the paper that it comes from", _method(of), width),
        _section(
            "Notes on this row and column", [(note, "- ") for note in filter(None, (*of.notes, of.version))], width
        ),
        _section("The federation", [(line, "") for line in _federation(of)], width),
        _section("Where it comes from", _runs(of), width),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _in_a_line(of: Explanation) -> str:
    """`Ditto in Shards, Tiny: 50.00 ± 1.00 ✓, paper 50.20 ± 0.90`."""
    value, reference = of.value, of.value.reference
    stage = of.head.label or of.cell.stage
    said = f"{of.cell.row.title} in {of.head.column.setting}, {stage} ({of.whole.title})"
    if value.mean is None:
        return f"{said}: no result"
    glyph = GLYPHS.get(value.verdict.label) if value.verdict else None
    said += f": {of.printed(value.mean, value.spread)}{f' {glyph}' if glyph else ''}"
    return said + (f", paper {of.printed(reference.mean, reference.spread)}" if reference else "")


Passage = tuple[str, str]
"""A text, and what stands in front of its first line; further lines are indented by as much."""


def _section(title: str, lines: Iterable[Passage], width: int) -> str:
    found = [wrapped(line, width, " " * (2 + len(lead)), f"  {lead}") for line, lead in lines]
    return "\n".join([title, *found]) if found else ""


def _head(of: Explanation) -> str:
    stage = of.head.label or of.cell.stage
    whole = " (the whole protocol)" if of.table.profile == "paper" and not of.table.shortfall.runs else ""
    paper = of.table.paper if of.table.published else "no paper has it"
    lines = [
        f"{of.table.title} ({paper}), profile {of.table.profile}{whole}",
        f"Row     {of.cell.row.title}" + (f" ({of.cell.row.id})" if of.named else " (not in the suite)"),
        f"Column  {of.head.column.setting} ({of.head.column.id})",
        f"Scored  {stage}: {table_facts.models_at(of.cell.stage, of.run)}",
    ]
    if further := [of.whole.head(cell).label or cell.stage for cell in of.cells if cell is not of.cell]:
        lines.append(f"Also shown: {', '.join(further)} (name it with --stage).")
    return "\n".join(lines)


def _numbers(of: Explanation) -> list[str]:
    value, reference = of.value, of.value.reference
    ours, paper = f"none: 0 of {value.expected} seeds are done", "prints no number here"
    if value.mean is not None:
        seeds = f"seeds {ranges(value.seeds)}" if value.done > 1 else f"seed {ranges(value.seeds)} alone"
        of_all = "" if value.complete else f"; {value.done} of {value.expected} are done"
        ours = f"{of.printed(value.mean, value.spread)}   ({seeds}{of_all})"
    if reference is not None:
        paper = of.printed(reference.mean, reference.spread)
    elif not of.table.published:
        paper = "none has this table"
    lines = [f"pflbench  {ours}", f"Paper     {paper}"]
    lines.append(_last_round(of))
    if value.verdict is not None:
        suspect = "" if value.verdict.suspect is None else f", {SUSPECT}"
        lines.append(f"Verdict of the report: {value.verdict.label}{suspect} ({value.verdict.reason}).")
        lines.append(f"But {value.verdict.at_best}." if value.verdict.at_best else "")
    lines.append(difference_line(of))
    lines.append(_beside(of))
    if reference is not None and reference.spread is not None and of.table.spread.paper:
        lines.append(f"The paper's ± is {of.table.spread.paper}.")
    if value.seeds:
        each = (f"{seed}: {of.printed(accuracy)}" for seed, accuracy in value.seeds.items())
        lines.append(f"By seed: {', '.join(each)}.")
    if of.missing:
        lines.append(f"Not done: {'seeds' if len(of.missing) > 1 else 'seed'} {ranges(of.missing)}.")
    return list(filter(None, lines))


def _last_round(of: Explanation) -> str:
    """Sentence on the last round, where the numbers are best rounds; else empty."""
    shown = of.shown
    if shown is None or shown.peak is None or shown.mean is None:
        return ""
    chances = count(shown.peak.scored[1], "scored round")
    return (
        f"Both are best rounds, ours of {chances}: chosen on test data, so optimistic. Our last round: "
        f"{of.printed(shown.mean, shown.spread)}."
    )


def _beside(of: Explanation) -> str:
    """Sentence on the number beside it in its table; empty without one."""
    other = of.value.beside
    if other is None or other.value.mean is None:
        return ""
    among = f"among the rows that are done for the same seeds, over {count(len(other.seeds), 'seed')} that both have"
    ranks = f"; rank {among}, there → here: {other.ranks}" * bool(other.ranks)
    there = of.printed(other.value.mean, other.value.spread)
    return f"The paper's protocol gave {there} (our runs of the table beside{ranks})."


def _runs(of: Explanation) -> list[Passage]:
    """The runs of each seed, then those of the trials."""
    seeds: dict[int, list[Stored]] = {}
    for ran in of.ran:
        seeds.setdefault(ran.spec.seed, []).append(ran)
    lines: list[Passage] = []
    for seed, rans in seeds.items():
        failures = (f" (failed: {ran.failure.splitlines()[0]})" if ran.failure else "" for ran in rans)
        ids = ", ".join(ran.spec.id + failure for ran, failure in zip(rans, failures, strict=True))
        if len(rans) > 1:
            held_out = sum(ran.spec.validation > 0 for ran in rans)
            ids = f"{len(rans)} runs, {held_out} of them without the images that the choice is made on: {ids}"
        made = dict.fromkeys(
            f"commit {commit(ran) or 'unknown'} on {ran.provenance.get('device') or 'unknown'}"
            f"{', came with pflbench' if ran.shipped else ''}"
            for ran in rans
        )
        days = dict.fromkeys(str(ran.provenance.get("finished") or "day not recorded") for ran in rans)
        lines.append((f"Seed {seed}: {ids}; {', '.join(made)}; {', '.join(days)}", ""))
    for one in of.trials:
        lines.append(
            (f"Trials with seed {one.run.seed}, in the order above: {', '.join(t.run for t in one.trials)}", "")
        )
    return lines


def _settings(given: Sequence[Setting]) -> list[Passage]:
    names = max((len(one.name) for one in given), default=0)
    values = max((len(one.value) for one in given), default=0)
    lines = [
        (f"{one.value:<{values}}  {one.source or 'not said':<8}  {one.meaning}".rstrip(), f"{one.name:<{names}}  ")
        for one in given
    ]
    used = [source for source in SOURCES if any(one.source == source for one in given)]
    return [*lines, *((f"{source or 'not said'}: {SOURCES[source]}.", "") for source in used)]


def _by_source(given: Sequence[Setting]) -> list[Passage]:
    lines = []
    for source in SOURCES:
        mine = [_PREPARED.get(one.name, "{} = {}").format(one.name, one.value) for one in given if one.source == source]
        if mine:
            lines.append((", ".join(mine), f"{source or 'not said'}: "))
    return lines


def _trials(of: Explanation) -> Iterator[Passage]:
    tuned = of.of_source("tuned")
    if tuned and not of.trials:
        yield f"No search is stored of {', '.join(tuned)}, so nobody can check how it was chosen.", ""
    for one in of.trials:
        run = one.run
        other = f"{run.dataset.name}, {run.clients} clients, {count(run.rounds, 'round')}"
        where = "in this column's setting" if one.same else f"in another setting ({other})"
        models = table_facts.models_at(one.stage, of.run.model_copy(update={"validation": run.validation}))
        share = f"{100 * run.validation:g} % of each client's training images"
        when = f"after round {run.rounds}" if one.read_as == "last" else f"mean over the last {WINDOW} scored rounds"
        yield f"Seed {run.seed}, {where}: {models}; scored on a held-out {share}, {when}:", ""
        for trial in one.trials:
            values = ", ".join(f"{key} = {value_text(value)}" for key, value in trial.values.items())
            accuracy = "failed" if trial.accuracy is None else f"{trial.accuracy:.2f} %"
            yield f"{accuracy}  {values}{'  <- used here' if trial.chosen else ''}", "  "
    found = doubts_of(of.trials, tuned)
    for edge in found.edges:
        yield f"{edge} that was tried: a better one may lie beyond.", ""
    if found.noise:
        yield f"{found.noise[0].upper()}{found.noise[1:]}", ""


def _departures(of: Explanation) -> Iterator[Passage]:
    if not of.followed:
        other = "The runs have another federation, network or batches than the suite's whole protocol (profile paper)"
        yield f"{other}, so what is said of that one is not repeated here.", ""
        return
    if of.cell.follows:
        yield f"Followed is {of.cell.follows}.", ""
    for kind, title in KINDS.items():
        mine = [one for one in of.departures if one.kind == kind]
        yield from [(f"{title}:", "")] if mine else []
        yield from (
            (f"{one.what} [{one.source}{', grave' * one.grave}]. {one.sentences}", f"{place}. ")
            for place, one in enumerate(mine, 1)
        )
    if of.named and not of.departures and of.table.published:
        yield "The suite lists no difference from the paper's text for this cell.", ""


def _method(of: Explanation) -> Iterator[Passage]:
    said = of.docstring
    if said is None:
        yield "The method's source is not here.", ""
        return
    if said.head:
        yield said.head, ""
    for group in said.departures:
        if group.scope:
            yield f"Departures {group.scope}:", ""
        for item in group.items:
            option = _OPTION.match(item)
            if option and of.run.method.hyper.get(option[1]) is None:
                continue  # it is about an option that the run does not use
            mark, dot, rest = item.partition(". ")
            yield (rest, f"{mark}. ") if dot and mark.isdecimal() else (item, "- ")
    if not said.departures:
        yield "Its docstring lists no departure.", ""


def _federation(of: Explanation) -> Iterator[str]:
    run, federation = of.run, of.federation
    held = run.clients - run.training_clients
    lossy = f"; an upload arrives with probability {run.arrival:g}" if run.arrival < 1 and of.sends else ""
    yield f"{run.clients} clients: {run.training_clients} train" + (
        f", {held} are held out and only scored." if held else "."
    )
    yield f"Each round {run.cohort} of them take part{lossy}." + ("" if of.sends else " They send nothing.")
    if not isinstance(federation, FederationSummary):
        unknown = "Sizes and classes were not looked up, which takes the dataset."
        yield f"Sizes and classes are unknown here: {federation}" if federation else unknown
        return
    yield f"With seed {federation.seed} a training client adapts on {federation.support.of('images')}."
    yield f"A client is scored on {federation.query.of('images')}."
    if federation.held_out:
        yield f"A held-out client adapts on {federation.held_out.of('images')}."
    yield f"A client's training images are of {federation.kinds.of('classes')}; there are {federation.classes}."
    if federation.test:
        yield f"The global model can be scored on {federation.test} test images."
    if federation.shared:
        yield f"{federation.shared} images are held by several clients."
    if not of.of_the_data_here:
        yield from federation.warnings
    if of.ran and not of.of_the_data_here:
        yield "The dataset here is not the one that the runs were computed on: its content is another."
    if federation.parameters:
        yield f"Network {run.model}: {federation.parameters:,} parameters as this method trains it."
