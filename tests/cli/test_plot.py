"""`pflbench plot`, and figure suites with the other verbs."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import SUITE

from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import figures, load

SHIPPED = [f"pfedvem-fig{n}" for n in (2, 3, 4, 5, 6, 10, 11, 12)]
DEVICE = ("--profile", "smoke", "--device", "cpu", "-q")


def numbers(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_figures_there_are(cli) -> None:
    cafeme = [f"cafeme-{name}" for name in ("fig3", "fig4", "fig4-table2", "fig5", "fig6")]
    shipped = [*SHIPPED, *cafeme, "fedec-fig2", "meta-learning-steps"]
    assert sorted(figures()) == sorted(shipped)
    listed = cli("ls", "suites").out
    assert "pflbench ls suites" in cli("plot", "--help").out and all(f"{name} " in listed for name in shipped)


@pytest.mark.parametrize("name", SHIPPED)
def test_figures_share_table_1s_runs(name: str) -> None:
    suite, tables = load(name), (load("pfedvem-table1"), load("pfedvem-variants"))  # which has Local by SGD
    for profile in suite.profiles:
        runs = {run.id for run in expand(suite, profile=profile).runs}
        fewer = profile == "quick" and name in ("pfedvem-fig2", "pfedvem-fig12")  # which take a tenth of the images
        assert (runs <= {run.id for one in tables for run in expand(one, profile=profile).runs}) is not fewer
        assert bool(runs) == (name not in SHIPPED[1:5])


def test_cafemes_curves_are_its_tables_runs() -> None:
    for figure, table in (("cafeme-fig4", "cafeme-table1"), ("cafeme-fig4-table2", "cafeme-table2")):
        for profile in load(figure).profiles:
            runs = {run.id for run in expand(load(figure), profile=profile).runs}
            assert runs and runs <= {run.id for run in expand(load(table), profile=profile).runs}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pfedvem-fg12", "-o", "a.png"), "Unknown suite 'pfedvem-fg12'. Did you mean 'pfedvem-fig12'"),
        (
            ("pfedvem-table1", "-o", "a.png"),
            "Draw its runs with --curve or --per-client",
        ),
        (("nowhere.toml", "-o", "a.png"), "Unknown suite file 'nowhere.toml'"),
        (("pfedvem-fig12", "-o", "a.jpg"), "Unknown format 'jpg'"),
        (("pfedvem-table1",), "Missing option '--output'"),
        (("pfedvem-fig12", "-o", "a.png", "--profile", "smok"), "Unknown profile 'smok'. Did you mean 'smoke'"),
        (("-o", "a.png"), "Which figure? One of cafeme-fig3,"),
        (("pfedvem-fig3", "-o", "a.png", "--curve"), "`pflbench plot pfedvem-fig3 -o pfedvem-fig3.png` draws it"),
        (
            ("-o", "a.png", "--curve", "-s", "cafeme-table1"),
            "`pflbench run --suite cafeme-table1 --evaluate-every 10` makes them.",
        ),
        (("-o", "a.png", "--curve"), "No results of any suite in 'results'"),
    ],
)
def test_wrong_requests(cli, arguments: tuple[str, ...], words: str) -> None:
    result = cli("plot", *arguments)
    assert result.code == 2 and words in result.err and not Path("a.png").exists()


def test_without_runs_it_says_what_makes_them(cli) -> None:
    result = cli("plot", "pfedvem-fig12", "-o", "a.png")
    assert result.code == 2 and "No results of pfedvem-fig12 in 'results' to draw." in result.err
    assert "`pflbench run --suite pfedvem-fig12 --evaluate-every 5` makes them." in result.err
    options = ("--profile", "smoke", "--rounds", "2", "--seeds", "0-1", "--results", "my runs")
    result = cli("plot", "pfedvem-fig2", "-o", "a.png", *options)
    assert f"--suite pfedvem-fig2 {' '.join(options[:-1])} 'my runs'` makes them." in result.err


def test_sizes_need_neither_runs_nor_data(cli, folder: Path) -> None:
    result = cli("plot", "pfedvem-fig5", "-o", "sizes.csv", "--seeds", "0-4")
    assert result.code == 0 and "5 partitions (seeds 0–4)" in result.out
    rows = numbers(folder / "sizes.csv")
    for clients, mean in ((50, 240), (100, 120), (200, 60)):
        drawn = [r for r in rows if (r["panel"], r["series"]) == (f"SUN397 {clients} Clients", "drawn")]
        assert sum(int(r["n"]) for r in drawn) == 5 * clients
        assert sum(float(r["training rows of a client"]) * int(r["n"]) for r in drawn) == 5 * clients * mean
    uniform = [float(r["density"]) for r in rows if (r["panel"], r["series"]) == ("SUN397 100 Clients", "exact law")]
    assert uniform == pytest.approx([1 / 79 / 3] * len(uniform))  # as the paper says
    again = cli("plot", "pfedvem-fig5", "-o", "again.csv", "--seeds", "0-4")
    assert again.code == 0 and (folder / "again.csv").read_bytes() == (folder / "sizes.csv").read_bytes()
    assert cli("plot", "pfedvem-fig5", "-o", "sizes.png", "--seeds", "0").code == 0
    assert not (folder / "results").exists()


@pytest.mark.parametrize(("name", "mean"), [("pfedvem-fig3", 1200), ("pfedvem-fig4", 1000), ("pfedvem-fig6", 1000)])
def test_the_shapes_of_the_other_datasets(cli, folder: Path, name: str, mean: int) -> None:
    assert cli("plot", name, "-o", "sizes.csv", "--seeds", "0").code == 0
    rows = numbers(folder / "sizes.csv")
    for i, panel in enumerate(dict.fromkeys(r["panel"] for r in rows)):
        drawn = [r for r in rows if (r["panel"], r["series"]) == (panel, "drawn")]
        found = sum(float(r["training rows of a client"]) * int(r["n"]) for r in drawn) / (50 * 2**i)
        assert found == pytest.approx(mean / 2**i, rel=0.1)  # the centers of bins


def test_figures_end_to_end(cli, folder: Path) -> None:
    made = cli("run", "-s", "pfedvem-fig12", *DEVICE, "--column", "cifar10-50", "-m", "pfedvem", "-m", "fedavg",
               "--evaluate-every", "1")  # fmt: skip
    assert made.code == 0, made.err
    result = cli("plot", "pfedvem-fig12", "-o", "curves.csv", "--profile", "smoke")
    assert result.code == 0 and "nothing here compares" in result.out
    assert "No results yet in digits for CIFAR10 100 Clients, digits for CIFAR10 200 Clients." in result.out
    found = {
        (r["panel"], r["series"], float(r["round"])): float(r["accuracy (%)"]) for r in numbers(Path("curves.csv"))
    }
    assert found.keys() == {
        (f"digits for CIFAR10 50 Clients {stage}", row, round)
        for stage, row in (("PM", "pFedVEM"), ("GM", "pFedVEM"), ("GM", "FedAvg"))
        for round in (1.0, 2.0)
    }
    run = next(run for run in Store(folder / "results").list() if run.spec.method.name == "pfedvem")
    scores = [
        s for s in Store(folder / "results").read(run.spec.id).scores if (s.stage, s.round) == ("personalized", 1)
    ]
    mean = 100 * sum(s.correct / s.count for s in scores) / len(scores)
    assert found["digits for CIFAR10 50 Clients PM", "pFedVEM", 1.0] == pytest.approx(mean)
    for suffix in ("png", "svg"):
        for name in ("one", "two"):
            assert cli("plot", "pfedvem-fig12", "-o", f"{name}.{suffix}", "--profile", "smoke").code == 0
        assert (folder / f"one.{suffix}").read_bytes() == (folder / f"two.{suffix}").read_bytes()
    bad = cli("plot", "pfedvem-fig12", "-o", "no/such.png", "--profile", "smoke")
    assert bad.code == 1 and "Cannot write 'no/such.png': No such file or directory." in bad.err
    # What the runs look like in the verbs for tables.
    assert "pFedVEM, Figure 12" in cli("report", "-s", "pfedvem-fig12").out
    everything = cli("report").out
    assert "pFedVEM, Table 1" in everything and "Figure" not in everything


def test_accuracy_against_size_end_to_end(cli, folder: Path) -> None:
    made = cli("run", "-s", "pfedvem-fig2", *DEVICE, "--column", "cifar100-50", "-m", "local", "-m", "pfedme")
    assert made.code == 0, made.err
    assert cli("plot", "pfedvem-fig2", "-o", "sizes.csv", "--profile", "smoke").code == 0
    rows = numbers(folder / "sizes.csv")
    assert {r["panel"] for r in rows} == {"digits for CIFAR100 50 Clients"} and {r["series"] for r in rows} == {
        "Local",
        "pFedME",
    }
    for row in ("Local", "pFedME"):
        mine = [r for r in rows if r["series"] == row]
        assert sum(int(r["n"]) for r in mine) == 10
        assert sum(float(r["training images of a client"]) * int(r["n"]) for r in mine) == 200
    assert cli("plot", "pfedvem-fig2", "-o", "sizes.png", "--profile", "smoke").code == 0


@pytest.mark.parametrize(
    ("name", "axis"), [("pfedvem-fig10", "tau / sum over clients"), ("pfedvem-fig11", "deviation / d")]
)
def test_confidences_end_to_end(cli, folder: Path, name: str, axis: str) -> None:
    assert cli("run", "-s", name, *DEVICE, "--column", "fashion-mnist-100", "--evaluate-every", "1").code == 0
    assert cli("plot", name, "-o", "densities.csv", "--profile", "smoke").code == 0
    rows = numbers(folder / "densities.csv")
    assert {r["series"] for r in rows} == {"round 1", "round 2"} and {r["n"] for r in rows} == {"20"}
    (first,) = (r for r in rows if r["series"] == "round 1")
    expected = 1 / 20 if name == "pfedvem-fig10" else 0
    assert float(first[axis]) == pytest.approx(expected) and first["density"] == ""  # all clients are alike
    assert cli("plot", name, "-o", "densities.png", "--profile", "smoke").code == 0


def test_a_suite_without_rows_trains_nothing_and_has_no_table(cli, folder: Path) -> None:
    made = cli("run", "-s", "pfedvem-fig3")
    assert made.code == 0 and "0 runs" not in made.out
    assert (
        "pfedvem-fig3 draws partitions and trains nothing: `pflbench plot pfedvem-fig3 -o pfedvem-fig3.png`" in made.out
    )
    for profile in ((), ("--profile", "paper")):
        result = cli("report", "-s", "pfedvem-fig3", *profile)
        assert (
            result.code == 2
            and "pfedvem-fig3 has no table: `pflbench plot pfedvem-fig3 -o pfedvem-fig3.png`" in result.err
        )
    (folder / "my.py").write_text("")
    result = cli("plan", "-s", "pfedvem-fig3", "-m", "my.py:Mine")
    assert result.code == 0 and "trains nothing" in result.out


def test_a_figure_of_ones_own(cli, folder: Path) -> None:
    (folder / "mine.toml").write_text(SUITE + '[figure]\nkind = "curve"\nevery = 1\n')
    result = cli("plot", "mine.toml", "-o", "mine.csv")
    assert result.code == 2 and "`pflbench run --suite mine.toml --evaluate-every 1` makes them." in result.err
    assert cli("run", "-s", "mine.toml", "--column", "shards", "--seeds", "0", "-m", "fedavg", "-q").code == 0
    assert cli("plot", "mine.toml", "-o", "mine.csv").code == 0
    (row, tuned) = numbers(folder / "mine.csv")
    assert (row["panel"], row["series"], row["round"], row["n"]) == ("Shards", "FedAvg", "2.0", "1")
    assert tuned["series"] == "FedAvg-FT"


def test_a_figure_is_drawn_without_torch(folder: Path) -> None:
    program = """
