"""Tags of which a message must have one, as far as criteria tell: by the tag, or by a SQL92 expression over TAGS."""

from typing import Final

from storage.filter.sql92 import parse
from storage.filter.sql92.form import All, Compared, OneOf
from storage.filter.sql92.node import PartKind, Type
from storage.search.criteria import Criteria

TAGS: Final = "TAGS"


def required_tags(criteria: Criteria) -> tuple[str, ...] | None:
    """One of them each message has that matches; None where it may have any tag, or none.

    An expression tells by `TAGS = 'a'` or `TAGS IN ('a', 'b')`, alone or joined with others by AND. Raises
    FilterSyntaxError.
    """
    if criteria.tag is not None:
        return (criteria.tag,)
    waiting = [] if criteria.where is None else [parse(criteria.where).root]
    while waiting:  # they may be nested deeper than calls may be
        node = waiting.pop()
        form = node.form
        if isinstance(form, All):
            waiting += node.operands
        elif node.operands and node.operands[0].kind is PartKind.PROPERTY and node.operands[0].constant == TAGS:
            other = node.operands[-1]
            if form == Compared("EQUAL") and other.kind is PartKind.CONSTANT and other.type is Type.TEXT:
                return (other.constant,)
            if isinstance(form, OneOf) and not form.is_negated:
                return form.texts
    return None
