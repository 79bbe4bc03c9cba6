"""A finished table as a LaTeX `table`, which pdflatex compiles with the packages that it names.

Plain ASCII. Letters without a command of LaTeX (Chinese, Cyrillic) stay, and need XeLaTeX or LuaLaTeX.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby, zip_longest
from typing import NamedTuple

from pflbench.output import plain
from pflbench.report import appendix, text
from pflbench.report.compact import filled
from pflbench.report.table import CellValue, Row, Table
from pflbench.report.text import views
from pflbench.suite.cells import ColumnHead

NEEDS = r"% Needs \usepackage{booktabs,graphicx} in the preamble."
UNICODE = "% Needs XeLaTeX or LuaLaTeX, and a font that has its characters (Chinese: \\usepackage{xeCJK})."
EMPTY = r"$\cdot$"
"""A cell without a number."""

_COMMANDS = {
    **{character: f"\\{character}" for character in "#$%&_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", '"': "''"},
    **{"<": "$<$", ">": "$>$", "|": "$|$"},  # TeX's first text encoding has other characters in their places
    **{"–": "--", "—": "---", "…": r"\dots{}", "†": r"\textsuperscript{\dag}", "’": "'", "“": "``", "”": "''"},
    **{"±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "√": r"$\surd$", "→": r"$\to$"},
    **{"≤": r"$\leq$", "≥": r"$\geq$", "✓": r"$\surd$", "≈": r"$\approx$", "✗": r"$\times$"},
    **{"−": "$-$", "°": r"$^\circ$", "ß": r"\ss{}", "ø": r"\o{}", "ł": r"\l{}"},
}
_MARKS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327"
_ACCENTS = dict(zip(_MARKS, "`'^~=u.\"rHvc", strict=True))
"""LaTeX's commands for Unicode's combining accents."""
_GREEK = dict(
    zip(
        "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ",
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
        "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split(),
        strict=True,
    )
)
FITTING = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""Shrinks what follows if it is wider than the text: on a page with one narrow column, since `PAGE` has two."""
PAGE, COLUMN = 469.0, 229.0
"""Widths in points of the text of a page with two columns, and of one of them, in LaTeX's own `article`."""
_GAP, _GLYPH, _BOLD = 12.0, 10.0, 1.15
"""Points between two columns of a tabular and of a verdict's glyph; factor of bold letters."""
_POINTS = {
    **dict.fromkeys(" .,:;'!|ijlft()[]-/\u1d4d\u1d57†", 4.0),
    **dict.fromkeys("mwMW%@×−→≈±", 9.0),
    **dict.fromkeys("ABCDEFGHIJKLNOPQRSTUVXYZ", 7.5),
}
"""Widths of characters in points, at size 10; others have 5.3."""
_TITLE = 28
"""Characters in a line of a row's title."""
_PAGE = 44
"""Lines that a float holds, on a page of LaTeX's own `article`. What is longer goes on in a further float."""
_FEWEST = 5
"""Rows of a table below which it rather begins on the next page."""
_WIDE, _NARROW = 75, 40
"""Characters of a caption in one line there, and in one of two columns."""
_LIGATURES = "-'`,"
_CODE = re.compile("`([^`]+)`")
_MINUS = re.compile(r"(?<![^ (])-(?=\d)")


def latex(table: Table) -> str:
    """The rows and columns with results as text that ends with a newline; all notes are comments."""
    table = filled(table) if any(table.shown) else table
    unit = f" {table.unit}." if table.unit else ""
    seeds, meanings = table.texts("seeds"), text.glyph_meanings(table)
    above = [f"{table.title}.{unit}", *seeds, *meanings, *table.on_rounds]
    grids = [*_grids(table)]
    notes = _comments(n for n in table.footer if n not in seeds)
    lines = [*notes, *_float(above, _label(table), grids)]
    for one in appendix.appendices(table):
        lines += latex_appendix(table, one)
    needs = [NEEDS] if all(line.isascii() for line in lines if not line.startswith("%")) else [NEEDS, UNICODE]
    return "\n".join([*needs, *lines]) + "\n"


def latex_appendix(table: Table, of: appendix.Appendix) -> list[str]:
    """Lines of an appendix: an empty one, its notes as comments, and a table of its own."""
    title = of.title[0].lower() + of.title[1:]
    return ["", *_comments(of.notes), *_float([f"{table.title}: {title}."], f"{_label(table)}-{of.label}", _listed(of))]


