"""`pflbench rerun`: the same to the last bit, the same but for rounding, another result, and what cannot be made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import method_file

from pflbench.package import __version__
from pflbench.result import Score
from pflbench.store import Store

SHORT = ("-s", "tiny.toml", "--column", "shards", "-m", "fedavg", "--seeds", "0")


def only(folder: Path) -> str:
    ((path),) = (folder / "results" / "runs").glob("*.parquet")
    return path.stem


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def change(folder: Path, how: Callable[[Score], Score], **provenance: object) -> None:
    store = Store(folder / "results")
    result = store.read(only(folder))
    scores = tuple(map(how, result.scores))
    store.write(replace(result, scores=scores, provenance=result.provenance | provenance))


def test_the_same_to_the_last_bit_and_nothing_written(cli, folder: Path) -> None:
    cli("run", *SHORT, "--evaluate-every", "1")
    before = tree(folder)
    id = only(folder)
    result = cli("rerun", id[:8], "--quiet")
    assert (result.code, result.err) == (0, "") and result.out.startswith(f"Run {id}. The same to the last bit: ")
    stored, again = result.out.splitlines()[1:]
    assert stored.removeprefix("Stored: ") == again.removeprefix("Again:  ") and f"pflbench {__version__}" in again
    assert "commit" in stored and "device" in stored and tree(folder) == before
    moments = {score.round for score in Store(folder / "results").read(id).scores}
    assert moments == {1, 2} and f"{len(Store(folder / 'results').read(id).scores)} scores" in result.out


@pytest.mark.parametrize(
    ("points", "code", "said"), [(0.05, 0, "The same but for rounding"), (0.2, 1, "Another result")]
)
def test_means_may_differ_by_rounding(cli, folder: Path, points: float, code: int, said: str) -> None:
    cli("run", *SHORT)
    last = 2

    def more(score: Score) -> Score:
        moved = points / 100 if score.stage == "global" and score.round == last else 0.0
        return score._replace(accuracy=score.accuracy + moved)

    change(folder, more)
    result = cli("rerun", only(folder), "-q")
    assert result.code == code and said in result.out
    assert (
        f"of a mean over clients is {-points:+.4f} points (global, after round 2), of one client {points:.2f}"
        in result.out
    )


def test_other_data_are_another_run(cli, folder: Path) -> None:
    cli("run", *SHORT)
    change(folder, lambda score: score._replace(accuracy=score.accuracy + 1e-6), data_hash="other")
    result = cli("rerun", only(folder), "-q")
    assert result.code == 1 and "Its data are others than those of the stored run" in result.out


def test_a_failure_that_fails_again(cli, folder: Path) -> None:
    foo = method_file(folder / "foo.py", ("(batches,) = taken", "(batches,) = taken; 1 / 0"))
    assert cli("run", "-s", "tiny.toml", "--column", "shards", "-m", foo, "--seeds", "0").code == 1
    result = cli("rerun", only(folder), "-q", "--code", ".")
    assert result.code == 0 and "It failed again: " in result.out and "ZeroDivisionError" in result.out


def test_a_failure_that_is_one_no_more(cli, folder: Path) -> None:
    cli("run", *SHORT)
    result = Store(folder / "results").read(only(folder))
    Store(folder / "other").write(replace(result, scores=(), failure="out of luck"))
    said = cli("rerun", result.spec.id, "-q", "-r", "other")
    assert said.code == 1 and "Stored: out of luck. Made again: finished." in said.out


def test_a_method_of_ones_own(cli, folder: Path) -> None:
    own = folder / "own"
    own.mkdir()
    foo = method_file(own / "foo.py")
    cli("run", "-s", "tiny.toml", "--column", "shards", "-m", foo, "--seeds", "0")
    id = only(folder)
    result = cli("rerun", id)
    assert result.code == 2 and len(result.err.splitlines()) == 1
    assert "which is not part of pflbench" in result.err and f"`pflbench show {id}`" in result.err
    elsewhere = cli("rerun", id, "--code", ".")
    assert elsewhere.code == 2 and "There is no file 'foo.py'" in elsewhere.err
    assert cli("rerun", id, "--code", "own").code == 0
    (own / "foo.py").write_text((own / "foo.py").read_text() + "\n# another version\nUSED = 1\n")
    changed = cli("rerun", id, "--code", "own")
    assert changed.code == 2 and "is another version than that of run" in changed.err


def test_what_cannot_be_made(cli, results: Path, folder: Path) -> None:
    assert "No run starts with 'zzz'" in cli("rerun", "zzz").err and cli("rerun", "zzz").code == 2
    store = Store(results)
    run = store.list()[0]
    result = store.read(run.spec.id)
    dataset = run.spec.dataset.model_copy(update={"name": "mnist", "options": {}})
    gone = replace(result, spec=run.spec.model_copy(update={"dataset": dataset}))
    store.write(gone)
    refused = cli("rerun", gone.spec.id)
    assert refused.code == 1 and len(refused.err.splitlines()) == 1
    assert f"Run {gone.spec.id} cannot be made again. The dataset 'mnist' is not there" in refused.err
    made_up = cli("rerun", run.spec.id, "-q")
    assert made_up.code == 1  # these results were never computed
