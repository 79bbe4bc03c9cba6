"""Recompute every cell of `pflbench report --all --full --format csv` from the packed runs, without pflbench.

    pflbench report --all --full --format csv -o report.csv
    python tools/statistics/recompute.py report.csv

Written from docs/statistics.md and docs/results.md with pandas, numpy and scipy alone. Of the report it takes what a
cell is: its suite, row, column, stage, run ids and the printed number. The packs give each client's accuracy; the suite
files say how they are averaged: fine-tuning steps, weights, smallest clients, and what a printed ± is. From these it
computes the seeds, mean, standard deviation, standard error, difference, interval and verdict, and lists what differs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
COLUMNS = ["run_id", "stage", "round", "step", "client", "count", "accuracy", "seed", "rounds", "scored_rounds"]
NUMBERS = ("mean", "std", "sem", "n", "difference", "difference_low", "difference_high")
PRINTED = ("reference_mean", "reference_spread")
CLOSE = 1e-6
"""Points within which two numbers count as equal: the report rounds to ten digits."""


def packed(results: Path) -> dict[str, pd.DataFrame]:
    """The scores of each packed run, by its id."""
    files = sorted((results / "packs").glob("*.parquet"))
    scores = pd.concat([pd.read_parquet(file, columns=COLUMNS) for file in files])
    kept = scores[~scores["stage"].str.startswith("metric/") | (scores["stage"] == "metric/support")]
    return dict(iter(kept.groupby("run_id")))


def merged(base: Any, over: Any) -> Any:
    """Tables of TOML, the second one's values before the first one's."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return base | {key: merged(base.get(key), value) for key, value in over.items()}


def suite_file(path: Path) -> dict[str, Any]:
    """A suite file with what it extends; its columns by their ids."""
    own = tomllib.loads(path.read_text())
    listed = {kind: own.get("suite", {}).pop(f"{kind}s", []) for kind in ("row", "column")}
    rows = {id: {"like": id} for id in listed["row"]} | {row["id"]: row for row in own.pop("row", [])}
    columns = {id: {"like": id} for id in listed["column"]} | {column["id"]: column for column in own.pop("column", [])}
    if "extends" not in own.get("suite", {}):
        base: dict[str, Any] = {"column": {}, "row": {}}
    else:
        base = suite_file(path.parent / own["suite"]["extends"])
    known = base["column"]
    like = {id: known.get(column.get("like"), columns.get(column.get("like"), {})) for id, column in columns.items()}
    titles = {id: merged(base["row"].get(row.get("like"), {}), row) for id, row in rows.items()}
    of_columns = {id: merged(like[id], columns[id]) for id in columns}
    return merged(base, own) | {"column": of_columns or known, "row": titles or base["row"]}


def rules(suite: dict[str, Any], profile: str, column: str) -> dict[str, Any]:
    """Rules by which a column's cells are read under a profile."""
    overlay = suite.get("profile", {}).get(profile, {})
    evaluation = merged(suite.get("evaluation", {}), overlay.get("evaluation", {}))
    of = merged(suite["column"].get(column, {}), overlay.get("column", {}).get(column, {}))
    return {
        "steps": of.get("report", {}).get("steps") or evaluation.get("report", {}).get("steps"),
        "weighted": evaluation.get("mean", "clients") == "examples",
        "smallest": of.get("subset", {}).get("smallest"),
        "spread": {"kind": "std", "ddof": 1, "of": "seeds"} | suite["suite"].get("spread", {}),
        "decimals": suite.get("layout", {}).get("decimals", 2),
        "best": suite["suite"].get("paper_round") == "best",
    }


def inferred(suite: dict[str, Any], line: pd.Series) -> bool:
    """True where a setting was inferred from the very number that the paper prints there."""
    rows = {id for id, row in suite["row"].items() if row.get("title", id) == line["row"]}
    return any(
        rows & set(one.get("rows", rows)) and line["column"] in one.get("columns", [line["column"]])
        for one in suite.get("inferred", [])
    )