def _comments(notes: Iterable[str]) -> list[str]:
    return [f"% {text.in_ascii(plain(_in_a_line(line)))}" for line in notes]


class Grid(NamedTuple):
    """A tabular: the letters of its columns, the lines of its head and of its body, and about how many points wide.

    `titles`: of each line of the body the row's title, where lines of one row follow the one that has it.
    """

    columns: str
    head: Sequence[str]
    body: Sequence[str]
    titles: Sequence[str] = ()
    width: float = 0.0

    @property
    def height(self) -> float:
        """In lines of text, if nothing shrinks it."""
        return self.around + len(self.body)

    @property
    def around(self) -> float:
        """The height of all but its body."""
        return len(self.head) + 1.5

    def cut(self, rows: int) -> tuple[Grid, Grid]:
        """The first lines of its body, and the others; each begins with a row's title."""
        first, *others = self.body[rows:]
        titled = self.titles[rows] + first if self.titles and first.startswith(" & ") else first
        rest = self._replace(body=[titled, *others], titles=self.titles[rows:])
        return self._replace(body=self.body[:rows], titles=self.titles[:rows]), rest


def _label(table: Table) -> str:
    return table.suite if table.profile == "paper" else f"{table.suite}-{table.profile}"


@lru_cache(maxsize=1 << 14)  # a page of tables asks for the same lines in every reading
def escaped(words: str) -> str:
    """Source in one line that prints the words; a letter that LaTeX has no command for stays as it is."""
    said = unicodedata.normalize("NFC", _in_a_line(words))
    # Two of the same in a row would print as one other character.
    apart = ("{}" if c in _LIGATURES and said[i - 1 : i] == c else "" for i, c in enumerate(said))
    found = "".join(before + _command(c) for before, c in zip(apart, said, strict=True))
    return f"{{}}{found}" if found[:1] in ("[", "*") else found  # behind the end of a line they would be its arguments


def prose(words: str) -> str:
    """The same of a sentence, in which what stands between backticks is something to type."""

    def piece(part: str) -> str:
        return f"{' ' * part.startswith(' ')}{escaped(part)}{' ' * part.endswith(' ')}" if part.strip() else part

    parts = map(piece, _CODE.split(_in_a_line(words)))
    return "".join(f"\\texttt{{{part}}}" if i % 2 else part for i, part in enumerate(parts))


def _in_a_line(words: str) -> str:
    return " ".join(words.split())


def _command(c: str) -> str:
    if c in _COMMANDS or (c.isascii() and c.isprintable()):
        return _COMMANDS.get(c, c)
    if c in _GREEK:
        return f"$\\{_GREEK[c]}$"
    parts = unicodedata.normalize("NFKD", c)
    if parts[1:] in _ACCENTS and parts[0].isascii():
        return f"\\{_ACCENTS[parts[1:]]}{{{_command(parts[0])}}}"
    if not parts.isascii() or not parts.isprintable():
        return c if c.isprintable() else "?"
    plain = "".join(map(_command, parts))
    return f"\\textsuperscript{{{plain}}}" if unicodedata.decomposition(c).startswith("<super>") else plain


def _float(caption: Sequence[str], label: str, grids: Sequence[Grid]) -> Iterator[str]:
    """The environment with everything in it, in lines; several, numbered as one, of what no page holds.

    With a grid that is too wide for a column of two it spans both.
    """
    spans = any(grid.width > COLUMN for grid in grids)
    name = "table*" if spans else "table"
    for i, some in enumerate(paged(grids, sum(map(len, caption)) / (_WIDE if spans else _NARROW) + 1)):
        yield f"\\begin{{{name}}}"
        yield r"  \centering"
        if i:
            yield r"  \addtocounter{table}{-1}"
            yield r"  \caption{(continued)}"
        else:
            yield f"  \\caption{{{' '.join(map(prose, caption))}}}"
            yield f"  \\label{{tab:{re.sub('[^A-Za-z0-9]+', '-', label).strip('-')}}}"
        for j, grid in enumerate(some):
            if j:
                yield r"  \par\medskip"
            yield from (f"  {line}" for line in _tabular(grid))
        yield f"\\end{{{name}}}"


