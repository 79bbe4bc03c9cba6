"""A finished table as a LaTeX `table` in plain ASCII, which pdflatex compiles with the packages that it names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from pflbench.report import appendix, text
from pflbench.report.footer import NO_PAPER
from pflbench.report.table import CellValue, Row, Table
from pflbench.report.text import View, views
from pflbench.suite.cells import ColumnHead

NEEDS = r"% Needs \usepackage{booktabs,graphicx} in the preamble."
CAPTION = ("Counted:", NO_PAPER, "Paper:", "Seeds:", "Selection:")
"""How those lines of the footer begin that stand in the caption: the protocol, what is selected, and the seeds."""
SOURCE = ("Commit:", "Data:", "Missing", "Not shown:", "Runs of the suite:")
"""How those begin that tell which stored runs were read. No paper prints them, so they are comments."""

_COMMANDS = {
    **{character: f"\\{character}" for character in "#$%&_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", '"': "''"},
    **{"<": "$<$", ">": "$>$", "|": "$|$"},  # TeX's first text encoding has other characters in their places
    **{"–": "--", "—": "---", "…": r"\dots{}", "†": r"\textsuperscript{\dag}", "’": "'", "“": "``", "”": "''"},
    **{"±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "√": r"$\surd$", "→": r"$\to$"},
    **{"≤": r"$\leq$", "≥": r"$\geq$"},
    **{"−": "$-$", "°": r"$^\circ$", "ß": r"\ss{}", "ø": r"\o{}", "ł": r"\l{}"},
}
_MARKS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327"
_ACCENTS = dict(zip(_MARKS, "`'^~=u.\"rHvc", strict=True))
"""What LaTeX calls the accents that Unicode combines letters with."""
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
_BELOW = 1500
"""So many characters of notes stand in the float, below the table; more of them follow it, which no float can hold."""
_LIGATURES = "-'`,"


def latex(table: Table, compare: bool) -> str:
    """The table as text that ends with a newline; `compare`: followed by a second one, our numbers and the paper's."""
    unit = " Accuracy in %." if any(line.startswith("Selection:") for line in table.footer) else ""
    caption = [
        f"{table.title}.{unit}",
        *(line.removeprefix(f"{NO_PAPER} ") for line in table.footer if line.startswith(CAPTION)),
    ]
    notes = [line for line in table.footer if not line.startswith(CAPTION + SOURCE)]
    source = [f"% {text.fitting(_in_a_line(line), 'ascii')}" for line in table.footer if line.startswith(SOURCE)]
    grids = [_grid(table, view) for view in views(table)]
    lines = [NEEDS, *source, *_float(caption, _label(table), grids, notes)]
    for one in appendix.appendices(table, compare):
        lines += latex_appendix(table, one)
    return "\n".join(lines) + "\n"


def latex_appendix(table: Table, of: appendix.Appendix) -> list[str]:
    """What follows a table, in lines: an empty one, and a table of its own."""
    title = of.title[0].lower() + of.title[1:]
    listed = [_listed(of)] if of.lines else []
    return ["", *_float([f"{table.title}: {title}."], f"{_label(table)}-{of.label}", listed, of.notes)]


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


def _float(caption: Sequence[str], label: str, grids: Sequence[Sequence[str]], notes: Sequence[str]) -> Iterator[str]:
    """The environment with everything in it, in lines."""
    yield r"\begin{table}"
    yield r"  \centering"
    yield f"  \\caption{{{' '.join(map(escaped, caption))}}}"
    yield f"  \\label{{tab:{re.sub('[^A-Za-z0-9]+', '-', label).strip('-')}}}"
    for i, grid in enumerate(grids):
        if i:
            yield r"  \par\medskip"
        yield from (f"  {line}" for line in grid)
    short = sum(map(len, notes)) <= _BELOW
    if notes and short:
        yield r"  \par\smallskip"
        yield r"  \begin{minipage}{\linewidth}\footnotesize"
        yield from (f"    {escaped(note)}\\par" for note in notes)
        yield r"  \end{minipage}"
    yield r"\end{table}"
    if not short:  # text, which may go on on the next page, as a float cannot
        yield r"{\footnotesize\sloppy\noindent"
        yield from (f"  {escaped(note)}\\par" for note in notes)
        yield "}"


def _tabular(columns: str, head: Sequence[str], body: Sequence[str]) -> list[str]:
    inside = [r"\toprule", *head, r"\midrule", *body, r"\bottomrule"]
    tabular = [f"\\begin{{tabular}}{{{columns}}}", *(f"  {line}" for line in inside), r"\end{tabular}%"]
    return [_FITTING, *(f"  {line}" for line in tabular), "}"]


def _line(fields: Sequence[str]) -> str:
    return f"{' & '.join(fields)} \\\\"


def _grid(table: Table, view: View) -> list[str]:
    """The columns of a view with all rows, those that the suite does not name behind a rule."""
    heads = [table.columns[index] for index in view.columns]

    def row_line(row: Row) -> str:
        return _line([escaped(row.title), *(_cell(row.cells[index], table.decimals) for index in view.columns)])

    body = [row_line(row) for row in table.rows]
    if view.extra:
        outside = f"\\multicolumn{{{len(heads) + 1}}}{{l}}{{\\emph{{{text.OUTSIDE}}}}} \\\\"
        body += [r"\midrule", outside, *map(row_line, view.extra)]
    return _tabular("l" + "r" * len(heads), list(_above(heads, view.corner, table.blocks)), body)


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


def _cell(value: CellValue | None, decimals: int) -> str:
    shown = _number(text.cell(value, decimals).replace(" †", "†"))
    return f"\\textbf{{{shown}}}" if value and value.best else shown


def _number(shown: str) -> str:
    return escaped(re.sub(r"^-(?=\d)", "−", shown))


def _listed(of: appendix.Appendix) -> list[str]:
    sides = "".join("l" if name in appendix.LEFT else "r" for name in of.header)
    body = []
    for row, same in groupby(of.lines, key=lambda line: line[0]):
        found = [_line(["", *map(_number, line[1:])]) for line in same]
        body += [escaped(row) + found[0], *found[1:]]
    return _tabular(sides, [_line([escaped(name) for name in of.header])], body)
