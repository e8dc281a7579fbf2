"""Find messages: the one at a physical offset, or those with a key, a unique key or a tag.

Requests and answers are those of remoting-protocol §2.1 and store-format §4.4, 4.5, but only exact matches are
returned where a broker returns all matches of a hash. Three things are added, which Java clients ignore. The remark of
an empty answer explains why it is empty. An answer that leaves out older matches has `rocketlensTruncated`, and
`rocketlensCursor`, which is sent back as `lastKey` to get them. An answer that may lack messages says in
`rocketlensIncomplete` which.

A request with `rocketlensCopies` true also gets the copies of the topic's messages that wait or failed, which the
broker stores under topics of its own (:mod:`storage.life.message_copies`). They are returned as they are stored: the
topic of each shows what kind of copy it is.
"""

from collections.abc import Iterator

import msgspec

from broker.service.broker_service import BrokerService
from broker.service.dispatcher import Request, handles
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, ext_field_of
from protocol.errors import BadHeader
from protocol.headers import QueryMessageRequestHeader, ViewMessageRequestHeader
from protocol.message import HostAddress, decode_message, with_store_host, without_property
from protocol.message_id import MessageId, decode_message_id, is_offset_message_id_candidate
from protocol.properties import UNIQ_KEY
from protocol.question import KIND_OF_LETTER, LARGEST, NOT_FOUND_BY_OFFSET, KeyKind, Question
from protocol.system_topics import is_known_by
from storage.files.waiting import Lookup, Wait, finish
from storage.life.message_copies import copy_topics, query_with_copies
from storage.store.key_search import explain_nothing
from storage.store.message_store import QueryAnswer

NOT_FOUND = "can not find message, maybe time range not correct"
OTHER_TOPIC = "The topic does not match the message"

MAXIMUM_BY_KEY = 64
"""Most messages of one answer, as in a broker (maxMsgsNumBatch)."""

MAXIMUM_BY_UNIQUE_KEY = 32
"""Most messages of an answer to a unique key, whatever maxNum says (defaultQueryMaxNum)."""

HEADER_RESERVE = 8 * 1024
"""Bytes of a frame that are reserved for its header; the texts in it are cut so that they fit."""

LONGEST_TEXT = 2_000
"""Most characters of a remark or of `rocketlensIncomplete`; each takes at most three bytes."""

# These are module constants because each use of an enum's member costs a look-up, for every request.
ANY, UNIQUE, SUCCESS = KeyKind.ANY, KeyKind.UNIQUE, ResponseCode.SUCCESS

NOTHING_TO_DISCLOSE: dict[str, str] = {}


