"""`tools/speed/measure.py` without the contenders: the line protocol, taking turns, who is compared with whom, the arithmetic."""

import json
import os
import time
from pathlib import Path

import pytest
from contenders import NETWORKS, Field, Options, Pairing, competing
from measure import Result, better, compared, measure, spread
from timing import PAUSE, STARTING, Contender, Program, Timing, Watch, expected_seconds, started, time_all

from pflbench.errors import PflbenchError, UsageError

# Says that n rounds took n / pace seconds, and writes down who ran when.
FAKE = """
import json, sys
name, pace, log = sys.argv[1], float(sys.argv[2]), sys.argv[3]
print(json.dumps({"ready": True, "client_steps_per_round": 10, "parameters": int(sys.argv[4])}), flush=True)
for text in sys.stdin:
    n, limit = int(text.split()[0]), float(text.split()[1])
    with open(log, "a") as f:
        f.write(name + " " + text)
    print(json.dumps({"rounds": n, "seconds": n / pace}), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fake.py").write_text(FAKE)
    return tmp_path


def fake(folder: Path, name: str, pace: float, parameters: int = 7) -> Program:
    return Program("fake.py", (name, str(pace), str(folder / "log"), str(parameters)))


def turns(folder: Path) -> list[str]:
    return [entry.split()[0] for entry in (folder / "log").read_text().splitlines()]


def test_contenders_take_turns_there_and_back(folder: Path) -> None:
    slow, fast = (Contender(name, name, (fake(folder, name, pace),)) for name, pace in (("slow", 100), ("fast", 400)))
    timings = time_all([slow, fast], folder, passes=3, seconds=0.01)
    assert timings["slow"].rates == pytest.approx([1000.0] * 3)
    assert timings["fast"].rates == pytest.approx([4000.0] * 3)
    assert turns(folder)[-6:] == ["slow", "fast", "fast", "slow", "slow", "fast"]
    assert all(len(t.foreign_cores) == 3 for t in timings.values())


def test_a_block_takes_about_the_time_asked_for(folder: Path) -> None:
    timings = time_all([Contender("a", "a", (fake(folder, "a", 1000),))], folder, passes=1, seconds=0.3)
    assert timings["a"].rounds == 300
    assert timings["a"].client_steps == [3000]


def test_a_team_goes_at_once_and_ends_with_its_last(folder: Path) -> None:
    programs = (fake(folder, "left", 100), fake(folder, "right", 50))
    alone = Contender("one", "one", programs[:1])
    timings = time_all([alone, Contender("both", "both", programs)], folder, passes=1, seconds=0.01)
    assert timings["both"].rates == pytest.approx([2 * 10 * 50])  # both their steps, in the slower one's time
    assert timings["one"].rates == pytest.approx([10 * 100])


def test_a_block_that_takes_far_too_long_is_cut_short(folder: Path) -> None:
    text = FAKE.replace("    print", "    if limit > 0.5: n //= 4\n    print")
    (folder / "fake.py").write_text(text)
    timings = time_all([Contender("a", "a", (fake(folder, "a", 100),))], folder, passes=1, seconds=0.4)
    assert timings["a"].rounds == 40 and timings["a"].client_steps == [100]
    assert timings["a"].rates == pytest.approx([1000])


def test_contenders_that_share_a_program_share_its_process(folder: Path) -> None:
    program = fake(folder, "a", 100)
    with started([Contender("x", "x", (program,)), Contender("y", "y", (program,))], folder) as processes:
        assert len(processes) == 1


def test_all_processes_end_with_the_measurement(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt), started([Contender("x", "x", (fake(folder, "a", 1),))], folder) as running:
        (process,) = running.values()
        process.hear()
        raise KeyboardInterrupt
    assert process.popen.poll() is not None


def test_different_networks_are_no_competition(folder: Path) -> None:
    one, other = (Contender(n, n, (fake(folder, n, 100, parameters=p),)) for n, p in (("a", 1), ("b", 2)))
    with pytest.raises(PflbenchError, match=r"different numbers of parameters: fake\.py 1, fake\.py 2"):
        time_all([one, other], folder, passes=1, seconds=0.01)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('print(\'{"error": "no pfl: pip install pfl"}\')', UsageError, "^no pfl: pip install pfl$"),
        ("raise RuntimeError('broken')", PflbenchError, r"bad.py --x died \(exit code 1\): RuntimeError: broken"),
        ("import os; os.kill(os.getpid(), 9)", PflbenchError, r"died \(killed by signal 9\)\."),
        ("print('Hello')", PflbenchError, "said 'Hello', which is no answer"),
    ],
)
def test_a_contender_that_fails_is_one_message(folder: Path, text: str, error: type[Exception], message: str) -> None:
    (folder / "bad.py").write_text(text)
    contenders = [Contender("a", "a", (fake(folder, "a", 100),)), Contender("b", "b", (Program("bad.py", ("--x",)),))]
    with pytest.raises(error, match=message):
        time_all(contenders, folder, passes=1, seconds=0.01)


def test_a_contender_that_dies_midway_is_one_message(folder: Path) -> None:
    (folder / "frail.py").write_text(FAKE + "    if n > 1: raise SystemExit(3)\n")
    program = Program("frail.py", ("a", "1000", str(folder / "log"), "7"))
    with pytest.raises(PflbenchError, match=r"died \(exit code 3\)"):
        time_all([Contender("a", "a", (program,))], folder, passes=2, seconds=0.1)


def test_ratios_are_formed_within_a_pass() -> None:
    # The machine is twice as slow in the second pass: medians would say 1.5.
    rates = {"a": [30.0, 15.0, 30.0], "b": [10.0, 5.0, 20.0]}
    found = compared(Pairing(("a",), ("b",)), rates)
    assert found.ratios == (3.0, 3.0, 1.5)
    assert found.ratio == spread([3.0, 3.0, 1.5]) == (3.0, 1.5, 3.0)
    assert found.rate.median == 30.0
    assert compared(Pairing(("a",)), rates).ratio is None


def test_the_better_thread_count_stands_for_a_program() -> None:
    rates = {"a-1": [1.0, 9.0, 1.0], "a-2": [2.0, 2.0, 2.0], "b": [4.0, 4.0, 4.0]}
    assert better(("a-1", "a-2"), rates) == "a-2"
    found = compared(Pairing(("b",), ("a-1", "a-2")), rates)
    assert (found.contender, found.against, found.ratios) == ("b", "a-2", (2.0, 2.0, 2.0))


def pairings(options: Options) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(row.of, row.against) for row in competing("cnn2", options).rows]


def test_who_competes_on_two_cores() -> None:
    careful, patched = ("careful-1", "careful-2"), ("patched-1", "patched-2")
    assert pairings(Options(cores=2, peers=("pfl",))) == [
        (("careful-1",), ()),
        (("careful-2",), ()),
        (patched, careful),
        (("engine-1",), ("careful-1",)),
        (("engine-run",), careful),
        (("engine-all",), careful),
        (("engine-all",), patched),
        (("pfl-1", "pfl-2"), careful),
        (("engine-all",), ("pfl-1", "pfl-2")),
    ]


def test_one_core_has_no_second_of_anything() -> None:
    found = competing("mlp", Options(cores=1))
    assert [c.id for c in found.contenders] == ["careful-1", "patched-1", "engine-1", "matmul-1"]
    assert found.rows[-1] == Pairing(("engine-1",), ("patched-1",))


def test_many_cores_also_try_four_threads() -> None:
    found = {c.id: c for c in competing("cnn3", Options(cores=16)).contenders}
    assert {"careful-1", "careful-4", "careful-16", "patched-4"} <= set(found)
    programs = found["engine-all"].programs
    assert len(set(programs)) == 16 and found["engine-1"].programs == programs[:1]
    assert all(p.options[p.options.index("--threads") + 1] == "1" for p in programs)


def test_a_gpu_races_stacks_of_seeds() -> None:
    careful = ("careful-1",)
    assert pairings(Options(device="cuda", cores=16)) == [
        (careful, ()),
        (("engine-1",), careful),
        (("engine-all",), careful),
    ]
    found = {c.id: c for c in competing("cnn2", Options(device="cuda", cores=16)).contenders}
    assert found["engine-all"].programs[0].options[-4:] == ("--execution", "vectorized", "--seeds", "5")


def test_a_lower_precision_is_timed_beside_fp32_and_against_its_like() -> None:
    rows = pairings(Options(cores=1, precision="bf16"))
    assert (("engine-bf16-1",), ("careful-1",)) in rows
    assert rows[-1] == (("engine-bf16-1",), ("careful-bf16-1",))


def test_tf32_needs_a_gpu(folder: Path) -> None:
    with pytest.raises(UsageError, match="tf32 is a format of GPUs"):
        next(measure(Options(precision="tf32"), scripts=folder))


def test_more_cores_than_the_machine_has_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every core gets a process with a network of its own: a hundred of them bring a laptop down."""
    monkeypatch.setattr("pflbench.running.local.cores", lambda: 2)
    with pytest.raises(UsageError, match="--cores 3: this machine has 2"):
        next(measure(Options(cores=3), scripts=folder))


