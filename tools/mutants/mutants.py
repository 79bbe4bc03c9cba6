"""Measure the strength of the tests: one-line mutants of the package, and seeded faults that the tests hold.

    python tools/mutants/mutants.py draw 33 5aac14f        # write drawn-33.json: 60 mutants of that commit
    python tools/mutants/mutants.py run 33 COMMIT OUT.json [BEFORE.json]
    python tools/mutants/mutants.py find 33                # name the mutants that this checkout has no line for
    python tools/mutants/mutants.py compare A.json B.json

Set 33 has the rooms engine, suite, store and statistics; set 56 methods, data and the page. Set 57 was drawn in place
of mutants of both whose lines are gone.

A mutant is a line of code with one expression replaced. It is known by file, function, text of the line and operator,
so it is found again where code has moved. `moved.json` holds the new place of those that this does not find, by their
ids. `run` works in a throw-away copy of the commit and needs nothing but the commit and this folder. It writes after
each mutant and goes on where it ended. With the result of another commit it tries the test first that caught a mutant.
An entry with a `commit` of its own was run by hand, there. An "equal" one was not run: it changes no result, for the
reason that `why` gives.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SETS = {
    "33": (3, ("engine", "suite", "store", "statistics")),
    "56": (4, ("methods", "data", "page")),
    "57": (2, ("engine", "suite", "methods", "data")),
}
"""By name of a set, which is the seed of its draw: mutants per room and kind, and rooms."""
CPU_S, FILE_CPU_S, WALL_S = 900, 120, 5400
"""Time after which a mutant counts as caught, for folders and for files of tests: it hangs."""
MEMORY_KB = 12_000_000
NO_TESTS = 4
"""Exit code of pytest for a test that there is not."""
STATISTICS = "statistics conclusion verdict fairness gap ranking versus comparing scores cells"
ROOMS: dict[str, list[str]] = {
    "engine": ["pflbench/engine/*.py"],
    "suite": ["pflbench/suite/*.py"],
    "store": ["pflbench/store/*.py"],
    "statistics": [f"pflbench/report/{name}.py" for name in STATISTICS.split()],
    "methods": ["pflbench/methods/*.py"],
    "data": ["pflbench/data/**/*.py"],
    "page": ["pflbench/report/html/*.py"],
}
TESTS: dict[str, list[list[str]]] = {
    "engine": [
        ["tests/engine"],
        ["tests/methods/test_special_cases.py", "tests/methods/test_contract.py", "tests/gpu"],
    ],
    "suite": [["tests/suite"], ["tests/freeze", "tests/report", "tests/cli"]],
    "store": [["tests/store"], ["tests/security", "tests/running", "tests/run", "tests/cli"]],
    "statistics": [["tests/report"], ["tests/freeze", "tests/cli"]],
    "methods": [["tests/methods"], ["tests/gpu"]],
    "data": [["tests/data"], ["tests/suite", "tests/cli"]],
    "page": [["tests/report"], ["tests/cli"]],
}
"""Test folders by room, the room's own first; a missing folder is skipped."""
HELD = ["tests/gpu/test_faults.py", "tests/methods/test_contract.py", "-k", "seeded_fault or broken or mistake"]
"""Tests of which each holds a fault: the GPU path's, and the contract's broken methods."""
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.Pow: ("**", "*"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
KINDS = ("compare", "arithmetic", "boolean", "constant", "return")
Mutant = dict[str, Any]


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | None, ast.expr, tuple[str, str] | None]]:
    """Yield kind, expression left of the operator, expression to the right or to replace, and old and new text."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "compare", node.left, node.comparators[0], SWAPS[type(node.ops[0])]
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        yield "arithmetic", node.left, node.right, SWAPS[type(node.op)]
    elif isinstance(node, ast.BoolOp):
        yield "boolean", node.values[0], node.values[1], SWAPS[type(node.op)]
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        new = not node.value if isinstance(node.value, bool) else node.value + 1
        yield "constant", None, node, (repr(node.value), repr(new))
    elif isinstance(node, ast.Return) and node.value and getattr(node.value, "value", 0) is not None:
        yield "return", None, node.value, ("", "None")


def walk(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield all nodes of functions, each with the function's qualified name; no annotations and no f-strings."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or name in ("annotation", "returns", "decorator_list"):
                continue
            if isinstance(child, ast.JoinedStr):
                continue
            inner = isinstance(child, ast.FunctionDef | ast.ClassDef)
            where = f"{function}.{child.name}".lstrip(".") if inner else function  # type: ignore[attr-defined]
            if where:
                yield child, where
            yield from walk(child, where)


def candidates(root: Path, path: Path) -> Iterator[Mutant]:
    """Yield each possible mutant of a file whose change is within one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for node, function in walk(ast.parse("\n".join(lines))):
        for kind, left, right, (old, new) in [(k, lt, r, p) for k, lt, r, p in changes(node) if p]:
            row, text = right.lineno - 1, lines[right.lineno - 1].encode()
            if right.end_lineno != right.lineno or (left and left.end_lineno != right.lineno):
                continue
            start, end = (left.end_col_offset if left else right.col_offset), right.end_col_offset
            if left:  # the operator stands between its operands
                found = re.search(rf"(?<!\w){re.escape(old)}(?!\w)" if old.isalpha() else re.escape(old),
                                  text[start : right.col_offset].decode())  # fmt: skip
                if not found:
                    continue
                start, end = start + found.start(), start + found.end()
            bare = text.decode().strip()
            first = start - (len(text) - len(text.lstrip()))
            old = text[start:end].decode()
            if not bare.isascii() or "kill(" in bare:  # a signal may meet a process that is no test's
                continue
            yield {
                "file": path.relative_to(root).as_posix(),
                "function": function,
                "line": bare,
                "at": first,
                "kind": kind,
                "old": old,
                "new": new,
                "nth": sum(one.strip() == bare for one in lines[:row]),
            }


