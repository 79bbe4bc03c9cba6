"""A user's source file with the user's modules that it imports, and the hash of them all, its version.

The files are found by reading `import` statements, so nothing runs before it is hashed. A module beside the file goes
before any other of the same name, as for a script, but the standard library and pflbench always mean themselves. What
is neither beside the file nor installed, for example in a folder of PYTHONPATH, counts as well. `userimport` loads it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import io
import os
import sys
import sysconfig
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import NamedTuple

from pflbench.errors import UsageError

_OURS = Path(__file__).parent
_STANDARD = Path(sysconfig.get_path("stdlib"))
_INSTALLED = {"site-packages", "dist-packages"}
_DOCSTRING_READERS = (b"__doc__", b"getdoc")
"""Text of source files that may compute with docstrings."""


class Import(NamedTuple):
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
        return [*parents(dotted), *itself, *(".".join([*itself, name]) for name in self.names)]


@dataclass(frozen=True, eq=False)
class Code:
    """A file and the modules that it imports from beside it.

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
        """12 hex digits of the SHA-256 of the file or, if it imports more, of all these files and methods.

        Names of modules count relative to the file, or to a folder of the import path, so that folders may move.
        """
        return self._hashed(lambda text: text)

    @cached_property
    def digest(self) -> str:
        """The version as if no file had comments, docstrings, blank lines or blanks at the end of a line.

        Docstrings count if any of the files may read one. Code of equal digests computes the same numbers.
        """
        keeps = any(word in text for text in self.texts.values() for word in _DOCSTRING_READERS)
        return self._hashed(lambda text: bare(text, keeps))

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

    def _hashed(self, read: Callable[[bytes], bytes]) -> str:
        """12 hex digits over all files as `read` turns their bytes, and over the methods."""
        own = hashlib.sha256(read(self.texts[self.path]))
        if len(self.texts) == 1 and not self.methods:
            return own.hexdigest()[:12]
        beside = (f"{name} {hashlib.sha256(read(text)).hexdigest()}" for name, text in self._beside())
        return hashlib.sha256("\n".join([own.hexdigest(), *beside, *self.methods]).encode()).hexdigest()[:12]

    def _beside(self) -> list[tuple[str, bytes]]:
        return sorted((self._name(path), text) for path, text in self.texts.items() if path != self.path)

    def _name(self, path: Path) -> str:
        return self.outside.get(path) or Path(os.path.relpath(path, self.path.parent)).as_posix()


def is_ours(module: str) -> bool:
    """True if a dotted name is pflbench's own code, which has versions of another kind."""
    return module.partition(".")[0] == "pflbench"


def is_installed(path: Path) -> bool:
    """True if a file belongs to Python or to an installed package, which nobody edits while it is in use."""
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
        module = own if any(one.level for one in _imports(syntax(path, text))) else path.stem
    else:
        folders = (path.parents[module.count(".") + (path.name == "__init__.py")],)
    importlib.invalidate_caches()  # a file that was just written counts
    return _followed(Code(path, module, folders, {path: text}, (), {}))


def _followed(start: Code) -> Code:
    """The code of a first file with all of the user's modules that it imports, and that they import."""
    texts, methods, outside, on_path = dict[Path, bytes](), set[str](), dict[Path, str](), cache(_on_path)
    package = start.module if start.path.name == "__init__.py" else _package(start.module)
    above = (_found(start.folders[-1:], name) for name in parents(start.module))
    waiting = [(start.path, package), *filter(None, above)]
    for file, package in waiting:  # which grows meanwhile
        if file in texts:
            continue
        texts[file] = start.texts.get(file) or _bytes(file)
        others_beside = is_installed(start.path) and file not in outside
        for one in _imports(syntax(file, texts[file])):
            for name in one.modules(package):
                if not one.level and is_ours(name):
                    methods |= _built_in(name)
                elif file not in outside and (beside := start.beside(name, one.level)):
                    waiting.append(beside)
                elif not others_beside and (module := _found(places := on_path(name.partition(".")[0]), name)):
                    waiting.append(module)
                    outside.setdefault(module[0], _below(places, module[0]))
    return replace(start, texts=texts, methods=tuple(sorted(methods)), outside=outside)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}.") from error