def test_the_engine_is_held_against_matrix_products_on_as_many_cores() -> None:
    field = competing("cnn2", Options(cores=2, precision="bf16"))
    assert field.matmul == {
        "engine-1": "matmul-1",
        "engine-run": "matmul-2",
        "engine-all": "matmul-2",
        "engine-bf16-1": "matmul-bf16-1",
        "engine-bf16-run": "matmul-bf16-2",
        "engine-bf16-all": "matmul-bf16-2",
    }
    programs = {c.id: len(set(c.programs)) for c in field.contenders}
    assert programs["matmul-1"] == 1 and programs["matmul-2"] == programs["engine-all"] == 2
    assert set(competing("cnn2", Options(device="cuda", cores=16)).matmul.values()) == {"matmul-1"}


def test_a_share_is_formed_within_a_pass_from_the_operations_of_a_step() -> None:
    def timing(rates: list[float], **ready: int) -> Timing:
        return Timing(1, dict(ready), [round(rate) for rate in rates], [1.0] * len(rates))

    timings = {
        "careful-1": timing([50, 20], operations_per_step=6),
        "engine-1": timing([100, 50]),
        "products": timing([40, 10], operations_per_step=30),
    }
    contenders = [Contender(id, id, ()) for id in timings]
    field = Field(contenders, [Pairing(("engine-1",))], {"engine-1": "products"})
    result = Result("cnn2", Options(), field, timings)
    assert result.operations("engine-1") == [600, 300] and result.operations("products") == [1200, 300]
    assert result.share("engine-1") == (0.75, 0.5, 1.0)
    assert result.share("careful-1") is None


