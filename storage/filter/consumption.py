"""Whether a consumer gets a message, and why: what the broker judges of its record, and then the client of the message.

A broker judges a record as it is stored: by the hash of its tag, or by an expression over its properties. A batch is
one record, whose own tag and properties count, and its client takes it apart. By tags a client compares each message
once more, by the text; by an expression it keeps all that it is sent. Source: filters §1.1–§1.4, §3.3.
"""

from protocol.errors import ConfigError
from protocol.java_hash import java_hash
from protocol.message import Message
from protocol.properties import TAGS, parse_properties
from storage.filter.explanation import explain_expression, explain_tag, is_tagged_so
from storage.filter.sql92 import Expression, parse
from storage.filter.tag import TagExpression, parse_tag_expression


class SubscriptionCheck:
    """Decides for a subscription, one to tags or one of SQL92."""

    def __init__(self, tag: str | None, where: str | None) -> None:
        """Raise FilterSyntaxError for a subscription that is wrong, and ConfigError for none or two."""
        if (tag is None) == (where is None):
            raise ConfigError("expected a subscription: tags, or a SQL92 expression")
        self._tags = None if tag is None else parse_tag_expression(tag)
        self._expression = None if where is None else parse(where)

    def verdict(self, message: Message) -> tuple[bool, str]:
        """Whether a consumer gets a message, and why."""
        if self._tags is not None:
            return _by_tags(self._tags, message)
        assert self._expression is not None
        return _by_expression(self._expression, message)


def _by_tags(tags: TagExpression, message: Message) -> tuple[bool, str]:
    if message.record_properties is not None and not tags.matches_everything:
        tag = parse_properties(message.record_properties).get(TAGS)
        if (java_hash(tag) if tag else 0) not in tags.codes:
            return False, f"its batch is not sent, for of the record of it: {explain_tag(tags, tag)}"
    return is_tagged_so(tags, message.tags), explain_tag(tags, message.tags)


def _by_expression(expression: Expression, message: Message) -> tuple[bool, str]:
    block = message.record_properties
    if block is None:
        return expression.delivers(message.properties_bytes), explain_expression(expression, message.properties)
    reason = explain_expression(expression, parse_properties(block))
    return expression.delivers(block), f"of the record of its batch: {reason}"
