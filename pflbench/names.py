"""Names → things: built-in tables, entry points, and `file.py:Class` or `module:attr` references."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import json
import re
import sys
import traceback
from collections.abc import Mapping
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from pflbench import trust, usercode
from pflbench.errors import UsageError, unknown
from pflbench.hyper import check_ranges
from pflbench.package import FOLDER, benchmarks

if TYPE_CHECKING:
    from pflbench.spec import Named

Kind = Literal["methods", "datasets", "models", "partitions"]
CATALOG = FOLDER / "catalog.json"
Places = Mapping[str, str]
"""Paths of a run's user-supplied code and data. By kind: `file.py:Name` with the absolute path, or `module:Name`. By
`datasets.OPTION` or `partitions.OPTION`: the absolute path of the file or folder."""

BUILT_IN: dict[Kind, dict[str, str]] = {
    "methods": {
        "fedavg": "pflbench.methods.fedavg:FedAvg",
        "ifca": "pflbench.methods.ifca:IFCA",
        "ditto": "pflbench.methods.ditto:Ditto",
        "fedrep-averaged": "pflbench.methods.fedrep_averaged:FedRepAveraged",
        "per-fedavg": "pflbench.methods.per_fedavg:PerFedAvg",
        "per-fedavg-split": "pflbench.methods.per_fedavg_split:PerFedAvgSplit",
        "fo-maml": "pflbench.methods.fo_maml:FOMaml",
        "reptile": "pflbench.methods.reptile:Reptile",
        "fedec": "pflbench.methods.fedec:FedEC",
        "cafeme": "pflbench.methods.cafeme:CAFeMe",
        "local": "pflbench.methods.local:Local",
        "fedprox": "pflbench.methods.fedprox:FedProx",
        "scaffold": "pflbench.methods.scaffold:Scaffold",
        "fedper": "pflbench.methods.fedper:FedPer",
        "fedrep": "pflbench.methods.fedrep:FedRep",
        "fedrod": "pflbench.methods.fedrod:FedRoD",
        "feddbe": "pflbench.methods.feddbe:FedDBE",
        "fedcp": "pflbench.methods.fedcp:FedCP",
        "gpfl": "pflbench.methods.gpfl:GPFL",
        "fedamp": "pflbench.methods.fedamp:FedAMP",
        "fedfomo": "pflbench.methods.fedfomo:FedFomo",
        "fedpac": "pflbench.methods.fedpac:FedPAC",
        "moon": "pflbench.methods.moon:MOON",
        "feddyn": "pflbench.methods.feddyn:FedDyn",
        "fedproto": "pflbench.methods.fedproto:FedProto",
        "feddistill": "pflbench.methods.feddistill:FedDistill",
        "lg-fedavg": "pflbench.methods.lg_fedavg:LGFedAvg",
        "l2gd": "pflbench.methods.l2gd:L2GD",
        "apfl": "pflbench.methods.apfl:APFL",
        "apfl-apart": "pflbench.methods.apfl_apart:APFLApart",
        "pfedme": "pflbench.methods.pfedme:PFedMe",
        "pfedbayes": "pflbench.methods.pfedbayes:PFedBayes",
        "pfedvem": "pflbench.methods.pfedvem:PFedVEM",
        "fedadam": "pflbench.methods.fedadam:FedAdam",
        "fedala": "pflbench.methods.fedala:FedALA",
        "fedbabu": "pflbench.methods.fedbabu:FedBABU",
        "fedbn": "pflbench.methods.fedbn:FedBN",
    },
    "datasets": {
        "digits": "pflbench.data.datasets.digits:Digits",
        "rotated-digits": "pflbench.data.datasets.digits:RotatedDigits",
        "mnist": "pflbench.data.datasets.mnist:MNIST",
        "rmnist": "pflbench.data.datasets.mnist:RMNIST",
        "fashion-mnist": "pflbench.data.datasets.mnist:FashionMNIST",
        "cifar10": "pflbench.data.datasets.cifar:CIFAR10",
        "cifar100": "pflbench.data.datasets.cifar:CIFAR100",
        "sun397": "pflbench.data.datasets.sun397:SUN397",
        "digit-five": "pflbench.data.datasets.digit_five:DigitFive",
        "femnist-letters": "pflbench.data.datasets.femnist:FEMNISTLetters",
        "arrays": "pflbench.data.datasets.user_images:Arrays",
        "meta-dataset": "pflbench.data.datasets.meta_dataset:MetaDataset",
        "digit-tasks": "pflbench.data.datasets.meta_dataset:DigitTasks",
        "femnist": "pflbench.data.datasets.femnist:FEMNIST",
        "emnist": "pflbench.data.datasets.mnist:EMNIST",
        "image-folder": "pflbench.data.datasets.user_images:ImageFolder",
        "clients-folder": "pflbench.data.datasets.user_images:ClientsFolder",
        "hf-disk": "pflbench.data.datasets.user_images:HfDisk",
    },
    "partitions": {
        "shards": "pflbench.data.partitions.cafeme:Shards",
        "dirichlet": "pflbench.data.partitions.cafeme:Dirichlet",
        "kinds": "pflbench.data.partitions.cafeme:Kinds",
        "random-slicing": "pflbench.data.partitions.slicing:RandomSlicing",
        "pair-slicing": "pflbench.data.partitions.slicing:PairSlicing",
        "class-shards": "pflbench.data.partitions.fedec:ClassShards",
        "letter-users": "pflbench.data.partitions.fedec:LetterUsers",
        "given": "pflbench.data.partitions.given:Given",
        "natural": "pflbench.data.partitions.cafeme:Natural",
        "dirichlet-equal": "pflbench.data.partitions.skew:DirichletEqual",
        "quantity-skew": "pflbench.data.partitions.skew:QuantitySkew",
        "classes-per-client": "pflbench.data.partitions.skew:ClassesPerClient",
        "pfllib": "pflbench.data.partitions.pfllib:PFLlib",
    },
    "models": {
        "cnn2": "pflbench.models.convnet:cnn2",
        "cnn2-paper": "pflbench.models.convnet:cnn2_paper",
        "cnn3": "pflbench.models.convnet:cnn3",
        "cnn6": "pflbench.models.plain_cnn:cnn6",
        "fedrep-cnn": "pflbench.models.plain_cnn:fedrep_cnn",
        "fedrep-cnn-wide": "pflbench.models.plain_cnn:fedrep_cnn_wide",
        "fedrep-cnn-wide-plain": "pflbench.models.plain_cnn:fedrep_cnn_wide_plain",
        "lenet": "pflbench.models.plain_cnn:lenet",
        "pfl-cnn": "pflbench.models.plain_cnn:pfl_cnn",
        "mlp": "pflbench.models.mlp:mlp",
        "mlp3": "pflbench.models.mlp:mlp3",
        "mlp3-softmax": "pflbench.models.mlp:mlp3_softmax",
        "mlp4": "pflbench.models.mlp:mlp4",
        "mlp4-softmax": "pflbench.models.mlp:mlp4_softmax",
    },
}


@cache
def known(kind: Kind) -> dict[str, str]:
    """Every name of this kind with its `module:attr`: built-ins, then entry points of the group `pflbench.<kind>`."""
    return _entry_points()[kind] | BUILT_IN[kind]


@cache
def _entry_points() -> dict[Kind, dict[str, str]]:
    # Once for all kinds: it looks through every package that is installed.
    every = importlib.metadata.entry_points()
    return {kind: {e.name: e.value for e in every.select(group=f"pflbench.{kind}")} for kind in BUILT_IN}


@cache
def shipped() -> Mapping[Kind, Mapping[str, Mapping[str, Any]]]:
    """Descriptions of everything that comes with pflbench, by kind and name, from `catalog.json`."""
    described: Mapping[Kind, Mapping[str, Mapping[str, Any]]] = json.loads(CATALOG.read_text("utf-8"))
    return described


@cache
def variant_files() -> Mapping[str, Path]:
    """Files of variants of methods that come with pflbench, by their path below the folder of suites."""
    return {path.relative_to(benchmarks()).as_posix(): path for path in benchmarks().glob("*/variants/*.py")}


def is_variant(name: str) -> bool:
    """True for a variant that comes with pflbench, such as `cafeme/variants/file.py:Class`."""
    return name.rpartition(":")[0] in variant_files()


def base(method: str) -> str:
    """Name of the built-in method that a variant derives from; any other name as it is."""
    name: str = shipped()["methods"].get(method, {}).get("base") or method
    return name


def _needs_grant(reference: str) -> bool:
    """True for code that neither comes with pflbench nor is an installed entry point, see `trust`."""
    tables = (*BUILT_IN.values(), *_entry_points().values())
    return not is_variant(reference) and not any(reference in table.values() for table in tables)


def is_reference(name: str) -> bool:
    """True if `name` points at code (`path/to/file.py:Class`, `module:attr`) rather than naming an entry."""
    return ":" in name and not is_variant(name)


def anchored(name: str, folder: Path) -> str:
    """A reference into a file with its path taken from `folder`; any other name, and that of a variant, as it is."""
    where, _, attribute = name.rpartition(":")
    if not where.endswith(".py") or is_variant(name):
        return name
    if "\0" in where:
        raise UsageError(f"{name!r} is no path: it has a NUL character.")
    path = (folder / where).resolve()
    below = path.relative_to(benchmarks()).as_posix() if path.is_relative_to(benchmarks()) else ""
    return f"{below if below in variant_files() else path}:{attribute}"


def split_reference(reference: str) -> tuple[str, str]:
    """`"a/b.py:C"` → `("a/b.py", "C")`; a usage error if the part after the colon is missing."""
    where, _, attribute = reference.rpartition(":")
    if not where or not attribute.isidentifier():
        raise UsageError(f"{reference!r} is not a reference: write path/to/file.py:Class or module:Class.")
    return where, attribute


def without_folder(name: str) -> str:
    """Name in a spec: `a/b.py:C` becomes `b.py:C`; anything else stays."""
    where, _, attribute = name.rpartition(":")
    return f"{Path(where).name}:{attribute}" if where.endswith(".py") and not is_variant(name) else name


def locate(kind: Kind, name: str) -> str:
    """The reference behind a name (or `name` itself if it is one already). Raises `UsageError` if unknown."""
    if ":" in name:
        return name
    if name.endswith(".py"):
        part = "function" if kind == "models" else "class"
        raise UsageError(f"Which {part} of {name!r}? Write {name}:{part.capitalize()}.")
    table = BUILT_IN[kind] if name in BUILT_IN[kind] else known(kind)
    if name not in table:
        raise unknown(kind[:-1], name, table)
    return table[name]


def place(kind: Kind, name: str, places: Places) -> str:
    """The reference behind a name in a spec, which of the user's own files has the last part only."""
    return places.get(kind) or locate(kind, name)


