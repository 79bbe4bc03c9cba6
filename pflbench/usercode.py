"""A user's source file with the user's modules that it imports: what they come to as a hash, and loading them.

The files are found by reading `import` statements, so nothing runs before it is hashed; what is loaded are the very
bytes that were hashed. A module beside the file goes before any other of the same name, as for a script, but the
standard library and pflbench always mean themselves. What is neither beside the file nor installed, in a folder of
PYTHONPATH for example, counts as well and is loaded as Python does it. What other ways than statements import while the
code is loaded is refused, since no hash has it.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pflbench.errors import UsageError

_PREFIX = "_pflbench_user_"
_OURS = Path(__file__).parent
_STANDARD = Path(sysconfig.get_path("stdlib"))
_INSTALLED = {"site-packages", "dist-packages"}


class _Import(NamedTuple):
    """An import statement: the dots in front, the module, and the names taken from it."""

    level: int
    module: str
    names: tuple[str, ...] = ()

    def modules(self, package: str) -> list[str]:
        """Every dotted name that may be a module loaded by it, parents first; `package`: that of the importing one."""
        base: list[str] = []
        if self.level:
            own = package.split(".") if package else []
            base = own[: len(own) + 1 - self.level]
        dotted = ".".join([*base, *([self.module] if self.module else [])])
        itself = [dotted] if dotted else []
        return [*_parents(dotted), *itself, *(".".join([*itself, name]) for name in self.names)]


@dataclass(frozen=True, eq=False)
class Code:
    """A file and what it takes from beside it.

    Attributes:
        path: The file.
        module: Its dotted name below `folders`.
        folders: Where its imports are looked for first: the one that its package lies in, before it its own for a file
            that was named by its path.
        texts: The bytes of each file, its own first.
        methods: The built-in methods that any of them imports, each with its version, sorted.
        outside: Of the files those that are found on Python's import path, each with its path below a folder there.
    """

    path: Path
    module: str
    folders: tuple[Path, ...]
    texts: Mapping[Path, bytes]
    methods: tuple[str, ...]
    outside: Mapping[Path, str]

    @cached_property
    def version(self) -> str:
        """12 hex digits of the SHA-256 of the file, or, where there is more to it, of all that the numbers come from.

        Names of modules count relative to the file, or to a folder of the import path, so that folders may move.
        """
        own = hashlib.sha256(self.texts[self.path])
        if len(self.texts) == 1 and not self.methods:
            return own.hexdigest()[:12]
        lines = [own.hexdigest(), *(f"{name} {hashlib.sha256(text).hexdigest()}" for name, text in self._beside())]
        return hashlib.sha256("\n".join([*lines, *self.methods]).encode()).hexdigest()[:12]

    @property
    def source(self) -> str:
        """The file's text."""
        return self.texts[self.path].decode(errors="replace")

    @property
    def neighbors(self) -> dict[str, str]:
        """The texts of the user's modules that it imports, by their paths relative to it or to the import path."""
        return {name: text.decode(errors="replace") for name, text in self._beside()}

    def beside(self, name: str, level: int = 0) -> tuple[Path, str] | None:
        """The file and package of a module beside it; None if it is elsewhere. `level`: the dots before the name."""
        first = name.partition(".")[0]
        if not level:
            if first in sys.stdlib_module_names or is_ours(first):
                return None
            if is_installed(self.path) and first != self.module.partition(".")[0]:  # beside it lie others' packages
                return None
        return _found(self.folders, name)

    def _beside(self) -> list[tuple[str, bytes]]:
        return sorted((self._name(path), text) for path, text in self.texts.items() if path != self.path)

    def _name(self, path: Path) -> str:
        return self.outside.get(path) or Path(os.path.relpath(path, self.path.parent)).as_posix()


def is_ours(module: str) -> bool:
    """Whether a dotted name is pflbench's own code, which has versions of another kind."""
    return module.partition(".")[0] == "pflbench"


def is_installed(path: Path) -> bool:
    """Whether a file belongs to Python or to an installed package, which nobody edits while it is in use."""
    return _STANDARD in path.parents or not _INSTALLED.isdisjoint(path.parts)


def read(path: Path, module: str | None = None) -> Code:
    """The code that starts at a file; `module`: its dotted name where it was found as a module.

    Raises:
        UsageError: A file cannot be read or is not Python; the message has its line.
    """
    path = path.absolute()
    text = _bytes(path)
    if module is None:
        own = _dotted(path)
        folders = tuple(dict.fromkeys((path.parent, path.parents[own.count(".")])))
        # Only what imports relative to its package is loaded as part of it, with the package's own code.
        module = own if any(one.level for one in _imports(path, text)) else path.stem
    else:
        folders = (path.parents[module.count(".") + (path.name == "__init__.py")],)
    importlib.invalidate_caches()  # a file that was just written counts
    return _Reader(Code(path, module, folders, {path: text}, (), {})).read()


