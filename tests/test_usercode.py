"""A user's code: what enters its version, and that what is loaded is what was hashed."""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench import catalog, names, trust, usercode
from pflbench.errors import UsageError


@pytest.fixture(autouse=True)
def import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of other tests are not on it, and those that a test adds are gone after it."""
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if "pytest-of-" not in folder])


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def version(folder: Path, name: str = "main.py") -> str:
    return usercode.read(folder / name).version


def value(folder: Path, name: str = "main.py") -> Any:
    trust.grant(f"{folder / name}:VALUE")
    return names.load(f"{folder / name}:VALUE")


def test_a_file_alone_is_its_own_hash(tmp_path: Path) -> None:
    text = "import math\nimport torch\nfrom pflbench.methods.base import Method\nfrom pflbench import rng"
    write(tmp_path, {"main.py": text, "other.py": "VALUE = 1\n", "math.py": "VALUE = 1\n"})
    files = usercode.read(tmp_path / "main.py").files
    assert list(files) == ["main.py"]
    digest = hashlib.sha256(usercode.bare(text.encode())).hexdigest()
    assert version(tmp_path) == hashlib.sha256(digest.encode()).hexdigest()[:12]


LAYOUTS = {
    "plain": {"main.py": "import helper\nVALUE = helper.A\n", "helper.py": "A = 1\n"},
    "from": {"main.py": "from helper import A as VALUE\n", "helper.py": "A = 1\n"},
    "inside a function": {
        "main.py": "def f():\n    from helper import A\n    return A\nVALUE = f()\n",
        "helper.py": "A = 1\n",
    },
    "through another": {
        "main.py": "from middle import A as VALUE\n",
        "middle.py": "from helper import A\n",
        "helper.py": "A = 1\n",
    },
    "a package": {
        "main.py": "import lab.deep\nVALUE = lab.deep.A\n",
        "lab/__init__.py": "",
        "lab/deep.py": "from .helper import A\n",
        "lab/helper.py": "A = 1\n",
    },
    "a package's own code": {"main.py": "from helper import A as VALUE\n", "helper/__init__.py": "A = 1\n"},
    "a folder that is no package": {
        "main.py": "from lab import helper\nVALUE = helper.A\n",
        "lab/helper.py": "A = 1\n",
    },
    "relative": {"main.py": "from .helper import A as VALUE\n", "helper.py": "A = 1\n"},
    "relative, a module": {"main.py": "from . import helper\nVALUE = helper.A\n", "helper.py": "A = 1\n"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_edited_neighbor_is_another_version_and_is_the_one_loaded(layout: str, tmp_path: Path) -> None:
    files = LAYOUTS[layout]
    write(tmp_path, files)
    before = version(tmp_path)
    assert value(tmp_path) == 1
    (edited,) = (name for name, text in files.items() if "A = 1" in text)
    # Same size, and as quickly as may be: neither sys.modules nor a compiled file may answer.
    write(tmp_path, {edited: files[edited].replace("1", "2")})
    assert value(tmp_path) == 2 and version(tmp_path) != before
    write(tmp_path, files)
    assert value(tmp_path) == 1 and version(tmp_path) == before


def test_a_module_of_a_package_takes_its_package_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "work/lab/__init__.py": "A = 1\n",
        "work/lab/nets/__init__.py": "",
        "work/lab/nets/main.py": "from .. import A\nfrom ..common import B\nVALUE = A + B\n",
        "work/lab/common.py": "B = 1\n",
    }
    write(tmp_path, files)
    sys.path.insert(0, str(tmp_path / "work"))
    trust.grant("lab.nets.main:VALUE")
    assert names.load("lab.nets.main:VALUE") == 2
    before = names.code("lab.nets.main:VALUE")
    assert set(before.imports) == {"lab/__init__.py", "lab/nets/__init__.py", "lab/common.py"}
    write(tmp_path, {"work/lab/__init__.py": "A = 2\n"})
    assert names.load("lab.nets.main:VALUE") == 3
    assert names.code("lab.nets.main:VALUE").version != before.version


def test_folders_with_neighbors_of_one_name_do_not_mix(tmp_path: Path) -> None:
    for name in ("a", "b"):
        lazy = "def late():\n    import late_helper\n    return late_helper.NAME\n"
        write(tmp_path, {f"{name}/main.py": f"import helper\n{lazy}VALUE = lambda: (helper.NAME, late())\n"})
        write(tmp_path, {f"{name}/{file}.py": f"NAME = {name!r}\n" for file in ("helper", "late_helper")})
    for name in ("a", "b", "a"):
        assert value(tmp_path / name)() == (name, name)


def test_the_same_content_in_two_folders_is_two_modules(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, {f"{name}/main.py": "from pathlib import Path\nVALUE = Path(__file__).parent.name\n"})
    assert [value(tmp_path / name) for name in ("a", "b")] == ["a", "b"]
    assert version(tmp_path / "a") == version(tmp_path / "b")


def test_the_versions_of_built_in_methods_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"main.py": "from pflbench.methods.fo_maml import FOMaml\n"})
    reference = f"{tmp_path}/main.py:FOMaml"
    before = names.code(reference)
    assert before.bases == ["pflbench.methods.fo_maml.FOMaml@1"]
    monkeypatch.setattr(names, "_versions", lambda: {"pflbench.methods.fo_maml": ["FOMaml@2"]})
    assert names.code(reference).version != before.version
    write(tmp_path, {"helper.py": "from pflbench.methods import fo_maml\n", "main.py": "import helper\n"})
    assert names.code(reference).bases == ["pflbench.methods.fo_maml.FOMaml@2"]


def test_code_that_changed_since_is_not_loaded(tmp_path: Path) -> None:
    write(tmp_path, LAYOUTS["from"])
    before = version(tmp_path)
    reference = f"{tmp_path}/main.py:VALUE"
    trust.grant(reference)
    assert names.load(reference, before) == 1
    write(tmp_path, {"helper.py": "A = 2\n"})
    with pytest.raises(UsageError, match="changed while the suite was running"):
        names.load(reference, before)


def test_what_no_import_statement_names_is_not_imported(tmp_path: Path) -> None:
    text = "import importlib\nVALUE = importlib.import_module('.helper', __package__).A\n"
    write(tmp_path, {"main.py": text, "helper.py": "A = 1\n"})
    with pytest.raises(UsageError, match=r"helper\.py .*no import statement there names it"):
        value(tmp_path)


def test_mistakes_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": "import helper\n", "helper.py": "def (\n"})
    with pytest.raises(UsageError, match=re.escape(f"{tmp_path}/helper.py, line 1: ")):
        version(tmp_path)
    write(tmp_path, {"helper.py": "raise ValueError('no')\n"})
    for _ in range(2):  # and nothing half-made stays behind
        with pytest.raises(UsageError, match="ValueError: no"):
            value(tmp_path)
    write(tmp_path, {"main.py": "VALUE = 1\0\n"})
    with pytest.raises(UsageError, match=r"main\.py"):
        version(tmp_path)
    with pytest.raises(UsageError, match="Cannot read"):
        version(tmp_path, "nowhere.py")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_version_is_a_function_of_what_is_imported(data: st.DataObject) -> None:
    # Modules m0 (the file) … m5 that import each other at random: those that can be reached count, and only their code.
    edges = {i: data.draw(st.sets(st.integers(0, 5), max_size=3)) for i in range(6)}
    reached, waiting = set[int](), [0]
    while waiting:
        if (i := waiting.pop()) not in reached:
            reached.add(i)
            waiting += edges[i]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = {f"m{i}.py": "".join(f"import m{j}\n" for j in sorted(to)) + f"A = {i}\n" for i, to in edges.items()}
        write(folder, {f"a/{file}": text for file, text in texts.items()})
        before = version(folder / "a", "m0.py")
        i = data.draw(st.integers(0, 5))
        write(folder, {f"a/m{i}.py": texts[f"m{i}.py"] + "B = 1\n"})
        assert (version(folder / "a", "m0.py") != before) == (i in reached)
        write(folder, {f"b/{file}": text for file, text in texts.items()})
        assert version(folder / "b", "m0.py") == before


OUTSIDE = {
    "a module": {"main.py": "from outsider_one import A as VALUE\n", "lib/outsider_one.py": "A = 1\n"},
    "a package": {
        "main.py": "import outsider_two.deep\nVALUE = outsider_two.deep.A\n",
        "lib/outsider_two/__init__.py": "",
        "lib/outsider_two/deep.py": "from .helper import A\n",
        "lib/outsider_two/helper.py": "A = 1\n",
    },
    "through another": {
        "main.py": "from outsider_three import A as VALUE\n",
        "lib/outsider_three.py": "from outsider_four import A\n",
        "lib/outsider_four.py": "A = 1\n",
    },
    "through a neighbor": {
        "main.py": "from helper import A as VALUE\n",
        "helper.py": "from outsider_five import A\n",
        "lib/outsider_five.py": "A = 1\n",
    },
}


@pytest.mark.parametrize("layout", OUTSIDE)
def test_what_lies_on_the_import_path_and_is_not_installed_counts(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OUTSIDE[layout]
    write(tmp_path / "work", files)
    sys.path.insert(0, str(tmp_path / "work/lib"))
    (edited,) = (name for name, text in files.items() if "A = 1" in text)
    before = version(tmp_path / "work")
    assert value(tmp_path / "work") == 1
    assert edited.removeprefix("lib/") in usercode.read(tmp_path / "work/main.py").imports
    write(tmp_path / "work", {edited: "A = 2\n"})
    after = version(tmp_path / "work")
    assert after != before and value(tmp_path / "work") == 2
    # The folders may move, and apart from each other.
    shutil.move(tmp_path / "work/lib", tmp_path / "lib")
    shutil.move(tmp_path / "work", tmp_path / "elsewhere")
    sys.path.insert(0, str(tmp_path / "lib"))
    assert version(tmp_path / "elsewhere") == after


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nVALUE = importlib.import_module('outsider_six').A\n",
        "VALUE = __import__('outsider_' + 'six').A\n",
        "import sys\nsys.path.insert(0, FOLDER)\nimport outsider_six\nVALUE = outsider_six.A\n",
        "import lib.outsider_six\nimport this\nVALUE = 1\n",  # which lies beside the file under a name of Python's
    ],
)
def test_what_is_imported_unseen_is_refused_each_time(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys.modules.pop("this", None)
    write(tmp_path, {"main.py": text.replace("FOLDER", repr(str(tmp_path / "lib"))), "lib/outsider_six.py": "A = 1\n"})
    write(tmp_path, {"this.py": "A = 1\n"})
    if "FOLDER" not in text:
        sys.path.insert(0, str(tmp_path / "lib"))
    before = version(tmp_path)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"(outsider_six|this)\.py .*no import statement there names it"):
            value(tmp_path)
        assert version(tmp_path) == before


@pytest.mark.parametrize("kind", ["methods", "datasets", "partitions", "models"])
@pytest.mark.parametrize("reference", ["json:loads", "json.decoder:JSONDecoder", "sys:exit"])
def test_what_python_itself_has_is_nothing_to_use(kind: names.Kind, reference: str) -> None:
    trust.grant(reference)
    with pytest.raises(UsageError, match="is a module of Python itself"):
        catalog.describe(reference) if kind == "methods" else catalog.describe_options(kind, reference)


CODE = '''"""A module."""
import math  # for the root


class A:
    "One class."

    NAME = """
    kept   \n
