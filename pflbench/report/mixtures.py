"""Columns whose cells cannot be compared, since their runs saw different data or ran different versions of the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pflbench.report.text import grouped, ranges
from pflbench.report.used import Used
from pflbench.suite.cells import Expansion

_Shares = Mapping[str, Sequence[tuple[str, int]]]
"""Who has which version of something: by version, rows and seeds."""


def mixtures(table: Expansion, used: Sequence[Used]) -> dict[str, str]:
    """For each column whose runs mix data, or versions of a method, dataset, partition or network: a line saying so.

    What a user's dataset or partition reads may depend on the seed, so its content may differ between seeds. Several
    contents within one seed are a mixture.
    """
    suite_ids = {run.id for cell in table.cells for run in cell.needed}
    lines: dict[str, str] = {}
    for column in table.columns:
        done = [u for u in used if u.column == column.id and u.done]
        # Extra rows carry their version in the title.
        methods = [u.stored.spec.method for u in done if u.stored.spec.id in suite_ids]
        versions = grouped((method.name, method.version) for method in methods)
        several = [(name, ", ".join(found)) for name, found in versions.items() if len(found) > 1]
        data = _shares(("DATA", u.data_hash, u) for u in done)
        parts = [f"MIXED DATA in {column.setting}: {_listed(them)}" for them in data.values() if len(them) > 1]
        parts += [f"MIXED VERSIONS of {what} in {column.setting}: {told}" for what, told in [*several, *_own(done)]]
        if parts:
            lines[column.id] = f"† {'. '.join(parts)}. These cells cannot be compared."
    return lines


def _own(done: Sequence[Used]) -> list[tuple[str, str]]:
    """The datasets, partitions and networks of a user's of which these runs have several, and who has which."""
    parts = [(u, named) for u in done for named in (u.stored.spec.dataset, u.stored.spec.partition)]
    networks = [(u.stored.spec.model, u.stored.spec.model_version or "none", u) for u in done]
    code = _shares([*networks, *((named.name, named.version or "none", u) for u, named in parts)])
    read = _shares((f"what is read by {named.name}", named.content or "nothing", u) for u, named in parts)
    mixed = [(what, shares) for what, shares in code.items() if len(shares) > 1]
    mixed += [(what, shares) for what, shares in read.items() if _mixed(shares)]
    return [(what, _listed(shares)) for what, shares in mixed]


def _shares(told: Iterable[tuple[str, str, Used]]) -> dict[str, _Shares]:
    """Who has which version of what; `told`: what, the version, and a run that has it."""
    found = grouped((what, (version, (one.row, one.stored.spec.seed))) for what, version, one in told)
    return {what: grouped(versions) for what, versions in found.items()}


def _mixed(shares: _Shares) -> bool:
    """Whether some seed has several contents, or seeds share some contents but not all."""
    seeds = [{seed for _, seed in places} for places in shares.values()]
    return len(shares) > 1 and (any(len(several) > 1 for several in seeds) or len(set().union(*seeds)) < len(seeds))


def _listed(shares: _Shares) -> str:
    return "; ".join(
        f"{version[:12]} in {', '.join(f'{row} (seeds {ranges(seeds)})' for row, seeds in grouped(places).items())}"
        for version, places in shares.items()
    )
