"""`pflbench ls suites`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pflbench.suite.load import available


def test_suites_are_listed_by_paper_with_their_data_and_variants_on_request(
    cli: Callable[..., Any], whole: dict[str, tuple[str, ...]]
) -> None:
    every = cli("ls", "suites", "--all").out.splitlines()
    whole.clear()
    main = cli("ls", "suites").out.splitlines()
    papers = [line for line in main if not line.startswith(" ")]
    assert papers[0] == "cafeme (arXiv:2312.15191)" and "meta (no paper)" in papers
    lines = {line.split()[0]: line for line in every if line.startswith(" ")}
    assert lines.keys() == available().keys()
    hidden = lines.keys() - {line.split()[0] for line in main if line.startswith(" ")}
    assert hidden == {name for name, path in available().items() if path.parent.name == "variants"}
    assert "data: cifar10, rmnist;" in lines["cafeme-table1"] and "data: none;" in lines["pfedvem-fig3"]
