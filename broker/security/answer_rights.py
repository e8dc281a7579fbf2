"""What an account may see of an answer that is made: records by the topics of the messages, offsets by theirs.

Which messages a request finds is known only once it is answered: an offset may be anybody's, and the copies of a
message that waits, is retried or was given up are stored under topics of the broker's own. Each counts as one of the
topic that it was sent to as well. An answer with a record that is not for the account is refused as a whole, so that
nothing is passed over silently; offsets of other topics are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from broker.security.accounts import Account
from broker.security.guard import Guard, no_permission
from broker.security.topic_rights import StoredOrigin, denied_resource, permits_topic, readable
from broker.service.dispatcher import ClientConnection
from broker.service.store_answers import SentTopics, decode_answer, encode_answer
from protocol.bodies import TopicList, decode_json, encode_json
from protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from protocol.command import Command, Response, ext_fields_of
from protocol.errors import RocketLensError
from protocol.fastjson import parse_fastjson
from protocol.message import Message, decode_message, decode_messages
from protocol.message_id import decode_message_id
from protocol.offset_keys import SEPARATOR
from protocol.system_topics import RETRY_PREFIX
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

OF_ACCOUNT: Final = "topics that this account may not read are left out"

INCOMPLETE: Final = "rocketlensIncomplete"
"""The field of an answer with a sentence about what may be missing in it."""

Statistics: TypeAlias = dict[str, Any]
"""The members of ConsumeStats; all but its `offsetTable`, whose keys are objects in Java's way, pass as they are."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """An account that is shown what a store holds; `origins` says where its messages were sent to."""

    account: Account
    origins: Origins

    def may_see(self, topic: str) -> bool:
        """Whether it may see what an answer says of a topic."""
        return permits_topic(self.account, topic, (self.origins,))

    def denied(self, message: Message) -> str | None:
        """The topic for which it lacks the right to see a message; None where it lacks none."""
        return denied_resource(self.account, StoredOrigin.of(message, self.origins))


Check = Callable[[Viewer, bytes | memoryview], bytes | memoryview | str]
"""The body that an account may see of an answer's; or the topic for which it has no right, as a text."""


class AnswerRights:
    """Checks answers against the accounts of a guard; `record_at` looks up the record at a physical offset.

    `origins` says where messages were sent to.
    """

    def __init__(self, guard: Guard, record_at: Callable[[int], Lookup[memoryview | None]], origins: Origins) -> None:
        self._guard, self._record_at, self._origins = guard, record_at, origins

    def check_first(self, command: Command, connection: ClientConnection, account: Account) -> Lookup[Response | None]:
        """The refusal of a request that would hand a message of another topic to a consumer, which is to see it.

        Raises `RocketLensError` for an invalid id.
        """
        if command.code != RequestCode.CONSUME_MESSAGE_DIRECTLY or account.is_unbounded:
            return None
        physical_offset = decode_message_id(ext_fields_of(command).get("msgId", "")).physical_offset
        record = yield from self._record_at(physical_offset)
        if record is None:
            return None
        denied = Viewer(account, self._origins).denied(decode_message(record, check_crc=False))
        return None if denied is None else self._refusal(command, connection, account, denied)

    def check(self, command: Command, connection: ClientConnection, response: Response) -> Response:
        """The answer to an admitted request as its account may see it."""
        question = ext_fields_of(command).get("question") if command.code == OwnRequestCode.ASK_STORE else None
        check = _check_known_topics if question == "topics" else CHECKS.get(command.code)
        is_made = response.code == ResponseCode.SUCCESS and bool(response.body)
        is_sentence = response.code != ResponseCode.SUCCESS or INCOMPLETE in (response.ext_fields or ())
        if not is_sentence and (check is None or not is_made):
            return response
        try:
            account = self._guard.account_of(command, connection)
            if isinstance(account, Response):
                return account
            if account is None or account.is_unbounded:
                return response
            if is_sentence:
                response = self._readable(command, account, response)
            if check is None or not is_made:
                return response
            seen = check(Viewer(account, self._origins), response.body)
        except RocketLensError as error:
            return Response(ResponseCode.SYSTEM_ERROR, str(error))
        if isinstance(seen, str):
            return self._refusal(command, connection, account, seen)
        return response if seen is response.body else msgspec.structs.replace(response, body=seen)

    def _refusal(self, command: Command, connection: ClientConnection, account: Account, denied: str) -> Response:
        """The refusal for want of a right to a topic, which it names only if the request does."""
        self._guard.note_denied(account, denied)
        is_named = {denied, denied.removeprefix(RETRY_PREFIX)} & {*ext_fields_of(command).values()}
        return no_permission(account, denied if is_named else None, connection.peer_address.host)

    def _readable(self, command: Command, account: Account, response: Response) -> Response:
        """An answer whose sentences name no topic that an account may not read and did not ask for."""
        asked, fields = {*ext_fields_of(command).values()}, dict(response.ext_fields or {})
        remark = response.remark and readable(account, response.remark, self._origins, asked)
        if INCOMPLETE in fields:
            fields[INCOMPLETE] = readable(account, fields[INCOMPLETE], self._origins, asked)
        return msgspec.structs.replace(response, remark=remark, ext_fields=fields or response.ext_fields)


