"""`pflbench explain`: one cell, what its number rests on, and what may be concluded from it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import METHOD, SUITE, make_up

from pflbench.report.conclusion import conclude
from pflbench.report.explain import explain_cell
from pflbench.report.holdings import FederationSummary, Numbers
from pflbench.result import RunResult, Score
from pflbench.spec import MethodSpec
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.tuning import searches

CELL = ("explain", "tiny.toml", "ditto", "shards", "--no-data")
REFERENCE = "\n[reference]\nditto = { shards = [50.0, 40.0] }\n"
DITTO = {"steps": 1, "lr": 0.1, "personal_lr": 0.1, "lam": 0.1}


def sourced(source: str) -> str:
    """The suite with every hyperparameter of Ditto from there, three seeds, and a number of the paper."""
    values = ", ".join(f'{key} = {{ value = {value}, source = "{source}" }}' for key, value in DITTO.items())
    text = SUITE.replace("ditto = { steps = 1 }", f"ditto = {{ {values} }}").replace(
        "seeds = [0, 1]", "seeds = [0, 1, 2]"
    )
    text = text.replace('paper = "none"', 'paper = "arXiv:0000.00000"')
    return text + REFERENCE


@pytest.fixture
def suite(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Write the tiny suite, and a store of three seeds of it; the path. Its runs vary by tens of points."""
    monkeypatch.setattr("pflbench.report.verdict.margin", lambda printed: 100.0)

    def write(text: str) -> Path:
        path = folder / "tiny.toml"
        path.write_text(text)
        make_up(folder / "results", path)
        for stored in Store(folder / "results").list():  # the kit's failed run has its scores after all
            if stored.failure is not None:
                moments = [("global", 2, 0), *(("finetuned", 2, step) for step in (0, 1, 2))]
                scores = tuple(
                    Score(*m, client, 5, 10, 1.0, 0.5)
                    for m in moments
                    for client in (stored.spec.clients - 2, stored.spec.clients - 1)
                )
                Store(folder / "results").write(RunResult(stored.spec, scores, {"data_hash": "d"}))
        return path

    return write


def part(out: str, title: str) -> str:
    """The section of this title in one line."""
    (found,) = [block for block in out.split("\n\n") if block.startswith(f"{title}\n")]
    return " ".join(found.split()[len(title.split()) :])


def short(out: str) -> str:
    """What may be concluded, which stands first, behind a line that names the cell."""
    title, _cell, *lines = out.split("\n\n")[0].splitlines()
    assert title == "In short"
    return " ".join(" ".join(lines).split())


def test_it_ends_with_what_may_be_concluded(cli, suite, whole, monkeypatch: pytest.MonkeyPatch) -> None:
    suite(sourced("guess"))
    full = cli(*CELL).out
    whole.clear()
    monkeypatch.setenv("COLUMNS", "80")
    brief = cli(*CELL).out
    assert re.match(
        r"In short\n  Ditto in Shards, finetuned \(Tiny\): \S+ ± \S+ [✓≈?✗], paper 50\.00 ± 40\.00\n", brief
    )
    assert short(brief).startswith(short(full)) and len(brief.splitlines()) <= 20
    assert max(map(len, brief.splitlines())) <= 80 and "--full adds" in brief
    monkeypatch.setenv("COLUMNS", "200")
    assert cli(*CELL, "--full").out == full


def test_the_number_is_the_reports_with_its_runs(cli, results: Path, folder: Path) -> None:
    out = cli(*CELL).out
    (line,) = [
        line
        for line in cli("report", "-s", "tiny.toml", "--format", "csv", "--profile", "paper").out.splitlines()
        if ",Ditto,ditto,shards," in line
    ]
    mean = float(line.split(",")[9])
    assert re.search(rf"pflbench +{mean:.2f} ± ", out)
    runs = {
        run.id: run.seed
        for cell in expand(load(str(folder / "tiny.toml")), rows=["ditto"], columns=["shards"]).cells
        for run in cell.runs
    }
    for id, seed in runs.items():
        assert f"Seed {seed}: {id}; commit unknown" in part(out, "Where it comes from")
        assert re.search(rf" {seed}: \d+\.\d\d[,.]", part(out, "The number"))
    assert "Paper     none has this table" in out and "90 clients: 88 train, 2 are held out" in out
    assert re.search(r"steps +1 +not said +Local steps", out)
    assert "1. The global part uses" in out  # of the method's docstring
    assert max(map(len, out.splitlines())) <= 100