def accuracies(run: pd.DataFrame, stage: str, rule: dict[str, Any], every: bool = False) -> list[pd.DataFrame]:
    """Accuracies of a run's clients that count, for each of the rounds that are read, or scored: client by step."""
    scores, last = run[run["stage"] == stage], int(run["rounds"].iloc[0])
    read = range(last - int(run["scored_rounds"].iloc[0]) + 1, last + 1)
    found = []
    for round in sorted(scores["round"].unique()) if every else read:
        table = scores[scores["round"] == round].pivot(index="client", columns="step", values="accuracy")
        steps = rule["steps"] if stage == "finetuned" and rule["steps"] else [table.columns.max()]
        table = table[steps]
        if rule["smallest"] and list(table.index) != [-1]:
            support = run[run["stage"] == "metric/support"].set_index("client")["accuracy"].reindex(table.index)
            order = pd.DataFrame({"support": support, "client": table.index}).sort_values(["support", "client"])
            table = table.loc[order.index[: rule["smallest"]]]
        found.append(table)
    return found


def seed_values(runs: list[pd.DataFrame], stage: str, rule: dict[str, Any]) -> np.ndarray:
    """Mean of a seed over its clients in percent, for each step; each client takes its best grid point."""
    rounds = accuracies(runs[0], stage, rule)
    if len(runs) > 1:  # point by point: the run on all data, and that which holds a share out
        points = [accuracies(run, stage, rule) for run in runs]
        tests, held_out = points[::2], points[1::2]
        by = np.stack([np.mean([one.to_numpy().mean(axis=1) for one in point], axis=0) for point in held_out])
        best = by.argmax(axis=0)
        for i, table in enumerate(rounds):
            chosen = [tests[choice][i].to_numpy()[client] for client, choice in enumerate(best)]
            rounds[i] = pd.DataFrame(np.stack(chosen), table.index)
    return np.mean([mean_of(runs[0], stage, table, rule) for table in rounds], axis=0)


def best_round(runs: list[pd.DataFrame], stage: str, rule: dict[str, Any]) -> float:
    """The largest mean over a run's clients in percent, of all rounds that are scored."""
    (run,) = runs
    return max(mean_of(run, stage, table, rule).mean() for table in accuracies(run, stage, rule, every=True))


def mean_of(run: pd.DataFrame, stage: str, table: pd.DataFrame, rule: dict[str, Any]) -> np.ndarray:
    """Mean of a table over its clients in percent, for each step."""
    weights = np.ones(len(table))
    if rule["weighted"]:
        counts = run[run["stage"] == stage].groupby("client")["count"].first()
        weights = counts.reindex(table.index).to_numpy()
    return 100 * np.average(table.to_numpy(), axis=0, weights=weights)


def deviation(values: np.ndarray, ddof: int, each_step: bool) -> float:
    """Standard deviation over seeds of `values[seed, step]`: of their means, or the mean over steps; NaN for one."""
    if len(values) < 2:
        return float("nan")
    return float(np.mean(np.std(values if each_step else values.mean(axis=1, keepdims=True), axis=0, ddof=ddof)))


def interval(seeds: np.ndarray, line: pd.Series, rule: dict[str, Any], digits: int) -> tuple[float, float]:
    """Welch's 95 % interval of ours minus the paper's, or ours alone; longer by half a unit of the last digit."""
    n, printed, spread = len(seeds), line["reference_spread"], rule["spread"]
    ours, there, other = seeds.var(ddof=1) / n, 0.0, spread.get("n", 0)
    other = other.get("value", 0) if isinstance(other, dict) else other
    if printed and not np.isnan(printed) and other > 1:  # to the squared error of the paper's mean
        sd = printed * np.sqrt(other) if spread["kind"] == "sem" else printed
        sd *= np.sqrt(other / (other - 1)) if spread["kind"] == "std" and not spread["ddof"] else 1
        there = sd**2 / other
    error = np.sqrt(ours + there)
    if not error:
        freedom = n - 1.0
    else:
        freedom = (ours + there) ** 2 / (ours**2 / (n - 1) + (there**2 / (other - 1) if there else 0.0))
    half = scipy.stats.t.ppf(0.975, freedom) * error + 0.5 * 10.0**-digits
    middle = seeds.mean() - line["reference_mean"]
    return middle - half, middle + half


