"""Whether a consumer gets a message, and why: what the broker judges of its record, and then the client of the message.

A broker judges a record as it is stored: by the hash of its tag, or by an expression over its properties. A batch is
one record, whose own tag and properties count, and its client takes it apart. By tags a client compares each message
once more, by the text; by an expression it keeps all that it is sent. Source: filters §1.1–§1.4, §3.3.
"""

from collections.abc import Callable

from protocol.errors import ConfigError
from protocol.java_hash import java_hash
from protocol.message import Message
from storage.filter.explanation import explain_expression, explain_tag, is_tagged_so
from storage.filter.sql92 import Expression, parse
from storage.filter.tag import TagExpression, parse_tag_expression


class Judge:
    """Decides for a subscription, one to tags or one of SQL92."""

    def __init__(self, tag: str | None, where: str | None, record_of: Callable[[Message], Message | None]) -> None:
        """`record_of` gives the record of a message in a batch, None where it is gone.

        Raises FilterSyntaxError for a subscription that is wrong, and ConfigError for none or two.
        """
        if (tag is None) == (where is None):
            raise ConfigError("expected a subscription: tags, or a SQL92 expression")
        self._tags = None if tag is None else parse_tag_expression(tag)
        self._expression = None if where is None else parse(where)
        self._record_of = record_of
        self._batch: tuple[int, Message | None] | None = None

    def verdict(self, message: Message) -> tuple[bool, str]:
        """Whether a consumer gets a message, and why."""
        record = self._record(message) if message.is_inner else message
        if self._tags is not None:
            return _by_tags(self._tags, message, record)
        assert self._expression is not None
        return _by_expression(self._expression, message, record)

    def _record(self, message: Message) -> Message:
        """The record of the batch that a message is in; the message where that is gone."""
        place = message.physical_offset
        if self._batch is None or self._batch[0] != place:
            self._batch = place, self._record_of(message)
        return self._batch[1] or message


def _by_tags(tags: TagExpression, message: Message, record: Message) -> tuple[bool, str]:
    code = java_hash(record.tags) if record.tags else 0
    if record is not message and not tags.matches_everything and code not in tags.codes:
        return False, f"its batch is not sent, for of the record of it: {explain_tag(tags, record.tags)}"
    return is_tagged_so(tags, message.tags), explain_tag(tags, message.tags)


def _by_expression(expression: Expression, message: Message, record: Message) -> tuple[bool, str]:
    reason = explain_expression(expression, record.properties)
    of_batch = "" if record is message else "of the record of its batch: "
    return expression.delivers(record.properties_bytes), f"{of_batch}{reason}"
