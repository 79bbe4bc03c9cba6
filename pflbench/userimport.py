"""Loading a user's code: the very bytes that `usercode` hashed, and nothing that an import statement does not name."""

from __future__ import annotations

import builtins
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from pflbench.errors import UsageError
from pflbench.usercode import Code, Import, is_installed, is_ours, module_in, parents

_PREFIX = "_pflbench_user_"


def load(code: Code) -> ModuleType:
    """The module that the code makes, imported at most once in a process.

    Raises:
        Exception: Whatever the code raises.
    """
    place = hashlib.sha256(str(code.path.parent).encode()).hexdigest()[:8]
    # The name carries the content, so what was edited is never served from sys.modules.
    top = f"{_PREFIX}{re.sub(r'[^A-Za-z0-9_]', '_', code.path.stem)}_{code.version}_{place}"
    name = f"{top}.{code.module}"
    if name in sys.modules:
        return sys.modules[name]
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    before, import_path = set(sys.modules), list(sys.path)
    package = ModuleType(top)
    package.__path__ = [str(folder) for folder in code.folders]
    sys.modules[top] = package
    _Finder.codes[top] = code
    try:
        for parent in parents(code.module):
            importlib.import_module(f"{top}.{parent}")
        if name not in sys.modules:  # else its package has imported it
            spec = _spec(name, code, code.path)
            sys.modules[name] = importlib.util.module_from_spec(spec)
            assert spec.loader
            spec.loader.exec_module(sys.modules[name])
        _check_imported(code, sys.modules.keys() - before)
    except BaseException:
        for loaded in [n for n in sys.modules if n == top or n.startswith(f"{top}.")]:
            del sys.modules[loaded]
        sys.path[:] = import_path
        raise
    return sys.modules[name]


_imported: dict[Path, bytes] = {}
"""Files of users that Python's own import system loaded, as they were then."""


def _check_imported(code: Code, new: Iterable[str]) -> None:
    """Check that files which Python's own import system loaded for the code are those that were hashed.

    Args:
        code: The code, which is loaded.
        new: The names of the modules that appeared meanwhile.

    Raises:
        UsageError: A file is not, or it is another or older one.
    """
    for name in sorted(new):
        file = Path(getattr(sys.modules[name], "__file__", None) or "")
        users = file.suffix == ".py" and file.is_file() and not (is_installed(file) or is_ours(name))
        if users and not name.startswith(_PREFIX) and not any(file.samefile(known) for known in code.texts):
            del sys.modules[name]
            raise UsageError(_unnamed(file))
    for path, below in code.outside.items():
        name = ".".join(Path(below).with_suffix("").parts).removesuffix(".__init__")
        if name in sys.modules:
            file = Path(getattr(sys.modules[name], "__file__", None) or "")
            other = not (file.is_file() and file.samefile(path))
            if other or _imported.setdefault(path, code.texts[path]) != code.texts[path]:
                raise UsageError(f"This process has imported another {name!r} than {path} before; start it again.")


def _unnamed(path: Path) -> str:
    return (
        f"{path} is part of what the numbers come from, but no import statement in the code names it: import it with "
        "one, from beside the file or from a folder of PYTHONPATH."
    )


class _Finder:
    """Finds the modules beside a user's file, below a package of the file's own."""

    codes: dict[str, Code] = {}  # noqa: RUF012 (one for the process, as sys.modules)

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """The import system's question."""
        if not name.startswith(_PREFIX) or path is None:
            return None
        code = cls.codes[name.partition(".")[0]]
        file, inside = module_in([Path(folder) for folder in path], name.rpartition(".")[2])
        if file is not None:
            return _spec(name, code, file)
        if inside:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(folder) for folder in inside]
            return spec
        return PathFinder.find_spec(name, path)  # an extension module


class _Loader:
    """Runs a file of a user's code as it was when it was hashed."""

    def __init__(self, code: Code, path: Path) -> None:
        self.code, self.path = code, path

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the file, with imports that look beside it first."""
        if self.path not in self.code.texts:
            raise ImportError(_unnamed(self.path))
        module.__dict__["__builtins__"] = vars(builtins) | {"__import__": _importer(self.code)}
        exec(compile(self.code.texts[self.path], str(self.path), "exec", dont_inherit=True), module.__dict__)


def _importer(code: Code) -> Any:
    top = next(name for name, known in _Finder.codes.items() if known is code)

    @cache
    def beside(name: str, wanted: tuple[str, ...]) -> bool:
        return any(code.beside(one) for one in Import(0, name, wanted).modules(""))

    def find(
        name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] | None = (), level: int = 0
    ) -> Any:
        if level == 0 and beside(name, tuple(fromlist or ())):
            return builtins.__import__(name, {"__package__": top, "__name__": top}, None, fromlist or (), 1)
        return builtins.__import__(name, globals, locals, fromlist or (), level)

    return find


def _spec(name: str, code: Code, path: Path) -> ModuleSpec:
    inside = [str(path.parent)] if path.name == "__init__.py" else None
    loader: Any = _Loader(code, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader, submodule_search_locations=inside)
    assert spec
    return spec