def test_how_long_it_takes_counts_programs_and_turns(folder: Path) -> None:
    contenders = [Contender(n, n, (fake(folder, n, 1000),)) for n in ("a", "b")]
    said = expected_seconds(contenders, passes=2, seconds=0.2)
    assert said == 2 * STARTING + 2 * 3 * (0.2 + PAUSE)
    assert expected_seconds(contenders[:1] * 2, passes=2, seconds=0.2) == pytest.approx(said - STARTING)


def test_the_document_holds_everything_raw(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paces = {"careful-1": 50, "engine-1": 100}
    contenders = [Contender(name, name.title(), (fake(folder, name, pace),)) for name, pace in paces.items()]
    field = Field(contenders, [Pairing(("careful-1",)), Pairing(("engine-1",), ("careful-1",))])
    monkeypatch.setattr("measure.competing", lambda *_: field)
    (result,) = measure(Options(("cnn2",), passes=2, seconds=0.01, scale="tiny"), scripts=folder)
    document = json.loads(json.dumps(result.document()))
    assert set(document) == {"workload", "contenders", "rows"}
    b = document["contenders"]["engine-1"]
    assert b["programs"] == [["fake.py", *fake(folder, "engine-1", 100).options]]
    assert len(b["seconds"]) == len(b["client_steps_per_second"]) == len(b["foreign_cores"]) == 2
    assert b["median"] == pytest.approx(1000) and b["client_steps"] == [10 * b["rounds_per_block"]] * 2
    assert document["rows"][0]["ratio"] is None
    assert document["rows"][1] == {
        "contender": "engine-1",
        "client_steps_per_second": {"median": b["median"], "min": b["median"], "max": b["median"]},
        "against": "careful-1",
        "share_of_matmul": None,
        "ratio": {"median": 2.0, "min": 2.0, "max": 2.0, "passes": [2.0, 2.0]},
    }


def test_networks_are_those_of_the_workloads() -> None:
    from pflbench.names import BUILT_IN

    assert set(NETWORKS) <= set(BUILT_IN["models"])


def test_foreign_work_is_what_is_not_ours(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))

    def write(busy: int, ours: int) -> None:
        (tmp_path / "stat").write_text(f"cpu 9 9 9 9\ncpu{core} {busy} 0 0 777 888 0 0 0 0 0\nintr 5\n")
        (tmp_path / "1").mkdir(exist_ok=True)
        (tmp_path / "1" / "stat").write_text(f"1 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 {ours} 0 0 0\n")
        (tmp_path / str(os.getpid())).mkdir(exist_ok=True)
        (tmp_path / str(os.getpid()) / "stat").write_text("2 (us) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0\n")

    write(busy=1000, ours=500)
    watch = Watch([1], tmp_path)
    write(busy=1000 + 10**9, ours=500 + 10**9)
    assert watch.cores() == 0
    write(busy=1000 + 10**9 + 50, ours=500 + 10**9)
    time.sleep(0.001)
    assert (watch.cores() or 0) > 0
    assert Watch([1], tmp_path / "nowhere").cores() is None


def test_the_best_line_of_a_result_comes_from_its_own_timings(folder: Path) -> None:
    contender = Contender("a", "A", (fake(folder, "a", 100),))
    timings = time_all([contender], folder, passes=1, seconds=0.0)
    result = Result("cnn2", Options(), Field([contender], [Pairing(("a",))]), timings)
    assert [found.contender for found in result.lines] == ["a"]
