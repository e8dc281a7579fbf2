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
from broker.service.processors.query_message import MAXIMUM_BY_KEY, parse_cursor, split_records
from golden_store import G1
from protocol.codes import ResponseCode
from protocol.command import Response
from protocol.errors import BadHeader
from protocol.message import HostAddress, Message, decode_message, decode_messages
from protocol.message_id import decode_message_id, encode_message_id
from protocol.question import Question
from storage.files.waiting import Lookup
from storage.store.message_store import QueryAnswer
from store_writer import StoreWriter

VIEW, QUERY = 33, 12
FOREVER = "9223372036854775807"
HOT = 40
"""Messages of g1 with the key `hotkey` and the tag `TagD`."""


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


@pytest.mark.parametrize("one", PRODUCED, ids=lambda one: one.offset_message_id[-6:])
def test_a_view_answers_the_record_byte_for_byte(asker: Asker, g1_store: Path, one: Produced) -> None:
    response = asker.ask(VIEW, {"offset": str(one.physical_offset)})
    assert (response.code, response.remark, response.ext_fields) == (0, None, None)
    assert bytes(response.body) == stored_bytes(g1_store, one.physical_offset, len(response.body))
    message = decode_message(response.body, physical_offset=one.physical_offset)
    assert message.offset_message_id == one.offset_message_id


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


@pytest.mark.parametrize("fields", [{}, {"offset": ""}, {"offset": "ten"}, {"offset": str(2**63)}, {"topic": "T"}])
def test_a_view_without_a_readable_offset_names_the_field(asker: Asker, fields: dict[str, str]) -> None:
    response = asker.ask(VIEW, fields)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert (response.remark or "").startswith("offset")


# ---------------------------------------------------------------------- by key, unique key, tag


@pytest.mark.parametrize("one", PRODUCED, ids=lambda one: one.offset_message_id[-6:])
def test_every_key_unique_key_and_tag_finds_its_message(asker: Asker, one: Produced) -> None:
    unique = query(asker, one.topic, one.unique_key, _UNIQUE_KEY_QUERY="true", indexType="U")
    found = messages(unique)
    assert [message.unique_key for message in found] == [one.unique_key] * len(found)
    for key in one.keys:
        assert one.unique_key in unique_keys(query(asker, one.topic, key, indexType="K"))
        assert one.unique_key in unique_keys(query(asker, one.topic, key))
    if one.tag:
        # The newest 64 of a tag that more messages carry need not hold this one.
        page = messages(query(asker, one.topic, one.tag, indexType="T"))
        assert {message.tags for message in page} == {one.tag}


def test_matches_ascend_by_physical_offset_and_never_repeat(asker: Asker) -> None:
    offsets = [message.physical_offset for message in messages(query(asker))]
    assert len(offsets) == HOT
    assert offsets == sorted(set(offsets))


def test_a_repeated_key_gives_its_message_once(asker: Asker) -> None:
    assert [message.keys for message in messages(query(asker, key="dup"))] == [["dup", "dup", "dup"]]


@pytest.mark.parametrize(("key", "kind"), [("Aa", "K"), ("BB", "K"), ("Aa", "T"), ("BB", "T")])
def test_equal_hashes_are_told_apart(asker: Asker, key: str, kind: str) -> None:
    found = messages(query(asker, key=key, indexType=kind))
    assert found
    for message in found:
        assert key in message.keys if kind == "K" else key == message.tags


# rmq#10291: a request without indexType found nothing.
@pytest.mark.parametrize("index_type", ["(absent)", "", "K", "X", "k", "KEY", "键"])
@pytest.mark.parametrize("flag", ["(absent)", "false", "", "0"])
def test_a_key_is_found_whatever_the_index_type_says(asker: Asker, index_type: str, flag: str) -> None:
    assert len(messages(query(asker, indexType=index_type, _UNIQUE_KEY_QUERY=flag))) == HOT


@pytest.mark.parametrize("index_type", ["(absent)", "", "U", "X"])
@pytest.mark.parametrize("flag", ["(absent)", "false", "true", "TRUE"])
def test_a_unique_key_is_found_where_the_index_type_does_not_forbid_it(
    asker: Asker, index_type: str, flag: str
) -> None:
    response = query(asker, FIRST.topic, FIRST.unique_key, indexType=index_type, _UNIQUE_KEY_QUERY=flag)
    assert unique_keys(response) == {FIRST.unique_key}


