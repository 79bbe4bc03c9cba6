"""Claims of the papers, each decided from stored runs under the paper's protocol and on equal terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pflbench.errors import unknown
from pflbench.report.cells import read_seeds
from pflbench.report.decide import Decision, Hypotheses, decide
from pflbench.report.provenance import mixtures, shown_runs
from pflbench.report.reading import Shelf
from pflbench.report.verdict import verdict
from pflbench.result import core_seconds
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.cells import Cell, Expansion, ReadAs
from pflbench.suite.claim import Claim, RivalComparison, comparisons, files, load, slope
from pflbench.suite.expand import expand
from pflbench.suite.load import find
from pflbench.suite.load import read as read_suite
from pflbench.suite.user_supplied import UserSupplied

CONTRADICTED = "contradicted by the paper's own numbers"
Place = tuple[str, str]
"""Ids of a cell's row and column."""
HALF = 0.5
"""Share of the printed gap that counts as claimed, where a claim does not say `least`."""


@dataclass(frozen=True)
class Missing:
    """What a claim still needs of a cell: seeds, and core-seconds of each run that is not done (None: unknown).

    Rows such as IFCA and IFCA-FT share runs.
    """

    row: str
    column: str
    seeds: tuple[int, ...]
    runs: Mapping[RunSpec, float | None]


@dataclass(frozen=True)
class Side:
    """A claim in one suite and profile.

    Attributes:
        suite: Its name.
        profile: Its profile; any but `paper` decides nothing about the paper.
        decision: Over all comparisons.
        columns: Over those of one column (`grows`: over all), by its title.
        compared: The comparisons, in the order of `differences`.
        differences: For each comparison, its difference in points for each seed of the suite; None: not run.
        bounds: What is claimed of each.
        seeds: Those of the suite.
        looks: Numbers of seeds after which it is decided: the claim's, as far as the suite has so many.
        missing: Runs of comparisons that are not shown, up to the last look that can be made.
        failed: Runs that failed, in words: no look is made at seeds that a failed run is among.
        absent: Rivals and columns of the claim that the suite lacks.
        depends: True if the last ten scored rounds decide the opposite of the table's reading.
        mixed: Sentences on columns whose compared runs mix data or versions, so that they cannot be compared.
        apart: Cells of the comparisons that differ from the paper's numbers, with the difference in points: then the
            claim is decided on rows that do not reproduce the paper.
    """

    suite: str
    profile: str
    decision: Decision
    columns: Mapping[str, Decision]
    compared: tuple[RivalComparison, ...]
    differences: tuple[tuple[float | None, ...], ...]
    bounds: tuple[Hypotheses, ...]
    seeds: tuple[int, ...]
    looks: tuple[int, ...]
    missing: tuple[Missing, ...] = ()
    failed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    depends: bool = False
    mixed: tuple[str, ...] = ()
    apart: tuple[tuple[str, float], ...] = ()

    @property
    def word(self) -> str:
        """Word on the claim; undecided where runs are mixed, or where it depends on the rounds that are read."""
        return "undecided" if self.doubt else self.decision.word

    @property
    def doubt(self) -> str:
        """Reason why the comparisons decide nothing, as words behind "undecided"; empty without one."""
        if self.mixed and self.decision.word != "not run":
            return ", mixes data or versions"
        return ", depends on the rounds read" if self.depends else ""

    @property
    def open(self) -> bool:
        """True if further runs could decide it."""
        return self.decision.word in ("undecided", "not run") and bool(self.missing)

    @property
    def runs(self) -> dict[RunSpec, float | None]:
        """The missing runs, each once, and their core-seconds; None: unknown."""
        return {run: seconds for one in self.missing for run, seconds in one.runs.items()}

    @property
    def hours(self) -> float | None:
        """Core-hours of the missing runs; None where one of them is unknown."""
        found = list(self.runs.values())
        known = [one for one in found if one is not None]
        return sum(known) / 3600 if len(known) == len(found) else None


