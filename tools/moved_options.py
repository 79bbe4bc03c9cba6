"""Give stored runs of options that became variants their new ids; run once, at issue 57.

`python tools/moved_options.py` rewrites packs of results/ with such runs, and the lists beside them; prints old → new.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pflbench.spec import RunSpec
from pflbench.store import Store, runfile

PACKS = Path(__file__).parents[1] / "results" / "packs"
MOVED = {
    ("cafeme", "optimizer_state"): ("cafeme/variants/cafeme.py:AdamReset", {}),
    ("cafeme", "extra_gate"): ("cafeme/variants/cafeme.py:HiddenGates", {}),
    ("cafeme", "disjoint"): ("cafeme/variants/cafeme.py:Disjoint", {}),
    ("cafeme", "context"): ("cafeme/variants/cafeme.py:KeptContext", {}),
    ("cafeme", "context", "labels"): ("cafeme/variants/cafeme.py:Labels", {}),
    ("fedrep-averaged", "optimizer_state"): ("cafeme/variants/fedrep_averaged.py:AdamReset", {}),
    ("fedrep-averaged", "head_first", "heads"): ("cafeme/variants/fedrep_averaged.py:LocalHeads", {"head_first": 25}),
    ("ditto", "optimizer_state"): ("cafeme/variants/ditto.py:AdamReset", {}),
    ("ditto", "anchor"): ("cafeme/variants/ditto.py:StaleAnchor", {}),
    ("lg-fedavg", "private_layers"): ("fedec/variants/baselines.py:FirstShared", {"private_layers": 3}),
    ("fedrep", "one_optimizer"): ("fedec/variants/baselines.py:OneOptimizer", {}),
    ("apfl", "adaptive"): ("fedec/variants/baselines.py:AdaptiveAPFL", {}),
    ("pfedvem", "confidence"): ("pfedvem/variants/pfedvem.py:DeviationPrior", {"confidence": "deviation"}),
    ("pfedbayes", "persistent"): ("pfedvem/variants/pfedvem.py:Stateless", {"persistent": False}),
}
"""Method and options → variant, and its further hyperparameters."""
KEPT = {("pfedbayes", "persistent"): True, ("pfedvem", "confidence"): ("full", "uncertainty", "deviation")}
"""Values with which an option stays."""


def moved(spec: RunSpec) -> RunSpec:
    """The run with its variant in place of its options; the run itself if it has none of them."""
    method = spec.method
    options = {option for name, *every in MOVED if name == method.name for option in every}
    for (name, option), values in KEPT.items():
        if name == method.name and method.hyper.get(option) in (values if isinstance(values, tuple) else (values,)):
            options -= {option}
    key = (method.name, *sorted(options & method.hyper.keys()))
    if key not in MOVED:
        return spec
    variant, more = MOVED[key]
    hyper = {name: value for name, value in method.hyper.items() if name not in key} | more
    return spec.model_copy(update={"method": method.model_copy(update={"name": variant, "hyper": hyper})})


def main() -> None:
    """Rewrite the packs and the lists of ids."""
    store, ids = Store(PACKS.parent), dict[str, str]()
    for pack in store.packs.all():
        runs = {id: run._replace(spec=moved(run.spec)) for id, run in pack.entries.items()}
        ids |= (changed := {id: run.spec.id for id, run in runs.items() if run.spec.id != id})
        if changed:
            results = {one.spec.id: replace(pack.read(id), spec=one.spec) for id, one in runs.items()}
            runfile.rewrite(PACKS, sorted(runs.values(), key=lambda run: run.spec.id), results.__getitem__, [pack])
    for name in ("shipped.txt", "asked.jsonl"):
        text = (PACKS / name).read_text(encoding="utf-8")
        for old, new in ids.items():
            text = text.replace(old, new)
        lines = text.splitlines(keepends=True)
        (PACKS / name).write_text("".join(sorted(lines) if name == "shipped.txt" else lines), encoding="utf-8")
    for old, new in sorted(ids.items()):
        print(f"{old} → {new}")


if __name__ == "__main__":
    main()
