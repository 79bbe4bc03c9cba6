"""pflbench: reproducible tables for personalized federated learning.

    import pflbench as pb

    part = pb.select("cafeme-table1", columns=["rmnist-shards"], methods=["cafeme"], profile="quick", seeds=range(3))
    print(pb.plan(part))
    pb.run(part, jobs=2, on_event=print)
    print(pb.table(part))

Everything is imported when it is first used, torch only when something trains.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pflbench.package import __version__ as __version__

__all__ = [
    "Execution",
    "Selection",
    "check",
    "cite",
    "claims",
    "compare",
    "explain",
    "load_models",
    "plan",
    "rerun",
    "run",
    "scores",
    "select",
    "suites",
    "table",
]

if TYPE_CHECKING:
    from pflbench.api import (
        check,
        cite,
        claims,
        compare,
        explain,
        load_models,
        plan,
        rerun,
        run,
        scores,
        select,
        suites,
        table,
    )
    from pflbench.running.execution import Execution
    from pflbench.selection import Selection


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pflbench' has no attribute {name!r}")
    return getattr(importlib.import_module("pflbench.api"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