def _check_records(viewer: Viewer, body: bytes | memoryview) -> bytes | memoryview | str:
    denied = map(viewer.denied, decode_messages(body, check_crc=False))
    return next((topic for topic in denied if topic is not None), body)


def _check_progress(viewer: Viewer, body: bytes | memoryview) -> bytes:
    """The progress of a group in the topics that an account may read."""
    return msgspec.json.encode(_readable_progress(viewer, parse_fastjson(bytes(body))))


def _check_all_progress(viewer: Viewer, body: bytes | memoryview) -> bytes:
    """The progress of all groups, as far as an account may read their topics."""
    decoded = parse_fastjson(bytes(body))
    decoded["consumeStatsList"] = [
        {group: [_readable_progress(viewer, stats) for stats in each] for group, each in groups.items()}
        for groups in decoded["consumeStatsList"]
    ]
    return msgspec.json.encode(decoded)


def _readable_progress(viewer: Viewer, stats: Statistics) -> Statistics:
    """Statistics whose table has the queues of topics that an account may read; its keys are objects, as Java's."""
    table = stats["offsetTable"]
    keys = [key for key in table if viewer.may_see(msgspec.json.decode(key)["topic"])]
    rows = ",".join(f"{key}:{msgspec.json.encode(table[key]).decode()}" for key in keys)
    return {**stats, "offsetTable": msgspec.Raw(f"{{{rows}}}".encode())}


def _check_offsets(viewer: Viewer, body: bytes | memoryview) -> bytes:
    """The offsets of all groups in topics that an account may read.

    A key is topic, @ and group. What brokers keep of broadcasting groups has a second @, in the group's name.
    """
    decoded = parse_fastjson(bytes(body))
    table = decoded["offsetTable"].items()
    decoded["offsetTable"] = {key: queues for key, queues in table if viewer.may_see(key.partition(SEPARATOR)[0])}
    return msgspec.json.encode(decoded)


def _check_topics(viewer: Viewer, body: bytes | memoryview) -> bytes:
    """The topics of a group, without those that an account may not read."""
    topics = decode_json(bytes(body), TopicList)
    return encode_json(TopicList(list(filter(viewer.may_see, topics.topic_list))))


def _check_known_topics(viewer: Viewer, body: bytes | memoryview) -> bytes:
    """The topics that are known, without those that an account may not read, of which nothing else is said."""
    sent = decode_answer(bytes(body), SentTopics)
    return encode_answer(SentTopics([each for each in sent.topics if viewer.may_see(each[0])], OF_ACCOUNT))


def _check_members(viewer: Viewer, body: bytes | memoryview) -> bytes:
    """The members of a group, with what it subscribes to of topics that an account may read."""
    decoded = parse_fastjson(bytes(body))
    table = decoded["subscriptionTable"].items()
    decoded["subscriptionTable"] = {topic: wanted for topic, wanted in table if viewer.may_see(topic)}
    return msgspec.json.encode(decoded)


def _check_running_info(viewer: Viewer, body: bytes | memoryview) -> bytes | memoryview | str:
    """What a consumer says of itself, if an account may read all topics whose queues and offsets it names."""
    decoded: Any = parse_fastjson(bytes(body))
    tables = [decoded.get(name) for name in ("mqTable", "mqPopTable")] if isinstance(decoded, dict) else []
    for key in (key for table in tables if isinstance(table, dict) for key in table):
        queue = parse_fastjson(key)
        topic = queue.get("topic") if isinstance(queue, dict) else None
        if not isinstance(topic, str) or not viewer.may_see(topic):
            return str(topic)
    return body


CHECKS: Final[dict[int, Check]] = {
    **dict.fromkeys(RECORD_CODES, _check_records),
    RequestCode.GET_CONSUME_STATS: _check_progress,
    RequestCode.GET_BROKER_CONSUME_STATS: _check_all_progress,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _check_offsets,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _check_topics,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _check_members,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _check_running_info,
}
