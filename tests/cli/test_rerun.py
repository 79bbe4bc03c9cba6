"""`pflbench rerun`: the same bits, close, another result, and what cannot be made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import method_file

from pflbench.package import __version__
from pflbench.result import Score
from pflbench.running.again import means
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
    assert (result.code, result.err) == (0, "") and result.out.startswith(f"Run {id}: the same bits. ")
    *_, stored, again = result.out.splitlines()
    assert stored.removeprefix("Stored: ") == again.removeprefix("Again:  ") and f"pflbench {__version__}" in again
    assert "data_hash" in stored and "device" in stored and tree(folder) == before
    moments = {score.round for score in Store(folder / "results").read(id).scores}
    assert moments == {1, 2} and f"{len(Store(folder / 'results').read(id).scores)} scores" in result.out


def moved(stage: str, points: float, step: int | None = None) -> Callable[[Score], Score]:
    """Move the accuracies of a stage after the last round, at one step or all, within 0 and 1."""

    def more(score: Score) -> Score:
        hit = (score.stage, score.round) == (stage, 2) and step in (None, score.step)
        return score._replace(accuracy=min(max(score.accuracy + points / 100, 0.0), 1.0)) if hit else score

    return more


@pytest.mark.parametrize(
    ("how", "code", "word"),
    [
        (moved("global", 1.0), 0, "close"),
        (moved("global", 20.0), 1, "another result"),
        (moved("finetuned", -20.0), 1, "another result"),
        (moved("finetuned", 60.0, step=0), 0, "close"),
    ],
    ids=["close", "another result", "another result of another stage", "a step before the last"],
)
def test_the_last_numbers_of_each_stage_decide(
    cli, folder: Path, how: Callable[[Score], Score], code: int, word: str
) -> None:
    cli("run", *SHORT)
    again = means(Store(folder / "results").read(only(folder)).scores)["global", 2, 0]
    change(folder, how)
    stored = means(Store(folder / "results").read(only(folder)).scores)["global", 2, 0]
    result = cli("rerun", only(folder), "-q")
    assert result.code == code and result.out.startswith(f"Run {only(folder)}: {word}. ")
    line = f"global: stored {stored:.2f} %, again {again:.2f} % ({again - stored:+.2f}, margin ±2)."
    assert line in result.out.splitlines() and "\nfinetuned: stored " in result.out


def test_a_run_whose_suite_is_gone_is_read_after_its_last_round(cli, folder: Path) -> None:
    cli("run", *SHORT)
    change(folder, moved("global", 20.0), asked={"suite": "gone", "profile": "paper"})
    result = cli("rerun", only(folder), "-q")
    assert result.code == 1 and "\nglobal: stored " in result.out and "\nfinetuned: stored " in result.out


def test_other_data_are_another_run(cli, folder: Path) -> None:
    cli("run", *SHORT)
    change(folder, lambda score: score._replace(accuracy=score.accuracy + 1e-6), data_hash="other")
    result = cli("rerun", only(folder), "-q")
    assert result.code == 1 and ": another result. " in result.out and "data_hash other" in result.out


def test_a_failure_that_fails_again(cli, folder: Path) -> None:
    foo = method_file(folder / "foo.py", ("(batches,) = taken", "(batches,) = taken; 1 / 0"))
    assert cli("run", "-s", "tiny.toml", "--column", "shards", "-m", foo, "--seeds", "0").code == 1
    result = cli("rerun", only(folder), "-q", "--code", ".")
    assert result.code == 0 and result.out.count("failed: ZeroDivisionError") == 2


def test_a_failure_that_is_one_no_more(cli, folder: Path) -> None:
    cli("run", *SHORT)
    result = Store(folder / "results").read(only(folder))
    Store(folder / "other").write(replace(result, scores=(), failure="out of luck"))
    said = cli("rerun", result.spec.id, "-q", "-r", "other")
    assert said.code == 1 and "\nStored: failed: out of luck; " in said.out and "\nAgain:  finished; " in said.out


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
