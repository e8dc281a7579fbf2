"""Parts that are cut off because they stand on too many others."""

import pytest

from protocol.errors import FilterEvaluationError
from storage.filter.sql92.node import HIGHEST, Kind, Node, Properties, Type, condition, evaluator, property_node


def fails(properties: Properties) -> bool:
    if properties.get("a") == "x":
        raise FilterEvaluationError("x")
    return True


def tower(height: int) -> Node:
    """Conditions on each other; each is the opposite of what it stands on, the lowest true, or raising for x."""
    node = condition(fails, (0, 1), property_node("a", (0, 1)))
    for _ in range(height - 1):
        read = node.read
        node = condition(lambda properties, read=read: not read(properties), (0, 1), node)  # type: ignore[misc]
    return node


def test_low_parts_are_called_as_they_are() -> None:
    node = tower(HIGHEST)
    assert (node.height, node.cut) == (HIGHEST, ())
    assert evaluator(node) is node.read


@pytest.mark.parametrize("height", [HIGHEST + 1, HIGHEST + 2, 3 * HIGHEST, 5001])
def test_what_is_cut_off_gives_the_same_outcome(height: int) -> None:
    node = tower(height)
    assert node.height < HIGHEST
    assert len(node.cut) == height // (HIGHEST + 1)
    assert evaluator(node)({"a": "1"}) is (height % 2 == 1)
    with pytest.raises(FilterEvaluationError):
        evaluator(node)({"a": "x"})


def test_a_part_drawn_wider_is_otherwise_the_same() -> None:
    node = property_node("a", (1, 2)).spanning(0, 3)
    assert (node.kind, node.type, node.constant, node.span) == (Kind.PROPERTY, Type.TEXT, "a", (0, 3))
    assert node.read({"a": "x"}) == "x"