class QueryMessageProcessor:
    """Answers VIEW_MESSAGE_BY_ID and QUERY_MESSAGE."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._store = service.store
        self._rewrite = service.options.rewrite_store_host
        self._body_limit = service.options.frame_limit - HEADER_RESERVE
        self._last_update = (0, 0)
        self._found_fields = found_fields(0, 0)

    @handles(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader)
    def view_message_by_id(self, header: ViewMessageRequestHeader, request: Request) -> Response | Lookup[Response]:
        """The one record that starts at a physical offset, byte for byte; else an error that says why there is none.

        A request that names a topic gets no record of another one, as from a broker 5.5.1. A record that waits or was
        retried also matches its first topic, and one of light queues the topics of these.
        """
        record = self._store.hot_record_at(header.offset)
        return self._look_at(header, request) if record is None else self._view(record, header, request)

    def _look_at(self, header: ViewMessageRequestHeader, request: Request) -> Lookup[Response]:
        """Answer a view of a record that is not in memory, or does not exist."""
        record = yield from self._store.record_at_lookup(header.offset)
        if record is None:
            reason = yield from self._store.explain_absence_lookup(header.offset)
            remark = _cut(f"{NOT_FOUND_BY_OFFSET}, {header.offset}: {reason}")
            return Response(ResponseCode.SYSTEM_ERROR, remark)
        return self._view(record, header, request)

    def _view(self, record: memoryview, header: ViewMessageRequestHeader, request: Request) -> Response:
        if header.topic and not _is_called(record, header.topic, request.command):
            return Response(ResponseCode.NO_PERMISSION, OTHER_TOPIC)
        if len(record) > self._body_limit:
            return self._too_long(header.offset, len(record))
        if self._rewrite:
            return Response(body=with_store_host(record, self._own_address(request)))
        return Response(body=record)

    @handles(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader)
    def query_message(self, header: QueryMessageRequestHeader, request: Request) -> Lookup[Response]:
        """The newest messages with a key, unique key or tag, in ascending order of their physical offsets."""
        query = _key_query(header, self._body_limit)
        if wants_copies(request.command):
            answer = yield from self._with_copies(query)
        else:
            if query.kind is UNIQUE and is_offset_message_id_candidate(header.key):
                record = yield from self._record_of_offset_id(decode_message_id(header.key), request)
                if record is not None:
                    return self._found(record, NOTHING_TO_DISCLOSE)
            answer = yield from self._searched(query)
            if not answer.records:
                answer = (yield from self._query_in_namespace(query, request)) or answer
        if not answer.records:
            return (yield from self._none(header, answer))
        records = self._rewritten(answer.records, request) if self._rewrite else answer.records
        return self._found(records, _disclosures(answer))

    def _searched(self, query: Question) -> Lookup[QueryAnswer]:
        answer = yield from self._store.query_lookup(query)
        if self._service.meter is not None:
            self._service.meter.searched(answer.found)
        return answer

    def _found(self, records: bytes | memoryview, disclosures: dict[str, str]) -> Response:
        last_update = self._store.index_last_update()
        if last_update != self._last_update:
            self._last_update = last_update
            self._found_fields = found_fields(*last_update)
        return found(self._found_fields, disclosures, records)

    def _with_copies(self, query: Question) -> Lookup[QueryAnswer]:
        """Search for the copies too; never on the event loop, since a topic of every group is searched."""
        yield Wait("copies under many topics")
        return query_with_copies(
            lambda each: finish(self._searched(each)), query, copy_topics(self._store), self._service.origins
        )

    def _none(self, header: QueryMessageRequestHeader, answer: QueryAnswer) -> Lookup[Response]:
        """Make the answer that nothing was found: the broker's words, then the reason."""
        if answer.truncated:
            return Response(ResponseCode.SYSTEM_ERROR, f"the newest match is longer than {self._body_limit} bytes")
        yield from self._store.queues.listed()
        remark = f"{NOT_FOUND}; {explain_nothing(self._store, header.topic, answer)}"
        return Response(ResponseCode.QUERY_NOT_FOUND, _cut(remark), found_fields(0, 0) | _disclosures(answer))

    def _too_long(self, physical_offset: int, size: int) -> Response:
        return Response(
            ResponseCode.SYSTEM_ERROR,
            f"the record at physical offset {physical_offset} has {size} bytes, one answer at most {self._body_limit}",
        )

    def _query_in_namespace(self, query: Question, request: Request) -> Lookup[QueryAnswer | None]:
        """Ask again with the namespace before the topic if the client has the server add it (remoting-protocol §7)."""
        topic = _in_namespace(query.topic, request.command)
        if topic is None:
            return None
        answer = yield from self._searched(msgspec.structs.replace(query, topic=topic))
        return answer if answer.records else None

    def _record_of_offset_id(self, message_id: MessageId, request: Request) -> Lookup[bytes | memoryview | None]:
        """The record that an offset id names, in a form that Java clients accept as the answer to that id; else None.

        They accept a record whose UNIQ_KEY equals the id, and one without UNIQ_KEY if the id computed from the record
        equals it (remoting-protocol §8.3). So the property is removed, and the store host is kept unless the id names
        our own address.
        """
        record: bytes | memoryview | None = yield from self._store.message_by_offset_id_lookup(message_id)
        if record is None and self._rewrite and message_id.address == self._own_address(request):
            record = yield from self._store.record_at_lookup(message_id.physical_offset)
            record = None if record is None else with_store_host(record, message_id.address)
        if record is None or len(record) > self._body_limit:
            return None
        return without_property(record, UNIQ_KEY)

    def _rewritten(self, records: bytes, request: Request) -> bytes:
        """Copy the records with our own address as their store host."""
        address = self._own_address(request)
        return b"".join(with_store_host(record, address) for record in split_records(records))

    def _own_address(self, request: Request) -> HostAddress:
        """Our address with an IP, since a record cannot hold a host name."""
        host, port = self._service.advertise_ip or request.connection.local_address
        return HostAddress(host, port)


