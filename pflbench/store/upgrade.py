"""`upgrade`: a results folder as this version of pflbench would have written it, file by file.

At every moment each run can be read: a file is written and read again before the one that it replaces is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.store import files, runfile, schema
from pflbench.store.folder import Folder
from pflbench.store.header import Stored, Unfit
from pflbench.store.runfile import RunFile
from pflbench.store.store import Store, renamed

COLUMNS = "given the columns that their files lacked"
"""Title of the step for files that lack columns of today."""


class Step(NamedTuple):
    """Something that older versions did otherwise.

    `change` gives a stored run as it would be now, the same each time, or None if it is so already; scores stay as they
    are. `title` says of runs what is done to them.
    """

    title: str
    change: Callable[[RunResult], RunResult | None]


def _named_as_today(run: RunResult) -> RunResult | None:
    spec = renamed(run.spec)
    return None if spec is None else replace(run, spec=spec)


STEPS = (Step("named as their methods are called now", _named_as_today),)


class _Gone(Exception):
    """A file that was to be read is damaged, and was set aside, or was replaced meanwhile."""


def upgrade(store: Store, steps: Sequence[Step] = STEPS, *, dry_run: bool = False) -> dict[str, int]:
    """Bring every stored run up to date, and count the changed runs by the title of the step. Idempotent.

    Where a run is there under its old and its new id, one is kept: a finished one before a failed one, else that of the
    new id. The ids that a run had before stand in its provenance, `former_ids`. `dry_run`: change nothing.
    Raises `StoreError`.
    """
    changed: dict[str, set[str]] = {}  # by title: ids that the runs had
    for folder in (store.singles, store.packs):
        unchanging = 0
        while unchanging < 3:  # a file may be damaged, or replaced meanwhile: what is there then is upgraded, too
            before = sum(map(len, changed.values()))
            try:
                for file in folder.all():
                    for id, titles in _file(store, folder, file, steps, dry_run).items():
                        for title in titles:
                            changed.setdefault(title, set()).add(id)
                break
            except _Gone:
                unchanging = 0 if sum(map(len, changed.values())) > before else unchanging + 1
        else:
            raise StoreError(
                f"The files in {str(folder.folder)!r} change all the time. Nothing is lost; upgrade again."
            )
        if not dry_run:
            files.clean(folder.folder)
    order = [*(step.title for step in steps), COLUMNS]
    return {title: len(changed[title]) for title in order if title in changed}


def _file(store: Store, folder: Folder, file: RunFile, steps: Sequence[Step], dry_run: bool) -> dict[str, list[str]]:
    """Upgrade a file; return the titles of what is done to its runs, by the ids that they had. Raises `_Gone`."""
    done: dict[str, list[str]] = {}
    if file.foreign or file.unfit:  # it stays: what is not read of it would be lost
        return done
    news: dict[str, list[tuple[bool, bool, str, Stored]]] = {}  # by new id: what was there for it
    for id, entry in file.entries.items():
        old = folder.read(entry)
        if old is None and file.packed:
            raise _Gone
        if old is None:  # it was packed or redone meanwhile, or is damaged
            return {}
        new, done[id] = _upgraded(old, steps, file)
        source = Stored(new.spec, new.provenance, new.failure, file.path, len(schema.rows(new)))
        news.setdefault(new.spec.id, []).append((new.failure is not None, new.spec.id != id, id, source))
    if dry_run or not any(done.values()):
        return {id: titles for id, titles in done.items() if titles}
    if not file.packed:
        return done if _replace(store, file, new, renamed=new.spec.id not in file.entries) else {}
    best = {id: min(found, key=lambda one: one[:3]) for id, found in sorted(news.items())}
    sources = [source for *_, source in best.values()]
    runfile.rewrite(folder.folder, sources, lambda id: _again(file, best[id][2], steps), [file])
    return done


def _again(pack: RunFile, id: str, steps: Sequence[Step]) -> RunResult:
    """A pack's run after all steps. Raises `_Gone`."""
    try:
        return _upgraded(pack.read(id), steps, pack)[0]
    except (Unfit, OSError) as error:
        raise _Gone from error


def _replace(store: Store, file: RunFile, new: RunResult, renamed: bool) -> bool:
    """Put a run in place of the file that it has by itself; False if that was redone meanwhile."""
    if not files.unchanged(file.path, file.footer.identity):
        return False
    there = store.find(new.spec.id) if renamed else None
    if there is None or (there.failure is not None and new.failure is None):
        store.check_place(new.spec.id)
        runfile.write(store.path(new.spec.id), new)
        files.sync_folder(store.runs)
    if renamed:
        files.remove(file.path, file.footer.identity, store.path(new.spec.id) if there is None else there.path)
    return True


def _upgraded(run: RunResult, steps: Sequence[Step], file: RunFile) -> tuple[RunResult, list[str]]:
    """The run of a file after all steps, and the titles of what changes it."""
    old, titles = run, []
    for step in steps:
        new = step.change(run)
        if new is not None:
            run = new
            titles.append(step.title)
    if run.spec.id != old.spec.id:
        former = [*filter(None, [old.provenance.get("former_ids")]), old.spec.id]
        run = replace(run, provenance=run.provenance | {"former_ids": ",".join(former)})
    return run, titles if {*schema.COLUMNS.names} <= {*file.footer.columns} else [*titles, COLUMNS]