def paged(grids: Sequence[Grid], above: float) -> list[list[Grid]]:
    """Grids of each float; `above`: lines of the first one's caption."""
    found, left, waiting = list[list[Grid]]([[]]), _PAGE - above, list(grids)
    while waiting:
        grid = waiting.pop(0)
        whole, fits = grid.height <= _PAGE - 1, int(left - grid.around)
        if grid.height > left and (fits < _FEWEST or (found[-1] and whole)):
            found, left, waiting = [*found, []], _PAGE - 1, [grid, *waiting]
            continue
        if grid.height > left:
            grid, rest = grid.cut(fits)
            waiting.insert(0, rest)
        found[-1].append(grid)
        left -= grid.height
    return found


def _tabular(of: Grid) -> list[str]:
    inside = [r"\toprule", *of.head, r"\midrule", *of.body, r"\bottomrule"]
    tabular = [f"\\begin{{tabular}}{{{of.columns}}}", *(f"  {line}" for line in inside), r"\end{tabular}%"]
    return [FITTING, *(f"  {line}" for line in tabular), "}"]


def _line(fields: Sequence[str]) -> str:
    return f"{' & '.join(fields)} \\\\"


@lru_cache(maxsize=1 << 14)
def points(words: str) -> float:
    """Width of words in LaTeX's own font at size 10, rather too much than too little."""
    return sum(_POINTS.get(c, 10.0 if unicodedata.east_asian_width(c) in "WF" else 5.3) for c in words)


Heads = Mapping[int, tuple[str, ...]]
"""Heads of columns by number, the outermost first."""


def parts(columns: Sequence[int], heads: Heads, widths: Mapping[int, float], room: float) -> list[list[int]]:
    """Columns that stand beside each other, each part at most `room` wide; a group stays whole if it fits."""
    found = list[list[int]]()
    for piece in _pieces(columns, heads, widths, room, 1):
        if found and sum(widths[i] for i in (*found[-1], *piece)) <= room:
            found[-1] += piece
        else:
            found.append(piece)
    return found


def _pieces(
    columns: Sequence[int], heads: Heads, widths: Mapping[int, float], room: float, depth: int
) -> list[list[int]]:
    """The outermost groups of columns that there is room for."""
    if len(columns) == 1 or sum(widths[i] for i in columns) <= room:
        return [[*columns]]
    names = {i: heads[i][:depth] if depth <= len(heads[i]) else (*heads[i], i) for i in columns}
    groups = [[*group] for _, group in groupby(columns, names.__getitem__)]
    return [piece for group in groups for piece in _pieces(group, heads, widths, room, depth + 1)]


def _grids(table: Table) -> Iterator[Grid]:
    """The table in parts that a page holds, each with all rows; those that the suite does not list behind a rule."""
    for view in views(table):
        rows = (*table.rows, *view.extra)
        judged = {i for i in view.columns if table.compared and any(text.glyph(row.cells[i]) for row in rows)}
        heads: Heads = {i: _heads(table.columns[i], table.blocks) for i in view.columns}
        widths = _widths(table, rows, heads, judged)
        titles = [_wrapped(row.title, _TITLE) for row in rows]
        first = max(map(points, (view.corner, *chain.from_iterable(titles)))) + 2 * _GAP
        for some in parts([*view.columns], heads, widths, PAGE - first):
            above = [*_above([heads[i] for i in some], view.corner)]
            body = [*_body(table, rows, titles, {i: i in judged for i in some})]
            yield Grid("l" + "r" * len(some), above, body, width=first + sum(widths[i] for i in some))


def _widths(table: Table, rows: Sequence[Row], heads: Heads, judged: Collection[int]) -> dict[int, float]:
    """Width of each column in points, with the gap to the next; a head is shared by its columns."""
    sharing = Counter(names[:depth] for names in heads.values() for depth in (1, 2, 3))
    return {
        i: max(
            *(points(name) / sharing[names[: depth + 1]] for depth, name in enumerate(names)),
            *(_BOLD * points(text.cell(row.cells[i], table.decimals)) for row in rows),
        )
        + _GAP
        + _GLYPH * (i in judged)
        for i, names in heads.items()
    }