@dataclass(frozen=True)
class Judged:
    """A claim with what the paper prints and what stored runs say.

    `contrary`: titles of the comparisons in which the paper's own numbers say the opposite; then nothing is decided.
    """

    claim: Claim
    paper: Side
    equal: Side | None = None
    contrary: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """Word under the paper's protocol."""
        return CONTRADICTED if self.contrary else self.paper.word


def judged(which: Sequence[str], store: Store, own: UserSupplied, profile: str = "paper") -> dict[str, list[Judged]]:
    """Decide claims from stored runs, by the paper's name or the file.

    Args:
        which: Papers, ids of claims, or paths of `.toml` files; none: every paper.
        store: Where the runs are.
        own: Where user-supplied code and data are looked for.
        profile: Profile of the suites.

    Raises:
        UsageError: A name is unknown, or a file is wrong.
    """
    papers = asked(which)
    shelf, tables = Shelf(store), Tables(own, profile, chain.from_iterable(papers.values()))
    return {paper: [judge(one, shelf, tables) for one in claims] for paper, claims in papers.items() if claims}


def asked(which: Sequence[str]) -> dict[str, list[Claim]]:
    """The claims of these papers, ids and `.toml` files, by paper or file; none: of every paper."""
    shipped = {paper: load(path) for paper, path in files().items()}
    found: dict[str, list[Claim]] = {paper: [] for paper in shipped}
    ids = {claim.id: paper for paper, claims in shipped.items() for claim in claims}
    for name in which or shipped:
        if name.endswith(".toml"):
            paper, claims = name, load(find(name))
        elif name in shipped:
            paper, claims = name, shipped[name]
        elif name in ids:
            paper, claims = ids[name], [claim for claim in shipped[ids[name]] if claim.id == name]
        else:
            raise unknown("claim", name, [*shipped, *ids], "pflbench claims")
        before = found.get(paper, [])
        found[paper] = [*before, *(claim for claim in claims if claim not in before)]
    return found


class Tables(dict[str, Expansion]):
    """Rows and columns of suites that claims are about, by the suite's name, each suite expanded once."""

    def __init__(self, own: UserSupplied, profile: str, claims: Iterable[Claim]) -> None:
        super().__init__()
        self.own, self.profile, self.claims = own, profile, list(claims)

    def __missing__(self, name: str) -> Expansion:
        suite = read_suite(name, self.own)
        document, claims = suite.document(self.profile), [one for one in self.claims if name in (one.suite, one.equal)]
        rows = {id for one in claims for id in (one.row, *one.against)}
        columns = {id for one in claims for id in one.columns}
        result = self[name] = expand(
            suite,
            profile=self.profile,
            rows=[one.id for one in document.row if one.id in rows],
            columns=[one.id for one in document.column if one.id in columns],
        )
        return result


def judge(claim: Claim, shelf: Shelf, tables: Mapping[str, Expansion]) -> Judged:
    """Decide a claim from stored runs. Raises `UsageError` for names that its suites lack."""
    of = tables[claim.suite]
    found = comparisons(claim, of)
    contrary = tuple(dict.fromkeys(title(one) for one in found if _contrary(claim, one)))
    bounds = tuple(_bounds(claim, one) for one in found)
    paper = _side(claim, of, found, bounds, shelf)
    equal = None
    if claim.equal:
        there = tables[claim.equal]
        kept = comparisons(claim, there, partly=True)
        absent = [
            *(row for row in claim.against if row not in {one.id for one in there.rows}),
            *(id for id in claim.columns if id not in {one.id for one in there.columns}),
        ]
        known = {(one.column, one.rival): bound for one, bound in zip(found, bounds, strict=True)}
        equal = _side(claim, there, kept, [known[one.column, one.rival] for one in kept], shelf, absent)
    return Judged(claim, paper, equal, contrary)


def title(one: RivalComparison) -> str:
    """`RMNIST Shards, against ditto`."""
    return f"{one.title}, against {one.rival}" if one.rival else one.title