def source_file(reference: str) -> Path:
    """The Python file a reference points into, found without importing the module itself."""
    where, _ = split_reference(reference)
    if where.endswith(".py"):
        path = variant_files().get(where, Path(where))
        if not path.is_file():
            raise UsageError(f"There is no file {where!r} (from {reference!r}).")
        return path
    if where.partition(".")[0] in sys.stdlib_module_names:
        raise UsageError(f"{where!r} is a module of Python itself, so {reference!r} is nothing that pflbench can use.")
    return _shipped_file(where) if usercode.is_ours(where) else usercode.find_module(where)


_shipped_file = cache(usercode.find_module)
"""pflbench's modules stay where they are while it runs; others may appear when a path is added."""


def is_users(reference: str) -> bool:
    """True if a reference points at code that does not come with pflbench."""
    where, _ = split_reference(reference)
    return not is_variant(reference) and (where.endswith(".py") or not usercode.is_ours(where))


def code(reference: str) -> usercode.Code:
    """A user's code: the file that a reference points into, and what that imports from beside it."""
    where, _ = split_reference(reference)
    return usercode.read(source_file(reference), None if where.endswith(".py") else where, _versions())


@cache
def _versions() -> dict[str, list[str]]:
    """Built-in methods with their versions, by module: a change of one changes what derives from it."""
    versions: dict[str, list[str]] = {}
    for name, reference in BUILT_IN["methods"].items():
        module, attribute = split_reference(reference)
        versions.setdefault(module, []).append(f"{attribute}@{shipped()['methods'][name]['version']}")
    return versions


