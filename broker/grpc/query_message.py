"""`Admin.QueryMessage`: messages by id, key, subscription, light topic or time, in pages that a `scroll_id` continues.

| asked by | order | answered by |
|---|---|---|
| message_id, message_key | newest first, topic by topic | :class:`storage.search.find.Finder`, as the page's box |
| subscription, lite_topic, nothing | oldest first, as in the log | :class:`broker.web.api.browse.Walk`, as its lists |

Several brokers follow one another, as do the queues of a topic whose older messages lie in a tier, where each has a log
of its own. A `scroll_id` is the API's cursor with broker and queue before it, and a checksum of the question it
belongs to. It names places in the log, so it stays valid when a server is restarted, and the store grows, expires or
is rebuilt. It comes from outside: whatever it says, rights are those of the account that asks.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from broker.grpc.message_conversion import message_of, milliseconds_of
from broker.grpc.messages.admin_pb2 import ListMessageRequest, ListMessageResponse
from broker.grpc.messages.definition_pb2 import Code, Status
from broker.grpc.resources import full_name, named_topic
from broker.grpc.statuses import CallRefused
from broker.service.broker_service import BrokerService
from broker.web.api.browse import ROOM_OF_MESSAGE, BrowseQuestion, Walk, browsed_parts
from broker.web.api.errors import ApiError
from broker.web.api.filters import choice_of
from broker.web.api.find import refusal_to
from broker.web.api.request_context import RequestContext
from protocol.cursors import decode_cursor, encode_cursor
from protocol.errors import ConfigError
from protocol.find_place import FindPlace
from protocol.header_fields import well_formed
from protocol.message import Message
from protocol.question import LARGEST, OFFSET_ID, KeyKind, Question, message_id_of
from protocol.system_topics import LIGHT_PREFIX
from storage.search.find import Finder
from storage.store.light_topics import SEPARATOR
from storage.store.topic_catalog import queues_of_topic

Place = TypeVar("Place")

DEFAULT_MESSAGES: Final = 32
"""Messages of a page where a request says nothing, as at the official proxy."""

MOST_MESSAGES: Final = 4096
"""Messages of one page; whoever asks for more gets the rest by its `scroll_id`."""

PAGE_BYTES: Final = 3 * 1024 * 1024
"""Bytes of messages in a page of more than one: clients take 4 MiB by default."""

MOST_LIKELY: Final = 64
"""Queues whose offsets are in a `scroll_id`; with more of them it would be too long."""

LONGEST_TEXT: Final = 16_384
PAGE_MILLISECONDS: Final = 2000
"""How long a page is looked for; one that is not full by then ends there, and its `scroll_id` goes on."""

_PLAIN_TAG: Final = re.compile(r"[^\s()<>='\"]+")
"""A tag as applications write it: what holds anything else is SQL92."""


class ScrollPlace(NamedTuple):
    """The place where a page ends: checksum of the question, broker, queue where each is asked by itself, cursor.

    `likely` are queue ids and the offsets that the walk has come to, by which the cursor's place is found at once; they
    are looked at before they are believed.
    """

    asked: int
    broker: str
    queue: int | None = None
    cursor: str | None = None
    likely: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ListedQuestion:
    """A request, checked. `begin` and `end` are store times in ms, inclusive; no topic means all of them."""

    topic: str
    limit: int
    begin: int
    end: int
    by: str | None
    text: str
    broker: str | None
    queue: int | None

    @property
    def checksum(self) -> int:
        """A number that tells it from others, whatever the size of its pages."""
        parts = (self.topic, self.begin, self.end, self.by, self.text, self.broker, self.queue)
        return zlib.crc32(repr(parts).encode("utf-8", "surrogatepass"))

    def audited(self) -> dict[str, object]:
        """What an audit log has of it."""
        fields = {"topic": self.topic, self.by or "topic": self.text if self.by else self.topic, "limit": self.limit}
        return fields | {"begin": self.begin, "end": self.end, "broker": self.broker, "queueId": self.queue}


class ShownPage(NamedTuple):
    """An answer, and the physical offsets of its messages."""

    response: ListMessageResponse
    physical_offsets: list[int]


@dataclass(slots=True)
class ListedPage:
    """Messages of one broker, why some may be missing, and where it goes on."""

    messages: list[Message] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    queue: int | None = None
    cursor: str | None = None
    likely: tuple[tuple[int, int], ...] = ()
    is_over: bool = True


def read_question(request: ListMessageRequest) -> ListedQuestion:
    """Check a request. Raises `CallRefused`."""
    by = request.WhichOneof("search_key")
    text = "" if by is None else getattr(request, by)
    if by is not None and not text.strip():
        raise CallRefused(Code.BAD_REQUEST, f"{by} is empty")
    if len(text) > LONGEST_TEXT:
        raise CallRefused(Code.BAD_REQUEST, f"{by} is longer than {LONGEST_TEXT} characters")
    topic = full_name(request.topic) if by in ("message_id", "message_key") else named_topic(request.topic)
    begin = milliseconds_of(request.begin_timestamp) if request.HasField("begin_timestamp") else 0
    end = milliseconds_of(request.end_timestamp, is_up=False) if request.HasField("end_timestamp") else LARGEST
    if begin > end:
        raise CallRefused(Code.BAD_REQUEST, "the end of the time is before its begin")
    broker = request.broker_name if request.HasField("broker_name") and request.broker_name else None
    queue = request.queue_id if request.HasField("queue_id") and request.queue_id >= 0 else None
    return ListedQuestion(topic, _limit_of(request), begin, end, by, text, broker, queue)


def _limit_of(request: ListMessageRequest) -> int:
    """How many messages a page has. Raises `CallRefused` for a page that no cursor leads to."""
    asked = request.page_size if request.HasField("page_size") else request.max_message_nums
    if asked < 0:
        raise CallRefused(Code.BAD_REQUEST, f"{asked} messages: expected 1 or more")
    number = request.page_num if request.HasField("page_num") else 1
    if number > 1 and not request.scroll_id:
        text = f"page {number} is reached by the scroll_id of page {number - 1}: pages are not counted here"
        raise CallRefused(Code.BAD_REQUEST, text)
    return min(asked or DEFAULT_MESSAGES, MOST_MESSAGES)


def list_messages(
    context: RequestContext, services: Sequence[BrokerService], question: ListedQuestion, scroll_id: str
) -> ShownPage:
    """Answer with a page, on a thread that may wait. Raises RocketLensError."""
    context.allow(PAGE_MILLISECONDS)
    place = _place_of(scroll_id, question)
    contexts = [replace(context, service=each) for each in services]
    if question.broker is not None:
        contexts = [each for each in contexts if each.service.broker_name == question.broker]
        if not contexts:
            raise CallRefused(Code.NOT_FOUND, f"no store of a broker {question.broker} is served here")
    unknown: ApiError | None = None
    last: ListedPage | None = None
    for number, each in enumerate(_from_broker(contexts, place)):
        start = place if place is not None and not number else ScrollPlace(question.checksum, "")
        try:
            last = each.uncut(partial(_page_of, each, question, start))
        except ApiError as error:
            if error.status != 404:
                raise
            unknown = error
            continue
        if last.messages or not last.is_over:
            return _answer(each, question, last, _following(contexts, each, last, question.checksum))
    if last is None and unknown is not None and place is None:
        raise unknown
    return _answer(contexts[-1], question, last or ListedPage(), "")


def _place_of(scroll_id: str, question: ListedQuestion) -> ScrollPlace | None:
    """Read where a page begins. Raises `CallRefused` for what is no `scroll_id` of an answer to this question."""
    if not scroll_id:
        return None
    place = _decoded(scroll_id, ScrollPlace)
    if place.asked != question.checksum:
        raise CallRefused(Code.BAD_REQUEST, "the scroll_id belongs to another question")
    return place


def _from_broker(contexts: Sequence[RequestContext], place: ScrollPlace | None) -> Sequence[RequestContext]:
    """The brokers that are left, in order. Raises `CallRefused` for one that is not served any more."""
    if place is None:
        return contexts
    names = [each.service.broker_name for each in contexts]
    if place.broker not in names:
        raise CallRefused(Code.NOT_FOUND, "the broker at which the scroll_id goes on is not served here")
    return contexts[names.index(place.broker) :]


def _following(contexts: Sequence[RequestContext], here: RequestContext, page: ListedPage, checksum: int) -> str:
    """The `scroll_id` behind a page; empty at the end."""
    if not page.is_over:
        return encode_cursor(ScrollPlace(checksum, here.service.broker_name, page.queue, page.cursor, page.likely))
    behind = contexts[contexts.index(here) + 1 :]
    return encode_cursor(ScrollPlace(checksum, behind[0].service.broker_name)) if behind else ""


def _answer(context: RequestContext, question: ListedQuestion, page: ListedPage, scroll_id: str) -> ShownPage:
    note = context.readable("; ".join(dict.fromkeys(page.notes)) or "OK", (question.text, question.topic))
    response = ListMessageResponse(status=Status(code=Code.OK, message=well_formed(note)), scroll_id=scroll_id)
    response.messages.extend(map(message_of, page.messages))
    return ShownPage(response, [each.physical_offset for each in page.messages])


def _page_of(context: RequestContext, question: ListedQuestion, place: ScrollPlace) -> ListedPage:
    """A page of one broker."""
    if question.by in ("message_id", "message_key"):
        return _found(context, question, place)
    return _browsed(context, question, place)


# ---------------------------------------------------------------------- by id and key


def _found(context: RequestContext, question: ListedQuestion, place: ScrollPlace) -> ListedPage:
    """Messages that an id or a key names."""
    if question.topic:
        context.require_topic(question.topic)
    names = [question.topic] if question.topic else context.topics()
    text, is_id = question.text.strip(), question.by == "message_id"
    page = ListedPage()
    start = None if place.cursor is None else _decoded(place.cursor, FindPlace)
    if start is not None and start.before <= context.store.commit_log.minimum:
        page.notes.append("older messages have expired since the last page")
    if start is None and is_id and message_id_of(text) is not None:
        by_offset = _finder(context, question, names, OFFSET_ID)
        by_offset.go_on()
        page.messages += [each.message for each in by_offset.found]
    finder = _finder(context, question, names, KeyKind.UNIQUE.words if is_id else KeyKind.ANY.words)
    finder.go_on(start)
    page.notes += [finder.incomplete] if finder.incomplete else []
    count = _fitting([each.message for each in finder.found])
    page.messages += [each.message for each in finder.found[:count]]
    following = finder.place if count == len(finder.found) else FindPlace.behind(finder.found[:count], start)
    if following is not None:
        page.cursor, page.is_over = encode_cursor(following), False
    if question.queue is not None:
        page.messages = [each for each in page.messages if each.queue_id == question.queue]
    return page


def _fitting(messages: Sequence[Message]) -> int:
    """Count the messages that fit into a page, at least one; those of one record stay together."""
    size, fitting = 0, 0
    for number, message in enumerate(messages):
        if number and message.physical_offset != messages[number - 1].physical_offset:
            if size > PAGE_BYTES:
                return fitting
            fitting = number
        size += message.total_size + ROOM_OF_MESSAGE
    return len(messages)


def _finder(context: RequestContext, question: ListedQuestion, names: Sequence[str], reading: str) -> Finder:
    try:
        asked = Question.of_text(
            question.text, question.topic or None, question.begin, question.end, question.limit, reading
        )
    except ConfigError as error:
        raise CallRefused(Code.BAD_REQUEST, str(error)) from None
    return Finder(
        context.store,
        asked,
        names,
        is_time_up=lambda: context.is_time_up,
        refusal=lambda message: refusal_to(context, message),
        mask=context.mask,
    )


def _decoded(text: str, kind: type[Place]) -> Place:
    """The place of a `scroll_id`, or of the cursor in it. Raises `CallRefused`."""
    try:
        return decode_cursor(text, kind)
    except ConfigError:
        raise CallRefused(Code.BAD_REQUEST, "the scroll_id is not one that an answer has given") from None


# ---------------------------------------------------------------------- by subscription, light topic and time


def _browsed(context: RequestContext, question: ListedQuestion, place: ScrollPlace) -> ListedPage:
    """Messages of a topic in the order of the log, those that pass a filter if there is one."""
    topic = _browsed_topic(context, question)
    tag, sql = _filter_of(question.text) if question.by == "subscription" else (None, None)
    asked = BrowseQuestion(topic=topic, queue_id=question.queue, begin=question.begin, end=question.end)
    if question.queue is None and place.queue is None:
        try:
            return _walked(context, asked, question, tag, sql, place)
        except ApiError as error:
            if error.detail.code not in ("several_logs", "too_many_queues"):
                raise
    if question.queue is not None:
        return _walked(context, asked, question, tag, sql, place)
    page = ListedPage()
    # Each queue by itself: a page ends with its queue, and goes on with the next one.
    for queue_id in sorted(queues_of_topic(context.store, topic)):
        if place.queue is not None and queue_id < place.queue:
            continue
        if page.messages or (page.queue is not None and context.is_time_up):
            page.queue, page.cursor, page.is_over = queue_id, None, False
            return page
        start = place if queue_id == place.queue else ScrollPlace(place.asked, place.broker)
        of_queue = BrowseQuestion(topic=topic, queue_id=queue_id, begin=question.begin, end=question.end)
        page = _walked(context, of_queue, question, tag, sql, start)
        page.queue = queue_id
        if not page.is_over:
            return page
    return page


def _browsed_topic(context: RequestContext, question: ListedQuestion) -> str:
    """The topic whose queues have the messages: of a light topic its own, by its name with its parent's, or alone."""
    if question.by != "lite_topic":
        return question.topic
    context.require_topic(question.topic)
    names = (f"{LIGHT_PREFIX}{SEPARATOR}{question.topic}{SEPARATOR}{question.text}", f"{LIGHT_PREFIX}{question.text}")
    for name in names:
        if context.store.queues.has_topic(name):
            return name
    raise CallRefused(Code.NOT_FOUND, f"topic {question.topic} has no light topic {question.text}")


