"""No change of code or suites may lose a stored run: each suite still finds those that it found when they were pinned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import stored_ids

from pflbench.data.root import data_root
from pflbench.store import Store, asked
from pflbench.store.schema import COLUMNS
from pflbench.store.store import renamed


@pytest.mark.parametrize("data", ["none", pytest.param("real", marks=pytest.mark.data)])
def test_every_suite_still_finds_its_stored_runs(data: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where no dataset lies, whose content is part of some runs' ids: stored runs tell it."""
    if data == "none":
        monkeypatch.setenv("PFLBENCH_DATA_DIR", str(tmp_path))
    elif not (data_root() / "femnist").is_dir():
        pytest.skip(f"no FEMNIST in {data_root()}")
    pinned, now = json.loads(stored_ids.PINNED.read_text(encoding="utf-8")), stored_ids.found()
    lost = {
        f"{suite} [{profile}]": gone
        for suite, profiles in pinned.items()
        for profile, ids in profiles.items()
        if (gone := sorted(set(ids) - set(now.get(suite, {}).get(profile, []))))
    }
    assert pinned and not lost


def test_who_asked_for_packed_runs_is_said_of_runs_that_are_there() -> None:
    """Runs from before provenance said it: without these lines they would be in no table."""
    store = Store(stored_ids.ROOT / "results")
    lines = [json.loads(line) for line in (store.packs.folder / asked.NAME).read_text().splitlines()]
    stored = {run.spec.id for run in store.list()}
    assert lines and all(line["runs"] and stored.issuperset(line["runs"]) for line in lines)


def test_the_packs_are_as_upgrade_leaves_them() -> None:
    packs = Store(stored_ids.ROOT / "results").packs.all()
    assert packs and all(set(COLUMNS.names) <= set(pack.footer.columns) for pack in packs)
    assert not [id for pack in packs for id, entry in pack.entries.items() if renamed(entry.spec)]