def _contrary(claim: Claim, one: RivalComparison) -> bool:
    printed = one.printed()
    if printed is None:
        return False
    # Printed numbers are rounded, so their differences carry noise of floating point.
    return abs(printed) > claim.margin + 1e-9 if claim.margin is not None else printed < 1e-9


def _bounds(claim: Claim, one: RivalComparison) -> Hypotheses:
    if claim.margin is not None:
        return Hypotheses(margin=claim.margin)
    printed = one.printed()
    return Hypotheses(least=claim.least if claim.least is not None else printed and HALF * printed)


def _side(
    claim: Claim,
    of: Expansion,
    compared: Sequence[RivalComparison],
    bounds: Sequence[Hypotheses],
    shelf: Shelf,
    absent: Sequence[str] = (),
) -> Side:
    """Decide a claim in one suite."""
    cells = {
        (cell.row.id, cell.column.id): cell for one in compared for cell in (*one.ours, *one.theirs)
    }  # each once, as rivals share the row's
    shelf.fetch(run for cell in cells.values() for run in cell.needed)
    seeds = of.seeds
    looks = [n for n in claim.looks if n <= len(seeds)] or claim.looks[:1]
    found, recent = ([_differences(one, seeds, shelf, read_as) for one in compared] for read_as in ("last", "last-10"))
    decision = decide(found, bounds, looks)
    used, wanted = _seeds(compared, decision, seeds, looks, shelf)
    last = seeds[: looks[-1]]
    return Side(
        suite=of.suite,
        profile=of.profile,
        decision=decision,
        columns=_by_column(compared, found, bounds, looks),
        compared=tuple(compared),
        differences=tuple(map(tuple, found)),
        bounds=tuple(bounds),
        seeds=seeds,
        looks=tuple(looks),
        missing=tuple(filter(None, (_missing(cell, wanted[place], shelf) for place, cell in cells.items()))),
        failed=tuple(line for cell in cells.values() for line in _failed(cell, last, shelf)),
        absent=tuple(absent),
        mixed=_mixed(of, cells, used, shelf),
        depends=_opposite(decision, decide(_as_read(recent, decision), bounds, looks)),
        apart=tuple(_apart(cells.values(), of, shelf)),
    )


def _seeds(
    compared: Sequence[RivalComparison], decision: Decision, seeds: Sequence[int], looks: Sequence[int], shelf: Shelf
) -> tuple[dict[Place, Sequence[int]], dict[Place, Sequence[int]]]:
    """For each cell the seeds that the decision reads, or still may, and those that looks still to be made need."""
    settled = decision.word not in ("undecided", "not run")
    read = [decision.shown.get(i, decision.seeds if settled else looks[-1]) for i in range(len(compared))]
    further = [0 if i in decision.shown else _last_look(one, seeds, looks, shelf) for i, one in enumerate(compared)]
    used, wanted = ({place: seeds[:n] for place, n in _by_cell(compared, each).items()} for each in (read, further))
    return used, wanted


def _last_look(one: RivalComparison, seeds: Sequence[int], looks: Sequence[int], shelf: Shelf) -> int:
    """Seeds at the last look that can be made of a comparison: none of its runs failed; 0 for none."""
    failed = {
        runs[0].seed for cell in (*one.ours, *one.theirs) for runs in cell.by_seed if any(map(shelf.failed, runs))
    }
    return max((n for n in looks if failed.isdisjoint(seeds[:n])), default=0)


def _by_cell(compared: Sequence[RivalComparison], numbers: Sequence[int]) -> dict[Place, int]:
    """The largest number of the comparisons that a cell is in."""
    found: dict[Place, int] = {}
    for one, number in zip(compared, numbers, strict=True):
        for cell in (*one.ours, *one.theirs):
            place = cell.row.id, cell.column.id
            found[place] = max(found.get(place, 0), number)
    return found


def _as_read(differences: Sequence[Sequence[float | None]], by: Decision) -> list[Sequence[float | None]]:
    """The differences at the seeds that a decision read."""
    return [one[: by.shown.get(i, by.seeds)] for i, one in enumerate(differences)]


