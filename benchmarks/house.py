"""Measure the size of the code: lines, tokens, files and shared names per room of pflbench.

    python benchmarks/house.py [FOLDER]

Code lines have no blanks, comments or docstrings. Tokens are Python's, without comments, newlines and docstrings. A
shared name is a public function or class at the top of two or more modules; verbs that `cli/` and `api.py` share do not
count. FOLDER is a checkout (default: this one).
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

LONG = 400
"""Code lines above which a file is named."""
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def docstrings(tree: ast.Module) -> set[int]:
    """Line numbers of all docstrings, also those below attributes."""
    found: set[int] = set()
    for node in ast.walk(tree):
        for one in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                found.update(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    return found


def measure(path: Path) -> tuple[int, int]:
    """Code lines and tokens of a file."""
    text = path.read_text(encoding="utf-8")
    prose = docstrings(ast.parse(text))
    tokens = [
        one
        for one in tokenize.generate_tokens(io.StringIO(text).readline)
        if one.type not in SILENT and one.start[0] not in prose
    ]
    return len({row for one in tokens for row in range(one.start[0], one.end[0] + 1)}), len(tokens)


def names(path: Path) -> Iterator[str]:
    """Public functions and classes at the top of a module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def main(root: Path) -> None:
    """Print all measures of a checkout."""
    package = root / "pflbench"
    rooms: dict[str, list[tuple[int, int]]] = defaultdict(list)
    defined: dict[str, list[str]] = defaultdict(list)
    beginnings: Counter[str] = Counter()
    long = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        size = measure(path)
        rooms[parts[0] if len(parts) > 1 else "(the ground)"].append(size)
        if size[0] > LONG:
            long.append(f"{'/'.join(parts)} {size[0]}")
        for name in names(path):
            if parts[0] != "cli":
                defined[name].append("/".join(parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (doc := ast.get_docstring(node)):
                beginnings[doc.split()[0]] += 1
    print(f"{'room':<16}{'files':>6}{'lines':>8}{'tokens':>9}")
    for room, sizes in sorted(rooms.items(), key=lambda one: -sum(size[0] for size in one[1])):
        print(f"{room:<16}{len(sizes):>6}{sum(size[0] for size in sizes):>8}{sum(size[1] for size in sizes):>9}")
    every = [size for sizes in rooms.values() for size in sizes]
    print(f"{'pflbench/':<16}{len(every):>6}{sum(size[0] for size in every):>8}{sum(size[1] for size in every):>9}")
    tests = [measure(path) for path in (root / "tests").rglob("*.py")]
    print(f"{'tests/':<16}{len(tests):>6}{sum(size[0] for size in tests):>8}{sum(size[1] for size in tests):>9}")
    shared = {name: them for name, them in defined.items() if len(them) > 1}
    print(f"\nNames that two or more modules define: {len(shared)}: {', '.join(sorted(shared))}")
    print(f"Files above {LONG} code lines: {', '.join(long) or 'none'}")
    counted = [f"{word} {beginnings[word]}" for word in ("What", "Whether", "How", "Who")]
    print(f"Docstrings that begin with: {', '.join(counted)}")
    for page in ("README.md", "results/README.md", "CHANGELOG.md"):
        text = (root / page).read_text(encoding="utf-8")
        print(f"{page}: {len(text.splitlines())} lines, {len(text.split())} words")
    pages = [path.read_text(encoding="utf-8") for path in (root / "docs").rglob("*.md")]
    print(f"docs/: {len(pages)} pages, {sum(len(text.split()) for text in pages)} words")
    suites = [path.read_text(encoding="utf-8") for path in (root / "benchmarks").rglob("*.toml")]
    print(f"benchmarks/*.toml: {sum(len(text.splitlines()) for text in suites)} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
