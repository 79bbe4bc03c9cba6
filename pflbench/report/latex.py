"""A finished table as a LaTeX `table` in plain ASCII, which pdflatex compiles with the packages that it names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from pflbench.report import appendix, text
from pflbench.report.compact import filled
from pflbench.report.table import CellValue, Row, Table
from pflbench.report.text import View, views
from pflbench.suite.cells import ColumnHead

NEEDS = r"% Needs \usepackage{booktabs,graphicx} in the preamble."
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
_FITTING = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""Shrinks what follows if it is wider than the text."""
_PAGE = 44
"""Lines that a float holds, on a page of LaTeX's own `article`. What is longer goes on in a further float."""
_FEWEST = 5
"""Rows of a table below which it rather begins on the next page."""
_WIDE = 75
"""Characters of a caption in one line there."""
_LIGATURES = "-'`,"
_CODE = re.compile("`([^`]+)`")
_MINUS = re.compile(r"(?<![^ (])-(?=\d)")


def latex(table: Table, compare: bool, caption: str | None = None, bare: bool = False) -> str:
    """The rows and columns with results as text that ends with a newline; all notes are comments.

    Args:
        table: What to show.
        compare: Whether a second table follows, our numbers and the paper's.
        caption: Instead of the title and the seeds.
        bare: Leave out what is around the tabular, and what follows it.
    """
    table = filled(table) if any(table.shown) else table
    unit = f" {table.unit}." if table.unit else ""
    seeds, meanings = table.texts("seeds"), text.glyph_meanings(table)
    above = [f"{table.title}.{unit}", *seeds, *meanings] if caption is None else [caption]
    grids = [_grid(table, view) for view in views(table)]
    notes = _comments(n for n in table.footer if bare or caption is not None or n not in seeds)
    notes += [f"% {escaped(line)}" for line in (meanings if bare or caption is not None else ())]
    if bare:
        return "\n".join([NEEDS, *notes, *(line for grid in grids for line in _tabular(grid))]) + "\n"
    lines = [NEEDS, *notes, *_float(above, _label(table), grids)]
    for one in appendix.appendices(table, compare):
        lines += latex_appendix(table, one)
    return "\n".join(lines) + "\n"


def latex_appendix(table: Table, of: appendix.Appendix) -> list[str]:
    """Lines of an appendix: an empty one, its notes as comments, and a table of its own."""
    title = of.title[0].lower() + of.title[1:]
    listed = [_listed(of)] if of.lines else []
    return ["", *_comments(of.notes), *_float([f"{table.title}: {title}."], f"{_label(table)}-{of.label}", listed)]


def _comments(notes: Iterable[str]) -> list[str]:
    return [f"% {text.fitting(_in_a_line(line), 'ascii')}" for line in notes]


class Grid(NamedTuple):
    """A tabular: the letters of its columns, the lines of its head and of its body.

    `titles`: of each line of the body the row's title, where lines of one row follow the one that has it.
    """

    columns: str
    head: Sequence[str]
    body: Sequence[str]
    titles: Sequence[str] = ()

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
    """Source in one line of ASCII that prints the words; a character that LaTeX has no command for becomes a `?`."""
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
        return "?"
    plain = "".join(map(_command, parts))
    return f"\\textsuperscript{{{plain}}}" if unicodedata.decomposition(c).startswith("<super>") else plain


def _float(caption: Sequence[str], label: str, grids: Sequence[Grid]) -> Iterator[str]:
    """The environment with everything in it, in lines; several, numbered as one, of what no page holds."""
    for i, some in enumerate(paged(grids, sum(map(len, caption)) / _WIDE + 1)):
        yield r"\begin{table}"
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
        yield r"\end{table}"


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
    return [_FITTING, *(f"  {line}" for line in tabular), "}"]


def _line(fields: Sequence[str]) -> str:
    return f"{' & '.join(fields)} \\\\"


def _grid(table: Table, view: View) -> Grid:
    """The columns of a view with all rows, those that the suite does not name behind a rule."""
    heads = [table.columns[index] for index in view.columns]

    rows = (*table.rows, *view.extra)
    judged = {i for i in view.columns if table.compared and any(text.glyph(row.cells[i]) for row in rows)}

    def row_line(row: Row) -> str:
        cells = (_cell(row.cells[i], table.decimals, judged=i in judged) for i in view.columns)
        return _line([escaped(row.title), *cells])

    body = [row_line(row) for row in table.rows]
    if view.extra:
        outside = f"\\multicolumn{{{len(heads) + 1}}}{{l}}{{\\emph{{{text.OUTSIDE}}}}} \\\\"
        body += [r"\midrule", outside, *map(row_line, view.extra)]
    return Grid("l" + "r" * len(heads), list(_above(heads, view.corner, table.blocks)), body)


def _above(heads: Sequence[ColumnHead], corner: str, blocks: bool) -> Iterator[str]:
    """The lines above the rows: groups (in blocks they are the corner) and titles over all columns that share them."""
    paths = [("" if blocks else head.column.group, head.column.title, head.label) for head in heads]
    levels = [[path[:depth] for path in paths] for depth in (1, 2, 3)]
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


def _listed(of: appendix.Appendix) -> Grid:
    sides = "".join("l" if name in appendix.LEFT else "r" for name in of.header)
    titles = [escaped(line[0]) for line in of.lines]
    again = [title if title != before else "" for title, before in zip(titles, ["", *titles], strict=False)]
    body = [_line([title, *map(_number, line[1:])]) for title, line in zip(again, of.lines, strict=True)]
    return Grid(sides, [_line([escaped(name) for name in of.header])], body, titles)
