"""The stages at which each row is scored and shown: those that the suite names and the row's method has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pflbench import names
from pflbench.errors import UsageError
from pflbench.stages import PREFERRED, SHOWN, Shown, canonical
from pflbench.suite import resolve
from pflbench.suite.document import Document, Suite
from pflbench.suite.select import SelectedRow

_POINTER = "see 'Which stages exist' in docs/methods.md"
_TRAINED = (
    " For it to have one, write `def local_model(self, upload, state)`, which returns the client's model after a "
    f"local update: {_POINTER}."
)
_HOOKS: dict[Shown, str] = {
    "personalized": " For it to have one, write `def personalize(self, f, server, state, *batches, round)`, which "
    f'returns {{"personalized": model}}: {_POINTER}.',
    "stored": _TRAINED,
    "sampled": _TRAINED,
}
"""Advice for each stage to authors of a method without it."""


def staged(suite: Suite, document: Document, selected: SelectedRow) -> SelectedRow:
    """The row at the stages that its method has.

    A row of the suite is scored at what it names and, of what other rows name, at what its method has. A guest is shown
    and scored at what the table shows and its method has.

    Raises:
        UsageError: The row names a stage that its method does not have, or nothing is left for a guest.
    """
    there = _there(suite, document, selected)
    if not selected.place:
        return _guest(document, selected, there)
    if lacking := [stage for stage in selected.entry.named if stage not in there]:
        key = "stage" if lacking[0] == selected.entry.stage else selected.entry.stage_key
        raise UsageError(f"{selected.place}.{key}: {_refusal(document, selected, lacking[0], there)}")
    return replace(selected, scored=tuple(stage for stage in selected.scored if stage in there))


def _guest(document: Document, selected: SelectedRow, there: Sequence[Shown]) -> SelectedRow:
    """A guest whose method has the stages `there`."""
    seen = {stage for row in document.row for stage in document.shown(row)}
    best = [stage for stage in PREFERRED if stage in seen and stage in there][:1]
    shown = tuple(stage for stage in document.layout.stages or best if stage in there)
    if not shown:
        wanted = [stage for stage in SHOWN if stage in seen]
        raise UsageError(_refusal(document, selected, wanted[0], there))
    # Methods need not have the stages "stored" and "sampled": runs are scored at them only where they are shown.
    asked = document.scored_anywhere - {"stored", "sampled"} | {*shown}
    scored = canonical(stage for stage in asked if stage in there)
    return replace(selected, row=replace(selected.row, stages=shown), scored=scored)


def _there(suite: Suite, document: Document, selected: SelectedRow) -> tuple[Shown, ...]:
    """The stages that the method has in all columns, so that selecting columns changes no run's identity."""
    stages = selected.info.stages
    kinds: list[dict[str, object]] = [{}]
    if stages.personal_needs and "personalized" in canonical((*selected.scored, *selected.entry.named)):
        where = range(len(document.column))
        kinds = [h for i in where for h in resolve.hyperparameters(suite, document, i, selected)[0]]
    moment, held_out = document.evaluation.moment, document.held_out
    found = [stages.there(hyper, moment=moment, held_out=held_out) for hyper in kinds]
    return tuple(stage for stage in SHOWN if all(stage in one for one in found))


def _refusal(document: Document, selected: SelectedRow, stage: Shown, there: Sequence[Shown]) -> str:
    stages, own = selected.info.stages, stage in ("personalized", "local")
    why = ""
    if own and stages.personalizes and document.held_out and stages.personal_of == "training":
        why = " for clients that never train, which are scored here"
    elif own and stages.personalizes and stages.personal_needs:
        why = f" without a value for {stages.personal_needs}"
    has = f"it has {', '.join(there)}" if there else "it has none"
    hook = "" if why or not names.is_users(selected.info.reference) else _HOOKS.get(stage, "")
    return f"{selected.info.name} has no stage {stage!r}{why}; {has}.{hook}"