def load(reference: str, version: str | None = None) -> Any:
    """Import what a reference points at.

    Args:
        reference: `path/to/file.py:Name` or `module:Name`.
        version: The hash that a user's code must have, if it is known.

    Raises:
        Untrusted: It is user-supplied code that was not granted; nothing was imported.
        UsageError: The import failed, with the cause in one line, or the code has changed.
    """
    where, attribute = split_reference(reference)
    if _needs_grant(reference):
        trust.check(reference)
    user = code(reference) if is_users(reference) else None
    if user and version is not None and user.version != version:
        raise UsageError(f"{where} changed while the suite was running; run the command again.")
    try:
        if is_variant(reference):
            module = _variant_module(where)
        elif user and not usercode.is_installed(user.path):  # which may be edited meanwhile
            module = usercode.load(user)
        else:
            module = importlib.import_module(where)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # user-supplied code may end its process, too
        line = _line(error, user.path) if user else ""
        raise UsageError(f"Importing {where!r} failed: {type(error).__name__}: {error}{line}") from error
    if not hasattr(module, attribute):
        names = [n for n in vars(module) if not n.startswith("_")]
        raise unknown(f"attribute of {where}", attribute, names)
    return getattr(module, attribute)


@cache
def _variant_module(where: str) -> ModuleType:
    spec = spec_from_file_location(re.sub(r"\W", "_", f"pflbench_{where}"), variant_files()[where])
    assert spec and spec.loader
    module = sys.modules[spec.name] = module_from_spec(spec)  # where a dataclass looks its annotations up
    spec.loader.exec_module(module)
    return module