def draw(root: Path, name: str) -> list[Mutant]:
    """Draw the same number of mutants of each kind in each room of a set, no two in one line."""
    random_, drawn = random.Random(int(name)), list[Mutant]()
    each, rooms = SETS[name]
    for room in rooms:
        every = [m for p in ROOMS[room] for path in sorted(root.glob(p)) for m in candidates(root, path)]
        for kind in KINDS:
            for one in random_.sample([m for m in every if m["kind"] == kind], each * 3):
                if sum(m["room"] == room and m["kind"] == kind for m in drawn) == each:
                    break
                if all((m["file"], m["line"]) != (one["file"], one["line"]) for m in drawn):
                    drawn.append({"id": f"{room}-{kind}-{len(drawn) + 1}", "room": room} | one)
    return drawn


def place(root: Path, mutant: Mutant) -> tuple[Path, int] | None:
    """Find a mutant's file and line: the same line in its file, else in a function of its name, else the only one."""
    found = [
        (path, row)
        for path in sorted((root / "pflbench").rglob("*.py"))
        for row, line in enumerate(path.read_text(encoding="utf-8").splitlines())
        if line.strip() == mutant["line"]
    ]
    here = [one for one in found if one[0] == root / mutant["file"]]
    if len(here) > mutant["nth"]:
        return here[mutant["nth"]]
    named = [
        one for one in found if re.search(rf"def {mutant['function'].split('.')[-1]}\b", one[0].read_text("utf-8"))
    ]
    return next((one[0] for one in (named, found) if len(one) == 1), None)


def pytest(root: Path, tests: list[str]) -> tuple[int | None, str]:
    """Run tests of both tiers in one process; return its exit code and output, `None` for no end."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", "-p", "no:cacheprovider", "-rA", "--tb=no"]
    most = FILE_CPU_S if all(one.endswith(".py") for one in tests if one[0] != "-") else CPU_S
    command = ["bash", "-c", f'ulimit -t {most} -v {MEMORY_KB}; exec "$0" "$@"', *command, *tests]
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=WALL_S)
    except subprocess.TimeoutExpired:
        return None, ""
    return None if done.returncode < 0 else done.returncode, done.stdout


def stages(root: Path, mutant: Mutant) -> Iterator[list[str]]:
    """Yield the tests for a mutant: one that caught it, files named like its module, the room's folder, wider ones."""
    if "::" in mutant.get("by", "") and (root / mutant["by"].split("::")[0]).exists():
        yield [mutant["by"]]
    stem = Path(mutant["file"]).stem
    own = [
        path.relative_to(root).as_posix()
        for path in sorted((root / TESTS[mutant["room"]][0][0]).glob(f"test_{stem.rstrip('s')}*.py"))
    ]
    for more in ([own] if own else []) + TESTS[mutant["room"]]:
        if there := [one for one in more if (root / one).exists()]:
            yield there


