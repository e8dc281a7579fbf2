"""What each tool takes: structs, from which its JSON schema is made, and by which arguments are checked."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rocketlens.mcp.tool_context import MOST_SECONDS

MOST_LISTED = 25
"""Messages in one answer."""

Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096)]
Topic: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255, description="In this topic alone.")]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_LISTED)]
When: TypeAlias = Annotated[
    int | Annotated[str, Meta(min_length=1, max_length=64)],
    Meta(description="ms since 1970, ISO 8601, -1h, or yesterday 14:00"),
]
End: TypeAlias = int | Annotated[str, Meta(min_length=1, max_length=64)]
Page: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=8192,
        description="Of the answer before: the same call goes on.",
    ),
]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Charset: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=40, description="Of bodies that are text, else UTF-8.")
]


class ToolArguments(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What every tool takes; `seconds` is the time for its answer."""

    store: (
        Annotated[str, Meta(min_length=1, max_length=4096, description="One of several, `health` names them.")] | None
    ) = None
    seconds: Annotated[float, Meta(ge=0.1, le=MOST_SECONDS)] = 2.0
    cursor: Page | None = None


class FindTool(ToolArguments):
    """Arguments of `find`."""

    text: Annotated[Text, Meta(description="An order number, key, unique key, message id, offset or tag, whole.")]
    topic: Topic | None = None
    begin: When | None = None
    end: End | None = None
    kind: (
        Annotated[
            Literal["offset message id", "physical offset", "unique key or key", "key", "unique key", "tag"],
            Meta(description="What the text is, if that is known; else everything that it may be is tried."),
        ]
        | None
    ) = None
    charset: Charset | None = None
    limit: Limit = 20


class MessageTool(ToolArguments):
    """Arguments of `message`."""

    id: Annotated[
        Text, Meta(description="messageId, uniqueKey, offsetMessageId or physicalOffset of an answer of another tool.")
    ]
    topic: Topic | None = None
    body_from: Annotated[Offset, Meta(description="The byte of the body to begin at.")] = 0
    body_limit: Annotated[int, Meta(ge=1, le=16384, description="Bytes of the body in this answer.")] = 4096
    damaged: Annotated[bool, Meta(description="Show a record whose checksum is wrong too.")] = False
    charset: Charset | None = None


class StoryTool(ToolArguments):
    """Arguments of `story`."""

    id: Annotated[Text, Meta(description="A unique key, or what `find` takes; of several messages the newest.")]
    topic: (
        Annotated[
            str, Meta(min_length=1, max_length=255, description="The topic that it was sent to; else all are searched.")
        ]
        | None
    ) = None
    limit: Limit = 20


class SearchTool(ToolArguments):
    """Arguments of `search`."""

    topic: Topic | None = None
    begin: When | None = None
    end: End | None = None
    contains: Annotated[Text, Meta(description="A text that the message holds, as it is.")] | None = None
    regex: Annotated[Text, Meta(description="A regular expression of Python's that matches anywhere.")] | None = None
    place: Annotated[
        Literal["body", "properties", "any"], Meta(description="Where text and regular expression are looked for.")
    ] = "body"
    json_path: Annotated[Text, Meta(description="JSONPath=value over bodies of JSON: $.order.id=4711")] | None = None
    where: Annotated[Text, Meta(description="SQL92 over the properties: region = 'hz' AND a > 5")] | None = None
    tag: Annotated[Text, Meta(description="A tag subscription: TagA || TagB")] | None = None
    key: Annotated[Text, Meta(description="One of its keys, or its unique key, whole.")] | None = None
    key_prefix: Annotated[Text, Meta(description="How one of its keys begins.")] | None = None
    born_host: Annotated[Text, Meta(description="Address or network of its sender: 10.1.0.0/16")] | None = None
    size: Annotated[Text, Meta(description="Bytes of the body: 512, 1k..64k, ..2M")] | None = None
    exhaustive: Annotated[bool, Meta(description="Read the whole log, trusting neither queues nor clocks.")] = False
    charset: Charset | None = None
    limit: Limit = 20


class TopicsTool(ToolArguments):
    """Arguments of `topics`."""

    contains: Annotated[str, Meta(max_length=255, description="Topics whose name holds this text, in any case.")] = ""
    topic: (
        Annotated[
            str, Meta(min_length=1, max_length=255, description="This one, with its queues, their offsets and times.")
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=200, description="Most topics or queues of this answer.")] = 100


class GroupsTool(ToolArguments):
    """Arguments of `groups`."""

    contains: Annotated[str, Meta(max_length=255, description="Groups whose name holds this text, in any case.")] = ""
    topic: Topic | None = None
    behind: Annotated[bool, Meta(description="Leave out where a group has consumed everything.")] = False
    queues: Annotated[bool, Meta(description="Also the offsets queue by queue.")] = False
    limit: Annotated[int, Meta(ge=1, le=200, description="Most pairs of group and topic of this answer.")] = 50


class MessagesTool(ToolArguments):
    """Arguments of `messages`."""

    topic: Annotated[str, Meta(min_length=1, max_length=255, description="The topic, also %DLQ%group or %RETRY%group.")]
    queue_id: Annotated[int, Meta(ge=0, le=2**31 - 1, description="One queue of it, from `offset` on.")] | None = None
    offset: Annotated[Offset, Meta(description="The queue offset to begin at.")] = 0
    begin: When | None = None
    end: End | None = None
    order: Annotated[
        Literal["oldest", "newest"], Meta(description="newest: from the last message back, of all queues, at any time.")
    ] = "oldest"
    tag: Annotated[Text, Meta(description="A tag subscription: TagA || TagB")] | None = None
    where: Annotated[Text, Meta(description="SQL92 over the properties.")] | None = None
    charset: Charset | None = None
    limit: Limit = 20


class PendingTool(ToolArguments):
    """Arguments of `pending`."""

    topic: Annotated[str, Meta(min_length=1, max_length=255, description="The topic that they go to.")] | None = None
    due_after: When | None = None
    due_before: When | None = None
    charset: Charset | None = None
    limit: Limit = 20


class HealthTool(ToolArguments):
    """Arguments of `health`."""

    limit: Limit = 20