def _line(error: BaseException, file: Path) -> str:
    """Line of a file that raised an error, in brackets; nothing if elsewhere."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return f" (line {frames[-1].lineno})" if frames else ""


_NEEDED: dict[Kind, tuple[str, ...]] = {
    "datasets": ("shape", "classes", "load", "status"),
    "partitions": ("__call__",),
}
"""Attributes that a class of a kind must have, checked before anything runs."""
_METHOD = "pflbench.methods.base", "Method"


def make(kind: Kind, reference: str, options: Mapping[str, Any], version: str | None = None) -> Any:
    """An object of the class behind a reference, with these options; `version`: as `load` takes it.

    The class is checked before it is called: nothing else is called with a run's options.

    Raises:
        UsageError: It cannot be imported, is no class of this kind, or does not take the options.
    """
    made = load(reference, version)
    _check_class(kind, reference, made)
    try:
        one = made(**options)
        if kind != "methods":
            check_ranges(one)
        return one
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{reference} cannot be built from {dict(options)}: {error}") from error


def _check_class(kind: Kind, reference: str, made: Any) -> None:
    """Raise `UsageError` unless this is a class of a method, dataset or partition."""
    if not isinstance(made, type):
        raise UsageError(f"{reference} is no {kind[:-1]}: it is a {type(made).__name__}, not a class.")
    if kind == "methods" and _METHOD not in {(one.__module__, one.__name__) for one in made.__mro__}:
        raise UsageError(f"{reference} is not a pflbench method: derive it from pflbench.methods.base.Method.")
    if missing := [name for name in _NEEDED.get(kind, ()) if not hasattr(made, name)]:
        raise UsageError(f"{reference} is no {kind[:-1]}: its class has no {', '.join(missing)}.")
    if kind != "methods" and not dataclasses.is_dataclass(made):
        raise UsageError(f"{reference} is no {kind[:-1]}: write @dataclass(frozen=True) above its class.")


def made(kind: Kind, named: Named, places: Places) -> Any:
    """The dataset or partition that a spec names, whose options that are paths are whole ones. Raises as `make`."""
    paths = {key: Path(places[f"{kind}.{key}"]) for key in named.options if f"{kind}.{key}" in places}
    return make(kind, place(kind, named.name, places), named.options | paths, named.version)


def resolve(kind: Kind, name: str) -> Any:
    """The object behind a name or reference that the caller chose itself: its code is granted."""
    reference = locate(kind, name)
    trust.grant(reference)
    return load(reference)