def catch(root: Path, mutant: Mutant, sound: dict[str, bool]) -> Mutant:
    """Apply a mutant, run its tests until one fails that passes without it, and undo it."""
    found = place(root, mutant)
    if found is None:
        return {"result": "lost"}
    path, row = found
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    at = lines[row].index(mutant["line"]) + mutant["at"]
    assert lines[row][at:].startswith(mutant["old"]), mutant
    lines[row] = lines[row][:at] + mutant["new"] + lines[row][at + len(mutant["old"]) :]
    try:
        for tests in stages(root, mutant):
            path.write_text("".join(lines), encoding="utf-8")
            code, output = pytest(root, ["-x", *tests])
            path.write_text(text, encoding="utf-8")
            if code == NO_TESTS and "::" in tests[0]:
                continue
            if code is None:
                return mutant | {"result": "caught", "by": f"{tests[0]}: no end in its time"}
            failed = re.findall(r"^(?:FAILED|ERROR) (\S+(?: \S+)*?)(?: - .*)?$", output, re.MULTILINE)
            by = failed[0] if failed else ""
            if code and by not in sound:
                sound[by] = not pytest(root, [by.removesuffix(" - ")])[0] if by else True
            if code and sound[by]:
                return mutant | {"result": "caught", "by": by or f"{tests[0]}: no test could run"}
        return {"result": "survived"}
    finally:
        path.write_text(text, encoding="utf-8")
        for stale in path.parent.rglob(f"__pycache__/{path.stem}.*.pyc"):
            stale.unlink()


def run(name: str, commit: str, out: Path, before: Path | None) -> None:
    """Run a set's mutants that `out` lacks, then the tests that hold seeded faults; write after each."""
    caught = json.loads(before.read_text())["mutants"] if before else {}
    written = json.loads(out.read_text()) if out.exists() else {"commit": commit, "mutants": {}}
    sound: dict[str, bool] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = Path(folder)
        archive = subprocess.run(
            ["git", "archive", commit], cwd=HERE.parents[1], capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        todo = [mutant for mutant in known(name) if mutant["id"] not in written["mutants"]]
        for mutant in todo:
            result = catch(root, mutant | caught.get(mutant["id"], {}), sound)
            written["mutants"][mutant["id"]] = {key: result[key] for key in ("result", "by") if key in result}
            out.write_text(json.dumps(written, indent=1) + "\n")
            print(mutant["id"], result["result"], result.get("by", ""), flush=True)
        if "held" not in written:
            output = pytest(root, HELD)[1]
            written["held"] = dict(
                sorted((b, a) for a, b in re.findall(r"^(PASSED|FAILED) (\S+.*?)(?: - .*)?$", output, re.M))
            )
            out.write_text(json.dumps(written, indent=1) + "\n")


def known(name: str) -> list[Mutant]:
    """Read the drawn mutants of a set, with the new places of those that moved.json names."""
    moved = json.loads((HERE / "moved.json").read_text())
    return [mutant | moved.get(mutant["id"], {}) for mutant in json.loads((HERE / f"drawn-{name}.json").read_text())]


def compare(before: Path, after: Path) -> None:
    """Print counts of both, and each fault that was caught before with its result after, if that is another."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    for one in (old, new):
        results = [m["result"] for m in one["mutants"].values()]
        held = list(one.get("held", {}).values())
        print(one["commit"], {r: results.count(r) for r in sorted(set(results))}, {r: held.count(r) for r in set(held)})
    for id, mutant in old["mutants"].items():
        now = new["mutants"].get(id, {}).get("result", "not run")
        if mutant["result"] == "caught" != now:
            print(f"{now}:", id, mutant["by"])
    for test, result in old.get("held", {}).items():
        if result == "PASSED" != new.get("held", {}).get(test):
            print("no longer held:", test)


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "draw":
        name, commit = words
        with tempfile.TemporaryDirectory() as folder:
            packed = subprocess.run(["git", "archive", commit, "pflbench"], cwd=HERE.parents[1], capture_output=True)
            subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
            (HERE / f"drawn-{name}.json").write_text(json.dumps(draw(Path(folder), name), indent=1) + "\n")
    elif verb == "run":
        run(words[0], words[1], Path(words[2]), Path(words[3]) if len(words) > 3 else None)
    elif verb == "find":
        for mutant in known(words[0]):
            if place(HERE.parents[1], mutant) is None:
                print(mutant["id"], mutant["file"], mutant["function"], mutant["line"], sep=": ")
    else:
        compare(Path(words[0]), Path(words[1]))
