"""The tools: what assistants may ask, each a question of :class:`rocketlens.Source` and an answer that is bounded.

A tool is its arguments, a function, and a description that says when to use it. All of them read and none writes. What
does not fit into an answer, or its time, comes with its cursor, in arguments alone: nothing is remembered of a caller.
"""

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from broker.web.api.answer_lines import (
    PendingTopicLine,
    QueueLine,
    finding_line,
    named_message,
    pending_topic_line,
    verdict_line,
)
from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.errors import bad_parameter
from broker.web.api.message_lines import line_of
from protocol.body_content import MOST_INDENTED, charset_of, indented_json, text_in
from protocol.errors import ConfigError, RocketLensError
from protocol.message import Message
from protocol.question import LARGEST, Answer
from protocol.system_topics import DEAD_LETTER_PREFIX, kind_of
from rocketlens.answers import Group, more_than
from rocketlens.arguments import MOST_PULLED, SearchOptions, Time, time_of, times_of
from rocketlens.mcp.arguments import (
    FindTool,
    GroupsTool,
    HealthTool,
    MessagesTool,
    MessageTool,
    PendingTool,
    SearchTool,
    StoryTool,
    ToolArguments,
    TopicsTool,
)
from rocketlens.mcp.foreign import CAPS, LONGEST_NOTE, MOST_NOTES, ROOM, Fields, capped, cut, size_of, visible
from rocketlens.mcp.tool_answers import (
    BodyKind,
    ToolAnswer,
    ToolDeadLetters,
    ToolEvent,
    ToolFindAnswer,
    ToolGroup,
    ToolGroupsAnswer,
    ToolHealthAnswer,
    ToolLine,
    ToolMessage,
    ToolMessageAnswer,
    ToolMessagesAnswer,
    ToolPending,
    ToolPendingAnswer,
    ToolQueueProgress,
    ToolReading,
    ToolSearchAnswer,
    ToolStoryAnswer,
    ToolTopic,
    ToolTopicsAnswer,
)
from rocketlens.mcp.tool_context import Kept, StillRunning, ToolContext
from storage.search.criteria import SearchPlace
from storage.search.progress import ProgressReport
from storage.store.group_progress import TopicProgress, topic_progress

if TYPE_CHECKING:  # not for the list of tools
    from storage.life.message_life import Event, MessageLife
    from storage.life.pending import PendingMessage

MOST_OTHERS: Final = 5
MOST_GROUPS: Final = 8
MOST_NAMED: Final = 20
"""Entries of a list beside the one that an answer is about."""

MOST_PROPERTIES: Final = 60
LONGEST_NAME: Final = 128
LONGEST_CHARACTER: Final = 8
"""Bytes of the longest character of any charset, with a mark before it; no piece of a body is shorter."""

MOST_QUEUES: Final = 64

MOST_PASSED: Final = 2**31
"""Entries, or bytes of a body, before those that a cursor asks for."""


START: Final = encode_cursor(0)
"""The cursor of a first page, where that has none of its own."""


@dataclass(slots=True)
class Bounded:
    """An answer that may be too large: the name of its list, and the cursor behind the first so many of its entries."""

    answer: ToolAnswer
    listed: str = ""
    cursor_behind: Callable[[int], str | None] | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `shows`: whether its answers show messages, so that an audit log has them."""

    name: str
    title: str
    description: str
    arguments: type[ToolArguments]
    answer: type[ToolAnswer]
    work: Callable[[ToolContext, Any], Bounded]
    shows: bool = True

    def described(self) -> Fields:
        """The tool as a list of tools has it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema_of(self.arguments),
            "outputSchema": schema_of(self.answer),
            "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False},
        }

    def read(self, given: object) -> ToolArguments:
        """Check arguments. Raises ConfigError, which names the one that is wrong."""
        try:
            return msgspec.convert(given, self.arguments)
        except msgspec.ValidationError as error:
            known = ", ".join(self.arguments.__struct_encode_fields__)
            raise ConfigError(f"arguments of {self.name}: {error}; it takes {known}") from None

    def call(self, context: ToolContext, asked: ToolArguments) -> Fields:
        """Answer a call, within its time and :data:`rocketlens.mcp.foreign.MOST_BYTES`. Raises RocketLensError."""
        context.allow(asked.seconds)
        try:
            found = self.work(context, asked)
        except StillRunning as running:
            again = asked.cursor or START
            found = Bounded(self.answer(truncated=True, cursor=again, notes=[str(running)]))
        return fitted(found)


