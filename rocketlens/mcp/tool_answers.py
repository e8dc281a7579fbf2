"""What each tool answers: structs, from which its JSON schema is made; messages have the fields of the project's."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from broker.web.api.answer_lines import FindingLine, NamedMessage, PendingTopicLine, QueueLine, VerdictLine
from broker.web.api.message_lines import MessageLine
from rocketlens.mcp.foreign import NOTICE

BodyKind: TypeAlias = Literal["empty", "json", "text", "binary", "unreadable"]


class ToolAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """What every answer begins and ends with.

    `truncated`: there is more, which the same call with `cursor` gets. `notes` say what may be missing.
    """

    notice: str = NOTICE
    truncated: bool = False
    cursor: str | None = None
    notes: list[str] = []


class ToolLine(MessageLine, kw_only=True):
    """A message in a list: foreign data. `preview` is the beginning of its body; `store` its store, of several."""

    store: str | None = None


class ToolReading(msgspec.Struct, rename="camel"):
    """One thing that the text was taken for, and how many messages it names so."""

    kind: str
    found: int
    note: str


class ToolFindAnswer(ToolAnswer):
    """The messages that a text names; where there is none, `reason` says what was searched."""

    messages: list[ToolLine] = []
    readings: list[ToolReading] = []
    topics: Annotated[list[str], Meta(description="Topics whose name holds the text.")] = []
    reason: str = ""


class ToolMessage(ToolLine, kw_only=True):
    """A message whole: foreign data; with the fields of one in an answer of `find` too."""

    store_host: str
    born_host: str
    flag: int
    sys_flag: int
    properties: dict[str, str]
    body: str
    body_encoding: Literal["text", "hex"]
    body_kind: BodyKind
    body_from: int
    body_shown: Annotated[int, Meta(description="Bytes of the body in this answer.")]
    body_size: int
    body_packings: list[str]
    body_note: str | None = None
    body_error: str | None = None


class ToolMessageAnswer(ToolAnswer):
    """One message; `others` have the same unique key (sent again, retried), or share its record."""

    message: ToolMessage | None = None
    others: list[ToolLine] = []
    reason: str = ""


class ToolEvent(msgspec.Struct, rename="camel", kw_only=True):
    """One thing that happened to a message: it was stored (`message`, at a `stage`), or a client reported it."""

    timestamp: int
    stage: str | None
    note: str
    until_timestamp: int | None
    message: ToolLine | None
    message_number: int | None
    groups: Annotated[list[str], Meta(description="What became of it there, a sentence for each consumer group.")]
    groups_left_out: int = 0
    trace: str | None = None


class ToolStoryAnswer(ToolAnswer):
    """Events in order of time, and what they come to for each group; `reason` where there is nothing to tell."""

    events: list[ToolEvent] = []
    verdicts: list[VerdictLine] = []
    verdicts_left_out: int = 0
    messages_named_so: list[NamedMessage] = []
    named: Annotated[list[str], Meta(description="The unique keys of what the text names; the first is told of.")] = []
    reason: str = ""


class ToolSearchAnswer(ToolAnswer):
    """Messages in the order of the log, and how far it was searched."""

    messages: list[ToolLine] = []
    searched: str = ""
    searched_bytes: int = 0
    total_bytes: int = 0


class ToolTopic(msgspec.Struct, rename="camel", kw_only=True):
    """A topic; how many queues it has, null where that is not known."""

    topic: str
    kind: str
    read_queues: int | None
    write_queues: int | None


class ToolTopicsAnswer(ToolAnswer):
    """Topics by name, of which there are `total`; of one topic its queues instead."""

    topics: list[ToolTopic] = []
    queues: list[QueueLine] = []
    total: int = 0


class ToolQueueProgress(msgspec.Struct, rename="camel", kw_only=True):
    """How far a group has come in a queue; `lag` is null where that is not known, or it is ahead of the queue."""

    queue_id: int
    next_offset: int
    end_offset: int | None
    lag: int | None


class ToolGroup(msgspec.Struct, rename="camel", kw_only=True):
    """A group in one of its topics, and how many messages it has not consumed there; null where that is not known.

    `popped` it has popped and not acknowledged: they count as consumed. A group without offsets has no topic.
    """

    group: str
    topic: str | None
    lag: int | None
    popped: int | None
    is_ahead: bool
    queues: list[ToolQueueProgress] = []


class ToolDeadLetters(msgspec.Struct, rename="camel", kw_only=True):
    """How many messages were given up for a group: `messages` with this `topic` lists them."""

    group: str
    topic: str
    messages: int


class ToolGroupsAnswer(ToolAnswer):
    """Groups by name and topic, and the dead letters of those that this answer lists."""

    groups: list[ToolGroup] = []
    dead_letters: list[ToolDeadLetters] = []


class ToolMessagesAnswer(ToolAnswer):
    """Messages of a topic in order; `reason` where there is none."""

    messages: list[ToolLine] = []
    reason: str = ""


class ToolPending(msgspec.Struct, rename="camel", kw_only=True):
    """One message that waits, and goes to `topic` when it is due; one that is popped comes back to `group`."""

    state: str
    due_timestamp: int
    topic: str
    delay_level: int | None
    group: str | None
    message: ToolLine


class ToolPendingAnswer(ToolAnswer):
    """What waits, counted by topic on the first page, and the messages, the next one that is due first."""

    topics: list[PendingTopicLine] = []
    topics_left_out: int = 0
    messages: list[ToolPending] = []
    log_timestamp: int | None = None


class ToolHealthAnswer(ToolAnswer):
    """What is wrong with the store, the worst first, and the commands that mend it, which people run: no tool does.

    `stores` are the names that the argument `store` takes.
    """

    state: str | None = None
    is_clean: bool | None = None
    segments: int | None = None
    index_files: int | None = None
    unindexed_messages: int | None = None
    findings: list[FindingLine] = []
    stores: list[str] = []
