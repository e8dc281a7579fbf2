"""Search messages by content, in pages that take a second or two and go on by cursor.

Each answer says how much of the log was searched. Regular expressions and JSONPaths that a client writes are compiled
and run in a process that can be killed (:mod:`storage.patterns`): when the time is over, or nobody waits any more, it
is. A message with which they do not come to an end is left out, and said to be.
"""

import os
from dataclasses import replace
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from broker.web.api.bodies import Charset, checked_charset
from broker.web.api.endpoint import Cursor, Limit, Time, TimedParameters, Topic
from broker.web.api.errors import bad_parameter
from broker.web.api.filters import Sql
from broker.web.api.match import matches_in
from broker.web.api.message_lines import MessageLine, line_of
from broker.web.api.request_context import RequestContext
from protocol.errors import ConfigError, FilterSyntaxError
from protocol.message import Message
from protocol.question import LARGEST
from storage.search.criteria import Criteria, SearchPlace
from storage.search.engine import search
from storage.search.step import Step

LEAST_MILLISECONDS: Final = 200
"""The least time of searching for one answer, so that each answer comes further than the one before."""

Text = Annotated[str, Meta(min_length=1, max_length=4096)]
Milliseconds = Annotated[int, Meta(ge=1, le=8000, description="Approximate time of the search for this answer.")]
Size = Annotated[int, Meta(ge=0, le=2**31 - 1, description="Bytes of the decompressed body.")]


class SearchQuestion(TimedParameters):
    """The conditions of a search, all of which must hold: a text, a regular expression, JSONPath=value, SQL92, keys, …

    `place` is where text and regular expression are looked for: in the body, in property values, or in both. `topic` is
    the one a message is stored under. `exhaustive` reads the whole log, trusting neither queues nor clocks.
    """

    topic: Topic | None = None
    begin: Time = 0
    end: Time = LARGEST
    contains: Annotated[Text, Meta(description="A text that the message holds, as it is.")] | None = None
    regex: Annotated[Text, Meta(description="A regular expression of Python's that matches anywhere.")] | None = None
    place: Annotated[
        Literal["body", "properties", "any"],
        Meta(description="Where text and regular expression are looked for: body, values of properties, or both."),
    ] = "body"
    json_path: Annotated[Text, Meta(description="A JSONPath, or JSONPath=value, in bodies of JSON.")] | None = None
    where: Sql | None = None
    tag: Annotated[Text, Meta(description="A tag subscription: TagA || TagB.")] | None = None
    key: Annotated[Text, Meta(description="One of its keys, or its unique key.")] | None = None
    key_prefix: Annotated[Text, Meta(description="How one of its keys, or its unique key, begins.")] | None = None
    born_host: (
        Annotated[
            str,
            Meta(min_length=1, max_length=100, description="Address or network of its sender: 10.1.2.3, 10.1.0.0/16."),
        ]
        | None
    ) = None
    minimum_size: Size = 0
    maximum_size: Size | None = None
    charset: Charset | None = None
    exhaustive: Annotated[bool, Meta(description="Read the whole log, trusting neither queues nor clocks.")] = False
    limit: Limit = 50
    milliseconds: Milliseconds = 1500
    cursor: Cursor | None = None

    def criteria(self) -> Criteria:
        """The question's conditions as the search engine takes them."""
        return Criteria(
            topic=self.topic,
            begin_timestamp=self.begin,
            end_timestamp=self.end,
            contains=None if self.contains is None else self.contains.encode("utf-8", "surrogatepass"),
            place=SearchPlace(self.place),
            regex=self.regex,
            json_path=self.json_path,
            where=self.where,
            tag=self.tag,
            key=self.key,
            key_prefix=self.key_prefix,
            born_host=self.born_host,
            minimum_size=self.minimum_size,
            maximum_size=self.maximum_size,
            charset=checked_charset(self.charset),
        )


class SearchAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """Messages ascending by physical offset, each with its `match`: the text before it, itself, and that behind it.

    `searched_bytes` of `total_bytes` of log are done, with those before.

    `sentence` says it all for people, `notes` what was searched how, what could not be, and that messages may have been
    left out that this account may not read. A cursor is there while there is more to search; it belongs to the times
    `begin` and `end` in ms, which may have been given as times from now; `end` is null where none was given.
    """

    messages: list[MessageLine]
    begin: int
    end: int | None
    searched_bytes: int
    total_bytes: int
    rate: float
    sentence: str
    notes: list[str]
    cursor: str | None


def search_content(context: RequestContext, question: SearchQuestion) -> SearchAnswer:
    """Messages by what they say: a text, a regular expression, JSONPath, SQL92, the start of a key, a host, a size."""
    if question.topic is not None:
        context.require_topic(question.topic)
    elif not context.is_admin:
        raise bad_parameter("topic", "only administrators may search without a topic")
    if question.maximum_size is not None and question.maximum_size < question.minimum_size:
        raise bad_parameter("maximumSize", f"the largest size, {question.maximum_size}, is below the smallest")
    try:
        return _search(context, question)
    except FilterSyntaxError as error:
        raise bad_parameter("tag" if error.source == question.tag else "where", str(error)) from None
    except ConfigError as error:
        raise bad_parameter(_blamed(question, str(error)), str(error)) from None


def _criteria(context: RequestContext, question: SearchQuestion) -> Criteria:
    return replace(question.criteria(), masked=context.mask.rules)


def _blamed(question: SearchQuestion, text: str) -> str:
    """Find the parameter that an error is about."""
    for name, words in (("cursor", "cursor"), ("regex", "regular"), ("jsonPath", "JSON"), ("bornHost", "no address")):
        if words in text:
            return name
    return "regex" if question.regex is not None else ""


def _search(context: RequestContext, question: SearchQuestion) -> SearchAnswer:
    steps = search(
        context.store,
        _criteria(context, question),
        limit=question.limit,
        cursor=question.cursor,
        should_stop=lambda: context.gone.is_set() or context.is_time_up,
        # Half of the cores stay with the clients of the other port.
        threads=max((os.cpu_count() or 2) // 2, 1),
        exhaustive=question.exhaustive,
        is_abandoned=context.gone.is_set,
    )
    context.allow(max(question.milliseconds, LEAST_MILLISECONDS))
    found: list[Message] = []
    for step in steps:
        found += step.messages
    context.check()
    return _answer(context, found, step, question)


def _answer(context: RequestContext, found: list[Message], last: Step, question: SearchQuestion) -> SearchAnswer:
    progress, notes, encoding = last.progress, last.notes, checked_charset(question.charset)
    seen = [message for message in found if context.may_read_message(message)]
    if context.account is not None and not context.account.is_unbounded:
        # Said in any case: a count would reveal what is in messages that may not be read.
        notes = (*notes, "messages that this account may not read are left out")
    shown = [context.mask.message(message) for message in seen]
    place = SearchPlace(question.place)
    matches = matches_in(shown, question.contains, question.regex, place, encoding, context.gone.is_set)
    lines = [line_of(message, charset=encoding) for message in shown]
    for line, match in zip(lines, matches, strict=True):
        line.match = match
    return SearchAnswer(
        messages=lines,
        begin=question.begin,
        end=None if question.end == LARGEST else question.end,
        searched_bytes=progress.searched_bytes,
        total_bytes=progress.total_bytes,
        rate=progress.rate,
        # The count is of messages that are shown, for the same reason.
        sentence=replace(progress, found=len(seen)).sentence(),
        notes=list(notes),
        cursor=last.cursor,
    )