def test_the_federation_is_described_from_its_data(cli, results: Path) -> None:
    out = cli(*CELL[:-1]).out
    assert re.search(r"a training client adapts on \d+ (to \d+ )?images", out)
    assert re.search(r"training images are of \d(\.\d)? (to \d )?classes(, median \d(\.\d)?)?; there are 10\.", out)
    assert re.search(r"Network cnn2: [\d,]+ parameters", out)
    assert "The dataset here is not the one that the runs were computed on" in out  # theirs is made up
    missing = cli("explain", "partly.toml", "ditto", "real").out
    assert "Sizes and classes are unknown here: " in missing and "mnist" in missing.lower()


@pytest.mark.parametrize(
    ("source", "words", "verdict"),
    [
        (
            "paper",
            "The suite does not say where these values come from: dataset",
            "no value behind it is known to be a guess",
        ),
        ("code", "", "Reproduced: no value behind it is"),
        (
            "guess",
            "It rests on guesses (steps, lr, personal_lr, lam), so",
            "does not show that the paper's experiment was repeated",
        ),
        (
            "tuned",
            "our tuning: steps, lr, personal_lr, lam (no search is stored, so nobody can check it).",
            "Reproduced with values that we tuned",
        ),
    ],
)
def test_what_may_be_concluded_depends_on_where_the_values_come_from(
    cli, suite, source: str, words: str, verdict: str
) -> None:
    suite(sourced(source))
    out = cli(*CELL).out
    assert verdict in short(out) and words.lower() in " ".join(out.split()).lower()
    assert re.search(rf"lam +0\.1 +{source} ", out)


@pytest.mark.parametrize(
    ("old", "new", "options", "verdict"),
    [
        ("[50.0, 40.0]", "[99.0, 0.1]", (), "Not reproduced, though no value behind it is known to be a guess"),
        ("[0, 1, 2]", "[0, 1]", (), "Too early to tell: 2 of 2 seeds are done"),
        ("[0, 1, 2]", "[0, 1, 2, 3]", ("-r", "three"), "Agrees (so far: 3 of 4 seeds)"),
        (REFERENCE, "", (), "There is no number of the paper here."),
        (
            "[reference]",
            '[[suspect]]\nrows = ["ditto"]\nwhy = "misprint"\n[reference]',
            (),
            "The paper's number is suspect",
        ),
        ("", "", ("--profile", "smoke"), "Not to be compared with the paper"),
        ("", "", ("-r", "empty"), "Nothing can be concluded: none of 3 seeds is done"),
    ],
)
def test_what_may_be_concluded_depends_on_the_runs_and_on_the_paper(
    cli, suite, folder: Path, old: str, new: str, options: tuple[str, ...], verdict: str
) -> None:
    text = sourced("paper") + "\n[profile.smoke.column.shards]\nrounds = 1\n"
    text = text.replace("[profile.smoke]\nseeds = [0]\n", "") + "[profile.smoke]\nseeds = [0]\n"
    path = suite(text.replace(old, new, 1))
    if options == ("--profile", "smoke"):
        for run in expand(load(str(path)), profile="smoke", columns=["shards"]).runs:
            moments = [("global", 1, 0), *(("finetuned", 1, step) for step in (0, 1, 2))]
            Store(folder / "results").write(RunResult(run, tuple(Score(*m, 59, 5, 10, 1.0, 0.5) for m in moments)))
    if options == ("-r", "three"):
        for run in Store(folder / "results").list():
            if run.spec.seed < 3:
                Store(folder / "three").write(Store(folder / "results").read(run.spec.id))
    result = cli(*CELL, *options)
    assert (result.code, result.err) == (0, "") and verdict in short(result.out)
    if "suspect" in verdict:
        assert "misprint" in result.out


