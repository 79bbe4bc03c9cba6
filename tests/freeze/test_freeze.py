"""No change of code or suites moves an id, a number, a signature or a stored run, unless freeze.py was run on purpose."""

from __future__ import annotations

import json

import freeze
import pytest

from pflbench.data.root import data_root
from pflbench.store import Store, requests

DATA = ["none", pytest.param("real", marks=pytest.mark.data)]
CONTENT = {
    "cafeme-table2 paper",
    "cafeme-readings-table2 paper",
    "cafeme-readings-table2 quick",
    "cafeme-fig4-table2 paper",
}
"""Parts of suites with runs whose id hashes FEMNIST's files, so that it is known only where the data or the run is."""


@pytest.fixture(scope="module")
def frozen() -> dict[str, object]:
    return json.loads(freeze.FROZEN.read_text(encoding="utf-8"))


@pytest.fixture
def data(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Data root: an empty one, or the real one of this machine."""
    if request.param == "none":
        monkeypatch.setenv("PFLBENCH_DATA_DIR", str(tmp_path_factory.mktemp("empty")))
    elif not (data_root() / "femnist").is_dir():
        pytest.skip(f"no FEMNIST in {data_root()}")
    return request.param


@pytest.mark.parametrize("data", DATA, indirect=True)
@pytest.mark.parametrize("section", freeze.SECTIONS)
def test_a_section_is_as_it_was(section: str, data: str, frozen: dict[str, object]) -> None:
    then, now = frozen[section], freeze.SECTIONS[section]()
    if section == "run ids" and data == "real":
        then, now = ({key: them[key] for key in them if key not in CONTENT} for them in (then, now))
    if section == "imports":
        assert [name for name in then if not freeze.importable(name)] == []
    else:
        assert now == then


@pytest.mark.parametrize("data", DATA, indirect=True)
def test_every_cell_is_as_it_was(data: str) -> None:
    then, now = freeze.cells(freeze.CELLS.read_text(encoding="utf-8")), freeze.cells(freeze.report("csv"))
    assert len(now) > 700 and now == then


@pytest.mark.parametrize("data", DATA, indirect=True)
def test_every_suite_still_finds_its_stored_runs(data: str) -> None:
    """Also where no dataset lies, whose content is part of some runs' ids: stored runs tell it."""
    then, now = json.loads(freeze.STORED.read_text(encoding="utf-8")), freeze.stored_ids()
    lost = {
        f"{suite} [{profile}]": gone
        for suite, profiles in then.items()
        if suite not in freeze.GONE
        for profile, ids in profiles.items()
        if (gone := sorted(set(ids) - set(now.get(suite, {}).get(profile, []))))
    }
    assert then and not lost


def test_who_asked_for_packed_runs_is_said_of_runs_that_are_there() -> None:
    """Runs from before provenance said it: without these lines they would be in no table."""
    store = Store(freeze.RESULTS)
    lines = [json.loads(line) for line in (store.packs / requests.NAME).read_text().splitlines()]
    stored = {run.spec.id for run in store.list()}
    assert lines and all(line["runs"] and stored.issuperset(line["runs"]) for line in lines)