def _body(table: Table, rows: Sequence[Row], titles: Sequence[list[str]], judged: Mapping[int, bool]) -> Iterator[str]:
    """Lines of the rows. `titles`: of each row in lines; `judged`: if a column has verdicts, for each that is shown."""
    for place, (row, (title, *more)) in enumerate(zip(rows, titles, strict=True)):
        if place == len(table.rows):
            yield r"\midrule"
            yield f"\\multicolumn{{{len(judged) + 1}}}{{l}}{{\\emph{{{text.OUTSIDE}}}}} \\\\"
        yield _line(
            [escaped(title), *(_cell(row.cells[i], table.decimals, judged=glyph) for i, glyph in judged.items())]
        )
        for line in more:
            yield _line([rf"\quad {escaped(line)}", *[""] * len(judged)])


def _wrapped(words: str, most: int) -> list[str]:
    """Lines of so many characters; at least one."""
    return textwrap.wrap(_in_a_line(words), most, break_on_hyphens=False) or [""]


def _heads(head: ColumnHead, blocks: bool) -> tuple[str, ...]:
    """Group (in blocks it is the corner), title and label of a column."""
    return ("" if blocks else head.column.group, head.column.title, head.label)


def _above(heads: Sequence[tuple[str, ...]], corner: str) -> Iterator[str]:
    """The lines above the rows: groups and titles over all columns that share them."""
    levels = [[path[:depth] for path in heads] for depth in (1, 2, 3)]
    levels = [level for level in levels if any(path[-1] for path in level)]
    for depth, level in enumerate(levels):
        if depth == len(levels) - 1:
            yield _line([escaped(corner), *(escaped(path[-1]) for path in level)])
            return
        fields, rules, at = [""], "", 2
        for path, same in groupby(level):
            wide = len(list(same))
            fields.append(f"\\multicolumn{{{wide}}}{{c}}{{{escaped(path[-1])}}}")
            rules += f"\\cmidrule(lr){{{at}-{at + wide - 1}}}" if path[-1] else ""
            at += wide
        yield _line(fields)
        yield rules


def _cell(value: CellValue | None, decimals: int, *, judged: bool) -> str:
    """A cell; in a column with verdicts (`judged`) a place as wide as a glyph follows each number."""
    if value is None or not (value.there or value.told):
        return EMPTY
    shown = _number(text.cell(value, decimals).replace(" †", "†"))
    if value.leads:
        shown = f"\\textit{{{shown}}}"
    shown = f"\\textbf{{{shown}}}" if value.best else shown
    return f"{shown}\\makebox[1em]{{{escaped(text.glyph(value))}}}" if judged else shown


def _number(shown: str) -> str:
    return escaped(_MINUS.sub("−", shown))


def _listed(of: appendix.Appendix) -> list[Grid]:
    """The lines of an appendix; where they are too wide, row and column stand before each part of the fields."""
    if not of.lines:
        return []
    named = [[_wrapped(field, _TITLE) for field in line[:2]] for line in of.lines]

    def width(name: str, fields: Iterable[Sequence[str]]) -> float:
        return max(map(points, (name, *(line for field in fields for line in field)))) + _GAP

    widths = {i: width(of.header[i], (line[i] for line in named)) for i in (0, 1)}
    room = PAGE - sum(widths.values())
    most = max(_TITLE, int((room - _GAP) / points("a")))
    texts = [
        [*keys, *(_wrapped(field, most) for field in line[2:])] for keys, line in zip(named, of.lines, strict=True)
    ]
    others = range(2, len(of.header))
    widths |= {i: width(of.header[i], (line[i] for line in texts)) for i in others}
    return [_list(of, texts, [0, 1, *some], widths) for some in parts(others, dict.fromkeys(others, ()), widths, room)]


def _list(
    of: appendix.Appendix, texts: Sequence[Sequence[Sequence[str]]], columns: Sequence[int], widths: Mapping[int, float]
) -> Grid:
    """These columns of an appendix; a row's title stands in the first of its lines alone."""
    body, titles, before = [], [], ""
    for line in texts:
        title = escaped(" ".join(line[0]))
        for fields in zip_longest(*(line[i] for i in columns), fillvalue=""):
            named = title if title != before else ""
            body.append(_line([named, *(_number(field) if field else "" for field in fields[1:])]))
            titles.append(title)
            before = title
    sides = "".join("l" if of.header[i] in appendix.LEFT else "r" for i in columns)
    head = [_line([escaped(of.header[i]) for i in columns])]
    return Grid(sides, head, body, titles, sum(widths[i] for i in columns))