def test_the_trials_behind_a_tuned_value_are_shown(cli, suite, folder: Path) -> None:
    path = suite(sourced("tuned"))
    (search,) = searches(load(str(path)), "ditto", columns=["shards"], grid=["lr=0.1,0.2"])
    for trial in search.trials:
        moments = [("global", 2, 0), *(("finetuned", 2, step) for step in (0, 1, 2))]
        right = 6 if trial.values["lr"] == 0.1 else 3
        scores = tuple(Score(*m, 59, right, 10, 1.0, right / 10) for m in moments)
        Store(folder / "results").write(RunResult(trial.run, scores, {"data_hash": "d"}))
    out = cli(*CELL).out
    assert "Seed 41, in this column's setting" in out and "held-out 10 % of each client's training images" in " ".join(
        out.split()
    )
    best, other = (re.search(rf"{value} % +lr = {lr}.*", out) for value, lr in (("60.00", "0.1"), ("30.00", "0.2")))
    assert best and other and best[0].endswith("<- used here") and not other[0].endswith("<- used here")
    assert "the best of the stored trials" in " ".join(out.split())
    there = cli("explain", "tiny.toml", "ditto", "dirichlet", "--no-data").out
    assert "in another setting (digits, " in there  # the other column has another division
    assert "the stored trials are of another setting" in " ".join(there.split())


def test_trials_on_the_cells_data_come_before_those_of_other_data(cli, suite, folder: Path) -> None:
    path = suite(sourced("tuned"))
    for column, rounds in (("shards", 2), ("dirichlet", 1)):
        (search,) = searches(load(str(path)), "ditto", columns=[column], grid=["lr=0.1,0.2"])
        for trial in search.trials:
            named = {"dataset": trial.run.dataset, "partition": trial.run.partition}
            turned = {  # the order of options means nothing
                kind: of.model_copy(update={"options": dict(reversed(of.options.items()))})
                for kind, of in named.items()
            }
            run = trial.run.model_copy(update={"rounds": rounds, **turned})
            moments = [("global", rounds, 0), *(("finetuned", rounds, step) for step in (0, 1, 2))]
            Store(folder / "results").write(RunResult(run, tuple(Score(*m, 59, 5, 10, 1.0, 0.5) for m in moments)))
    told = part(cli(*CELL).out, "Trials behind what is tuned")
    assert "in this column's setting" in told and "another" not in told
    there = part(cli("explain", "tiny.toml", "ditto", "dirichlet", "--no-data").out, "Trials behind what is tuned")
    assert "in another setting (rotated-digits, 60 clients, 1 round)" in there and "(digits" not in there


def test_a_tuned_value_that_is_the_suites_is_known_as_chosen(cli, suite, folder: Path) -> None:
    tuned = 'fedavg = { epochs = 1, lr = { value = 0.05, source = "tuned" } }'
    path = suite(SUITE.replace("fedavg = { epochs = 1, lr = 0.05 }", tuned))
    (search,) = searches(load(str(path)), "fedavg", columns=["shards"], grid=["lr=0.05,0.1", "batch=10,20"])
    for trial in search.trials:
        Store(folder / "results").write(RunResult(trial.run, (Score("global", 2, 0, 59, 5, 10, 1.0, 0.5),)))
    out = cli("explain", "tiny.toml", "fedavg", "shards", "--no-data").out
    (used,) = [line for line in out.splitlines() if line.endswith("<- used here")]
    assert "batch = 10" in used and "lr = 0.05" in used
    assert " ".join(out.split()).count("is the smallest that was tried: a better one may lie beyond.") == 1  # lr alone
    assert "its noise is not known" in " ".join(out.split())


@pytest.mark.parametrize("batch", [2, 3, 5])  # which trial is read first depends on their ids
def test_trials_show_a_batch_size_that_some_left_to_the_suite(cli, suite, folder: Path, batch: int) -> None:
    was = "fedavg = { epochs = 1, lr = 0.05 }"
    path = suite(SUITE.replace(was, "fedavg = { epochs = 1, lr = 0.1 }"))
    for grid in (["lr=0.02,0.05,0.1,0.2"], ["lr=0.05", f"batch={batch}"]):
        (search,) = searches(load(str(path)), "fedavg", columns=["shards"], grid=grid)
        for trial in search.trials:
            Store(folder / "results").write(RunResult(trial.run, (Score("global", 2, 0, 59, 5, 10, 1.0, 0.5),)))
    tuned = f"{{ value = 0.05, source = 'tuned' }}, batch = {{ value = {batch}, source = 'tuned' }}"
    path.write_text(SUITE.replace(was, f"fedavg = {{ epochs = 1, lr = {tuned} }}"))
    told = part(cli("explain", "tiny.toml", "fedavg", "shards", "--no-data").out, "Trials behind what is tuned")
    before, *more = told.split("<- used here")
    values = before.split("%")[-1]
    assert f"batch = {batch}" in values and "lr = 0.05" in values
    assert len(more) == 1 and told.count("batch = 10") == 4