def word(low: float, high: float, paper: float) -> str:
    """The verdict of an interval: by whether it holds 0, and lies within the margin."""
    margin = max(0.5, min(2.0, (100 - paper) / 4))
    rounding = 1e-9
    small = -margin - rounding <= low and high <= margin + rounding
    if low - rounding <= 0 <= high + rounding:
        return "agrees" if small else "inconclusive"
    return "close" if small else "differs"


def recomputed(line: pd.Series, runs: dict[str, pd.DataFrame], rule: dict[str, Any]) -> dict[str, Any]:
    """What a line of the report should say."""
    by_seed: dict[int, list[pd.DataFrame]] = {}
    for id in str(line["runs"]).split():
        by_seed.setdefault(int(runs[id]["seed"].iloc[0]), []).append(runs[id])
    values = np.stack([seed_values(some, line["stage"], rule) for some in by_seed.values()])
    spread, seeds = rule["spread"], values.mean(axis=1)
    each_step = spread["of"] == "each-step"
    found: dict[str, Any] = {
        "seeds": " ".join(map(str, by_seed)),
        "n": len(by_seed),
        "mean": values.mean(),
        "std": deviation(values, spread["ddof"] if spread["kind"] == "std" else 1, each_step),
        "sem": deviation(values, 1, each_step) / np.sqrt(len(values)),
        **dict.fromkeys(("difference", "difference_low", "difference_high"), float("nan")),
        "verdict": "",
    }
    if np.isnan(line["reference_mean"]):
        return found
    if rule["best"]:  # then the paper's are best rounds, so the comparison is with ours
        seeds = np.array([best_round(some, line["stage"], rule) for some in by_seed.values()])
    found["difference"] = seeds.mean() - line["reference_mean"]
    if line["profile"] != "paper" or line["mixed"] or rule["inferred"]:
        return found | {"verdict": "not comparable"}
    if len(seeds) < 3:
        return found | {"verdict": "too few seeds"}
    low, high = interval(seeds, line, rule, rule["decimals"])
    return found | {"difference_low": low, "difference_high": high, "verdict": word(low, high, line["reference_mean"])}


def mismatches(report: Path, results: Path = ROOT / "results", benchmarks: Path = ROOT / "benchmarks") -> Iterator[str]:
    """What the report says otherwise, a sentence for each field of each line."""
    suites = [path for path in benchmarks.rglob("*.toml") if path.name != "claims.toml"]
    files = {re.search(r'^name = "(.*)"', path.read_text(), re.M)[1]: path for path in suites}  # type: ignore[index]
    suites, runs = {name: suite_file(path) for name, path in files.items()}, packed(results)
    empty = dict.fromkeys((*NUMBERS, *PRINTED), "")
    for _, line in pd.read_csv(report, keep_default_na=False, na_values=empty).iterrows():
        if not line["n"]:
            continue
        where = ", ".join(line[["suite", "profile", "row", "column", "stage"]])
        suite = suites[line["suite"]]
        rule = rules(suite, line["profile"], line["column"]) | {"inferred": inferred(suite, line)}
        found = recomputed(line, runs, rule)
        for name in NUMBERS:
            told, own = float(line[name]), float(found[name])
            if not np.isclose(told, own, rtol=0, atol=CLOSE, equal_nan=True):
                yield f"{where}: {name} is {told} in the report, {own} from its runs."
        for name in ("verdict", "seeds"):
            if str(line[name]) != found[name]:
                yield f"{where}: {name} is {line[name]!r} in the report, {found[name]!r} from its runs."


if __name__ == "__main__":
    wrong = list(mismatches(Path(sys.argv[1])))
    print("\n".join(wrong) or "Every number and verdict comes again.")
    sys.exit(bool(wrong))