def _filter_of(text: str) -> tuple[str | None, str | None]:
    """A tag subscription, or a SQL92 expression: what is neither `*` nor tags with `||` between them."""
    tags = [each.strip() for each in text.split("||")]
    return (text, None) if all(_PLAIN_TAG.fullmatch(each) for each in tags) else (None, text)


def _walked(
    context: RequestContext,
    asked: BrowseQuestion,
    question: ListedQuestion,
    tag: str | None,
    sql: str | None,
    place: ScrollPlace,
) -> ListedPage:
    asked.cursor = cursor = place.cursor
    choice = choice_of(tag, sql, context.mask)
    parts, _ = browsed_parts(context, asked, dict(place.likely))
    walk = Walk(context, choice, question.limit, PAGE_BYTES)
    walk.run(parts, is_backward=False)
    page = ListedPage([message for message, _ in walk.found])
    if walk.stopped_at is not None:
        page.cursor, page.is_over = encode_cursor(walk.stopped_at), False
        if len(parts) <= MOST_LIKELY:
            page.likely = tuple((part.queue.queue_id, at) for part, at in zip(parts, walk.reached, strict=True))
    minimum = context.store.commit_log.minimum
    if cursor is not None and 0 <= decode_cursor(cursor, int) < minimum:
        page.notes.append(f"messages between the last page and physical offset {minimum} have expired")
    if walk.unreadable:
        page.notes.append(f"{walk.unreadable} of the messages looked at cannot be read")
    if walk.left_out:
        page.notes.append("messages that this account may not read are left out")
    if choice is not None and choice.note:
        page.notes.append(choice.note)
    return page