def syntax(path: Path, text: bytes | None = None) -> ast.Module:
    """A source file's syntax tree, made once for each content; `text`: what it holds, if that is known.

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


_Span = tuple[int, int, int, int]
"""First line, from 0, and column, last line and the column behind it; columns in characters."""


@lru_cache(maxsize=256)
def bare(text: bytes, docstrings: bool = False) -> bytes:
    """Source without comments, docstrings, blank lines, and blanks at the end of a line; strings stay as they are.

    All is cut out by its position, so the result is the same for every version of Python that can read the source.
    Source with a line that a backslash continues is returned unchanged: without the next line, others would be joined.
    `docstrings`: keep docstrings.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
    source = text.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    lines = source.split("\n")  # as Python ends them: a form feed, at which `splitlines` cuts, ends no line
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    documented = [] if docstrings else list(_docstrings(ast.parse(source), lines))
    for row, column, last, end in sorted([*_comments(tokens), *documented], reverse=True):
        # The rest stays on the last row, where a string may begin.
        lines[row : last + 1] = [*[""] * (last - row), lines[row][:column] + lines[last][end:]]
    fixed = {row for first, _, last, _ in _strings(tokens, documented) for row in range(first, last)}
    if any(line.endswith("\\") for row, line in enumerate(lines) if row not in fixed):
        return text
    kept = (line if row in fixed else line.rstrip() for row, line in enumerate(lines))
    return "\n".join(line for row, line in enumerate(kept) if line or row in fixed).encode()


def _span(start: tuple[int, int], end: tuple[int, int]) -> _Span:
    return start[0] - 1, start[1], end[0] - 1, end[1]


def _comments(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[_Span]:
    """Spans of comments; not inside f-strings (Python ≥ 3.12), whose debug form `f"{x=}"` prints them."""
    depth = 0
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        depth += kind.endswith("STRING_START") - kind.endswith("STRING_END")
        if kind == "COMMENT" and not depth:
            yield _span(token.start, token.end)


def _docstrings(tree: ast.Module, lines: Sequence[str]) -> Iterator[_Span]:
    """Spans of the docstrings of a module, its classes and its functions."""

    def characters(row: int, column: int) -> int:  # a syntax tree counts bytes of UTF-8
        return len(lines[row - 1].encode()[:column].decode())

    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                one = node.body[0]
                last, end = one.end_lineno or 0, one.end_col_offset or 0
                yield one.lineno - 1, characters(one.lineno, one.col_offset), last - 1, characters(last, end)


def _strings(tokens: Iterable[tokenize.TokenInfo], documented: Sequence[_Span]) -> Iterator[_Span]:
    """Spans of strings that are no docstrings. Since Python 3.12 an f-string is several tokens."""
    begun = list[tuple[int, int]]()
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        if kind.endswith("STRING_START"):
            begun.append(token.start)
        elif kind == "STRING" or kind.endswith("STRING_END"):
            span = _span(token.start if kind == "STRING" else begun.pop(), token.end)
            if not any(one[:2] <= span[:2] and span[2:] <= one[2:] for one in documented):
                yield span


@lru_cache(maxsize=256)
def _imports(tree: ast.Module) -> tuple[Import, ...]:
    found: list[Import] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += (Import(0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.append(Import(node.level, node.module or "", tuple(alias.name for alias in node.names)))
    return tuple(found)


def _dotted(path: Path) -> str:
    """A file's name in the package that its folder is, the whole way up."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _package(module: str) -> str:
    return module.rpartition(".")[0]


def parents(module: str) -> list[str]:
    """The packages that a module lies in, the outermost first."""
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _found(folders: Sequence[Path], name: str) -> tuple[Path, str] | None:
    file: Path | None = None
    inside = list(folders)
    for part in name.split("."):
        file, inside = module_in(inside, part)
    if file is None:
        return None
    return file, name if file.name == "__init__.py" else _package(name)


def module_in(folders: Iterable[Path], name: str) -> tuple[Path | None, list[Path]]:
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
    spec = module_spec(name)
    if spec is None:
        return ()
    places = [spec.origin] if spec.submodule_search_locations is None else spec.submodule_search_locations
    return tuple(Path(place).parent for place in places if place and not is_installed(Path(place)))


def module_spec(name: str, folders: Sequence[str] | None = None) -> ModuleSpec | None:
    """Spec of a module: an outermost one on the import path, a part of a package in its `folders`. Imports nothing."""
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    return next((found for find in finders if find and (found := find(name, folders))), None)


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
    tree, found = syntax(file), set[str]()
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == "version" and item.value:
                found.add(f"{parts[2]}.{node.name}@{ast.literal_eval(item.value)}")
    others = {name for one in _imports(tree) for name in one.modules("")} - {module}
    return frozenset(found).union(*map(_built_in, others))
