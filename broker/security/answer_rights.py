"""What an account may see of an answer that is made: records by the topics of the messages, offsets by theirs.

Which messages a request finds is known only once it is answered: an offset may be anybody's, and the copies of a
message that waits, is retried or was given up are stored under topics of the broker's own. Each counts as one of the
topic that it was sent to as well. An answer with a record that is not for the account is refused as a whole, so that
nothing is passed over silently; offsets of other topics are left out.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from broker.security.accounts import Account, Permission
from broker.security.guard import Guard, no_permission
from broker.service.dispatcher import ClientConnection
from protocol.bodies import TopicList, decode_json, encode_json
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, ext_fields_of
from protocol.errors import RocketLensError
from protocol.fastjson import parse_fastjson
from protocol.message import Message, decode_message, decode_messages
from protocol.message_id import decode_message_id
from protocol.offset_keys import SEPARATOR
from protocol.system_topics import RETRY_PREFIX, Content, Origin, Stage, content_of, stage_of
from storage.files.waiting import Lookup
from storage.life.origins import Origins

RECORD_CODES: Final = frozenset(
    {
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.QUERY_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
    }
)
"""Codes whose answers are records."""

Statistics: TypeAlias = dict[str, Any]
"""The members of ConsumeStats; all but its `offsetTable`, whose keys are objects in Java's way, pass as they are."""

Denied: TypeAlias = Callable[[Account, Message], str | None]
"""The topic for which an account lacks the right to see a message; None where it lacks none."""

Check = Callable[[Account, bytes | memoryview, Denied], bytes | memoryview | str]
"""The body that an account may see of an answer's; or the topic for which it has no right, as a text."""


def may_read(account: Account, message: Message, origins: Origins) -> bool:
    """Whether an account may see a message: by the topic that it is stored under, and by that it was sent to."""
    return account.is_unbounded or denied_resource(account, message.topic, origins.of(message)) is None


def denied_resource(account: Account, stored_topic: str, origin: Origin) -> str | None:
    """The topic for which an account lacks the right to see a message; None where it lacks none.

    The copies that a group failed to consume are the group's: its right serves as well as one to their topic. A message
    of which it is not known where it was sent to, notes of brokers and what clients report of others' messages are for
    accounts to which no topic is denied, notes and reports for those as well that the topic is granted to by name.
    """
    if not _permits_stored(account, stored_topic, origin):
        return stored_topic
    if origin.topic is None:
        topics = tuple(topic for _, topic in origin.readings)
        if not topics and not account.reads_every_topic:
            return stored_topic
    else:
        topics = (origin.topic,)
    for topic in topics:
        if not account.permits(topic, Permission.SUB):
            return topic
        if content_of(topic) is not Content.MESSAGES and not (
            account.reads_every_topic or topic in account.permissions
        ):
            return topic
    return None


def _permits_stored(account: Account, topic: str, origin: Origin) -> bool:
    if topic in account.permissions or account.permits(topic, Permission.SUB):
        return account.permits(topic, Permission.SUB)
    if stage_of(topic) not in (Stage.RETRY, Stage.DEAD_LETTER):
        return False
    groups = (origin.group,) if origin.group is not None else tuple(group for group, _ in origin.readings)
    return bool(groups) and all(account.permits(f"{RETRY_PREFIX}{group}", Permission.SUB) for group in groups)


