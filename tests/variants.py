"""Every built-in method, and named variants of them: what is tested on each method is tested on these."""

from __future__ import annotations

from pathlib import Path

from pflbench import names

EXAMPLE = str(Path(__file__).parents[1] / "examples" / "fednova.py") + ":FedNova"
DECAYING = {"momentum": 0.9, "weight_decay": 0.01}
LIVELY = {"head_lr": 0.01, "base_lr": 0.01, "base_steps": 5}
OPTIONS = {
    "per-fedavg exact": ("per-fedavg", {"order": "exact"}),
    "cafeme exact": ("cafeme", {"order": "exact", "modulation": "c2", "modulator_batch_norm": False}),
    "fedavg momentum": ("fedavg", {"momentum": 0.9}),
    "ifca shared": ("ifca", {"clusters": 2, "shared": "base", "momentum": 0.9}),
    "fedavg adam": ("fedavg", {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.01}),
    "local adam": ("local", {"optimizer": "adam", "epochs": 2, "lr": 0.01}),
    "fedavg steps": ("fedavg", {"steps": 4, "momentum": 0.5}),
    "ifca steps": ("ifca", {"steps": 3, "clusters": 3}),
    "cafeme reset": ("cafeme/variants/cafeme.py:AdamReset", {}),
    "cafeme context": ("cafeme/variants/cafeme.py:KeptContext", {"order": "exact"}),
    "cafeme labels": ("cafeme/variants/cafeme.py:Labels", {"modulation": "c0"}),
    "cafeme text": ("cafeme/variants/cafeme.py:PaperText", {}),
    "ditto stale": ("cafeme/variants/ditto.py:StaleAnchor", {}),
    "ditto reset": ("cafeme/variants/ditto.py:AdamReset", {}),
    "fedrep-averaged local": ("cafeme/variants/fedrep_averaged.py:LocalHeads", {"head_first": 2, **LIVELY}),
    "fedrep-averaged reset": ("cafeme/variants/fedrep_averaged.py:AdamReset", {"base_steps": 2}),
    "pfedbayes stateless": ("pfedvem/variants/pfedvem.py:Stateless", {}),
    "per-fedavg personal": ("per-fedavg", {"batch": 7, "personal_epochs": 1}),
    "fedrep-averaged sgd": ("fedrep-averaged", {"optimizer": "sgd", "head_lr": 0.05, "base_lr": 0.05}),
    "local kept": ("local", {"epochs": 3, "momentum": 0.9, "keep_momentum": True}),
    "fedavg adapted": ("fedavg", {**DECAYING, "personal_epochs": 2, "personal_lr": 0.01}),
    "scaffold released": (
        "fedec/variants/released.py:ScaffoldReleased",
        {**DECAYING, "clip": 1.0, "server_lr": 0.1},
    ),
    "pfedme adapted": ("pfedme", {"mu": 0.01, "epochwise": True, "adapt": True}),
    "fedper private": ("fedec/variants/server_start.py:FedPerServer", DECAYING),
    "fedrep features": ("fedrep", {}),
    "fedrep private": ("fedec/variants/server_start.py:FedRepServer", DECAYING),
    "lg-fedavg private": ("fedec/variants/server_start.py:LGFedAvgServer", DECAYING),
    "apfl momentum": ("apfl", DECAYING),
    "apfl adaptive": ("fedec/variants/baselines.py:AdaptiveAPFL", {**DECAYING, "lr": 0.05}),
    "fedrep one optimizer": ("fedec/variants/baselines.py:OneOptimizer", DECAYING),
    "lg-fedavg reverse": ("fedec/variants/baselines.py:FirstShared", {**DECAYING, "private_layers": 2}),
    "apfl released": ("fedec/variants/released.py:APFLReleased", DECAYING),
    "apfl server": ("fedec/variants/server_start.py:APFLServer", DECAYING),
    # In so few rounds, with so few clients, the default p and a hardly train, or at a rate of 1.7.
    "l2gd": ("l2gd", {**DECAYING, "p": 0.5, "a": 0.1}),
    # Ten epochs at this rate make rounding visible where a batch of two rows is normalized; FedAvg's do the same.
    "fedec": ("fedec", {"epochs": 5}),
    "fedec momentum": ("fedec", {"epochs": 2, "momentum": 0.5, "weight_decay": 0.01, "outer_lr": 0.7, "batch": 7}),
    "fedec l2": ("fedec", {"epochs": 2, "constraint": "l2", "alpha": 0.3, "momentum": 0.5, "weight_decay": 0.01}),
    "fedec none": ("fedec", {"epochs": 2, "constraint": "none"}),
    "reptile steps": ("reptile", {"steps": 5, "momentum": 0.5, "weight_decay": 0.01, "outer_lr": 0.7}),
    "fo-maml steps": ("fo-maml", {"steps": 3, "inner_lr": 0.05}),
    "fo-maml batch": ("fo-maml", {"epochs": 2, "batch": 4}),
    "per-fedavg-split momentum": (
        "per-fedavg-split",
        {"epochs": 2, "momentum": 0.5, "weight_decay": 0.01, "share": 0.5},
    ),
    "fedadam momentum": ("fedadam", {**DECAYING, "server_lr": 0.1, "beta1": 0.0}),
    "fedbabu head": ("fedbabu", {**DECAYING, "personal_epochs": 1, "batch": 7}),
    "fedala layers": ("fedala", {**DECAYING, "eta": 0.5, "layers": 2}),
    "fedala share": ("fedala", {"share": 0.6, "start_phase": 12}),
    "per-fedavg-split batch": ("per-fedavg-split", {"epochs": 2, "batch": 6, "personal_epochs": 2}),
    "apfl-apart momentum": ("apfl-apart", {**DECAYING, "lr": 0.05}),
    "ditto epochs": ("ditto", {"epochs": 2, "optimizer": "sgd", "lr": 0.05}),
    "pfedme epochs": ("pfedme", {"epochs": 1, "beta": 0.5, "lam": 1.0}),
    "per-fedavg-split step": ("per-fedavg-split", {"epochs": 2, "batch": 6, "share": 0.5, "personal_steps": 1}),
    "fedrod momentum": ("fedrod", DECAYING),
    "fedproto pulled": ("fedproto", {**DECAYING, "lam": 10.0}),
    "feddistill mse": ("feddistill", {**DECAYING, "term": "mse"}),
    "feddbe pulled": ("feddbe", {**DECAYING, "kappa": 5.0, "running": 1.0}),
    # Its personal features are others than the initial ones from the first local update on, which is a detour.
    "gpfl": ("gpfl", {"lr": 0.2}),
    "gpfl momentum": ("gpfl", {**DECAYING, "lr": 0.05}),
    "fedcp momentum": ("fedcp", {**DECAYING, "lr": 0.02, "lam": 1.0}),
    "fedamp near": ("fedamp", {**DECAYING, "alpha": 0.1, "lam": 0.1, "sigma": 10.0}),
    "fedpac pulled": ("fedpac", {**DECAYING, "lam": 5.0, "head_epochs": 2}),
    "fedfomo half": ("fedfomo", {**DECAYING, "validation": 0.5, "batch": 3}),
}
FEATURES = ("fedrep features", "fedrep private")
"""On a network that has features to train on; by default the head is trained on the minibatches' images here."""
METHODS = {**{name: (name, {}) for name in names.BUILT_IN["methods"]}, **OPTIONS, "fednova (example)": (EXAMPLE, {})}


VARIANTS = frozenset(name for name in OPTIONS if name not in names.BUILT_IN["methods"])
"""Those of METHODS that are another method with other hyperparameters."""
CAPTURED = (
    *(name for name in METHODS if name not in VARIANTS),
    *("per-fedavg exact", "fedavg momentum", "fedavg adam", "fedavg adapted", "fedavg steps", "cafeme labels"),
    *("scaffold released", "apfl adaptive", "fedrep features", "fedec l2", "ifca shared"),
)
"""Methods whose stacks are captured as a GPU's graphs, and the variants with an operation that no method has by default:
second derivatives, optimizers' buffers, decay, a personal phase, indexed rows, clipping, features, norms."""
LOST = ("fedavg", "scaffold", "ditto", "cafeme", "fedrep", "pfedme", "pfedvem", "pfedbayes", "apfl", "ifca")
"""Methods that also have graphs when uploads get lost: one for each form of state and of model that is scored."""
STARVED = (*LOST, "local", "per-fedavg", "fedec", "fedadam", "l2gd", "fedavg adapted")
"""Methods that run out of memory: one for each form of upload, server state and phases. Stacks are halved by the engine,
which knows no method."""
