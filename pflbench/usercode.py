"""User-supplied code: a file with the files that it imports, their hash, and its import.

The files are found by reading `import` statements, so nothing runs before it is hashed. They lie beside the file, or in
folders of the import path that hold no installed packages. The standard library and pflbench always mean themselves.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import io
import re
import sys
import sysconfig
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from types import ModuleType

from pflbench.errors import UsageError

_STANDARD = Path(sysconfig.get_path("stdlib"))
_INSTALLED = {"site-packages", "dist-packages"}
USERS = "_pflbench_user_"
"""Prefix of the names of packages that stand for folders of user-supplied files."""
_DOCSTRING_READERS = (b"__doc__", b"getdoc")
"""Text of source files that may compute with docstrings."""
_BATCH_NORMS = (b"BatchNorm", b"torchvision", b"timm")
"""Text of code whose networks may have running statistics, which once were none: such code has another version."""

Versions = Mapping[str, Sequence[str]]
"""Built-in classes with their versions, `Class@1`, by module."""


@dataclass(frozen=True, eq=False)
class Code:
    """A file and the files that it imports.

    Attributes:
        path: The file.
        name: Its path below `root`.
        root: The folder in which its imports are looked for first.
        files: Bytes of each file, by its path below the folder in which it is imported; its own first.
        paths: Where each file lies.
        bases: The built-in classes whose modules any of them imports, each with its version, sorted.
    """

    path: Path
    name: str
    root: Path
    files: Mapping[str, bytes]
    paths: Mapping[str, Path]
    bases: Sequence[str]

    @cached_property
    def version(self) -> str:
        """12 hex digits of the SHA-256 of the files without comments and docstrings, and of `bases`.

        Docstrings count if any of the files may read one. Folders may move, and the file may be renamed.
        """
        keeps = any(word in text for text in self.files.values() for word in _DOCSTRING_READERS)
        told = {name: bare(text, keeps) for name, text in self.files.items()}
        digests = {name: hashlib.sha256(text).hexdigest() for name, text in told.items()}
        parts = [digests.pop(self.name), *(f"{name} {digest}" for name, digest in sorted(digests.items()))]
        if any(word in text for text in told.values() for word in _BATCH_NORMS):
            parts.append("running statistics")
        return hashlib.sha256("\n".join([*parts, *self.bases]).encode()).hexdigest()[:12]

    @property
    def source(self) -> str:
        """The file's text."""
        return self.files[self.name].decode(errors="replace")

    @property
    def imports(self) -> dict[str, str]:
        """The texts of the files that it imports, by their paths."""
        return {name: text.decode(errors="replace") for name, text in self.files.items() if name != self.name}


def is_ours(module: str) -> bool:
    """True if a dotted name is pflbench's own code, which has versions of another kind."""
    return module.partition(".")[0] == "pflbench"


def is_installed(path: Path) -> bool:
    """True if a file belongs to Python or to an installed package, which nobody edits while it is in use."""
    return _STANDARD in path.parents or not _INSTALLED.isdisjoint(path.parts)


def find_module(module: str) -> Path:
    """The file of a module, found without importing it or its packages. Raises `UsageError`."""
    importlib.invalidate_caches()  # a file that was just written counts
    folders, parts = None, module.split(".")
    for n in range(1, len(parts) + 1):
        name = ".".join(parts[:n])
        spec = next(filter(None, (finder.find_spec(name, folders) for finder in sys.meta_path)), None)
        if spec is None:
            break
        folders = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None:
        raise UsageError(f"Cannot find the module {module!r}.")
    return Path(spec.origin)


def read(path: Path, module: str | None = None, versions: Versions | None = None) -> Code:
    """The code that starts at a file.

    Args:
        path: The file.
        module: Its dotted name, if it was named as a module.
        versions: The built-in classes that may be derived from.

    Raises:
        UsageError: A file cannot be read or is not Python; the message has its line.
    """
    path = path.absolute()
    top = None if module is None else module.partition(".")[0]
    root = path.parents[module.count(".") + (path.name == "__init__.py")] if module else path.parent
    roots = _roots(root)
    name = path.relative_to(root).as_posix()
    files, paths, bases = dict[str, bytes](), dict[str, Path](), set[str]()
    waiting = [(name, path), *(_located(roots, module) if module else ())]
    for one, file in waiting:  # which grows meanwhile
        if one in files:
            continue
        files[one], paths[one] = _bytes(file), file
        package = ".".join(PurePosixPath(one).parent.parts)
        for dotted in _imports(syntax(file, files[one]), package):
            first = dotted.partition(".")[0]
            if is_ours(first):
                bases |= {f"{dotted}.{base}" for base in (versions or {}).get(dotted, ())}
            elif first not in sys.stdlib_module_names and (first == top or not is_installed(path)):
                waiting += _located(roots, dotted)
    return Code(path, name, root, files, paths, sorted(bases))


def _roots(first: Path) -> list[Path]:
    """Folders in which imports are looked for: the first, and those of the import path without installed packages."""
    path = [Path(folder).absolute() for folder in sys.path]
    return [first, *(folder for folder in path if folder.is_dir() and not is_installed(folder / "_"))]


def _located(roots: Iterable[Path], dotted: str) -> list[tuple[str, Path]]:
    """Files that importing a module runs, the outermost package first, in the first folder that has any."""
    parts = dotted.split(".")
    stems = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    for root in roots:
        files = [[f for f in (f"{stem}/__init__.py", f"{stem}.py") if (root / f).is_file()][:1] for stem in stems]
        if any(files):
            return [(name, root / name) for several in files for name in several]
    return []


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Dotted names of all that may be a module that a file of this package imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if package and node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from filter(None, [base, *(".".join(filter(None, [base, alias.name])) for alias in node.names)])


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}.") from error