def test_trials_are_ranked_by_the_scored_rounds_that_chose(cli, folder: Path) -> None:
    """Rounds of three trials: lr 0.05 was chosen by the last ten, 0.1 ends higher, and 0.2 was scored once."""
    tuned = 'fedavg = { epochs = 1, lr = { value = 0.05, source = "tuned" } }'
    text = SUITE.replace("fedavg = { epochs = 1, lr = 0.05 }", tuned).replace("rounds = 2", "rounds = 12")
    path = folder / "tiny.toml"
    path.write_text(text)
    (search,) = searches(load(str(path)), "fedavg", columns=["shards"], grid=["lr=0.05,0.1,0.2"])
    for trial, (walk, end) in zip(search.trials, ((8, 4), (5, 9), (0, 7)), strict=True):
        rounds = range(1, 13) if walk else [12]
        scores = tuple(
            Score("global", round, 0, client, (end if round == 12 else walk) - client % 2, 10, 1.0,
                  ((end if round == 12 else walk) - client % 2) / 10)
            for round in rounds for client in (58, 59)
        )  # fmt: skip
        Store(folder / "results").write(RunResult(trial.run, scores, {"data_hash": "d"}))
    cell = ("explain", "tiny.toml", "fedavg", "shards", "--no-data")
    assert "85.00 % lr = 0.1" in " ".join(part(cli(*cell).out, "Trials behind what is tuned").split())
    path.write_text(text + '\n[tune.read]\nfedavg = "last-10"\n')
    out = cli(*cell).out
    told = " ".join(part(out, "Trials behind what is tuned").split())
    assert "training images, mean over the last 10 scored rounds: 71.00 % lr = 0.05 <- used here 49.00 % lr" in told
    assert told.count("after round 12: 65.00 % lr = 0.2") == 1
    assert "The lead over the next best is 22.00 points" not in told, "which is no doubt"
    assert "not the best" not in " ".join(out.split())


GRAVE = """
[[departure]]
what = "start"
paper = "afresh"
code = "trained before"
here = "afresh"
source = "paper"
grave = true

[[departure]]
what = "order"
paper = "not said"
here = "first"
source = "guess"

[[departure]]
what = "batch size"
paper = "30"
here = "10"
source = "code"
"""


def test_what_is_grave_reaches_the_conclusion_and_departures_are_told_by_kind(cli, suite) -> None:
    suite(sourced("code").replace("[reference]", f"{GRAVE.replace('guess', 'code')}[reference]"))
    out = cli(*CELL).out
    assert "but the authors' runs probably differed (start)" in short(out)
    assert "Keep in mind: start." in short(out)
    differs = part(out, "What is followed, and what differs")
    assert "1. start [paper, grave]. Paper: afresh. Code: trained before. Here: afresh." in differs
    for one in ("Here: afresh.", "batch size [code]", "order [code]"):
        assert " ".join(out.split()).count(one) == 1, "a departure is told once"
    assert re.search(
        r"Other than the paper's text: 1\. batch .* does not say.*: 1\. order .* authors ran: 1\. start ",
        part(out, "What is followed, and what differs"),
    )
    suite(sourced("code").replace("[reference]", f"{GRAVE}[reference]"))
    assert "It rests on a guess (order), so the agreement does not show" in short(cli(*CELL).out)


