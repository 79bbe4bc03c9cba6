"""Python interface, `import pflbench`: choose part of some suites, plan it, run it, and read tables and scores.

The command line does the same through the same objects. Nothing here imports torch before something trains.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from pflbench.data.root import data_root
from pflbench.errors import UsageError, unknown
from pflbench.running.events import OnEvent, unheard
from pflbench.running.execution import Execution
from pflbench.selection import Choices, Selection, Wanted, selection
from pflbench.store import ShownStore, Store
from pflbench.suite.expand import expand
from pflbench.suite.load import available, loaded, read, required
from pflbench.units import Shard, interval, parse_shard, size
from pflbench.usercode import USERS

if TYPE_CHECKING:
    import pandas as pd

    from pflbench.report.claims import Judged
    from pflbench.report.compare import Comparison
    from pflbench.report.explain import Explanation
    from pflbench.report.table import Table
    from pflbench.running.models import KeptModels
    from pflbench.running.planning import Plan
    from pflbench.running.rerunning import Rerun
    from pflbench.running.training import Outcome
    from pflbench.suite.cells import ReadAs
    from pflbench.testing import Finding

Where = str | Path
Method = str | type
READ = {"memory_limit": size, "checkpoint_every": interval, "shard": parse_shard}
"""Fields of `Execution` that may be texts."""


def suites() -> dict[str, str]:
    """Every suite that comes with pflbench: its name and its title."""
    return {name: read(name).document().suite.title for name in available()}


def select(*suites: str, methods: Iterable[Method] | None = None, **choices: Unpack[Choices]) -> Selection:  # type: ignore[misc]
    """Part of some suites.

    Args:
        *suites: Names of suites, or paths of `.toml` files.
        methods: Row or method ids, `file.py:Class`, or classes of a module that is a file.
        **choices: The other fields of a `Selection`: columns, datasets, partitions, clients, seeds, profile, rounds,
            overrides, precision, like.

    Raises:
        UsageError: Something is unknown or does not fit.
    """
    named: Any = methods
    if isinstance(methods, Iterable) and not isinstance(methods, str):
        named = [_reference(one) for one in methods]
    part = selection(**{**choices, "suites": suites, "methods": named})
    for suite in loaded(part.suites, None) if suites else ():
        expand(suite, part)
    return part


def _reference(method: Method) -> str:
    """`file.py:Class` of a class, `module:Class` in a package; the name or reference of a method as it is.

    Raises:
        UsageError: The class is not at the top of a module's file, so workers cannot import it.
    """
    if isinstance(method, str):
        return method
    name = getattr(method, "__qualname__", repr(method))
    file = getattr(sys.modules.get(getattr(method, "__module__", "")), "__file__", None)
    if not isinstance(method, type) or method.__module__ == "__main__" or not file or not name.isidentifier():
        raise UsageError(
            f"{name} is not a class in a module's file: workers import methods from files. Write the class to a file, "
            "such as mine.py, and select 'mine.py:Class'."
        )
    if "." in method.__module__ and not method.__module__.startswith(USERS):  # whose imports may be relative
        return f"{method.__module__}:{name}"
    return f"{Path(file).resolve()}:{name}"


def plan(
    part: Selection | str,
    results: Where = "results",
    *,
    data_dir: Where | None = None,
    shard: str | Shard | None = None,
    fresh: bool = False,
) -> Plan:
    """Cost of training the missing runs of a selection, and all that `run` would count. Nothing is trained.

    Args:
        part: What would be trained: a selection, or a suite's name.
        results: The results folder.
        data_dir: Where the datasets are, if not in the data root.
        shard: Only this part of the runs, as "1/3".
        fresh: Plan also runs that came with pflbench.

    Returns:
        The plan; its text is a table.

    Raises:
        UsageError: The selection names no suite, or something unknown.
        StoreError: The results folder cannot be read.
    """
    from pflbench.running import planning

    part = _selected(part)
    suites, root = loaded(part.suites, data_dir), data_root(data_dir)
    chosen = parse_shard(str(shard)) if isinstance(shard, str | int) else shard
    return planning.plan(suites, part, Path(results), root, shard=chosen, fresh=fresh)


def run(
    part: Selection | str,
    results: Where = "results",
    *,
    execution: Execution | None = None,
    on_event: OnEvent | None = None,
    **how: Any,
) -> Outcome:
    """Train and score every run of a selection that has no result yet. Every finished run is stored at once.

    Of suites of statistics, the datasets are counted.

    Args:
        part: What to train: a selection, or a suite's name.
        results: The results folder.
        execution: Where and how to train.
        on_event: Hears what happens; `print` prints it.
        **how: Fields of `Execution` that are other than in `execution`; `memory_limit`, `checkpoint_every` and
            `shard` may be texts: "4GB", "10m" and "1/3".

    Returns:
        What there was to do, and what became of it; its text says it.

    Raises:
        UsageError: Something is unknown or does not fit, or a method of one's own breaks the contract.
        StoreError: The results folder cannot be written.
    """
    from pflbench.running import training

    part, execution = _selected(part), _execution(execution or Execution(), how)
    return training.run(part, Path(results), execution, on_event or unheard)


def table(
    part: Selection | str,
    results: Where = "results",
    *,
    read: ReadAs = "last",
    versus: str | None = None,
    fairness: bool = False,
    fresh: bool = False,
    data_dir: Where | None = None,
) -> FinishedTable:
    """The table of a suite under a profile, from the stored runs alone, as the paper prints it.

    Args:
        part: A selection of one suite, or its name; without a profile, the paper's. The selection's methods choose
            among the rows.
        results: The results folder.
        read: In which of the rounds that runs were scored in it is read: "last" (those that the suite names), "last-10"
            (the mean over the last ten), or "best" (each run's best one, which is optimistic).
        versus: The row, or a method that one row shows, that all others are held against, paired seed by seed.
        fairness: Whether it also says how each number is spread over clients (the worst tenth, the deviation, the
            clients with the fewest images, training against held-out clients).
        fresh: Leave out the runs that came with pflbench.
        data_dir: Where the datasets are, if not in the data root.

    Raises:
        UsageError: It is not one suite, something is unknown, or nothing of it has results.
    """
    from pflbench.report.reading import readable
    from pflbench.report.tables import none_there, reported

    part = _selected(part)
    if len(required(part.suites)) > 1:
        raise UsageError(f"One table at a time, not {' and '.join(part.suites)}.")
    store = ShownStore(Path(results), fresh=fresh)
    own, whole = readable(store, data_dir), part.but(profile=part.profile or "paper")
    how: dict[str, Any] = {"read_as": read, "versus": versus}
    (table,) = reported(whole, store, own, over_clients=fairness, **how).tables
    if not table.has_results and not any(
        one.has_results for one in reported(whole.but(methods=None, like=None), store, own).tables
    ):
        raise none_there(part, store, own)

    def page() -> str:
        from pflbench.report.page import tables_page

        return tables_page(whole, store, own, **how)

    return FinishedTable(table, page)


def scores(part: Selection | str | None = None, results: Where = "results") -> pd.DataFrame:
    """The scores of finished runs as one long table: a line per run, stage, round, fine-tuning step and client.

    Args:
        part: Which runs, by a selection or a suite's name; None: all that are stored.
        results: The results folder.

    Raises:
        UsageError: Something is unknown, or no finished run is what is asked for.
    """
    import pyarrow as pa

    from pflbench.report.scores import score_tables as tables

    wanted = Wanted(**vars(_selected(part)))
    store = ShownStore(Path(results))
    frame: pd.DataFrame = pa.concat_tables(tables(store, wanted)).to_pandas(use_threads=False)
    return frame


def explain(
    suite: str,
    row: str,
    column: str,
    results: Where = "results",
    *,
    stage: str | None = None,
    data: bool = True,
    data_dir: Where | None = None,
    **choices: Unpack[Choices],
) -> Explained:
    """Account of one cell of a table: its sources, its place beside the paper's number, and what may be concluded.

    Args:
        suite: A suite's name, or a `.toml` file.
        row: A row's id or title.
        column: A column's id or title.
        results: The results folder.
        stage: Where the row is shown at several stages, which.
        data: Whether to build the federation from its dataset to describe it.
        data_dir: Where the datasets are, if not in the data root.
        **choices: Profile, rounds, seeds and overrides.

    Raises:
        UsageError: Something is unknown.
    """
    from pflbench.report.explain import explain_cell
    from pflbench.running.federations import summarize_federation

    root = data_root(data_dir) if data else None
    store = ShownStore(Path(results))
    return Explained(
        explain_cell(suite, row, column, store, selection(**choices), stage=stage, root=root, look=summarize_federation)
    )


def claims(
    *which: str,
    results: Where = "results",
    profile: str = "paper",
    data_dir: Where | None = None,
) -> Claims:
    """Decide the papers' claims from stored runs.

    Args:
        which: Papers ("cafeme", "fedec", "pfedvem", "pfllib"), ids of claims, or `.toml` files; none: every paper.
        results: The results folder.
        profile: Profile of the runs; one other than "paper" decides nothing about the paper.
        data_dir: Where the datasets are, if not in the data root.

    Raises:
        UsageError: A paper, claim, suite, row or column is unknown, or a file is wrong.
    """
    from pflbench.report.claims import judged
    from pflbench.report.reading import readable

    store = ShownStore(Path(results))
    return Claims(judged(which, store, readable(store, data_dir), profile))


def compare(a: Where, b: Where, part: Selection | str | None = None, *, data_dir: Where | None = None) -> Compared:
    """Differences between two results folders, cell by cell: the second minus the first, paired by seed.

    Args:
        a: A results folder, or "packaged": the runs that came with pflbench.
        b: Another one.
        part: Which suites, profiles, rows and columns, or a suite's name; None: all tables with results.
        data_dir: Where the datasets are, if not in the data root.

    Raises:
        UsageError: A place cannot be read, something is unknown, or neither has results of what is asked for.
    """
    from pflbench.report.compare import compare_folders as compared

    return Compared(compared(str(a), str(b), _selected(part), data_dir))


def rerun(
    run: str,
    results: Where = "results",
    *,
    code: Where | None = None,
    execution: Execution | None = None,
    on_event: OnEvent | None = None,
    **how: Any,
) -> Rerun:
    """Compute a stored run again from its spec and hold it against what is stored. Nothing is written.

    Args:
        run: Its id, or enough of its beginning.
        results: The results folder.
        code: The folder of the user-supplied code that the run may import. Default: it may import none.
        execution: Where and how to train.
        on_event: Hears what happens; `print` prints it.
        **how: Fields of `Execution` that are other than in `execution`.

    Returns:
        Both results; `word` is the verdict, `good` is False for another result, and the text says how they compare.

    Raises:
        UsageError: There is no such run, or a file of one's own that it needs is not there.
        DataMissing: Its dataset is not in the data root.
    """
    from pflbench.report.stored import named
    from pflbench.running import rerunning

    store = ShownStore(Path(results))
    (stored,) = named(store, [run])
    execution = _execution(execution or Execution(), how)
    folder = None if code is None else Path(code)
    return rerunning.rerun(stored, store.read(stored.spec.id), execution, on_event or unheard, folder)


def load_models(run: str, results: Where = "results", *, code: Where | None = None) -> KeptModels:
    """The models of a run that was trained with `keep_models`: those that its last scores are of.

    Args:
        run: Its id, or enough of its beginning.
        results: The results folder.
        code: The folder of the user-supplied code that the network may import. Default: it may import none.

    Returns:
        Their tensors by stage and client, and the network that takes them.

    Raises:
        UsageError: There is no such run, or its models were not kept.
        StoreError: Their index is damaged, or that of another run.
    """
    from pflbench.report.stored import named
    from pflbench.running import models, rerunning

    (stored,) = named(Store(Path(results)), [run])
    own = partial(rerunning.user_locations, stored.spec, None if code is None else Path(code))
    return models.read(stored, Path(results), own)


def cite(suite: str) -> str:
    """References for a suite's table as BibTeX: the papers of the table, of its methods and datasets, and pflbench.

    Args:
        suite: A suite's name, or a `.toml` file.

    Raises:
        UsageError: The suite is unknown.
    """
    from pflbench.report.citing import cited

    return cited(suite)


def check(method: Method, model: str | None = None) -> list[Finding]:
    """Run the contract on a method; a finding whose `problem` is None passed, or does not apply.

    `model`: the network to train, `file.py:function`, called with ((1, 8, 8), 3). Default: a small one.

    Raises:
        UsageError: The method or network is unknown, or its source cannot be found.
    """
    import torch

    from pflbench import names, trust
    from pflbench.running.build import construct, named_network
    from pflbench.testing import CLASSES, SHAPE, contract

    reference, network = names.locate("methods", _reference(method)), None
    trust.grant(reference)
    if model is not None:
        trust.grant(located := names.locate("models", model))
        network = named_network(located, SHAPE, CLASSES)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
    try:
        return list(contract(construct(reference, {}), network))
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class FinishedTable:
    """A table with its numbers. `str` and notebooks show it."""

    content: Table
    page: Callable[[], str] = field(repr=False, compare=False)

    def to_frame(self) -> pd.DataFrame:
        """Long form, a line per cell, with means, spreads, the paper's number, verdicts and run ids."""
        import pandas as pd

        from pflbench.report.render import records

        names, *cells = ((*one.cell, *one.versus, *one.more) for one in records([self.content]))
        return pd.DataFrame(cells, columns=list(names))

    def to_markdown(self) -> str:
        """As `pflbench report --format markdown` prints it."""
        return self._as("markdown")

    def to_latex(self) -> str:
        """As `pflbench report --format latex` prints it: to be read in by a paper's source."""
        return self._as("latex")

    def to_html(self) -> str:
        """As `pflbench report --format html` prints it: a page of its own, to be opened in a browser."""
        return self.page()

    def _as(self, format: Any, **how: Any) -> str:
        from pflbench.report.render import render

        return render(self.content, format, **how)

    def __str__(self) -> str:
        return self._as("terminal", width=100, color=False)

    def _repr_html_(self) -> str:
        from pflbench.report.render import html

        return html(self.content)


@dataclass(frozen=True)
class Compared:
    """Two results folders side by side; `str` is the text of `pflbench compare`."""

    content: Comparison

    def to_frame(self) -> pd.DataFrame:
        """A line per cell, with both means, the difference, its interval, and what became of it."""
        import pandas as pd

        from pflbench.report.compare_text import CSV_COLUMNS, pair_records, pairs_shown

        return pd.DataFrame(list(pair_records(pairs_shown(self.content))), columns=list(CSV_COLUMNS))

    def to_markdown(self) -> str:
        """As `pflbench compare --format markdown` prints it."""
        return self._as("markdown")

    def dropped(self, points: float = 1.0) -> list[str]:
        """The cells whose mean falls by more than this number of points: what `--fail-if-drop` looks for."""
        return [str(one.name) for one in self.content.pairs if one.drops(points)]

    def _as(self, format: Any) -> str:
        from pflbench.report.compare_text import comparison_text

        return comparison_text(self.content, format)

    def __str__(self) -> str:
        return self._as("terminal")


@dataclass(frozen=True)
class Claims:
    """Judged claims by paper; `str` is the text of `pflbench claims`."""

    content: Mapping[str, Sequence[Judged]]

    def to_frame(self) -> pd.DataFrame:
        """One line for each claim, with the columns of `pflbench claims --format csv`."""
        import pandas as pd

        from pflbench.report.claim_list import COLUMNS, fields

        lines = [fields(paper, one) for paper, judged in self.content.items() for one in judged]
        return pd.DataFrame(lines, columns=list(COLUMNS))

    def to_markdown(self) -> str:
        """Text of `pflbench claims --format markdown`."""
        from pflbench.report.claim_list import text

        return text(self.content, "markdown")

    def __str__(self) -> str:
        from pflbench.report.claim_list import text

        return text(self.content)


@dataclass(frozen=True)
class Explained:
    """Account of a cell; `str` is the text of `pflbench explain --full`."""

    content: Explanation

    def __str__(self) -> str:
        from pflbench.report.explain_text import explanation_text

        return explanation_text(self.content)


def _selected(part: Selection | str | None) -> Selection:
    """Return the selection; a text is a suite's name, None selects everything."""
    if part is None or isinstance(part, str):
        return select(*filter(None, [part]))
    if not isinstance(part, Selection):
        raise UsageError(f"{part!r} is no selection. Pass `pb.select(...)` or a suite's name.")
    return part


def _execution(execution: Execution, how: dict[str, Any]) -> Execution:
    if wrong := sorted(how.keys() - vars(execution).keys()):
        raise unknown("argument", wrong[0], vars(execution))
    for name, parse in READ.items():
        value = how.get(name)
        if isinstance(value, str) or (isinstance(value, int) and name != "memory_limit"):
            how = how | {name: parse(str(value))}
    return replace(execution, **how)
