"""Claims of a paper as data: `claims.toml` files, checked against the suites that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from pflbench.errors import UsageError
from pflbench.package import benchmarks
from pflbench.suite.cells import Cell, Expansion, TableColumn
from pflbench.suite.load import read_toml
from pflbench.suite.strict import TomlTable, all_known, at, fault, validated

Test = Literal["better", "first", "within", "grows"]


class Claim(TomlTable):
    """One claim: a row against its rivals in columns of a suite.

    Attributes:
        id: Kebab-case, unique in its file.
        text: The claim in our words.
        source: Table or figure of the paper.
        suite: Suite that decides it, under the paper's protocol.
        equal: Suite on equal terms with the same ids.
        columns: Column ids; for `grows` in the order in which the lead is to grow.
        row: Row id.
        against: Row ids of all rivals; for `grows` at most one (none: the row's own accuracy grows).
        stage: Stage of rows that show several.
        test: `better` or `first` than each rival, `within` a margin of each, or a lead that `grows` over the columns.
        least: Smallest lead in points that counts as claimed, 0 or more; default: half of the printed gap.
        margin: For `within`, in points.
        looks: Numbers of seeds after which it is decided, in the suite's order.
    """

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    text: str = Field(min_length=1)
    source: str = Field(min_length=1)
    suite: str
    equal: str | None = None
    columns: list[str] = Field(min_length=1)
    row: str
    against: list[str] = Field(default=[])
    stage: str | None = None
    test: Test
    least: float | None = Field(default=None, ge=0)
    margin: float | None = Field(default=None, gt=0)
    looks: list[int] = Field(default=[3, 5], min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Claim:
        if self.test != "grows" and not self.against:
            raise fault(("against",), f"test {self.test!r} needs the ids of its rivals")
        if (self.margin is None) == (self.test == "within"):
            raise fault(("margin",), "test 'within' needs a margin in points, and no other test has one")
        return self


class _File(TomlTable):
    claim: list[Claim] = Field(min_length=1)


@dataclass(frozen=True)
class RivalComparison:
    """One comparison of a claim: the cells of the row, and those of the rival, in the claim's order of columns.

    `rival`: empty where the row's own accuracy is claimed to grow. All tests but `grows` have one column.
    """

    title: str
    rival: str
    ours: tuple[Cell, ...]
    theirs: tuple[Cell, ...]

    @property
    def column(self) -> str:
        """Id of its column; the ids from first to last for a lead that grows."""
        ids = dict.fromkeys((self.ours[0].column.id, self.ours[-1].column.id))
        return " to ".join(ids)

    def printed(self) -> float | None:
        """Difference that the paper prints, in points (for `grows`: slope per column); None without its numbers."""
        gaps = []
        for ours, theirs in zip(self.ours, self.theirs or (None,) * len(self.ours), strict=True):
            if ours.reference is None or (theirs is not None and theirs.reference is None):
                return None
            gaps.append(ours.reference.mean - (theirs.reference.mean if theirs and theirs.reference else 0.0))
        return slope(gaps)


def slope(values: Sequence[float]) -> float:
    """Least-squares slope of equally spaced values per step; a single value as it is."""
    if len(values) == 1:
        return values[0]
    steps = [i - (len(values) - 1) / 2 for i in range(len(values))]
    return sum(step * value for step, value in zip(steps, values, strict=True)) / sum(step**2 for step in steps)


def files() -> dict[str, Path]:
    """The claims files that come with pflbench, by their paper's folder."""
    return {path.parent.name: path for path in sorted(benchmarks().glob("*/claims.toml"))}


def load(path: Path) -> list[Claim]:
    """Return the claims of a file. Raises `UsageError` that names file and key."""
    return validated(_File, read_toml(path), f"{path}: ").claim


def comparisons(claim: Claim, of: Expansion, *, partly: bool = False) -> list[RivalComparison]:
    """The comparisons of a claim in a suite: one for each rival and column; for `grows` over all columns.

    `partly`: leave out rivals and columns that the suite lacks. Raises `UsageError` for a name that it lacks.
    """
    rows = {row.id for row in of.rows}
    with at(f"Claim {claim.id!r}, suite {of.suite}"):
        all_known("row", [claim.row] if partly else [claim.row, *claim.against], rows)
        groups = _groups(claim, of, partly)
        rivals = [id for id in claim.against if id in rows] if claim.against else [""]
        return [_comparison(claim, of, group, rival) for group in groups for rival in rivals]


def _groups(claim: Claim, of: Expansion, partly: bool) -> list[list[TableColumn]]:
    """Columns of each comparison, in the claim's order: one or, for `grows`, all."""
    columns = {one.id: one for one in of.columns}
    all_known("column", [] if partly else claim.columns, columns)
    present = [columns[id] for id in claim.columns if id in columns]
    if claim.test != "grows":
        return [[one] for one in present]
    if not partly and len(present) < 2:
        raise UsageError("a lead can only grow over two columns or more.")
    return [present] if len(present) > 1 else []


def _comparison(claim: Claim, of: Expansion, columns: Sequence[TableColumn], rival: str) -> RivalComparison:
    ours = tuple(_cell(of, claim, claim.row, one.id) for one in columns)
    theirs = tuple(_cell(of, claim, rival, one.id) for one in columns) if rival else ()
    name = columns[0].setting if len(columns) == 1 else columns[0].group
    return RivalComparison(name or of.suite, rival, ours, theirs)


def _cell(of: Expansion, claim: Claim, row: str, column: str) -> Cell:
    present = [cell for cell in of.cells if cell.row.id == row and cell.column.id == column]
    if len(present) > 1:
        present = [cell for cell in present if cell.stage == claim.stage]
    if not present:
        raise UsageError(f"row {row!r} shows no stage {claim.stage!r} in column {column!r}. Set `stage`.")
    return present[0]