@pytest.mark.parametrize(
    ("printed", "label", "sizes"),
    [
        ("[{mean}, {std}]", "Agrees: 0.00 points", "is as large as the paper's"),
        ("[{low}, {tenth}]", "Agrees: ", "is about 10 times the paper's"),
        ("[{mean}]", "Agrees: ", "the paper prints no ±, pflbench's is {std}"),
        ("[{mean}, 0.0]", "Agrees: ", "pflbench's ± is {std}, the paper's 0.00."),
    ],
)
def test_both_spreads_are_told(cli, suite, folder: Path, printed: str, label: str, sizes: str) -> None:
    suite(sourced("paper"))
    mean, std = re.findall(r"pflbench +(\S+) ± (\S+)", cli(*CELL).out)[0]
    numbers = {"mean": mean, "std": std, "tenth": float(std) / 10, "low": float(mean) - 1.5 * float(std)}
    suite(sourced("paper").replace("[50.0, 40.0]", printed.format(**numbers)))
    out = short(cli(*CELL).out)
    assert label in out and sizes.format(**numbers) in out


def test_a_method_without_minibatches_has_no_batch_size(cli, tmp_path: Path) -> None:
    told = {
        row: cli("explain", "pfedvem-table1", row, "fashion-mnist-50", "--no-data").out
        for row in ("pfedbayes", "fedper")
    }
    assert {row: "batch = 10" in out for row, out in told.items()} == {"pfedbayes": False, "fedper": True}


def test_a_difference_is_explained_by_its_parts(cli, results: Path, folder: Path) -> None:
    derived = '\n[[derived]]\nid = "gain"\ntitle = "Gain"\nrows = ["fedavg-ft", "ditto"]\n'
    (folder / "tiny.toml").write_text(SUITE + derived)
    result = cli("explain", "tiny.toml", "gain", "shards", "--no-data")
    assert result.code == 2 and "gain is the difference of fedavg-ft and ditto: explain these." in result.err


def test_a_row_of_ones_own_is_explained_without_its_file(cli, results: Path, folder: Path) -> None:
    (run, *_) = expand(load(str(folder / "tiny.toml")), rows=["ditto"], columns=["shards"]).runs
    own = run.model_copy(update={"method": MethodSpec(name="own.py:Foo", version="0" * 12, hyper={"lr": 0.05})})
    moments = [("global", 2, 0), *(("finetuned", 2, step) for step in (0, 1, 2))]
    scores = tuple(Score(*m, 59, 5, 10, 1.0, 0.5) for m in moments)
    source = METHOD.replace(
        '"""Federated averaging, written again."""', '"""Mine.\n\n    Departures: it is mine.\n    """'
    )
    Store(results).write(RunResult(own, scores, {"data_hash": "d", "method_source": source}))
    for name in ("own.py:Foo", "some/where/own.py:Foo", "Foo"):
        result = cli("explain", "tiny.toml", name, "shards", "--no-data")
        assert result.code == 0 and own.id in result.out, result.err
        assert "(not in the suite)" in result.out and "- it is mine." in result.out
        assert "The row is not the suite's" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("tiny.toml", "dito", "shards"), "Did you mean 'ditto'?"),
        (("tiny.toml", "ditto", "shard"), "Did you mean 'shards'?"),
        (("tiny.toml", "ditto", "shards", "--profile", "smoek"), "Did you mean 'smoke'?"),
        (("tiny.toml", "ditto", "shards", "--stage", "global"), "Unknown stage 'global'"),
        (("cafeme-table9", "ditto", "shards"), "Unknown suite"),
    ],
)
@pytest.mark.usefixtures("results")
def test_wrong_names(cli, arguments: tuple[str, ...], part: str) -> None:
    result = cli("explain", *arguments, "--no-data")
    assert result.code == 2 and part in result.err and len(result.err.splitlines()) == 1


@pytest.mark.usefixtures("results")
def test_titles_do_and_stages_are_chosen(cli) -> None:
    assert cli("explain", "tiny.toml", "Ditto", "Shards", "--no-data").out == cli(*CELL).out
    personal = cli("explain", "pfedvem-table1", "pfedvem", "fashion-mnist-100", "--no-data").out
    assert "Scored  PM" in personal and "Also shown: GM" in personal
    for name in ("global", "GM"):
        assert (
            "Scored  GM"
            in cli("explain", "pfedvem-table1", "pfedvem", "fashion-mnist-100", "--stage", name, "--no-data").out
        )


def test_a_close_number_says_by_how_much(cli, suite, monkeypatch: pytest.MonkeyPatch) -> None:
    suite(sourced("code"))
    monkeypatch.setattr("pflbench.report.verdict.label", lambda interval, margin: "close")
    out = short(cli(*CELL).out)
    assert out.startswith("Close: ") and "the difference is beyond chance, and less than 100 points" in out
    assert "Verdict of the report: close (" in cli(*CELL).out


