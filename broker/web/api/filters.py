"""A consumer's filter as a question names it: a tag subscription or a SQL92 expression."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from msgspec import Meta

from broker.web.api.errors import bad_parameter
from protocol.errors import ConfigError, FilterSyntaxError
from protocol.mask import Mask
from protocol.message import Message
from storage.filter.base import MessageFilter
from storage.filter.explanation import is_tagged_so
from storage.filter.expression import ExpressionFilter
from storage.filter.hidden import refuse_hidden
from storage.filter.sql92 import parse
from storage.filter.tag import TagFilter, parse_tag_expression

Tag: TypeAlias = Annotated[
    str, Meta(max_length=4096, description="A tag subscription: TagA || TagB, or * for all messages.")
]
Sql: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=16384, description="A SQL92 subscription: a > 5 AND region = 'hz'.")
]


@dataclass(frozen=True, slots=True)
class Choice:
    """A consumer's filter: its two stages as a broker applies them, and the client's own check of a message.

    `note` says what of the expression is not read.
    """

    stages: MessageFilter
    delivers: Callable[[Message], bool]
    note: str | None = None


def choice_of(tag: str | None, sql: str | None, mask: Mask) -> Choice | None:
    """Return the filter of a question, None if it has no filter.

    Raises `ApiError` for an expression that is wrong, for one over masked properties, and for two filters at once.
    """
    if tag is not None and sql is not None:
        raise bad_parameter("sql", "a consumer has a tag subscription or a SQL92 one: tag and sql exclude each other")
    try:
        refuse_hidden(mask, tag, sql)
        if tag is not None:
            return _by_tag(tag)
        return None if sql is None else _by_expression(sql)
    except (ConfigError, FilterSyntaxError) as error:
        raise bad_parameter("sql" if tag is None else "tag", str(error)) from None


def _by_tag(text: str) -> Choice:
    expression = parse_tag_expression(text)
    return Choice(TagFilter(expression), lambda message: is_tagged_so(expression, message.tags))


def _by_expression(text: str) -> Choice:
    expression = parse(text)
    stages = ExpressionFilter(expression)

    def delivers(message: Message) -> bool:
        of_record = message.record_properties
        return stages.matches_commit_log(message.properties_bytes if of_record is None else of_record)

    return Choice(stages, delivers, expression.note or None)