import sys
from pflbench.cli import main
assert "matplotlib" not in sys.modules
try:
    main.main(["plot", "pfedvem-fig5", "-o", "sizes.png", "--seeds", "0"])
except SystemExit as end:
    assert not end.code
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], cwd=folder, check=False).returncode == 0


def test_curves_of_any_suite_end_to_end(cli, folder: Path) -> None:
    made = cli("run", "-s", "tiny.toml", "--column", "shards", "-m", "fedavg", "-m", "ditto", "-q",
               "--evaluate-every", "1")  # fmt: skip
    assert made.code == 0, made.err
    for arguments in (("tiny.toml", "--curve"), ("--curve",), ("--curve", "-s", "tiny.toml", "--column", "shards")):
        assert cli("plot", *arguments, "-o", "curves.csv").code == 0
        rows = numbers(folder / "curves.csv")
        assert [(r["panel"], r["series"], r["round"], r["n"]) for r in rows] == [
            ("Shards", name, round, "2") for name in ("FedAvg", "FedAvg-FT", "Ditto") for round in ("1.0", "2.0")
        ]
    table = cli("report", "-s", "tiny.toml", "--format", "csv").out
    means = {r["row"]: float(r["mean"]) for r in csv.DictReader(table.splitlines()) if r["mean"]}
    assert {r["series"]: float(r["accuracy (%)"]) for r in rows if r["round"] == "2.0"} == pytest.approx(means)
    assert cli("plot", "--curve", "-m", "ditto", "--against", "gradients", "-o", "curves.csv").code == 0
    run = next(run for run in Store(folder / "results").list() if run.spec.method.name == "ditto")
    each = run.provenance["client_gradients"]
    assert [float(r["minibatch gradients of a client"]) for r in numbers(folder / "curves.csv")] == [each, 2 * each]
    wrong = cli("plot", "--curve", "-m", "dito", "-o", "curves.csv")
    assert wrong.code == 2 and "Unknown method 'dito'. Did you mean 'ditto'" in wrong.err
    untold = cli("plot", "--curve", "-m", "fedavg", "--against", "steps", "-o", "curves.csv")
    assert (
        untold.code == 2
        and "Nothing of tiny in 'results' can be drawn so" in untold.err
        and "counted in epochs" in untold.err
    )


def test_clients_of_any_suite_end_to_end(cli, folder: Path) -> None:
    made = cli("run", "-s", "tiny.toml", "--column", "shards", "--seeds", "0", "-m", "ditto", "-q")
    assert made.code == 0, made.err
    assert cli("plot", "tiny.toml", "--per-client", "-o", "clients.csv").code == 0
    assert [r["series"] for r in numbers(folder / "clients.csv")] == ["Ditto", "Ditto"]  # the held-out clients
