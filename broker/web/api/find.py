"""The page's box: everything that a text may name (:mod:`storage.search.find`), or part of a topic's name.

Offsets and ids are looked up for the first answer only; its cursor goes on with keys and tags.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from broker.web.api.bodies import Charset, checked_charset
from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.endpoint import Cursor, Limit, Milliseconds, Time, TimedParameters, Topic
from broker.web.api.errors import ApiError, bad_parameter
from broker.web.api.message_lines import MessageLine, line_of
from broker.web.api.request_context import RequestContext
from protocol.errors import ConfigError
from protocol.find_place import FindPlace
from protocol.message import Message
from protocol.question import LARGEST, PARTS, Question, Reading
from storage.life.named_messages import with_shared_notes
from storage.life.transactions import outcomes
from storage.names import names_holding
from storage.search.find import Finder

MOST_TOPICS: Final = 20
"""Topics whose names contain the text that are listed."""

LONGEST: Final = 4096


class FindQuestion(TimedParameters):
    """What to find, in one topic or in all; stored between two times, which unique keys do not mind.

    The parameters of the URL, with what OpenAPI says of them; :meth:`question` makes of them what every surface asks.
    """

    text: Annotated[
        str, Meta(min_length=1, max_length=LONGEST, description="Any id, physical offset, key, unique key or tag.")
    ]
    topic: Topic | None = None
    begin: Time = 0
    end: Time = LARGEST
    limit: Limit = 50
    milliseconds: Milliseconds = 1000
    cursor: Cursor | None = None
    charset: Charset | None = None

    def question(self) -> Question:
        """Make the question that commands and Python ask too. Raises `ApiError` for a text of blanks."""
        try:
            return Question.of_text(self.text, self.topic, self.begin, self.end, self.limit)
        except ConfigError as error:
            raise bad_parameter("text", str(error)) from None


class FindAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """Messages, the kinds that were tried, and topics whose names contain the text; `topics_left_out` counts the rest.

    `similar_topics` may be meant instead of a topic that the store does not have, or of a text that names nothing.
    It is the JSON of a page of an `Answer`, as messages are shown on the page and with how many topics were searched.
    `cursor` is there when not all was looked at: because of the limit, or of the time. `incomplete` says what may be
    missing even so.
    """

    messages: list[MessageLine]
    tried: list[Reading]
    topics: list[str]
    topics_left_out: int
    similar_topics: list[str]
    topics_searched: int
    topics_to_search: int
    incomplete: str | None
    cursor: str | None


def find(context: RequestContext, question: FindQuestion) -> FindAnswer:
    """Find the messages that any id, key or tag names, and say what it was taken for."""
    charset = checked_charset(question.charset)
    context.allow(question.milliseconds)
    if question.topic is not None:
        context.require_right(question.topic)
    names = context.topics() if question.topic is None else [question.topic]
    asked = question.question()
    text = asked.text
    finder = Finder(
        context.store,
        asked,
        names,
        is_time_up=lambda: context.is_time_up,
        refusal=lambda message: refusal_to(context, message),
        mask=context.mask,
    )
    finder.go_on(None if question.cursor is None else decode_cursor(question.cursor, FindPlace))
    named = names_holding(names, text) if question.cursor is None else []
    is_vain = question.cursor is None and not (named or finder.found)
    ends = outcomes(context.store, (message for message, _, _ in finder.found))
    return FindAnswer(
        messages=[
            line_of(*found, charset=charset, outcome=ends.get(found.message.physical_offset)) for found in finder.found
        ],
        tried=with_shared_notes(finder.readings, finder.found, text),
        topics=named[:MOST_TOPICS],
        topics_left_out=max(len(named) - MOST_TOPICS, 0),
        similar_topics=context.similar_topics(question.topic or text) if is_vain else [],
        topics_searched=finder.searched,
        topics_to_search=len(names) * len(PARTS),
        incomplete=finder.incomplete if finder.found else _incomplete(context, finder, names),
        cursor=None if finder.place is None else encode_cursor(finder.place),
    )


def _incomplete(context: RequestContext, finder: Finder, names: Sequence[str]) -> str | None:
    """Say what an answer that found nothing may lack, such as topics in parts of the store that are not read."""
    return "; ".join(filter(None, (finder.incomplete, *context.store.config.notes_of_topics(names)))) or None


def refusal_to(context: RequestContext, message: Message) -> str | None:
    """Say why a message may not be shown; None if it may."""
    try:
        context.require_message(message)
    except ApiError as error:
        return str(error)
    return None