class AnswerRights:
    """Checks answers against the accounts of a guard; `record_at` looks up the record at a physical offset.

    `origins` says where messages were sent to.
    """

    def __init__(self, guard: Guard, record_at: Callable[[int], Lookup[memoryview | None]], origins: Origins) -> None:
        self._guard, self._record_at, self._origins = guard, record_at, origins

    def check_first(self, command: Command, connection: ClientConnection, account: Account) -> Lookup[Response | None]:
        """The refusal of a request that would hand a message of another topic to a consumer, which is to see it.

        Raises `RocketLensError` for an id that is none.
        """
        if command.code != RequestCode.CONSUME_MESSAGE_DIRECTLY or account.is_unbounded:
            return None
        physical_offset = decode_message_id(ext_fields_of(command).get("msgId", "")).physical_offset
        record = yield from self._record_at(physical_offset)
        denied = None if record is None else self._denied(account, decode_message(record, check_crc=False))
        return None if denied is None else no_permission(account, denied, connection.peer_address.host)

    def check(self, command: Command, connection: ClientConnection, response: Response) -> Response:
        """The answer to an admitted request as its account may see it."""
        check = CHECKS.get(command.code)
        if check is None or response.code != ResponseCode.SUCCESS or not response.body:
            return response
        try:
            account = self._guard.account_of(command, connection)
            if isinstance(account, Response):
                return account
            if account is None or account.is_unbounded:
                return response
            seen = check(account, response.body, self._denied)
        except RocketLensError as error:
            return Response(ResponseCode.SYSTEM_ERROR, str(error))
        if isinstance(seen, str):
            return no_permission(account, seen, connection.peer_address.host)
        return response if seen is response.body else msgspec.structs.replace(response, body=seen)

    def _denied(self, account: Account, message: Message) -> str | None:
        return denied_resource(account, message.topic, self._origins.of(message))


def _check_records(account: Account, body: bytes | memoryview, denied_in: Denied) -> bytes | memoryview | str:
    for message in decode_messages(body, check_crc=False):
        denied = denied_in(account, message)
        if denied is not None:
            return denied
    return body


def _check_progress(account: Account, body: bytes | memoryview, _: Denied) -> bytes:
    """The progress of a group in the topics that an account may read."""
    return msgspec.json.encode(_readable_progress(account, parse_fastjson(bytes(body))))


def _check_all_progress(account: Account, body: bytes | memoryview, _: Denied) -> bytes:
    """The progress of all groups, as far as an account may read their topics."""
    decoded = parse_fastjson(bytes(body))
    decoded["consumeStatsList"] = [
        {group: [_readable_progress(account, stats) for stats in each] for group, each in groups.items()}
        for groups in decoded["consumeStatsList"]
    ]
    return msgspec.json.encode(decoded)


def _readable_progress(account: Account, stats: Statistics) -> Statistics:
    """Statistics whose table has the queues of topics that an account may read; its keys are objects, as Java's."""
    table = stats["offsetTable"]
    keys = [key for key in table if account.permits(msgspec.json.decode(key)["topic"], Permission.SUB)]
    rows = ",".join(f"{key}:{msgspec.json.encode(table[key]).decode()}" for key in keys)
    return {**stats, "offsetTable": msgspec.Raw(f"{{{rows}}}".encode())}


def _check_offsets(account: Account, body: bytes | memoryview, _: Denied) -> bytes:
    """The offsets of all groups in topics that an account may read; a key is topic, @ and group."""
    decoded = parse_fastjson(bytes(body))
    table = decoded["offsetTable"].items()
    decoded["offsetTable"] = {
        key: queues for key, queues in table if account.permits(key.partition(SEPARATOR)[0], Permission.SUB)
    }
    return msgspec.json.encode(decoded)


def _check_topics(account: Account, body: bytes | memoryview, _: Denied) -> bytes:
    """The topics of a group, without those that an account may not read."""
    topics = decode_json(bytes(body), TopicList)
    return encode_json(TopicList([topic for topic in topics.topic_list if account.permits(topic, Permission.SUB)]))


def _check_running_info(account: Account, body: bytes | memoryview, _: Denied) -> bytes | memoryview | str:
    """What a consumer says of itself, if an account may read all topics whose queues and offsets it names."""
    decoded: Any = parse_fastjson(bytes(body))
    tables = [decoded.get(name) for name in ("mqTable", "mqPopTable")] if isinstance(decoded, dict) else []
    for key in (key for table in tables if isinstance(table, dict) for key in table):
        queue = parse_fastjson(key)
        topic = queue.get("topic") if isinstance(queue, dict) else None
        if not isinstance(topic, str) or not account.permits(topic, Permission.SUB):
            return str(topic)
    return body


CHECKS: Final[dict[int, Check]] = {
    **dict.fromkeys(RECORD_CODES, _check_records),
    RequestCode.GET_CONSUME_STATS: _check_progress,
    RequestCode.GET_BROKER_CONSUME_STATS: _check_all_progress,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _check_offsets,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _check_topics,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _check_running_info,
}