def _apart(cells: Iterable[Cell], of: Expansion, shelf: Shelf) -> Iterator[tuple[str, float]]:
    """Cells that differ from the paper's numbers, by row and column title, each with its difference in points."""
    for cell in cells:
        printed, seeds = cell.reference, [*by_seed(cell, shelf).values()]
        if printed is None or printed.inferred or of.shortfall.runs or of.paper_round != "last":
            continue
        if verdict(seeds, printed, of.spread, of.layout.decimals).label == "differs":
            yield f"{cell.row.title}, {cell.column.setting}", sum(seeds) / len(seeds) - printed.mean


def _mixed(
    of: Expansion, cells: Mapping[Place, Cell], seeds: Mapping[Place, Sequence[int]], shelf: Shelf
) -> tuple[str, ...]:
    """Sentences on the columns in which finished runs of these cells, with these seeds, mix data or versions."""
    titles = {row.id: row.title for row in of.rows}
    used = [
        run
        for place, cell in cells.items()
        for run in shown_runs({place: cell}, titles, shelf.stored)
        if run.stored.spec.seed in seeds[place]
    ]
    return tuple(mixtures(of, used).values())


def _by_column(
    compared: Sequence[RivalComparison],
    differences: Sequence[Sequence[float | None]],
    bounds: Sequence[Hypotheses],
    looks: Sequence[int],
) -> dict[str, Decision]:
    """Decisions over the comparisons of one column alone (`grows`: of all)."""
    found = {}
    for name in dict.fromkeys(one.title for one in compared):
        here = [i for i, one in enumerate(compared) if one.title == name]
        found[name] = decide([differences[i] for i in here], [bounds[i] for i in here], looks)
    return found


def _opposite(one: Decision, other: Decision) -> bool:
    return {one.word.split(",")[0], other.word.split(",")[0]} == {"holds", "does not hold"}


def _differences(one: RivalComparison, seeds: Sequence[int], shelf: Shelf, read_as: ReadAs) -> list[float | None]:
    """The comparison's difference in points for each seed, or the slope of its lead over the columns."""
    ours = [by_seed(cell, shelf, read_as) for cell in one.ours]
    theirs = [by_seed(cell, shelf, read_as) for cell in one.theirs]
    found: list[float | None] = []
    for seed in seeds:
        if any(seed not in values for values in (*ours, *theirs)):
            found.append(None)
            continue
        rivals = [values[seed] for values in theirs] or [0.0] * len(ours)
        found.append(slope([mine[seed] - rival for mine, rival in zip(ours, rivals, strict=True)]))
    return found


def by_seed(cell: Cell, shelf: Shelf, read_as: ReadAs = "last") -> dict[int, float]:
    """Mean accuracy of each finished seed of a cell, in percent."""
    cell = cell.read(read_as)
    return {one.result.spec.seed: float(one.average(cell.reading).mean()) for one in read_seeds(cell, shelf)}


def _missing(cell: Cell, seeds: Sequence[int], shelf: Shelf) -> Missing | None:
    """The cell's runs of these seeds that are not done and did not fail; None if there is none."""
    done = {run: result for run in cell.needed if (result := shelf.read(run))}
    settled = done.keys() | set(filter(shelf.failed, cell.needed))
    absent = [runs for runs in cell.by_seed if runs[0].seed in seeds and not settled.issuperset(runs)]
    if not absent:
        return None
    each = [seconds for one in done.values() if (seconds := core_seconds(one.provenance))]
    mean = sum(each) / len(each) if each else None
    todo = {run: mean for runs in absent for run in runs if run not in settled}
    return Missing(cell.row.id, cell.column.id, tuple(runs[0].seed for runs in absent), todo)


def _failed(cell: Cell, seeds: Sequence[int], shelf: Shelf) -> Iterator[str]:
    for runs in cell.by_seed:
        if runs[0].seed in seeds and any(map(shelf.failed, runs)):
            yield f"{cell.row.title}, {cell.column.setting}, seed {runs[0].seed}"
