"""What a condition does, said in words instead of a closure, for the kernel that decides messages by the thousand.

Only forms that the kernel knows have one; what it cannot compute in all cases, nobody need describe.
"""

from typing import Any, Final, NamedTuple, TypeAlias


class All(NamedTuple):
    """All operands are true."""


class Either(NamedTuple):
    """An operand is true."""


class Negated(NamedTuple):
    """The operand is false."""


class Missing(NamedTuple):
    """The operand, a property or a condition, has no value; or that it has one."""

    is_negated: bool


class Truth(NamedTuple):
    """A property where a condition is wanted: never true."""


class Compared(NamedTuple):
    """A property stands in a relation to a number of `number_type`; `absent` is the outcome where it is missing.

    `operator` is the name of its token.
    """

    name: str
    operator: str
    number_type: Any
    number: int | float
    absent: bool | None


class Equal(NamedTuple):
    """A property is a text; unknown where it is missing."""

    name: str
    text: str
    is_negated: bool


class OneOf(NamedTuple):
    """A property is one of several texts; unknown where it is missing."""

    name: str
    texts: tuple[str, ...]
    is_negated: bool


class Searched(NamedTuple):
    """A property contains a text, or starts or ends with it; false where it is missing, negated or not."""

    name: str
    keyword: str
    text: str
    is_negated: bool


Form: TypeAlias = All | Either | Negated | Missing | Truth | Compared | Equal | OneOf | Searched

ALL: Final = All()
EITHER: Final = Either()
NEGATED: Final = Negated()
TRUTH: Final = Truth()
