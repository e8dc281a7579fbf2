"""What a condition does with its operands; the steps that compute it are made from this."""

from typing import Final, NamedTuple, TypeAlias


class All(NamedTuple):
    """All operands are true."""


class AnyOf(NamedTuple):
    """An operand is true."""


class Negated(NamedTuple):
    """The operand is false."""


class AlwaysNull(NamedTuple):
    """Null, once the operand has been computed without an error."""


class BareProperty(NamedTuple):
    """A property where a condition is wanted: never true."""


class IsNull(NamedTuple):
    """The operand has no value; or that it has one."""

    is_negated: bool


class Compared(NamedTuple):
    """The first operand compared with the second; `operator` is the name of the operator's token."""

    operator: str


class OneOf(NamedTuple):
    """The operand, a property, is one of several texts; unknown where it is missing."""

    texts: tuple[str, ...]
    is_negated: bool


class Searched(NamedTuple):
    """The operand contains a text, or starts or ends with it; false where it is no text, negated or not."""

    keyword: str
    text: str
    is_negated: bool


Form: TypeAlias = All | AnyOf | Negated | AlwaysNull | BareProperty | IsNull | Compared | OneOf | Searched

ALL: Final = All()
EITHER: Final = AnyOf()
NEGATED: Final = Negated()
NOTHING: Final = AlwaysNull()
TRUTH: Final = BareProperty()
