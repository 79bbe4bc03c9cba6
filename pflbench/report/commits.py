"""Results folders that are read to be compared: on disk, of a commit of a repository, or those that came along."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pflbench.errors import UsageError
from pflbench.store import OutdatedRuns, ShownStore, Store, shown
from pflbench.store.upgrade import upgrade

COMMIT = "git:"
"""What a commit's results are named by: `git:COMMIT`, or `git:COMMIT:FOLDER` for another folder than `results`."""
PACKAGED = "packaged"
_PARTS = ("runs", "packs")


@contextlib.contextmanager
def opened(name: str) -> Iterator[ShownStore]:
    """The runs of a results folder, of `git:COMMIT`, or of `packaged`, while they are read.

    Raises:
        UsageError: There is no such folder or commit, or it has no results.
    """
    if name.startswith(COMMIT):
        with tempfile.TemporaryDirectory(prefix="pflbench-") as folder:
            _take_out(name, Path(folder))
            yield ShownStore(Path(folder), packaged=False, remembered=False)
        return
    if name == PACKAGED:
        if not shown.packaged_folder().is_dir():
            raise UsageError("No reference runs came with this pflbench: name a results folder, or git:COMMIT.")
        yield ShownStore(shown.packaged_folder())  # which holds no runs of its own
        return
    root = Path(name)
    if not any((root / part).is_dir() for part in _PARTS):
        what = "is no results folder: it has neither runs nor packs" if root.is_dir() else "is no folder"
        raise UsageError(f"{name!r} {what}. Compare two results folders, or one with git:COMMIT.")
    yield ShownStore(root, packaged=False)


def _take_out(name: str, into: Path) -> None:
    """Write the results of a commit into a folder, named as methods are today. Raises `UsageError`."""
    commit, _, folder = name.removeprefix(COMMIT).partition(":")
    top = _git(Path(), "rev-parse", "--show-toplevel", of=name).decode().strip()
    id = "" if commit.startswith("-") else commit
    tree = _git(Path(top), "rev-parse", "--verify", "--quiet", f"{id}^{{commit}}", of=name).decode().strip()
    below = PurePosixPath(folder or "results")
    listed = _git(Path(top), "ls-tree", "-r", "-z", "--full-tree", tree, "--", *map(str, map(below.joinpath, _PARTS)))
    files = [line.split("\t", 1) for line in listed.decode(errors="surrogateescape").split("\0") if line]
    for said, path in files:
        mode, _, blob = said.split()
        place = PurePosixPath(path).relative_to(below)
        if mode.startswith("100") and len(place.parts) == 2:
            target = into / place
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(_git(Path(top), "cat-file", "blob", blob))
    if not any(into.iterdir()):
        raise UsageError(f"{name!r} has no results in {str(below)!r}.")
    with warnings.catch_warnings(record=True) as said_of:
        warnings.simplefilter("always")
        Store(into, remembered=False).list()
    if any(issubclass(one.category, OutdatedRuns) for one in said_of):
        upgrade(Store(into, remembered=False))


def _git(folder: Path, *arguments: str, of: str = "") -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True)
    except OSError as error:
        raise UsageError(f"Git cannot be started, which reads {of or 'a commit'!r}: {error.strerror}.") from error
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        why = told[-1] if told else "there is no such commit"
        raise UsageError(f"{of!r} cannot be read here: {why}." if of else f"git {arguments[0]} failed: {why}.")
    return done.stdout
