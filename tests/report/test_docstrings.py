"""A method's departures are read from its docstring, whatever form they have there."""

import re

import pytest

from pflbench.names import BUILT_IN, locate, source_file
from pflbench.report.methods import departures_in, docstring_of, of_method


@pytest.mark.parametrize("method", sorted(BUILT_IN["methods"]))
def test_every_numbered_departure_of_a_built_in_method_is_found(method: str) -> None:
    said = of_method(method)
    assert said is not None and said.head.endswith((".", ":"))
    text = source_file(locate("methods", method)).read_text()
    assert ("\nDeparture" in text) == bool(said.departures)
    for group in said.departures:
        numbers = [item.partition(". ")[0] for item in group.items if item[0].isdigit()]
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
        assert not any("Special cases" in item or re.search(r"[.)] \d+\. ", item) for item in group.items)


def test_the_forms_there_are() -> None:
    doc = """A method (Somebody 2020).

Departures, all as in the code:
1. The first,
   which goes on.
2. The second.
The mean is plain.
Departure from the code: only one,
on two lines.
Special cases: none.
1. This is no departure.
"""
    assert departures_in(doc) == [
        ("all as in the code", ("1. The first, which goes on.", "2. The second.")),
        ("from the code", ("only one, on two lines.",)),
    ]


def test_a_users_source() -> None:
    text = 'class Foo:\n    """Mine.\n\n    Departures: it is mine.\n    """\n'
    assert docstring_of(text, "Foo") == ("Mine.", (("", ("it is mine.",)),))
    assert docstring_of("no python at all", "Foo") is None
    assert of_method("nowhere.py:Foo") is None
