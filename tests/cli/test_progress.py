"""What `run` says while it runs, and its options of how to compute rather than what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from cli_kit import stored

from pflbench import units
from pflbench.cli import progress
from pflbench.cli.progress import SPEAK_EVERY, Display
from pflbench.console import Console
from pflbench.errors import UsageError
from pflbench.running.events import Progress as Moved
from pflbench.running.events import Training
from pflbench.running.job import Done, Job
from pflbench.spec import Named
from pflbench.store import Store
from pflbench.testing import tiny_spec

SHORT = ("-s", "tiny.toml", "--column", "shards", "-m", "fedavg", "--seeds", "0")


# Words for amounts.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4GB", 4 * 10**9),
        ("4 GB", 4 * 10**9),
        (" 4g ", 4 * 10**9),
        ("512MB", 512 * 10**6),
        ("1.5GiB", 3 * 2**29),
        ("0.5 tib", 2**39),
        ("100k", 100_000),
    ],
)
def test_amounts_of_memory_are_read(text: str, expected: int) -> None:
    assert units.size(text) == expected


@pytest.mark.parametrize("text", ["", "4", "GB", "4XB", "-1GB", "0GB", "1.2.3GB", ".GB", "4GB please", "nan GB"])
def test_what_is_no_amount_of_memory_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="not an amount of memory; write 4GB"):
        units.size(text)


def test_durations_are_in_words_and_grow() -> None:
    assert [units.duration(s) for s in (0, 12.4, 61, 420, 3600, 7200, 12_600, 1e6)] == [
        "0 s", "12 s", "1 min", "7 min", "60 min", "2.0 h", "3.5 h", "277.8 h",
    ]  # fmt: skip
    lengths = {"s": 1, "min": 60, "h": 3600}
    read = [float(number) * lengths[unit] for number, unit in (units.duration(s).split() for s in range(0, 20_000, 7))]
    assert read == sorted(read) and all(abs(a - b) <= 181 for a, b in zip(read, range(0, 20_000, 7), strict=True))


# Lines.


def task(seed: int, rounds: int = 1000, seeds: int = 1) -> Job:
    setting = {"rounds": rounds, "dataset": "digits", "partition": Named(name="shards", options={"shards": 40})}
    return Job(tuple(tiny_spec(seed + i, **setting) for i in range(seeds)), {"methods": "x:Y"})


class Clock:
    """Time that passes when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 1000.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def begins(shown: Display, it: Job, at: int = 0) -> None:
    """A task is taken up at this round."""
    shown.event(Moved(it, None))
    shown.event(Moved(it, at))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setenv("COLUMNS", "200")
    return Clock(monkeypatch)


@pytest.fixture
def display(clock: Clock, capsys: pytest.CaptureFixture[str]) -> Callable[..., Display]:
    """A display of these tasks, of which training has just begun."""

    def begun(*tasks: Job, quiet: bool = False) -> Display:
        shown = Display(quiet)
        shown.event(Training([replace(one, name="cifar · checked") for one in tasks], "a machine"))
        assert ("Running on a machine." in capsys.readouterr().out) != quiet
        return shown

    return begun