# no comment
"""

    def f(self):
        # Nothing.
        return f"# {math.sqrt(4)}"  # é
'''
SAME: dict[str, Callable[[str], str]] = {
    "comments": lambda text: text.replace("# for the root", "").replace("# Nothing.", "# Something else, é."),
    "a comment more": lambda text: text + "# At the end.\n",
    "docstrings": lambda text: text.replace('"""A module."""', '"""Another\n\nmodule é."""').replace("One class", "A"),
    "no docstring": lambda text: text.replace('    "One class."\n', ""),
    "blank lines": lambda text: text.replace("\n\n\n", "\n").replace("class A:\n", "class A:\n   \n"),
    "blanks at the end": lambda text: text.replace("class A:", "class A:  "),
    "line ends": lambda text: text.replace("\n", "\r\n"),
    "a mark of the encoding": lambda text: "\ufeff" + text,
}
OTHER: dict[str, Callable[[str], str]] = {
    "code": lambda text: text.replace("4", "5"),
    "a string": lambda text: text.replace("kept", "changed"),
    "a blank in a string": lambda text: text.replace("kept   ", "kept"),
    "a line in a string": lambda text: text.replace("# no comment\n", ""),
    "an f-string": lambda text: text.replace('f"# {', 'f"{'),
    "an indent": lambda text: text.replace("    def f", "def f"),
}


def version_of(folder: Path, text: str) -> str:
    (folder / "main.py").write_bytes(text.encode())
    return version(folder)


@pytest.mark.parametrize("edit", SAME.values(), ids=SAME)
def test_what_computes_nothing_is_no_part_of_the_version(tmp_path: Path, edit: Callable[[str], str]) -> None:
    assert edit(CODE) != CODE and version_of(tmp_path, edit(CODE)) == version_of(tmp_path, CODE)


@pytest.mark.parametrize("edit", OTHER.values(), ids=OTHER)
def test_all_else_is_part_of_the_version(tmp_path: Path, edit: Callable[[str], str]) -> None:
    assert version_of(tmp_path, edit(CODE)) != version_of(tmp_path, CODE)


APART = {
    "a blank line that ends a continued one": ("lr = 0.1 \\\n\n-0.05\n", "lr = 0.1 \\\n-0.05\n"),
    "a comment that ends a continued line": ("lr = 0.1 \\\n# was:\n-0.05\n", "lr = 0.1 \\\n-0.05\n"),
    "a docstring on a continued line": ('def f(): \\\n  "doc"\nlr = 1\n', "def f(): \\\nlr = 1\n"),
    "a docstring that is read": ('"""0.1"""\nlr = float(__doc__)\n', '"""0.2"""\nlr = float(__doc__)\n'),
    "a docstring that inspect reads": (
        'import inspect\ndef f():\n    "1"\nlr = inspect.getdoc(f)\n',
        'import inspect\ndef f():\n    "2"\nlr = inspect.getdoc(f)\n',
    ),
    "blanks in a string behind a docstring": ('"""a\nb"""; X = """c   \nd"""\n', '"""a\nb"""; X = """c\nd"""\n'),
}


@pytest.mark.parametrize("edit", APART)
def test_code_that_computes_otherwise_has_another_version(tmp_path: Path, edit: str) -> None:
    first, second = (version_of(tmp_path, text) for text in APART[edit])
    assert first != second


def test_code_with_batch_normalization_has_the_version_of_running_statistics(tmp_path: Path) -> None:
    text = "from torch import nn\nnet = nn.BatchNorm1d(3)\n"
    digest = hashlib.sha256(usercode.bare(text.encode(), False)).hexdigest()
    assert version_of(tmp_path, text) == hashlib.sha256(f"{digest}\nrunning statistics".encode()).hexdigest()[:12]
    plain = "net = 3\n"
    assert version_of(tmp_path, plain + "# like BatchNorm\n") == version_of(tmp_path, plain)


def test_a_docstring_that_a_neighbor_reads_is_part_of_the_version(tmp_path: Path) -> None:
    write(tmp_path, {"helper.py": "def read(one):\n    return one.__doc__\n"})
    text = 'import helper\nclass A:\n    "1"\nVALUE = helper.read(A)\n'
    assert version_of(tmp_path, text) != version_of(tmp_path, text.replace('"1"', '"2"'))


def test_backslashes_of_strings_and_comments_continue_no_line(tmp_path: Path) -> None:
    text = 'X = """a\\\nb"""\nY = "c\\\nd"\n'
    assert version_of(tmp_path, text + "# old: \\\n\n") == version_of(tmp_path, text)


@pytest.mark.parametrize("text", ["x=" + "-" * 100_000 + "1", "x=1" + "+1" * 100_000, "x=a" + ".b" * 100_000])
def test_code_that_is_nested_too_deeply_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"main.py": text})
    with pytest.raises(UsageError, match=r"main\.py: its expressions are nested too deeply\. Write them flatter\."):
        version(tmp_path)


DEBUG = ["{\n  x # why\n  = }", "{\n  x # how\n  = }", "{\n  x  \n  = }", "{\n  x\n  = }"]
"""Parts of f-strings whose text is printed, with comments and blanks, which may stand in them since Python 3.12."""


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_a_version_is_the_same_on_every_python(version: str) -> None:
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    python = shutil.which(f"python{version}") if f"python{version}" == Path(sys.executable).name else None
    if not found and not python:
        pytest.skip(f"needs Python {version}")
    more = 'def f(x):\n\t"d"\n\tif x: return f"{x!r:>{3}}" f\'{x}\'; y = 1\n  \n# end\n\tz: "int" = (1,\n # in\n 2)\nf"{1}"\nx = 0x1f'
    texts = [CODE, more, *(f'x = 1  # outside\ny = f"""{one}"""  # behind\n' for one in DEBUG if version != "3.10")]
    program = f"from pflbench.usercode import bare\nprint([bare(text.encode()) for text in {texts!r}])"
    environment = {"PYTHONPATH": str(Path(usercode.__file__).parents[1])}
    command = [python or str(found[-1]), "-c", program]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    bare = ast.literal_eval(out)
    assert bare[:2] == [usercode.bare(text.encode()) for text in texts[:2]] and len(set(bare)) == len(texts)
    assert all(one.encode() in found for one, found in zip(DEBUG, bare[2:], strict=False))
