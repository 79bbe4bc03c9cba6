"""The stages at which each row is scored and shown: those that the suite names and the row's method has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pflbench.errors import UsageError
from pflbench.stages import PREFERRED, SHOWN, Shown, canonical
from pflbench.suite.document import Document
from pflbench.suite.layers import ColumnLayers
from pflbench.suite.rows import SelectedRow


def staged(row: SelectedRow, document: Document, columns: Sequence[ColumnLayers]) -> SelectedRow:
    """The row at the stages that its method has in all these columns, so that selecting some changes no run.

    A row of the suite is scored at what it names and, of what other rows name, at what its method has. A guest is shown
    and scored at what the table shows and its method has.

    Raises:
        UsageError: The row names a stage that its method does not have, or nothing is left for a guest.
    """
    stages = row.info.stages
    points: list[dict[str, object]] = [{}]
    if stages.personal_needs and "personalized" in canonical((*row.scored, *row.entry.named)):
        points = [point for column in columns for point in column.hyperparameters(row)[0]]
    moment, held_out = row.entry.scored_at(document.evaluation), document.held_out
    by_point = [stages.present(point, moment=moment, held_out=held_out) for point in points]
    present = tuple(stage for stage in SHOWN if all(stage in one for one in by_point))
    if not row.where:
        return _guest(document, row, present)
    if lacking := [stage for stage in row.entry.named if stage not in present]:
        key = "stage" if lacking[0] == row.entry.stage else row.entry.stage_key
        raise UsageError(f"{row.where}.{key}: {_refusal(document, row, lacking[0], present)}")
    return replace(row, scored=tuple(stage for stage in row.scored if stage in present))


def _guest(document: Document, selected: SelectedRow, present: Sequence[Shown]) -> SelectedRow:
    """A guest whose method has the stages `present`."""
    displayed = {stage for row in document.row for stage in document.shown(row)}
    best = [stage for stage in PREFERRED if stage in displayed and stage in present][:1]
    shown = tuple(stage for stage in document.layout.stages or best if stage in present)
    if not shown:
        wanted = [stage for stage in SHOWN if stage in displayed]
        raise UsageError(_refusal(document, selected, wanted[0], present))
    # Methods need not have the stages "stored" and "sampled": runs are scored at them only where they are shown.
    wanted_stages = document.scored_anywhere - {"stored", "sampled"} | {*shown}
    scored = canonical(stage for stage in wanted_stages if stage in present)
    return replace(selected, row=replace(selected.row, stages=shown), scored=scored)


def _refusal(document: Document, selected: SelectedRow, stage: Shown, present: Sequence[Shown]) -> str:
    stages, is_personal = selected.info.stages, stage in ("personalized", "local")
    why = ""
    if is_personal and stages.personalizes and document.held_out and stages.personal_of == "training":
        why = " for clients that never train, which are scored here"
    elif is_personal and stages.personalizes and stages.personal_needs:
        why = f" without a value for {stages.personal_needs}"
    has = f"it has {', '.join(present)}" if present else "it has none"
    return f"{selected.info.name} has no stage {stage!r}{why}; {has}. See 'Which stages exist' in docs/methods.md."
