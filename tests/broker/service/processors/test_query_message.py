"""VIEW_MESSAGE_BY_ID and QUERY_MESSAGE on g1, whose ids, keys and tags `produced.tsv` has as the producer had them.

What the broker recorded is compared in test_golden_replay; here is what only ours does, and the edges.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import pytest

from asking import Asker, FakeConnection
from broker.endpoint import Endpoint
from broker.service.processors import query_message
from broker.service.processors.query_message import parse_cursor
from golden_store import G1
from protocol.codes import ResponseCode
from protocol.command import Response
from protocol.errors import BadHeader
from protocol.message import HostAddress, Message, decode_message, decode_messages
from protocol.message_id import decode_message_id, encode_message_id
from protocol.question import Question
from storage.files.waiting import Lookup
from storage.store.message_store import QueryAnswer

VIEW, QUERY = 33, 12
FOREVER = "9223372036854775807"


@dataclass(frozen=True)
class Produced:
    """What the broker answered the producer about one message, or about the first one of a batch."""

    unique_key: str
    offset_message_id: str
    topic: str
    keys: list[str]
    tag: str | None

    @property
    def physical_offset(self) -> int:
        return int(self.offset_message_id[16:], 16)


def produced() -> list[Produced]:
    found = []
    with (G1 / "produced.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if len(row) < 9 or not row[3] or "," in row[3] or row[3] == "null":
                continue
            keys = [] if row[7] == "null" else row[7].split()
            found.append(Produced(row[2], row[3], row[4], keys, None if row[8] == "null" else row[8]))
    assert len(found) > 10
    return found


PRODUCED = produced()
FIRST = PRODUCED[0]


@pytest.fixture(scope="module")
def asker(g1_store: Path) -> Asker:
    return Asker(g1_store)


def query(asker: Asker, topic: str = "TopicTest", key: str = "hotkey", **fields: str) -> Response:
    """Ask as an old client does, without indexType, unless told otherwise."""
    wanted = {"topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": FOREVER} | fields
    return asker.ask(QUERY, {name: value for name, value in wanted.items() if value != "(absent)"})


def messages(response: Response) -> list[Message]:
    assert response.code == ResponseCode.SUCCESS, response.remark
    return list(decode_messages(response.body))


def unique_keys(response: Response) -> set[str | None]:
    return {message.unique_key for message in messages(response)}


def stored_bytes(root: Path, physical_offset: int, size: int) -> bytes:
    segment, position = divmod(physical_offset, 131072)
    with (root / "commitlog" / f"{segment * 131072:020}").open("rb") as file:
        file.seek(position)
        return file.read(size)


# ---------------------------------------------------------------------- by offset


def test_a_view_answers_the_record_byte_for_byte_and_each_key_unique_key_and_tag_finds_it(
    asker: Asker, g1_store: Path
) -> None:
    for one in PRODUCED:
        response = asker.ask(VIEW, {"offset": str(one.physical_offset)})
        assert (response.code, response.remark, response.ext_fields) == (0, None, None)
        assert bytes(response.body) == stored_bytes(g1_store, one.physical_offset, len(response.body))
        message = decode_message(response.body, physical_offset=one.physical_offset)
        assert message.offset_message_id == one.offset_message_id
        found = messages(query(asker, one.topic, one.unique_key, _UNIQUE_KEY_QUERY="true", indexType="U"))
        assert [message.unique_key for message in found] == [one.unique_key] * len(found) != []
        for key in one.keys:
            assert one.unique_key in unique_keys(query(asker, one.topic, key, indexType="K"))
            assert one.unique_key in unique_keys(query(asker, one.topic, key))
        if one.tag:
            # The newest 64 of a tag that more messages carry need not hold this one.
            page = messages(query(asker, one.topic, one.tag, indexType="T"))
            assert {message.tags for message in page} == {one.tag}


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        ("1", "lies inside the record that starts at 0"),
        ("-1", "lies before the log's start at 0"),
        (str(-(2**63)), "lies before the log's start"),
        ("1048576", "lies past the end of the log's valid data"),
        (FOREVER, "lies past the end of the log's valid data"),
    ],
)
def test_a_view_where_no_record_starts_says_why(asker: Asker, offset: str, reason: str) -> None:
    response = asker.ask(VIEW, {"offset": offset})
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert (response.remark or "").startswith(f"can not find message by the offset, {offset}: ")
    assert reason in (response.remark or "")
    assert not response.body


# ---------------------------------------------------------------------- by key, unique key, tag


@pytest.mark.parametrize("index_type", ["(absent)", "", "U", "X", "K", "T"])
@pytest.mark.parametrize("flag", ["(absent)", "false", "true", "TRUE"])
def test_a_unique_key_is_found_where_the_index_type_does_not_forbid_it_and_the_flag_wins(
    asker: Asker, index_type: str, flag: str
) -> None:
    response = query(asker, FIRST.topic, FIRST.unique_key, indexType=index_type, _UNIQUE_KEY_QUERY=flag)
    if index_type in ("K", "T") and flag.lower() != "true":
        assert response.code == ResponseCode.QUERY_NOT_FOUND
    else:
        assert unique_keys(response) == {FIRST.unique_key}


# ---------------------------------------------------------------------- what an answer says of itself


def test_a_miss_says_in_the_brokers_words_and_then_in_ours_what_was_searched(asker: Asker) -> None:
    response = query(asker, key="nosuchkey")
    assert response.ext_fields == {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}
    assert not response.body
    remark = response.remark or ""
    assert remark.startswith("can not find message, maybe time range not correct; searched 10 index files")
    for word in ("entries", "refused", "index covers", "physical offsets", "the log holds"):
        assert word in remark


@pytest.mark.parametrize("form", ["{0}", "1795240800000@TopicTest@K@hotkey@ID@{0}", "a@@{0}"])
@pytest.mark.parametrize("maximum", ["1", "7", "39"])
def test_all_matches_can_be_paged(asker: Asker, form: str, maximum: str) -> None:
    everything = messages(query(asker))
    pages: list[Message] = []
    fields: dict[str, str] = {}
    while True:
        response = query(asker, maxNum=maximum, **fields)
        pages = messages(response) + pages
        cursor = (response.ext_fields or {}).get("rocketlensCursor")
        if cursor is None:
            break
        fields = {"lastKey": form.format(cursor)}
    assert pages == everything


@pytest.mark.parametrize("last_key", ["x", "1@", "@", "1@-5", "1@5 ", "1@٣", f"@{2**63}", "9" * 100])
def test_a_cursor_that_is_none_is_an_error_that_names_it(asker: Asker, last_key: str) -> None:
    response = query(asker, lastKey=last_key)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert (response.remark or "").startswith("lastKey: ")
    with pytest.raises(BadHeader):
        parse_cursor(last_key)


def with_room_for(monkeypatch: pytest.MonkeyPatch, root: Path, size: int) -> Asker:
    """A service whose frames have room for bodies of so many bytes."""
    monkeypatch.setattr(query_message, "HEADER_RESERVE", 65536 - size)
    return Asker(root, frame_limit=65536)


def test_an_answer_is_cut_at_whole_messages_and_drops_the_oldest(
    asker: Asker, g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = messages(query(asker))
    response = query(with_room_for(monkeypatch, g1_store, 3000))
    found = messages(response)
    assert 0 < sum(message.total_size for message in found) <= 3000
    assert sum(message.total_size for message in whole[-len(found) - 1 :]) > 3000
    assert found == whole[-len(found) :]
    assert (response.ext_fields or {})["rocketlensCursor"] == str(found[0].physical_offset)


def test_a_record_longer_than_any_frame_is_said_to_be(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = with_room_for(monkeypatch, g1_store, 10)
    response = query(tiny)
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "the newest match is longer than 10 bytes")
    response = tiny.ask(VIEW, {"offset": "0"})
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "has 275 bytes, one answer at most 10" in (response.remark or "")
    assert query(tiny, key=FIRST.offset_message_id, _UNIQUE_KEY_QUERY="true").code != ResponseCode.SUCCESS


def test_what_an_answer_may_lack_is_said(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    real = asker.store.query_lookup

    def incomplete(question: Question) -> Lookup[QueryAnswer]:
        answer = yield from real(question)
        answer.incomplete = "no segment holds physical offsets 5 to 9"
        return answer

    monkeypatch.setattr(asker.store, "query_lookup", incomplete)
    for response in (query(asker), query(asker, key="nosuchkey")):
        assert (response.ext_fields or {})["rocketlensIncomplete"] == "no segment holds physical offsets 5 to 9"
    assert "may be missing: no segment holds" in (query(asker).remark or "")


# ---------------------------------------------------------------------- offset ids as unique keys


@pytest.mark.parametrize("topic", ["(its own)", "TopicTest", "AnyTopic"])
def test_a_unique_query_for_an_offset_id_is_answered_so_that_java_takes_it(asker: Asker, topic: str) -> None:
    for one in PRODUCED:
        asked = {"_UNIQUE_KEY_QUERY": "true", "indexType": "U", "maxNum": "32"}
        named = one.topic if topic == "(its own)" else topic
        (message,) = messages(query(asker, named, one.offset_message_id, **asked))
        # What MessageExt.getMsgId() gives for this record.
        assert (message.unique_key, message.message_id) == (None, one.offset_message_id)
        original = decode_message(asker.ask(VIEW, {"offset": str(one.physical_offset)}).body)
        assert bytes(message.body) == bytes(original.body)
        assert message.properties == {name: text for name, text in original.properties.items() if name != "UNIQ_KEY"}


@pytest.mark.parametrize(
    "message_id",
    [
        encode_message_id(HostAddress("127.0.0.1", 10912), FIRST.physical_offset),
        encode_message_id(HostAddress("127.0.0.2", 10911), FIRST.physical_offset),
        encode_message_id(HostAddress("::1", 10911), FIRST.physical_offset),
        encode_message_id(HostAddress("127.0.0.1", 10911), FIRST.physical_offset + 1),
        encode_message_id(HostAddress("127.0.0.1", 10911), 2**40),
    ],
)
def test_an_offset_id_of_another_host_or_of_no_record_finds_nothing(asker: Asker, message_id: str) -> None:
    assert query(asker, key=message_id, _UNIQUE_KEY_QUERY="true").code == ResponseCode.QUERY_NOT_FOUND


# ---------------------------------------------------------------------- namespaces, rewritten hosts


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"nsd": "true", "ns": "%RETRY"}, True),
        ({"nsd": "TRUE", "ns": "%RETRY"}, True),
        ({"nsd": "false", "ns": "%RETRY"}, False),
        ({"ns": "%RETRY"}, False),
        ({"nsd": "true"}, False),
        ({"nsd": "true", "ns": "other"}, False),
    ],
)
def test_a_topic_is_looked_up_inside_its_clients_namespace_too(
    asker: Asker, fields: dict[str, str], found: bool
) -> None:
    # g1 has no namespace; its retry topic %RETRY%<group> reads like one.
    retries = [topic for topic in asker.store.queues.topics() if topic.startswith("%RETRY%")]
    records = [
        message
        for topic in retries
        for message in decode_messages(_first_record_of(asker, topic))
        if message.unique_key is not None
    ]
    (message, *_) = records
    response = query(asker, message.topic.removeprefix("%RETRY%"), message.unique_key or "", **fields)
    assert (response.code == ResponseCode.SUCCESS) is found
    if found:
        assert {one.topic for one in messages(response)} == {message.topic}


def _first_record_of(asker: Asker, topic: str) -> bytes:
    for queue_id in asker.store.queues.queue_ids(topic):
        queue = asker.store.queues.queue(topic, queue_id)
        entry = queue.entry_at(queue.min_offset) if queue is not None else None
        if entry is not None:
            return bytes(asker.ask(VIEW, {"offset": str(entry.physical_offset)}).body)
    return b""


def test_records_may_go_out_with_our_own_address(g1_store: Path) -> None:
    own = Endpoint("10.1.2.3", 10911)
    ours = Asker(g1_store, rewrite_store_host=True, advertise=own)
    plain = Asker(g1_store)
    viewed = decode_message(ours.ask(VIEW, {"offset": "0"}).body)
    assert str(viewed.store_host) == str(own)
    assert viewed.unique_key == decode_message(plain.ask(VIEW, {"offset": "0"}).body).unique_key
    found = messages(query(ours))
    assert {str(message.store_host) for message in found} == {str(own)}
    assert [message.physical_offset for message in found] == [
        message.physical_offset for message in messages(query(plain))
    ]
    # The ids that clients now print lead to us, and the old ones still resolve.
    for message_id in (found[0].offset_message_id, PRODUCED[-1].offset_message_id):
        (message,) = messages(query(ours, key=message_id, _UNIQUE_KEY_QUERY="true"))
        assert message.message_id == message_id


def test_our_own_address_is_that_of_the_asking_connection_unless_told(g1_store: Path) -> None:
    ours = Asker(g1_store, rewrite_store_host=True)
    ours.connection = FakeConnection(local_address=Endpoint("::1", 20911))
    message = decode_message(ours.ask(VIEW, {"offset": "0"}).body)
    assert message.store_host == HostAddress("::1", 20911)
    assert decode_message_id(message.offset_message_id).physical_offset == 0