def test_a_table_of_no_paper_is_held_against_none(cli, results: Path) -> None:
    out = cli(*CELL).out
    assert "\n\nTiny (no paper has it)" in out
    assert short(out) == "No paper has this table. pflbench's number stands for itself."
    assert "The suite lists no difference" not in out


def test_what_a_departure_guesses_is_not_denied(tmp_path: Path) -> None:
    found = list(conclude(explain_cell("fedec-table2", "fedper", "cifar10-100-2", Store(tmp_path))))
    listed = "what the suite lists as guessed or tuned is private parts at the start."
    assert any(listed in fact.text for fact in found if fact.kind == "sources")


def test_files_that_are_not_the_official_ones_are_in_the_conclusion(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(Path(__file__).parents[2] / "results")
    known = explain_cell("fedec-table2", "fedper", "cifar10-100-2", store)
    hashes = known.ran[0].provenance["data_hash"] if known.ran else ""
    if not hashes:
        pytest.skip("no run of the cell is committed")
    numbers = Numbers(1, 1, 1)
    federation = FederationSummary(
        42, hashes, numbers, numbers, None, numbers, 10, 0, 0, None, ("Not the official file.",)
    )
    found = [fact for fact in conclude(replace(known, federation=federation)) if fact.severity == "decisive"]
    assert [fact.kind for fact in found if "Not the official file." in fact.text] == ["data"]


def test_rounds_seeds_and_values_are_selected_as_a_run_is_told_them(cli, results: Path, folder: Path) -> None:
    out = cli(*CELL, "--rounds", "1", "--seeds", "0,7", "--set", "ditto.lam=0.5").out
    assert "Rounds: 1." in out and "Seeds: 0, 7 (n = 2)." in out and re.search(r"lam +0\.5 +not said", out)
    assert "Nothing can be concluded: none of 2 seeds is done." in out
    again = "--suite tiny.toml --method ditto --column shards --rounds 1 --seeds 0,7 --set ditto.lam=0.5` trains them"
    assert again in " ".join(out.split())
    assert "Set by the profile or by options, or of no known source: " in " ".join(out.split())
    refused = cli(*CELL, "--set", "ditto.lamb=1")
    assert refused.code == 2 and "lamb" in refused.err and "Traceback" not in refused.err


def test_departures_of_the_whole_protocol_are_not_told_of_another_one(cli, folder: Path) -> None:
    for options, told in (((), True), (("--rounds", "3"), True), (("--profile", "smoke"), False)):
        out = cli("explain", "pfedvem-table1", "fedavg", "fashion-mnist-100", "--no-data", *options).out
        assert ("FMNIST's own mean" in out) == told, options
        assert ("so what is said of that one is not repeated here" in " ".join(out.split())) == (not told), options


def test_a_method_that_sends_nothing_has_no_uploads(cli, folder: Path) -> None:
    out = {
        row: cli("explain", "pfedvem-table1", row, "fashion-mnist-100", "--no-data").out for row in ("local", "fedavg")
    }
    assert {row: "an upload arrives" in text for row, text in out.items()} == {"local": False, "fedavg": True}
    assert "They send nothing." in out["local"]


def test_a_row_of_ones_own_rests_on_the_columns_guesses(cli, suite, folder: Path) -> None:
    (folder / "own.py").write_text(METHOD)
    path = suite(sourced("paper") + '\n[sources]\ndataset = "guess"\n')
    run = expand(load(str(path)), methods=[f"{folder / 'own.py'}:Foo"], columns=["shards"], seeds=[0]).runs[0]
    moments = [("global", 2, 0), *(("finetuned", 2, step) for step in (0, 1, 2))]
    Store(folder / "results").write(
        RunResult(run, tuple(Score(*m, 59, 5, 10, 1.0, 0.5) for m in moments), {"data_hash": "d"})
    )
    out = cli("explain", "tiny.toml", "Foo", "shards", "--no-data").out
    reasons = part(out, "What speaks for and against the number")
    assert (
        "its own values are those of whoever ran it" in reasons
        and "It rests on guesses (how the dataset is prepared, " in reasons
    )