def syntax(path: Path, text: bytes | None = None) -> ast.Module:
    """A source file's syntax tree, made once for each content; `text`: its content, if that is known.

    Raises:
        UsageError: The file cannot be read or is not Python; the message has the line.
    """
    try:
        return _tree(_bytes(path) if text is None else text)
    except SyntaxError as error:
        raise UsageError(f"{path}, line {error.lineno}: {error.msg}.") from error
    except ValueError as error:
        raise UsageError(f"{path} is not Python: {error}.") from error
    except (MemoryError, RecursionError) as error:
        raise UsageError(f"{path}: its expressions are nested too deeply. Write them flatter.") from error


_tree: Callable[[bytes], ast.Module] = lru_cache(maxsize=256)(ast.parse)


@lru_cache(maxsize=256)
def bare(text: bytes, docstrings: bool = False) -> bytes:
    """The tokens of a source without comments, blank lines and layout; the same for every version of Python.

    `docstrings`: keep them. Else a statement that is one string, which computes nothing, is left out.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
    source = text.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    lines, depth, start = [f"{line}\n" for line in source.split("\n")], 0, (0, 0)
    words = list[tuple[str, str]]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind, word = tokenize.tok_name[token.type], token.string
        if kind.endswith("STRING_START"):  # of an f-string, several tokens since Python 3.12
            depth, start = depth + 1, start if depth else token.start
        elif kind.endswith("STRING_END"):
            depth, kind, word = depth - 1, "FSTRING", _between(lines, start, token.end)
        elif kind == "STRING" and re.match("(?i)r?f", word):  # before Python 3.12
            kind = "FSTRING"
        if depth or kind in ("COMMENT", "NL", "FSTRING_START"):
            continue
        if kind == "NEWLINE" and not docstrings and [one for one, _ in words[-2:]] in _ALONE:
            words.pop()
            continue
        words.append((kind, kind if kind in ("INDENT", "DEDENT", "NEWLINE") else word))
    return "\0".join(word for _, word in words).encode()


_ALONE = (["STRING"], *([before, "STRING"] for before in ("NEWLINE", "INDENT", "DEDENT")))
"""Ends of the kinds of tokens where a statement is one string."""


def _between(lines: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """Text between two positions, each a line from 1 and a column."""
    first, last = start[0] - 1, end[0] - 1
    if first == last:
        return lines[first][start[1] : end[1]]
    return "".join([lines[first][start[1] :], *lines[first + 1 : last], lines[last][: end[1]]])


_loaded: dict[tuple[Path, str], tuple[ModuleType, dict[str, ModuleType]]] = {}
"""Modules of user-supplied code and of what it imported, by path and version."""


def load(code: Code) -> ModuleType:
    """The module of a file, imported once for each version. Its folder goes to the front of the import path.

    Raises:
        UsageError: It imported a file that no import statement names, so that its version does not cover it.
        Exception: Anything that the code raises.
    """
    key, path = (code.path, code.version), list(sys.path)
    sys.path[:] = [str(code.root), *(folder for folder in path if folder != str(code.root))]
    names = set[str]()
    for name in code.files:
        parts = PurePosixPath(name.removesuffix("/__init__.py")).with_suffix("").parts
        names |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
    for name in names:  # which may be other files, or older ones; but a script keeps the module that it imported
        if getattr(sys.modules.get(name), "__file__", None) != str(code.path):
            sys.modules.pop(name, None)
    if key in _loaded:
        module, imported = _loaded[key]
        sys.modules.update(imported)
        return module
    before, writes = set(sys.modules), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # what is edited within a second keeps its time, and would be taken for compiled
    importlib.invalidate_caches()
    try:
        module = _run(code)
        # multiprocessing names the running script anew.
        _check_covered(code, sys.modules.keys() - before - {"__mp_main__"})
    except BaseException:
        sys.path[:] = path
        for name in names | {one for one in sys.modules if one.partition(".")[0] == _package(code)}:
            sys.modules.pop(name, None)
        raise
    finally:
        sys.dont_write_bytecode = writes
    _loaded[key] = module, {name: sys.modules[name] for name in names & sys.modules.keys()}
    return module


def _package(code: Code) -> str:
    """Name of a package that stands for the folder of a file: what it imports relative to itself lies there."""
    folder = hashlib.sha256(str(code.root).encode()).hexdigest()[:8]
    return f"{USERS}{code.version}_{folder}"


def _run(code: Code) -> ModuleType:
    """Run the bytes of a file that were hashed."""
    package = sys.modules[_package(code)] = ModuleType(_package(code))
    package.__path__ = [str(code.root)]
    module = ModuleType(".".join([package.__name__, *PurePosixPath(code.name).with_suffix("").parts]))
    module.__file__ = str(code.path)
    module.__package__ = module.__name__.rpartition(".")[0]
    sys.modules[module.__name__] = module  # where a dataclass looks its annotations up
    exec(compile(code.files[code.name], str(code.path), "exec", dont_inherit=True), module.__dict__)
    return module


def _check_covered(code: Code, new: Iterable[str]) -> None:
    """Raise `UsageError` if one of these new modules is a file of the user that was not hashed."""
    roots, covered = _roots(code.root), {path.resolve() for path in code.paths.values()}
    for name in sorted(new):
        file = Path(getattr(sys.modules[name], "__file__", None) or "").resolve()
        users = any(root.resolve() in file.parents for root in roots) and not (is_installed(file) or is_ours(name))
        if users and file.suffix == ".py" and file.is_file() and file not in covered:
            del sys.modules[name]
            raise UsageError(
                f"{file} changes the numbers of {code.path}, but no import statement there names it. Import it with a "
                "statement, from beside the file or from a folder of PYTHONPATH, under a name that no other module has."
            )
