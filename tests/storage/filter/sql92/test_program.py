"""The steps that expressions become, as people read them."""

import pytest

from storage.filter.sql92 import parse

ALL_OF_TWO = """\
0 CONSTANT TRUE
1 COMPARE amount < 40
2 JOIN_ALL ^ ^, to 5 once decided
3 COMPARE region = 'r1'
4 JOIN_ALL ^ ^, to 5 once decided"""

ANY_OF_TWO = """\
0 CONSTANT FALSE
1 LOOK_UP a IN ('y', 'xx')
2 JOIN_ANY ^ ^, to 7 once decided
3 TRUTH b
4 ASK_UNKNOWN ^
5 NEGATE ^
6 JOIN_ANY ^ ^, to 7 once decided"""


@pytest.mark.parametrize(
    ("text", "listing"),
    [
        ("amount < 40 AND region = 'r1'", ALL_OF_TWO),
        ("a IN ('xx', 'y') OR NOT (b IS NULL)", ANY_OF_TWO),
        ("a NOT CONTAINS 'x'", "0 SEARCH a NOT CONTAINS 'x'"),
        ("a ENDSWITH 'x'", "0 SEARCH a ENDSWITH 'x'"),
        ("a <> 5000000000", "0 COMPARE a <> 5000000000L"),
        ("a >= 5.5", "0 COMPARE a >= 5.5"),
        ("(a = 'x') = TRUE", "0 COMPARE a = 'x'\n1 CONSTANT TRUE\n2 COMPARE ^ = ^"),
    ],
)
def test_the_steps_of_an_expression_can_be_read(text: str, listing: str) -> None:
    assert "\n".join(parse(text).program.listing()) == listing