@pytest.mark.parametrize("index_type", ["K", "T"])
def test_the_unique_flag_wins_over_the_index_type(asker: Asker, index_type: str) -> None:
    response = query(asker, FIRST.topic, FIRST.unique_key, indexType=index_type, _UNIQUE_KEY_QUERY="true")
    assert unique_keys(response) == {FIRST.unique_key}
    response = query(asker, FIRST.topic, FIRST.unique_key, indexType=index_type)
    assert response.code == ResponseCode.QUERY_NOT_FOUND


def test_a_tag_is_no_key_and_a_key_is_no_tag(asker: Asker) -> None:
    assert len(messages(query(asker, key="TagD", indexType="T"))) == HOT
    assert query(asker, key="TagD", indexType="K").code == ResponseCode.QUERY_NOT_FOUND
    assert query(asker, key="TagD").code == ResponseCode.QUERY_NOT_FOUND
    assert query(asker, key="hotkey", indexType="T").code == ResponseCode.QUERY_NOT_FOUND


def test_unique_keys_have_no_time_window(asker: Asker) -> None:
    windows = [("0", "1"), (FOREVER, FOREVER), ("5", "1"), ("-1", "-1")]
    for begin, end in windows:
        fields = {"beginTimestamp": begin, "endTimestamp": end, "_UNIQUE_KEY_QUERY": "true"}
        assert unique_keys(query(asker, FIRST.topic, FIRST.unique_key, **fields)) == {FIRST.unique_key}


def test_keys_have_a_window_to_the_millisecond(asker: Asker) -> None:
    times = [message.store_timestamp for message in messages(query(asker))]
    for begin, end in [(times[3], times[9]), (times[3] + 1, times[9] - 1), (times[5], times[5])]:
        found = messages(query(asker, beginTimestamp=str(begin), endTimestamp=str(end)))
        assert [message.store_timestamp for message in found] == [time for time in times if begin <= time <= end]


@pytest.mark.parametrize(("maximum", "count"), [(1, 1), (5, 5), (HOT, HOT), (64, HOT), (2**31 - 1, HOT)])
def test_the_newest_matches_are_answered(asker: Asker, maximum: int, count: int) -> None:
    everything = messages(query(asker))
    assert messages(query(asker, maxNum=str(maximum))) == everything[-count:]


@pytest.mark.parametrize("maximum", [MAXIMUM_BY_KEY + 1, 2**31 - 1])
def test_more_than_the_cap_is_never_answered(tmp_path: Path, maximum: int) -> None:
    writer = StoreWriter(tmp_path / "store")
    for _ in range(MAXIMUM_BY_KEY + 6):
        writer.append("TopicBulk", keys="bulk")
    writer.close()
    found = messages(query(Asker(writer.root), "TopicBulk", "bulk", maxNum=str(maximum), indexType="K"))
    newest = [written.physical_offset for written in writer.written[-64:]]
    assert [message.physical_offset for message in found] == newest


def test_a_maximum_of_zero_finds_nothing(asker: Asker) -> None:
    assert query(asker, maxNum="0").code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("maximum", ["-1", str(-(2**31))])
def test_a_negative_maximum_is_an_error_that_names_it(asker: Asker, maximum: str) -> None:
    response = query(asker, maxNum=maximum)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == f"maxNum: '{maximum}', expected 0 or more"


def test_the_maximum_of_a_unique_key_query_is_the_brokers_own(asker: Asker) -> None:
    for maximum in ("0", "-1", "1000"):
        response = query(asker, FIRST.topic, FIRST.unique_key, maxNum=maximum, _UNIQUE_KEY_QUERY="true")
        assert unique_keys(response) == {FIRST.unique_key}


@pytest.mark.parametrize("field", ["topic", "key", "maxNum", "beginTimestamp", "endTimestamp"])
def test_a_missing_field_is_named(asker: Asker, field: str) -> None:
    response = query(asker, **{field: "(absent)"})
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, f"{field} is missing")


# mq-studio#45 and a Go client: a misspelled field must not look like an empty answer.
def test_a_misspelled_field_is_no_empty_answer(asker: Asker) -> None:
    response = query(asker, beginTimestamp="(absent)", begin="0")
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "beginTimestamp is missing")