class _Reader:
    """Follows the import statements of a code's first file, `start`, through the user's modules."""

    def __init__(self, start: Code) -> None:
        self.start = start
        self.on_path = cache(_on_path)
        self.texts, self.methods, self.outside = dict[Path, bytes](), set[str](), dict[Path, str]()
        package = start.module if start.path.name == "__init__.py" else _package(start.module)
        parents = (_found(start.folders[-1:], name) for name in _parents(start.module))
        self.waiting = [(start.path, package), *(parent for parent in parents if parent)]

    def read(self) -> Code:
        """The code with all that it imports."""
        for file, package in self.waiting:  # which grows meanwhile
            if file in self.texts:
                continue
            self.texts[file] = self.start.texts.get(file) or _bytes(file)
            for one in _imports(file, self.texts[file]):
                for name in one.modules(package):
                    self._follow(file, name, one.level)
        return replace(self.start, texts=self.texts, methods=tuple(sorted(self.methods)), outside=self.outside)

    def _follow(self, file: Path, name: str, level: int) -> None:
        """Take up the module that a file imports by this name, with so many dots before it."""
        # Beside an installed file lie others' packages.
        elsewhere = file in self.outside or not is_installed(self.start.path)
        if not level and is_ours(name):
            self.methods |= _built_in(name)
        elif file not in self.outside and (beside := self.start.beside(name, level)):
            self.waiting.append(beside)
        elif elsewhere and (module := _found(places := self.on_path(name.partition(".")[0]), name)):
            self.waiting.append(module)
            self.outside.setdefault(module[0], _below(places, module[0]))


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
        for parent in _parents(code.module):
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
    """See whether what Python's own import system has loaded for the code is what was hashed.

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
        file, inside = _step([Path(folder) for folder in path], name.rpartition(".")[2])
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
        return any(code.beside(one) for one in _Import(0, name, wanted).modules(""))

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


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}.") from error


def _imports(path: Path, text: bytes) -> tuple[_Import, ...]:
    try:
        return _parsed(text)
    except SyntaxError as error:
        raise UsageError(f"{path}, line {error.lineno}: {error.msg}.") from error
    except ValueError as error:
        raise UsageError(f"{path} is not Python: {error}.") from error


@lru_cache(maxsize=256)
def _parsed(text: bytes) -> tuple[_Import, ...]:
    return tuple(_statements(ast.parse(text)))


def _statements(tree: ast.Module) -> Iterator[_Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (_Import(0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield _Import(node.level, node.module or "", tuple(alias.name for alias in node.names))


def _dotted(path: Path) -> str:
    """A file's name in the package that its folder is, the whole way up."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _package(module: str) -> str:
    return module.rpartition(".")[0]


def _parents(module: str) -> list[str]:
    """The packages that a module lies in, the outermost first."""
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _found(folders: Sequence[Path], name: str) -> tuple[Path, str] | None:
    file: Path | None = None
    inside = list(folders)
    for part in name.split("."):
        file, inside = _step(inside, part)
    if file is None:
        return None
    return file, name if file.name == "__init__.py" else _package(name)


def _step(folders: Iterable[Path], name: str) -> tuple[Path | None, list[Path]]:
    """A module's file in the first folder that has it, and where its submodules are; folders alone if there is none."""
    spaces = []
    for folder in folders:
        if (file := folder / name / "__init__.py").is_file():
            return file, [folder / name]
        if (file := folder / f"{name}.py").is_file():
            return file, []
        if name and (folder / name).is_dir():
            spaces.append(folder / name)
    return None, spaces


def _on_path(name: str) -> tuple[Path, ...]:
    """The folders in which Python's import path has an outermost module or package; none if that is installed."""
    if name in sys.stdlib_module_names or is_ours(name):
        return ()
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    spec = next((found for find in finders if find and (found := find(name, None))), None)
    if spec is None:
        return ()
    places = [spec.origin] if spec.submodule_search_locations is None else spec.submodule_search_locations
    return tuple(Path(place).parent for place in places if place and not is_installed(Path(place)))


def _below(folders: Iterable[Path], path: Path) -> str:
    """A file's path below the first of the folders that it lies in."""
    return next(path.relative_to(folder).as_posix() for folder in folders if path.is_relative_to(folder))


@cache
def _built_in(module: str) -> frozenset[str]:
    """The built-in methods of a module of pflbench, and of those that it builds on, with their versions."""
    parts = module.split(".")
    file = _OURS.joinpath(*parts[1:]).with_suffix(".py")
    if parts[:2] != ["pflbench", "methods"] or len(parts) != 3 or not file.is_file():
        return frozenset()
    text = file.read_bytes()
    found = {f"{parts[2]}.{name}@{version}" for name, version in _versions(ast.parse(text))}
    for one in _parsed(text):
        for name in one.modules(""):
            if name != module:
                found |= _built_in(name)
    return frozenset(found)


def _versions(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == "version" and item.value:
                yield node.name, ast.literal_eval(item.value)