def schema_of(struct: type[msgspec.Struct]) -> Fields:
    """The JSON Schema of arguments or an answer, whole by itself, and short: an assistant reads those of all tools.

    Arguments that may be null may as well be left out, so they have the schema that they have otherwise. The fields of
    a message in a list stand in the answer of `find` alone.
    """
    _, parts = msgspec.json.schema_components([struct], ref_template="{name}")
    if issubclass(struct, ToolAnswer):
        line, whole = parts.get(ToolLine.__name__), parts.get(ToolMessage.__name__)
        if whole is not None:
            for name in ToolLine.__struct_encode_fields__:
                del whole["properties"][name]
        if line is not None and struct is not ToolFindAnswer:
            parts[ToolLine.__name__] = {"type": "object", "description": "Fields as in the answer of `find`."}
        return _shortened(parts[struct.__name__] | {"description": ""}, parts, ("title", "default", "required"))
    return _shortened(parts[struct.__name__] | {"description": ""}, parts, ("title", "minLength", "maxLength"))


def _shortened(schema: Fields, parts: dict[str, Fields], left_out: Sequence[str]) -> Fields:
    """A schema with its parts in their places, without what follows from the rest, and one type where null may be."""
    if "$ref" in schema:
        return _shortened(parts[schema["$ref"]], parts, left_out)
    kept = {name: each for name, each in schema.items() if name not in left_out and each not in (None, [], "")}
    choices = [_shortened(each, parts, left_out) for each in kept.pop("anyOf", ())]
    known = [each for each in choices if "default" in left_out or each != {"type": "null"}]
    if len(known) == 1:
        kept |= known[0]
    elif known and all("type" in each and "enum" not in each for each in known):
        # What a text or an object has to be says nothing of null.
        kept |= {name: value for each in known for name, value in each.items()}
        kept["type"] = [each["type"] for each in known]
    elif known:
        kept["anyOf"] = known
    if "properties" in kept:
        kept["properties"] = {name: _shortened(each, parts, left_out) for name, each in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _shortened(kept["items"], parts, left_out)
    return kept


def fitted(found: Bounded) -> Fields:
    """An answer of which every text is visible, cut until all of it has room."""
    answer = found.answer
    # The notice first, where it is read before what it is about.
    fields: Fields = {"notice": answer.notice, **visible(msgspec.to_builtins(answer))}
    fields["notes"] = [cut(each, LONGEST_NOTE) for each in fields["notes"][:MOST_NOTES]]
    for most in CAPS:
        fields = capped(fields, most)
        if size_of(fields) <= ROOM:
            return fields
    while size_of(fields) > ROOM and found.cursor_behind is not None and len(fields[found.listed]) > 1:
        kept = len(fields[found.listed]) // 2
        fields[found.listed] = fields[found.listed][:kept]
        fields |= {"truncated": True, "cursor": found.cursor_behind(kept)}
    return fields


# ---------------------------------------------------------------------- messages


def tool_line(message: Message, charset: str | None = None, **more: Any) -> ToolLine:
    """A message in a list."""
    line = line_of(message, charset=charset)
    return ToolLine(**{name: getattr(line, name) for name in line.__struct_fields__} | more)


def _properties(message: Message) -> dict[str, str]:
    """The first properties of a message whose names have room, each cut as it is shown."""
    shown: dict[str, str] = {}
    room = ROOM // 8
    for name, value in islice(message.properties.items(), MOST_PROPERTIES):
        seen = cut(visible(name), LONGEST_NAME)
        room -= size_of({seen: ""})
        if room < 0:
            break
        shown.setdefault(seen, value)
    return shown


def _charset(name: str | None) -> str | None:
    return None if name is None else charset_of(name)


def tool_message(message: Message, begin: int, most: int, charset: str | None) -> ToolMessage:
    """A message with the bytes of its body from `begin` on, about `most`; text ends between characters."""
    data, packings, error, note = message.content()
    size, most = len(data), max(most, LONGEST_CHARACTER)
    head = bytes(data[:MOST_INDENTED])
    kind: BodyKind
    text = None if error is not None else text_in(head, charset, is_cut=size > len(head))
    piece = bytes(data[begin : begin + most])
    if error is not None or (size and text is None):
        kind, body = "binary" if error is None else "unreadable", piece.hex()
    else:
        decoder = codecs.getincrementaldecoder(charset or "utf-8")(errors="replace")
        is_json = text is not None and (
            indented_json(text) is not None or (size > len(head) and text.lstrip()[:1] in ("{", "["))
        )
        kind, body = ("json" if is_json else "text") if size else "empty", decoder.decode(piece)
        left, _ = decoder.getstate()
        piece = piece if begin + most >= size else piece[: len(piece) - len(left)]
    line = tool_line(message, charset)
    return ToolMessage(
        **{name: getattr(line, name) for name in line.__struct_fields__ if name != "preview"},
        preview=None,
        store_host=str(message.store_host),
        born_host=str(message.born_host),
        flag=message.flag,
        sys_flag=message.sys_flag,
        properties=_properties(message),
        body=visible(body),
        body_encoding="hex" if kind in ("binary", "unreadable") else "text",
        body_kind=kind,
        body_from=begin,
        body_shown=len(piece),
        body_size=size,
        body_packings=list(packings),
        body_note=note,
        body_error=error,
    )


def _lines(found: Answer, charset: str | None) -> list[ToolLine]:
    """The messages of an answer, each with what it was found by."""
    ends = found.outcomes or [""] * len(found)
    kinds = found.kinds or [None] * len(found)
    stores = found.stores or [None] * len(found)
    return [
        tool_line(message, charset, found_by=kind, outcome=end or None, store=store)
        for message, kind, end, store in zip(found, kinds, ends, stores, strict=True)
    ]


# ---------------------------------------------------------------------- find, message, story


class FindCursor(NamedTuple):
    """A page of a source, None for its first one, and how many of its messages come before those of an answer."""

    page: str | None = None
    passed: int = 0


def find(context: ToolContext, asked: FindTool) -> Bounded:
    """What a text names."""
    charset = _charset(asked.charset)
    start = FindCursor() if asked.cursor in (None, START) else decode_cursor(asked.cursor, FindCursor)
    _within(start.passed, MOST_PASSED)
    source = context.source(asked.store)
    times = times_of(asked.begin, asked.end)

    def work() -> Answer:
        return source.find(
            asked.text,
            topic=asked.topic,
            begin=times[0],
            end=times[1],
            maximum=asked.limit,
            kind=asked.kind,
            cursor=start.page,
        )

    found = _kept(context, asked, work, start.page, asked.limit)
    page = found.next_page
    lines = _lines(found, charset)
    shown = lines[start.passed : start.passed + asked.limit]

    def cursor(count: int) -> str | None:
        """Behind some messages of this answer: a page may have more, those of a batch, and an answer have less room."""
        passed = start.passed + count
        if passed < len(lines):
            return encode_cursor(FindCursor(start.page, passed))
        return None if page is None else encode_cursor(FindCursor(page, passed - len(lines)))

    is_first = start == FindCursor()
    answer = ToolFindAnswer(
        messages=shown,
        readings=[ToolReading(each.kind, each.found, each.note) for each in found.readings if is_first],
        topics=list(found.topics[:MOST_NAMED]) if is_first else [],
        reason="" if page else found.reason,
        notes=[note for note in found.notes if note != more_than(asked.limit)],
        cursor=cursor(len(shown)),
    )
    answer.truncated = answer.cursor is not None
    return Bounded(answer, "messages", cursor)


def message(context: ToolContext, asked: MessageTool) -> Bounded:
    """One message, whole, its body in pieces."""
    charset, begin = _charset(asked.charset), max(_number(asked.cursor), asked.body_from)
    source = context.source(asked.store)

    def work() -> Answer:
        more = {"damaged": True} if asked.damaged else {}
        return source.view(asked.id, topic=asked.topic, **more)

    found = _kept(context, asked, work)
    notes = list(found.notes)
    if not found:
        return Bounded(ToolMessageAnswer(reason=found.reason, notes=notes))
    others = _lines(found, charset)[1:]
    most = asked.body_limit
    while True:
        shown = tool_message(found[0], begin, most, charset)
        shown.store = next(iter(found.stores), None)
        if len(shown.properties) < len(found[0].properties) and most == asked.body_limit:
            notes.append(f"{len(shown.properties)} of {len(found[0].properties)} properties are shown")
        end = begin + shown.body_shown
        has_more = end < shown.body_size and shown.body_shown > 0
        answer = ToolMessageAnswer(
            message=shown,
            others=others[:MOST_OTHERS],
            truncated=has_more,
            cursor=encode_cursor(end) if has_more else None,
            notes=notes,
        )
        if most <= 64 or size_of({"body": shown.body}) <= ROOM // 2:
            return Bounded(answer)
        most //= 2


def story(context: ToolContext, asked: StoryTool) -> Bounded:
    """What happened to one message."""
    source, begin = context.source(asked.store), _number(asked.cursor)

    def work() -> "MessageLife":
        return source.life(asked.id, topic=asked.topic)

    found = _kept(context, asked, work)
    verdicts = found.verdicts
    answer = ToolStoryAnswer(
        events=[_event(each) for each in found.events[begin : begin + asked.limit]],
        verdicts=list(map(verdict_line, verdicts[:MOST_NAMED])),
        verdicts_left_out=max(len(verdicts) - MOST_NAMED, 0),
        messages_named_so=list(map(named_message, found.stories[:MOST_NAMED])),
        named=list(found.named[:MOST_NAMED]),
        reason=found.reason if not found.events else "",
        notes=[*([f"something may be missing: {found.incomplete}"] if found.incomplete else []), *found.notes],
    )
    return _numbered(answer, "events", begin, len(found.events))


def _event(event: "Event") -> ToolEvent:
    trace = event.trace
    return ToolEvent(
        timestamp=event.timestamp,
        stage=None if event.stage is None else event.stage.value,
        note=event.note,
        until_timestamp=event.until_timestamp,
        message=None if event.message is None else tool_line(event.message),
        message_number=event.number,
        groups=[f"{each.group} {each.text}" for each in event.groups[:MOST_GROUPS]],
        groups_left_out=max(len(event.groups) - MOST_GROUPS, 0),
        trace=None if trace is None else msgspec.json.encode(trace).decode(),
    )


# ---------------------------------------------------------------------- search, messages


def search(context: ToolContext, asked: SearchTool) -> Bounded:
    """Messages by what they say."""
    options: SearchOptions = {
        "begin": _time(asked.begin),
        "end": _time(asked.end),
        "contains": asked.contains,
        "regex": asked.regex,
        "place": asked.place,
        "json_path": asked.json_path,
        "where": asked.where,
        "tag": asked.tag,
        "key": asked.key,
        "key_prefix": asked.key_prefix,
        "born_host": asked.born_host,
        "size": asked.size,
        "charset": _charset(asked.charset),
    }
    found = _searched(context, asked, asked.topic, options, exhaustive=asked.exhaustive)
    lines = [tool_line(each, options["charset"]) for each in found.messages]
    if asked.contains or asked.regex:
        from broker.web.api.match import matches_in  # what compiles patterns is for a search by one

        place = SearchPlace(asked.place)
        matches = matches_in(
            found.messages, asked.contains, asked.regex, place, options["charset"], lambda: context.is_cancelled
        )
        for line, match in zip(lines, matches, strict=True):
            line.match = match
    progress = found.progress
    percent = 100 * progress.searched_bytes // progress.total_bytes if progress.total_bytes else 100
    up_to = f"searched up to {percent} % ({progress.searched_bytes:,} of {progress.total_bytes:,} bytes of log)"
    return Bounded(
        ToolSearchAnswer(
            messages=lines,
            searched=f"{up_to}; call again with the cursor to go on" if found.cursor else f"searched all: {up_to}",
            searched_bytes=progress.searched_bytes,
            total_bytes=progress.total_bytes,
            truncated=found.cursor is not None,
            cursor=found.cursor,
            notes=list(found.notes),
        )
    )


@dataclass(slots=True)
class FoundInTime:
    """What a search brought by the end of its time, and where another goes on."""

    messages: list[Message]
    progress: ProgressReport
    cursor: str | None
    notes: Sequence[str]


def _searched(
    context: ToolContext,
    asked: SearchTool | MessagesTool,
    topic: str | None,
    options: SearchOptions,
    *,
    exhaustive: bool = False,
) -> FoundInTime:
    """Search until there are enough messages, or the time is over."""
    source = context.source(asked.store)
    if isinstance(asked, SearchTool) and asked.key is not None and topic is not None and not exhaustive:

        def complete() -> bool:
            source._complete_keys()
            return True

        context.kept(f"keys of {asked.store}", complete, goes_on=asked.cursor is not None)
    options = {**options, "limit": asked.limit, "cursor": None if asked.cursor == START else asked.cursor}
    run = source.search(topic=topic, exhaustive=exhaustive, should_stop=context.should_stop, **options)
    found: list[Message] = []
    for piece in run.pieces():
        found += piece
        context.report(run.progress.searched_bytes, run.progress.total_bytes, run.progress.sentence())
    return FoundInTime(found, run.progress, run.cursor, run.notes)


def messages(context: ToolContext, asked: MessagesTool) -> Bounded:
    """Messages of a topic by offset or by time."""
    charset = _charset(asked.charset)
    if asked.order == "newest":
        return _newest(context, asked, charset)
    if asked.queue_id is not None:
        return _of_queue(context, asked, asked.queue_id, charset)
    options: SearchOptions = {"begin": _time(asked.begin), "end": _time(asked.end)}
    if asked.tag is not None:
        options["tag"] = asked.tag
    if asked.where is not None:
        options["where"] = asked.where
    found = _searched(context, asked, asked.topic, options)
    answer = ToolMessagesAnswer(
        messages=[tool_line(each, charset) for each in found.messages],
        reason="" if found.messages else "no message that is asked for, as far as was looked",
        truncated=found.cursor is not None,
        cursor=found.cursor,
        notes=list(found.notes),
    )
    return Bounded(answer)


def _of_queue(context: ToolContext, asked: MessagesTool, queue_id: int, charset: str | None) -> Bounded:
    """Messages of one queue from an offset on; those of another time are passed over."""
    source = context.source(asked.store)
    first, last = times_of(asked.begin, asked.end)
    offset = asked.offset if asked.cursor is None else _within(decode_cursor(asked.cursor, int))
    found: list[Message] = []
    notes: list[str] = []
    while True:
        most = min(asked.limit - len(found), MOST_PULLED)
        pulled = source.pull(asked.topic, queue_id, offset, maximum=most, tag=asked.tag, sql=asked.where)
        found += [each for each in pulled if first <= each.store_timestamp <= last]
        notes += pulled.notes
        has_moved, offset = pulled.next_offset > offset, pulled.next_offset
        has_more = has_moved and offset < pulled.max_offset
        if not has_more or len(found) >= asked.limit or context.should_stop():
            break
    answer = ToolMessagesAnswer(
        messages=[tool_line(each, charset) for each in found],
        reason="" if found else pulled.reason,
        truncated=has_more,
        cursor=encode_cursor(offset) if has_more else None,
        notes=list(dict.fromkeys(notes)),
    )
    return Bounded(answer, "messages", lambda count: encode_cursor(found[count].queue_offset))


def _newest(context: ToolContext, asked: MessagesTool, charset: str | None) -> Bounded:
    """The last messages of a topic's queues; the cursor has where each queue that was read goes on."""
    if asked.tag is not None or asked.where is not None or asked.begin is not None or asked.end is not None:
        raise ConfigError("order newest takes no tag, where, begin and end: use `search`, or the order oldest")
    source = context.source(asked.store)
    cursors = {} if asked.cursor is None else decode_cursor(asked.cursor, dict[int, int])
    ends = {queue_id: _within(end) for queue_id, end in cursors.items()}
    queues = [each for each in source.queues(asked.topic) if asked.queue_id in (None, each.queue_id)]
    places = {each.queue_id: (each.min_offset, ends.get(each.queue_id, each.max_offset)) for each in queues}
    late = sorted(queues, key=lambda each: each.last_timestamp or 0, reverse=True)
    if asked.cursor is None:  # a message of any other queue is older than the last ones of these
        late = late[: asked.limit]
    notes = [f"queue {each.queue_id}: {each.problem}" for each in queues if each.problem]
    found: list[Message] = []
    for number, each in enumerate(late):
        first, end = places[each.queue_id]
        if number and context.should_stop():
            notes.append(f"the newest of {number} of {len(late)} queues: there was no time for the others")
            break
        begin = max(end - asked.limit, first)
        while begin < end:
            pulled = source.pull(asked.topic, each.queue_id, begin, maximum=min(end - begin, MOST_PULLED))
            found += [message for message in pulled if message.queue_offset < end]
            notes += pulled.notes
            if pulled.next_offset <= begin:
                break
            begin = pulled.next_offset
    found.sort(key=lambda each: (each.store_timestamp, each.physical_offset), reverse=True)
    shown = found[: asked.limit]

    def cursor(count: int) -> str:
        left = {queue_id: end for queue_id, (_, end) in places.items()}
        for each in shown[:count]:
            left[each.queue_id] = min(left.get(each.queue_id, LARGEST), each.queue_offset)
        return encode_cursor(left)

    rest = decode_cursor(cursor(len(shown)), dict[int, int])
    has_more = any(rest[queue_id] > first for queue_id, (first, _) in places.items()) and bool(shown)
    answer = ToolMessagesAnswer(
        messages=[tool_line(each, charset) for each in shown],
        reason="" if shown else f"topic {asked.topic} has no message, or is not there",
        truncated=has_more,
        cursor=cursor(len(shown)) if has_more else None,
        notes=list(dict.fromkeys(notes)),
    )
    return Bounded(answer, "messages", cursor)


# ---------------------------------------------------------------------- topics, groups


def topics(context: ToolContext, asked: TopicsTool) -> Bounded:
    """Topics, or the queues of one."""
    source, begin = context.source(asked.store), _number(asked.cursor)
    if asked.topic is not None:
        name = asked.topic
        queues = _kept(context, asked, lambda: source.queues(name))
        of_page = queues[begin : begin + asked.limit]
        answer = ToolTopicsAnswer(
            queues=[
                QueueLine(
                    queue_id=each.queue_id,
                    min_offset=each.min_offset,
                    max_offset=each.max_offset,
                    first_timestamp=each.first_timestamp,
                    last_timestamp=each.last_timestamp,
                    problem=each.problem or None,
                )
                for each in of_page
            ],
            total=len(queues),
            notes=list(getattr(queues, "notes", ())) if queues else [f"there is no topic {name}, or it has no queue"],
        )
        return _numbered(answer, "queues", begin, len(queues))
    found = _kept(context, asked, source.topics)
    part = asked.contains.lower()
    named = [each for each in found if part in each.name.lower()]
    answer = ToolTopicsAnswer(
        topics=[
            ToolTopic(
                topic=each.name,
                kind=kind_of(each.name),
                read_queues=each.read_queues,
                write_queues=each.write_queues,
            )
            for each in named[begin : begin + asked.limit]
        ],
        total=len(named),
        notes=list(found.notes),
    )
    return _numbered(answer, "topics", begin, len(named))


def _numbered(answer: Any, listed: str, begin: int, total: int) -> Bounded:  # any answer with such a list
    """An answer with a part of a list, whose cursor is the number of the next entry."""
    behind = begin + len(getattr(answer, listed))
    if behind < total:
        answer.truncated, answer.cursor = True, encode_cursor(behind)
    return Bounded(answer, listed, lambda count: encode_cursor(begin + count))


def groups(context: ToolContext, asked: GroupsTool) -> Bounded:
    """How far consumer groups have come."""
    source, begin = context.source(asked.store), _number(asked.cursor)
    found = _kept(context, asked, source.groups)
    part = asked.contains.lower()
    listed = [each for each in found if part in each.name.lower()]
    pairs: list[tuple[Group, str | None]] = [
        (each, topic) for each in listed for topic in sorted(each.offsets) if asked.topic in (None, topic)
    ]
    if asked.topic is None:
        pairs += [(each, None) for each in listed if not each.offsets]
    pairs.sort(key=lambda pair: (pair[0].name, pair[1] or ""))
    lines: list[ToolGroup] = []
    behinds: list[int] = []
    ends: dict[str, dict[int, int]] = {}
    place = begin
    while place < len(pairs) and len(lines) < asked.limit and not (place > begin and context.should_stop()):
        group, topic = pairs[place]
        progress = TopicProgress(group.name, None) if topic is None else _progress(source, group, topic, ends)
        place += 1
        if not asked.behind or progress.lag != 0:
            lines.append(_group(progress, with_queues=asked.queues))
            behinds.append(place)
        context.report(place, len(pairs), f"{place} of {len(pairs)} groups and topics")
    answer = ToolGroupsAnswer(
        groups=lines,
        dead_letters=_dead_letters(context, source, list(dict.fromkeys(each.group for each in lines))),
        truncated=place < len(pairs),
        cursor=encode_cursor(place) if place < len(pairs) else None,
        notes=list(getattr(found, "notes", ())),
    )
    return Bounded(answer, "groups", lambda count: encode_cursor(behinds[count - 1]))


def _progress(source: Any, group: Group, topic: str, ends: dict[str, dict[int, int]]) -> TopicProgress:
    """How far a group has come in a topic; `ends` keeps where the queues of each topic end."""
    if topic not in ends:
        try:
            ends[topic] = {each.queue_id: each.max_offset for each in source.queues(topic) if not each.problem}
        except RocketLensError:  # the offsets are known even so
            ends[topic] = {}
    popped = None if group.popped is None else group.popped.get(topic, {})
    return topic_progress(group.name, topic, group.offsets[topic], ends[topic], popped)


def _group(progress: TopicProgress, *, with_queues: bool) -> ToolGroup:
    return ToolGroup(
        group=progress.group,
        topic=progress.topic,
        lag=progress.lag if progress.queues else 0,
        popped=progress.popped,
        is_ahead=any(each.is_ahead for each in progress.queues),
        queues=[
            ToolQueueProgress(
                queue_id=each.queue_id, next_offset=each.next_offset, end_offset=each.end_offset, lag=each.lag
            )
            for each in (progress.queues[:MOST_QUEUES] if with_queues else ())
        ],
    )


def _dead_letters(context: ToolContext, source: Any, names: Sequence[str]) -> list[ToolDeadLetters]:
    """What was given up for some groups, as far as there is time to count."""
    found = []
    for name in names[:MOST_NAMED]:
        if context.should_stop():
            break
        topic = f"{DEAD_LETTER_PREFIX}{name}"
        try:
            count = sum(each.max_offset - each.min_offset for each in source.queues(topic))
        except RocketLensError:  # it has none, or may not be seen
            continue
        if count:
            found.append(ToolDeadLetters(group=name, topic=topic, messages=count))
    return found


# ---------------------------------------------------------------------- pending, health


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """A page of what waits."""

    topics: list[PendingTopicLine]
    messages: "list[PendingMessage]"
    following: tuple[int, int, int] | None
    log_timestamp: int
    notes: list[str]


def pending(context: ToolContext, asked: PendingTool) -> Bounded:
    """What waits for a delay level, a time, or to be retried."""
    from storage.life.pending import BEGINNING, EARLIEST, PendingWindow  # not for the list of tools

    charset, source = _charset(asked.charset), context.source(asked.store)
    behind = BEGINNING if asked.cursor in (None, START) else decode_cursor(asked.cursor, tuple[int, int, int])
    for number, least in zip(behind, BEGINNING, strict=True):
        _within(number, least=least)
    first, last = times_of(asked.due_after, asked.due_before, EARLIEST)
    window = PendingWindow(asked.topic, first, last)

    def work() -> WaitingPage:
        with source.pending() as found:
            listed, following = found.page(window, asked.limit, behind)
            counted = found.topics(window) if behind == BEGINNING else []
            lacks = [f"something may be missing: {found.incomplete}"] if found.incomplete else []
            topics = list(map(pending_topic_line, counted))
            state = found.as_of
            return WaitingPage(topics, listed, following, state.log_timestamp, [*state.notes, *lacks])

    found = _kept(context, asked, work, behind, asked.limit)
    answer = ToolPendingAnswer(
        topics=found.topics[:MOST_NAMED],
        topics_left_out=max(len(found.topics) - MOST_NAMED, 0),
        messages=[
            ToolPending(
                state=each.state.value,
                due_timestamp=each.due_timestamp,
                topic=each.topic,
                delay_level=each.level,
                group=each.group,
                message=tool_line(each.message, charset),
            )
            for each in found.messages
        ],
        log_timestamp=found.log_timestamp,
        truncated=found.following is not None,
        cursor=None if found.following is None else encode_cursor(found.following),
        notes=found.notes,
    )
    return Bounded(answer)


def health(context: ToolContext, asked: HealthTool) -> Bounded:
    """What is wrong with the store."""
    source, begin = context.source(asked.store), _number(asked.cursor)
    found = _kept(context, asked, source.doctor)
    answer = ToolHealthAnswer(
        state=found.state,
        is_clean=found.is_clean,
        segments=found.segments,
        index_files=len(found.index_files),
        unindexed_messages=found.unindexed_messages,
        stores=context.stores()[:MOST_NAMED],
        findings=list(map(finding_line, found.findings[begin : begin + asked.limit])),
    )
    return _numbered(answer, "findings", begin, len(found.findings))


# ---------------------------------------------------------------------- arguments


TOOLS: Final = (
    Tool(
        "find",
        "Find messages by a name",
        "Find the messages that one text names: an order number or other business key, a unique key, a message id, an "
        "offset, or a tag, in all topics or in one. Start here when you have an id of any kind. Keys are compared "
        "whole; for a part of a body use `search`. An empty answer says what was searched.",
        FindTool,
        ToolFindAnswer,
        find,
    ),
    Tool(
        "message",
        "Show one message",
        "Show one message whole: all properties, and its body in pieces (text, or hex where it is binary). Use it on a "
        "messageId or physicalOffset that another tool gave. The cursor gets the next piece of the body.",
        MessageTool,
        ToolMessageAnswer,
        message,
    ),
    Tool(
        "story",
        "Tell what became of a message",
        "Tell what happened to one message in order of time: where it waited, was delivered, retried and given up, how "
        "its transaction ended, and which consumer groups have consumed it. Use it for: why was this not processed, "
        "who has it, will it be retried.",
        StoryTool,
        ToolStoryAnswer,
        story,
    ),
    Tool(
        "search",
        "Search messages by what they say",
        "Search the log for messages by content: a text or regular expression in the body, JSONPath, SQL92 over "
        "properties, tag, key prefix, sender, size, time. Use it when `find` cannot name what you look for. Give topic "
        "and times where you can. It ends with `searched up to`; call again with the cursor until that is null.",
        SearchTool,
        ToolSearchAnswer,
        search,
    ),
    Tool(
        "topics",
        "List topics",
        "List topics, or with `topic` the queues of one: offsets, and when their first and last messages were stored. "
        "Use it to learn names, and whether anything arrives in a topic.",
        TopicsTool,
        ToolTopicsAnswer,
        topics,
        shows=False,
    ),
    Tool(
        "groups",
        "List consumer groups and their lag",
        "List consumer groups: how many messages each has not consumed of each topic (lag), what it popped and did not "
        "acknowledge, and how many were given up for it (dead letters). Use it for: is the consumer behind, where.",
        GroupsTool,
        ToolGroupsAnswer,
        groups,
        shows=False,
    ),
    Tool(
        "messages",
        "Browse a topic",
        "Browse the messages of a topic: between two times, from an offset of one queue on, or the newest first. Use "
        "it to look at what arrives, and at dead letters (topic %DLQ%group) and retries (topic %RETRY%group).",
        MessagesTool,
        ToolMessagesAnswer,
        messages,
    ),
    Tool(
        "pending",
        "List messages that wait",
        "List messages that wait for a delay level, a point in time, or to be retried, the next one that is due first, "
        "and count them by topic. Use it for: when does it come, what is overdue.",
        PendingTool,
        ToolPendingAnswer,
        pending,
    ),
    Tool(
        "health",
        "Examine the store",
        "Examine the store as the doctor does: what is damaged, lost or at risk, what it means, and the command that "
        "mends it, which is for people to run. Use it when answers lack something, or before a broker is started.",
        HealthTool,
        ToolHealthAnswer,
        health,
        shows=False,
    ),
)
"""The tools, in the order in which they are listed."""

TOOL_OF_NAME: Final = {each.name: each for each in TOOLS}


def _kept(context: ToolContext, asked: ToolArguments, work: Callable[[], Kept], *more: object) -> Kept:
    """What some work brings, the same for all calls that differ in how much of it they show, but not in `more`."""
    fields = msgspec.to_builtins(asked)
    for each in ("cursor", "seconds", "limit", "bodyFrom", "bodyLimit", "charset"):
        fields.pop(each, None)
    key = msgspec.json.encode([type(asked).__name__, fields, more]).decode()
    return context.kept(key, work, goes_on=asked.cursor is not None)


def _number(cursor: str | None, most: int = MOST_PASSED) -> int:
    """Return how many entries or bytes come before those of a cursor. Raises ApiError beyond `most`."""
    return 0 if cursor is None else _within(decode_cursor(cursor, int), most)


def _within(number: int, most: int = LARGEST, least: int = 0) -> int:
    """Return a number out of a cursor, which anybody may have written. Raises ApiError where it is none of ours."""
    if not least <= number <= most:
        raise bad_parameter("cursor", f"this is no cursor of an answer: a number is not between {least} and {most}")
    return number


def _time(value: Time | None) -> int | None:
    return None if value is None else time_of(value, 0)
