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
from typing import Any, cast

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
    importer = _Importer(code, top)
    sys.meta_path.insert(0, importer)
    before, import_path = set(sys.modules), list(sys.path)
    package = ModuleType(top)
    package.__path__ = [str(folder) for folder in code.folders]
    sys.modules[top] = package
    try:
        for parent in parents(code.module):
            importlib.import_module(f"{top}.{parent}")
        if name not in sys.modules:  # else its package has imported it
            spec = importer.spec(name, code.path)
            sys.modules[name] = importlib.util.module_from_spec(spec)
            importer.exec_module(sys.modules[name])
        _check_imported(code, sys.modules.keys() - before)
    except BaseException:
        for loaded in [n for n in sys.modules if n == top or n.startswith(f"{top}.")]:
            del sys.modules[loaded]
        sys.meta_path.remove(importer)
        sys.path[:] = import_path
        raise
    return sys.modules[name]


_imported: dict[Path, bytes] = {}
"""Files of users that Python's own import system loaded, as they were then."""


def _check_imported(code: Code, new: Iterable[str]) -> None:
    """Check that what Python's own import system loaded for the code, with these `new` modules, is what was hashed.

    Raises `UsageError` if a file is not, or if it is another or older one.
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


class _Importer:
    """Finds the modules beside a user's file, below a package `top` of the file's own, and runs what was hashed."""

    def __init__(self, code: Code, top: str) -> None:
        self.code, self.top = code, top
        self.beside = cache(lambda name, names: any(code.beside(one) for one in Import(0, name, names).modules("")))

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """The import system's question."""
        if not name.startswith(f"{self.top}.") or path is None:
            return None
        file, inside = module_in([Path(folder) for folder in path], name.rpartition(".")[2])
        if file is not None:
            return self.spec(name, file)
        if inside:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(folder) for folder in inside]
            return spec
        return PathFinder.find_spec(name, path)  # an extension module

    def spec(self, name: str, path: Path) -> ModuleSpec:
        """Spec of the module of this name in this file."""
        inside, loader = [str(path.parent)] if path.name == "__init__.py" else None, cast(Any, self)
        spec = importlib.util.spec_from_file_location(name, path, loader=loader, submodule_search_locations=inside)
        assert spec
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the file, with imports that look beside it first."""
        path = Path(str(module.__file__))
        if path not in self.code.texts:
            raise ImportError(_unnamed(path))
        module.__dict__["__builtins__"] = vars(builtins) | {"__import__": self._import}
        exec(compile(self.code.texts[path], str(path), "exec", dont_inherit=True), module.__dict__)

    def _import(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] | None = (), level: int = 0
    ) -> Any:
        if level == 0 and self.beside(name, tuple(fromlist or ())):
            return builtins.__import__(name, {"__package__": self.top, "__name__": self.top}, None, fromlist or (), 1)
        return builtins.__import__(name, globals, locals, fromlist or (), level)