@pytest.mark.parametrize(
    ("topic", "key"), [("", ""), ("", "hotkey"), ("TopicTest", ""), ("TopicTest", " "), ("TopicTest", "x" * 70_000),
                       ("TopicTest", "\ufffd"), ("TopicTest", "\x00"), ("T" * 70_000, "a"), ("TopicTest", "hot key")]
)  # fmt: skip
def test_odd_keys_find_nothing_and_harm_nothing(asker: Asker, topic: str, key: str) -> None:
    for index_type in ("K", "U", "T", "(absent)"):
        response = query(asker, topic, key, indexType=index_type)
        assert response.code == ResponseCode.QUERY_NOT_FOUND
        assert len(response.remark or "") < 4000


# ---------------------------------------------------------------------- what an answer says of itself


def test_a_hit_carries_the_newest_index_files_end(asker: Asker) -> None:
    # As recorded in mqadmin-frames.jsonl.xz for every hit.
    fields = {"indexLastUpdatePhyoffset": "155678", "indexLastUpdateTimestamp": "1795243545862"}
    response = query(asker)
    assert (response.ext_fields, response.remark) == (fields, None)


def test_a_miss_says_in_the_brokers_words_and_then_in_ours_what_was_searched(asker: Asker) -> None:
    response = query(asker, key="nosuchkey")
    assert response.ext_fields == {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}
    assert not response.body
    remark = response.remark or ""
    assert remark.startswith("can not find message, maybe time range not correct; searched 10 index files")
    for word in ("entries", "refused", "index covers", "physical offsets", "the log holds"):
        assert word in remark


def test_a_miss_in_an_unknown_topic_says_so(asker: Asker) -> None:
    assert "this store has no queue of topic Nope" in (query(asker, "Nope").remark or "")


def test_a_page_that_leaves_matches_out_names_where_to_go_on(asker: Asker) -> None:
    everything = messages(query(asker))
    response = query(asker, maxNum="5")
    fields = response.ext_fields or {}
    assert fields["rocketlensTruncated"] == "true"
    assert fields["rocketlensCursor"] == str(everything[-5].physical_offset)
    assert fields["rocketlensCursor"] in (response.remark or "")


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


def test_the_page_below_the_first_match_is_empty(asker: Asker) -> None:
    first = messages(query(asker))[0]
    assert query(asker, lastKey=str(first.physical_offset)).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("last_key", ["x", "1@", "@", "1@-5", "1@5 ", "1@٣", f"@{2**63}", "9" * 100])
def test_a_cursor_that_is_none_is_an_error_that_names_it(asker: Asker, last_key: str) -> None:
    response = query(asker, lastKey=last_key)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert (response.remark or "").startswith("lastKey: ")
    with pytest.raises(BadHeader):
        parse_cursor(last_key)


@pytest.mark.parametrize("last_key", ["", "(absent)"])
def test_no_cursor_is_the_first_page(asker: Asker, last_key: str) -> None:
    assert len(messages(query(asker, lastKey=last_key))) == HOT


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


@pytest.mark.parametrize("one", PRODUCED, ids=lambda one: one.offset_message_id[-6:])
@pytest.mark.parametrize("topic", ["(its own)", "TopicTest", "AnyTopic"])
def test_a_unique_query_for_an_offset_id_is_answered_so_that_java_takes_it(
    asker: Asker, one: Produced, topic: str
) -> None:
    topic = one.topic if topic == "(its own)" else topic
    response = query(asker, topic, one.offset_message_id, _UNIQUE_KEY_QUERY="true", indexType="U", maxNum="32")
    (message,) = messages(response)
    # What MessageExt.getMsgId() gives for this record.
    assert message.unique_key is None
    assert message.message_id == one.offset_message_id
    original = decode_message(asker.ask(VIEW, {"offset": str(one.physical_offset)}).body)
    assert bytes(message.body) == bytes(original.body)
    assert message.properties == {name: text for name, text in original.properties.items() if name != "UNIQ_KEY"}


def test_a_lower_case_offset_id_is_answered_too(asker: Asker) -> None:
    response = query(asker, key=FIRST.offset_message_id.lower(), _UNIQUE_KEY_QUERY="true")
    assert [message.physical_offset for message in messages(response)] == [FIRST.physical_offset]


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


def test_an_offset_id_is_no_business_key(asker: Asker) -> None:
    assert query(asker, key=FIRST.offset_message_id, indexType="K").code == ResponseCode.QUERY_NOT_FOUND


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


def test_records_one_after_the_other_are_split_at_their_sizes() -> None:
    records = [(5).to_bytes(4, "big") + b"a", (4).to_bytes(4, "big"), (8).to_bytes(4, "big") + b"bcde"]
    assert list(map(bytes, split_records(b"".join(records)))) == records
    assert list(split_records(b"")) == []