def _is_called(record: bytes | memoryview, topic: str, command: Command) -> bool:
    """Whether a record has the topic that a request names; a name of white space matches every topic."""
    message = decode_message(record, check_crc=False)
    if is_known_by(message, topic) or not topic.strip():
        return True
    wrapped = _in_namespace(topic, command)
    return wrapped is not None and is_known_by(message, wrapped)


def _in_namespace(topic: str, command: Command) -> str | None:
    """The topic with its namespace, for a client that has the server add it; None for other clients."""
    namespace = ext_field_of(command, "ns")
    if not namespace or (ext_field_of(command, "nsd") or "").lower() != "true" or topic.startswith(f"{namespace}%"):
        return None
    return f"{namespace}%{topic}"


def _key_query(header: QueryMessageRequestHeader, maximum_bytes: int) -> Question:
    """Turn a header into a query of the store; raises `BadHeader` for a number that is out of range."""
    if header.unique_key_query:
        kind, maximum = UNIQUE, MAXIMUM_BY_UNIQUE_KEY
    else:
        kind, maximum = KIND_OF_LETTER.get(header.index_type or "", ANY), header.max_num
        if maximum < 0:
            raise BadHeader("maxNum", str(maximum), "expected 0 or more")
        if maximum > MAXIMUM_BY_KEY:
            maximum = MAXIMUM_BY_KEY
    before = parse_cursor(header.last_key) if header.last_key else LARGEST
    begin, end = header.begin_timestamp, header.end_timestamp
    return Question(header.topic, header.key, kind, maximum, begin, end, before, maximum_bytes)


def parse_cursor(last_key: str | None) -> int:
    """Return the physical offset below which a page lies: the last `@` field of a `lastKey`, or a bare number.

    None and "" mean the first page. Raises `BadHeader` for a field that is no offset.
    """
    if not last_key:
        return LARGEST
    digits = last_key.rpartition("@")[2]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or int(digits) > LARGEST:
        raise BadHeader("lastKey", last_key, "its last @ field is no physical offset")
    return int(digits)


def split_records(records: bytes | memoryview) -> Iterator[memoryview]:
    """Yield each record of bytes in which records follow one another."""
    rest = memoryview(records)
    while rest:
        size = int.from_bytes(rest[:4])
        yield rest[:size]
        rest = rest[size:]


def found_fields(timestamp: int, physical_offset: int) -> dict[str, str]:
    """Make the header fields that a Java client needs in every answer."""
    return {"indexLastUpdatePhyoffset": str(physical_offset), "indexLastUpdateTimestamp": str(timestamp)}


def found(fields: dict[str, str], disclosures: dict[str, str], records: bytes | memoryview = b"") -> Response:
    """Make the answer with records; `fields` are :func:`found_fields`, `disclosures` what is left out or missing."""
    if not disclosures:
        return Response(SUCCESS, None, fields, records)
    return Response(SUCCESS, _remark(disclosures), fields | disclosures, records)


def _disclosures(answer: QueryAnswer) -> dict[str, str]:
    """The header fields that say what an answer leaves out; mostly there are none."""
    if not answer.truncated and answer.incomplete is None:
        return NOTHING_TO_DISCLOSE
    return disclose(answer.cursor, answer.incomplete)


def disclose(cursor: int | None, incomplete: str | None) -> dict[str, str]:
    """Make the header fields for the cursor of the next page, and for a sentence about what may be missing."""
    fields = {}
    if cursor is not None:
        fields = {"rocketlensTruncated": "true", "rocketlensCursor": str(cursor)}
    if incomplete:
        fields["rocketlensIncomplete"] = _cut(incomplete)
    return fields


def wants_copies(command: Command) -> bool:
    """Whether a request asks for copies too."""
    return (ext_field_of(command, "rocketlensCopies") or "").lower() == "true"


def _remark(disclosures: dict[str, str]) -> str:
    """The header fields of `disclose` as a sentence for people."""
    sentences = []
    if "rocketlensCursor" in disclosures:
        sentences.append(f"older matches are left out, the next page is at lastKey {disclosures['rocketlensCursor']}")
    if "rocketlensIncomplete" in disclosures:
        sentences.append(f"something may be missing: {disclosures['rocketlensIncomplete']}")
    return _cut("; ".join(sentences))


def _cut(text: str) -> str:
    """Keep a text short enough for a header."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