def test_a_long_run_says_a_line_a_minute(
    clock: Clock, display: Callable[..., Display], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = task(3)
    with display(mine) as shown:
        begins(shown, mine)
        for second in range(1, 301):  # two rounds a second
            clock.now += 1
            shown.event(Moved(mine, 2 * second))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 300 / SPEAK_EVERY
    assert lines[0].strip() == "cifar · checked · seed 3: round 120/1000, 2.00 rounds/s, 7 min left"
    assert [int(line.split("round ")[1].split("/")[0]) for line in lines] == [120, 240, 360, 480, 600]


def test_what_is_left_counts_the_work_of_all_runs(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    dear, cheap = task(0, rounds=100), task(1, rounds=1)
    training = Training((dear, cheap), "a machine")
    vars(training)["work"] = {dear.specs[0].id: 300.0, cheap.specs[0].id: 100.0}
    shown = Display(quiet=False)
    for event in (training, Moved(dear, None), Moved(dear, 0), Moved(cheap, None), Moved(cheap, 0), Moved(dear, 25)):
        shown.event(event)
    clock.now += 7
    shown.event(Done(cheap.specs[0], "done", headline="1.00 % (global)"))
    assert capsys.readouterr().out.endswith("about 9 s left\n"), "175 of 400 took 7 s"


def test_lines_on_a_terminal_break_between_words_and_in_files_nowhere(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a name is as wide as the terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    mine = task(0, rounds=100)
    name = "Fashion-MNIST 100 Clients, label skew · " + "per-fedavg-with-a-long-name" * 2
    said = []
    for terminal in (True, False):
        shown = Display(quiet=False)
        shown.console = Console(width=60, force_terminal=terminal, color_system=None)
        shown.event(Training([replace(mine, name=name)], ""))
        capsys.readouterr()
        shown.event(Done(mine.specs[0], "done", seconds=50.0, headline="91.20 % (global)"))
        said.append(capsys.readouterr().out)
    lines, whole = said[0].splitlines(), said[1].splitlines()
    assert len(whole) == 1 < len(lines) and max(map(len, lines)) <= 60
    assert " ".join(said[0].split()) == " ".join(whole[0].split())


def test_runs_of_less_than_a_minute_say_their_results_only(
    clock: Clock, display: Callable[..., Display], capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [task(seed, rounds=100) for seed in range(3)]
    with display(*tasks) as shown:
        for t in tasks:
            begins(shown, t)
            for rounds in (40, 80):
                clock.now += 20
                shown.event(Moved(t, rounds))
            clock.now += 10
            shown.event(Done(t.specs[0], "done", seconds=50.0, headline="91.20 % (global)"))
    assert capsys.readouterr().out.splitlines() == [
        "[1/3] cifar · checked · seed 0: 91.20 % (global) in 50.0 s, 2.00 rounds/s, about 2 min left",
        "[2/3] cifar · checked · seed 1: 91.20 % (global) in 50.0 s, 2.00 rounds/s, about 50 s left",
        "[3/3] cifar · checked · seed 2: 91.20 % (global) in 50.0 s, 2.00 rounds/s",
    ]


def test_the_pace_counts_no_round_of_a_checkpoint(
    clock: Clock, display: Callable[..., Display], capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = task(0), task(1)
    shown = display(mine, other)
    begins(shown, mine, at=500)
    clock.now += 100
    shown.event(Moved(mine, 550))
    assert ": round 550/1000, 0.50 rounds/s, 15 min left" in capsys.readouterr().out
    clock.now += 900
    shown.event(Done(mine.specs[0], "done", seconds=2000.0, headline="50.00 % (global)", resumed=1))
    assert capsys.readouterr().out.strip().endswith("1 time resumed, about 33 min left"), "1,000 of 2,000 are left"


def test_long_rounds_say_how_long_they_are(
    clock: Clock, display: Callable[..., Display], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = task(0, rounds=1)
    shown = display(mine)
    begins(shown, mine)
    clock.now += 250
    shown.event(Moved(mine, 1))
    shown.event(Done(mine.specs[0], "done", seconds=251.0, headline="50.00 % (personalized)"))
    line, last = capsys.readouterr().out.splitlines()
    assert line.endswith("round 1/1, 4 min a round, scoring")
    assert last.endswith("50.00 % (personalized) in 251.0 s, 4 min a round")


def test_the_pace_is_anew_for_a_task_that_is_tried_once_more(clock: Clock, display: Callable[..., Display]) -> None:
    mine = task(0)
    shown = display(mine)
    begins(shown, mine, at=500)
    begins(shown, mine)
    assert shown.active[mine].first == 0


def test_a_group_counts_all_its_runs(
    clock: Clock, display: Callable[..., Display], capsys: pytest.CaptureFixture[str]
) -> None:
    group, single = task(0, rounds=100, seeds=5), task(9, rounds=100)
    shown = display(group, single)
    begins(shown, group)
    clock.now += 90
    shown.event(Moved(group, 50))
    assert "seed 0,1,2,3,4: round 50/100, 0.56 rounds/s, 90 s left" in capsys.readouterr().out.replace("2 min", "90 s")
    clock.now += 90
    for spec in group.specs:
        shown.event(Done(spec, "done", seconds=36.0, headline="50.00 % (global)"))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("[5/6]") and last.endswith("2.78 rounds/s, about 36 s left"), "100 of 600 rounds are left"


@pytest.mark.parametrize("status", ["failed", "error"])
def test_failures_are_told_and_count_as_over(
    clock: Clock,
    display: Callable[..., Display],
    capsys: pytest.CaptureFixture[str],
    status: Literal["failed", "error"],
) -> None:
    bad, good = task(0, rounds=100), task(1, rounds=100)
    shown = display(bad, good)
    begins(shown, bad)
    clock.now += 30
    shown.event(Done(bad.specs[0], status, "diverged", seconds=30.0))
    assert capsys.readouterr().out == "[1/2] cifar · checked · seed 0: FAILED, about 30 s left\n"


def test_a_first_round_within_the_clocks_resolution_is_shown(clock: Clock, display: Callable[..., Display]) -> None:
    """Some clocks tick 64 times a second."""
    mine = task(0)
    shown = display(mine)
    begins(shown, mine)
    shown.event(Moved(mine, 1))


def test_bars_on_a_terminal(
    clock: Clock, display: Callable[..., Display], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    mine, other = task(0), task(1)
    with display(mine, other) as shown:
        begins(shown, mine)
        assert [bar.fields["note"] for bar in shown.bars.tasks] == ["0/2 runs", "loading"]
        clock.now += 100
        shown.event(Moved(mine, 500))
        overall, bar = shown.bars.tasks
        assert (bar.completed, bar.total) == (500, 1000)
        assert bar.fields["note"] == "round 500/1000, 5.00 rounds/s, 2 min left"
        assert overall.total and overall.completed / overall.total == 0.25
        assert overall.fields["note"] == "0/2 runs, about 5 min left"
        clock.now += 100
        shown.event(Done(mine.specs[0], "done", seconds=200.0, headline="9.00 % (global)"))
        (overall,) = shown.bars.tasks
        assert overall.fields["note"] == "1/2 runs, about 3 min left"
    assert (
        "[1/2] cifar · checked · seed 0: 9.00 % (global) in 200.0 s, 5.00 rounds/s, about 3 min left\n"
        in capsys.readouterr().out
    )


def test_nothing_is_cut_on_a_narrow_terminal(
    clock: Clock, display: Callable[..., Display], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    mine = task(0, seeds=12)
    with display(mine) as shown:
        begins(shown, mine)
        clock.now += 100
        shown.event(Moved(mine, 500))
        narrow = Console(width=80, color_system=None)
        with narrow.capture() as captured:
            narrow.print(shown.bars.make_tasks_table(shown.bars.tasks))
    words = set(captured.get().split())
    assert {"0,1,2,3,4,5,6,7,8,9,10,11", "500/1000,", "5.00", "min", "left"} <= words and "…" not in captured.get()


# Options.


def rounds_scored(folder: Path) -> list[int]:
    (run,) = Store(folder / "results").list()
    return sorted({score.round for score in Store(folder / "results").read(run.spec.id).scores})


def test_scores_on_the_way_are_stored_and_change_no_table(cli: Any, folder: Path) -> None:
    assert cli("run", *SHORT).code == 0
    report = ("report", "-s", "tiny.toml", "--seeds", "0", "--format", "csv")
    table = cli(*report)
    plain = stored(folder / "results")
    assert table.code == 0 and rounds_scored(folder) == [2]

    again = cli("run", *SHORT, "--evaluate-every", "1")  # the stored scores are too few
    assert again.code == 0 and "1 run: 0 done, 0 failed before, 1 to do." in again.out
    assert rounds_scored(folder) == [1, 2]
    assert cli(*report).out == table.out
    often = stored(folder / "results")
    assert often.keys() == plain.keys() and often != plain


@pytest.mark.parametrize(
    ("every", "asked", "to_do"), [(1, 1, 0), (1, 2, 0), (2, 1, 1), (2, 4, 0), (2, 3, 0), (3, 3, 0), (2, None, 0)]
)
def test_a_run_scored_often_enough_is_done(cli: Any, every: int, asked: int | None, to_do: int) -> None:
    assert cli("run", *SHORT, "--evaluate-every", str(every)).code == 0
    options = ("--evaluate-every", str(asked)) if asked else ()
    told = cli("run", *SHORT, *options, "--dry-run").out.splitlines()[0]
    assert told == f"1 run: {1 - to_do} done, 0 failed before, {to_do} to do."


def test_a_run_that_failed_is_not_missing_for_want_of_scores(cli: Any) -> None:
    nan = (*SHORT, "--set", "fedavg.lr=1e30")
    assert cli("run", *nan).code == 1
    told = cli("run", *nan, "--evaluate-every", "1")
    assert told.code == 1 and "0 done, 1 failed before, 0 to do" in told.out


def test_deterministic_and_evaluate_every_are_recorded(cli: Any, folder: Path) -> None:
    import torch

    try:
        assert cli("run", *SHORT, "--rounds", "1", "--deterministic", "--evaluate-every", "5").code == 0
    finally:
        torch.use_deterministic_algorithms(False)
    (run,) = Store(folder / "results").list()
    found = Store(folder / "results").read(run.spec.id).provenance
    assert (found["deterministic"], found["evaluate_every"]) == (True, 5)


def test_the_first_line_says_where_it_runs(cli: Any) -> None:
    told = cli("run", *SHORT, "--rounds", "1", "--device", "cpu", "--jobs", "1")
    assert told.out.splitlines()[1].startswith("Running on cpu (") and told.out.splitlines()[1].endswith(", 1 core).")
