"""Messages, their ids, properties and hashes, as Java writes them; questions for them; errors in words."""

import json
import pickle
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from golden_store import G1, GOLDEN, pairs, text, vectors
from message_encoding import encode_message
from protocol import errors, question
from protocol.born_host import BornHost, sender_behind_proxy
from protocol.checksum import property_crc, renew_property_crc, verify_property_crc
from protocol.host_address import HostAddress
from protocol.java_hash import decode_java, index_hash, java_hash
from protocol.message import Message, decode_message
from protocol.message_edit import with_store_host, without_property
from protocol.message_id import decode_message_id, encode_message_id, is_offset_message_id_candidate
from protocol.properties import parse_properties, remove_property
from protocol.system_topics import Origin, Stage, is_known_by, kind_of, origin_of, splits, stage_of
from store_files import pack_batch, pack_record, with_host_bits
from strategies import hosts, property_blocks, property_names, records, texts, utf8_like

PLAIN = {"topic_bytes": b"TopicTest", "body": b"hello", "properties_bytes": b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02",
         "queue_id": 3, "flag": 7, "queue_offset": 11, "physical_offset": 4096, "sys_flag": 0, "born_timestamp": 1000,
         "born_host": ("10.0.0.1", 54321), "store_timestamp": 2000, "store_host": ("10.0.0.2", 10911),
         "reconsume_times": 2, "prepared_transaction_offset": 5}  # fmt: skip


def with_bits(fields):
    return fields | {"sys_flag": with_host_bits(fields["sys_flag"], fields["born_host"], fields["store_host"])}


flagged = records.map(with_bits)


def record_of(**changes: object) -> bytes:
    return pack_record(**with_bits(PLAIN | changes))


def test_every_field_is_what_the_java_client_decodes() -> None:
    for record, *columns in vectors("message"):
        message = decode_message(bytes.fromhex(record))
        numbers = (
            message.total_size, message.body_crc, message.queue_id, message.flag, message.queue_offset,
            message.physical_offset, message.sys_flag, message.born_timestamp,
        )  # fmt: skip
        assert [str(number) for number in numbers] == columns[:8]
        assert message.born_host.pack().hex() == columns[8] + f"{int(columns[9]):08x}"
        assert str(message.store_timestamp) == columns[10]
        assert message.store_host.pack().hex() == columns[11] + f"{int(columns[12]):08x}"
        assert [str(message.reconsume_times), str(message.prepared_transaction_offset)] == columns[13:15]
        assert (message.decoded_body().hex(), message.topic) == (columns[15], text(columns[16]))
        assert message.properties == pairs(columns[17])
        assert [message.offset_message_id, message.message_id] == [columns[18], text(columns[19])]


@settings(max_examples=examples(12))
@given(flagged)
def test_decoding_equals_the_field_by_field_oracle(fields: dict[str, object]) -> None:
    record = pack_record(**fields)
    expected = oracles.read_record(record, 0)
    message = decode_message(memoryview(record), physical_offset=fields["physical_offset"])
    assert expected is not None
    others = {"born_host", "store_host", "topic_bytes", "body"}
    for name in vars(expected).keys() - others | {"topic", "properties"}:
        assert getattr(message, name) == getattr(expected, name), name
    assert message.stored_body == expected.body
    assert (message.born_host.raw_ip, message.born_host.port) == expected.born_host
    assert (message.store_host.raw_ip, message.store_host.port) == expected.store_host


def test_ids_of_the_recorded_store_are_those_that_its_producer_was_told(g1_store: Path) -> None:
    produced = [line.split("\t") for line in (G1 / "produced.tsv").read_text().splitlines()]
    told = {tuple(columns[2:4]) for columns in produced if len(columns) > 3 and len(columns[3]) == 32}
    log = b"".join(path.read_bytes() for path in sorted((g1_store / "commitlog").iterdir()))
    for unique_key, offset_message_id in told:
        message = decode_message(log[int(offset_message_id[16:], 16) :])
        assert (message.unique_key, message.offset_message_id) == (unique_key, offset_message_id)
        assert message.message_id == unique_key
    assert len(told) == 19


def test_lengths_that_are_none_and_cuts_are_named() -> None:
    # Lengths and magic that are none are named.
    for position, value, message in [
        (4, 0xCBD43194, "magic 0xcbd43194, expected 0xdaa320a7"), (4, 0, "magic 0x00000000"),
        (0, 90, "total size 90, expected at least 91"), (0, 0x80000000, "total size -2147483648"),
        (0, 91, "body length 5"), (84, 0x7FFFFFFF, "body length 2147483647"), (84, 6, "topic length 84, expected 0 to"),
    ]:  # fmt: skip
        record = bytearray(record_of())
        struct.pack_into(">I", record, position, value)
        with pytest.raises(errors.CorruptRecord, match=message):
            decode_message(bytes(record))
    # A record that is cut off is truncated wherever the cut is.
    record = record_of()
    for size in range(len(record)):
        with pytest.raises(errors.TruncatedFile, match=f"but only {size} are there"):
            decode_message(record[:size])


def test_inner_messages_are_those_that_a_java_consumer_gets() -> None:
    expected: list[list[list[str]]] = []
    batches = []
    for kind, *columns in vectors("inner-batch", "inner"):
        if kind == "inner-batch":
            batches.append(decode_message(bytes.fromhex(columns[0])))
            expected.append([])
        else:
            expected[-1].append(columns)
    for batch, columns_of_each in zip(batches, expected, strict=True):
        inner = batch.inner_messages()
        assert [str(message.queue_offset) for message in inner] == [columns[0] for columns in columns_of_each]
        for message, columns in zip(inner, columns_of_each, strict=True):
            assert [str(message.flag), message.decoded_body().hex()] == columns[1:3]
            # Java sets WAIT anew, from the outer message; ours stays what was sent.
            assert message.properties | {"WAIT": ""} == pairs(columns[3]) | {"WAIT": ""}
            assert [message.topic, str(message.physical_offset)] == [text(columns[4]), columns[5]]
            assert message.inner_messages() == [message]


def test_a_broken_batch_is_an_error() -> None:
    for body in [
        b"\0" * 19, pack_batch([(b"a", {})])[:-1], pack_batch([(b"a", {"k": "v"})])[:-1],
        pack_batch([(b"a", {})]) + b"\0", bytes(16) + b"\xff\xff\xff\xff" + bytes(2), bytes(20) + b"\xff\xff",
        bytes(16) + b"\x7f\xff\xff\xff" + bytes(2),
    ]:  # fmt: skip
        with pytest.raises(errors.CorruptRecord, match="sub-message at"):
            decode_message(record_of(body=body, sys_flag=0xC0)).inner_messages()


JAVA_RECORDS = [bytes.fromhex(columns[0]) for columns in vectors("message")]


def encode_again(message: Message) -> bytes:
    other = ("total_size", "stored_body", "properties_bytes", "_properties", "budget", "record_properties")
    fields = {name: getattr(message, name) for name in Message.__slots__ if name not in other}
    return encode_message(**fields, body=message.stored_body, properties=message.properties_bytes)


def test_blocks_records_tags_and_texts_are_those_of_the_official_classes() -> None:
    # Blocks parse as the brokers own class parses them.
    for data, expected in vectors("properties"):
        assert parse_properties(bytes.fromhex(data)) == pairs(expected), data
    # Records of the brokers own encoder verify.
    records = [bytes.fromhex(columns[0]) for columns in vectors("message")]
    protected = [record for record in records if property_crc(record) is not None]
    assert len(protected) == len(records) // 2 > 0
    assert all(verify_property_crc(record) and renew_property_crc(record) == record for record in protected)
    # Tags hash as the brokers own classes hash them.
    recorded = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())["tag_hash"]
    assert [java_hash(vector["tag"]) for vector in recorded] == [vector["tagsCode"] for vector in recorded]
    # Hashes and decoding are those of the jdk.
    for data, string, expected in vectors("string"):
        decoded = decode_java(bytes.fromhex(data))
        assert decoded == text(string), data
        assert java_hash(decoded) == int(expected), data
    # Decoding and encoding gives javas bytes back.
    for record in JAVA_RECORDS:
        assert encode_again(decode_message(record)) == record


@given(flagged, st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY"]))
def test_without_a_property_everything_else_stays(fields: dict[str, object], name: str) -> None:
    if fields["property_crc"]:  # a broker ends the last property first
        fields["properties_bytes"] = fields["properties_bytes"].rstrip(b"\x02") + b"\x02"
    record = pack_record(**fields)
    before, after = decode_message(record), decode_message(without_property(record + b"behind", name))
    expected = before.properties
    expected.pop(name, None)
    found = after.properties
    if fields["property_crc"]:
        assert verify_property_crc(record)
        assert verify_property_crc(without_property(record, name))
        for properties in (expected, found):
            properties.pop("__CRC32#", None)
    assert found == expected
    unchanged = {"total_size", "properties_bytes", "_properties"}
    for field in set(Message.__slots__) - unchanged:
        assert getattr(before, field) == getattr(after, field), field
    assert oracles.read_record(without_property(record, name), 0) is not None


@given(flagged, hosts)
def test_another_store_host_changes_nothing_else(fields: dict[str, object], host: tuple[str, int]) -> None:
    changed = pack_record(**with_bits(fields | {"store_host": host}))
    assert with_store_host(pack_record(**fields) + b"behind", HostAddress(*host)) == changed


REFERENCE = "7F00000100002A9F0000000000001241"


def test_ids_are_those_that_java_makes_and_others_are_told_why() -> None:
    # Ids are those that java makes.
    for said, ip, port, offset in vectors("message-id"):
        message_id = decode_message_id(said)
        assert message_id.address.raw_ip.hex() == ip
        assert [str(message_id.address.port), str(message_id.physical_offset)] == [port, offset]
        assert encode_message_id(message_id.address, message_id.physical_offset) == said
        assert is_offset_message_id_candidate(said)
    # What is no id is told why.
    for said, message in [
        ("", "length 0, expected 32 hex digits \\(IPv4\\) or 56 \\(IPv6\\)"), (REFERENCE[:-1], "length 31"),
        (REFERENCE + "0", "length 33"), ("x" * 500, "length 500"),
        (REFERENCE[:31] + "G", "'G' at position 31 is no hex digit"), (" " + REFERENCE[1:], "' ' at position 0"),
        (REFERENCE[:5] + "_" + REFERENCE[6:], "'_' at position 5"),
        ("٣" + REFERENCE[1:], "at position 0 is no hex digit"),
        ("7F00000100010000" + "0" * 16, "port 65536 is outside 0 to 65535"),
        ("7F000001FFFFFFFF" + "0" * 16, "port -1 is outside"),
    ]:  # fmt: skip
        with pytest.raises(errors.BadMessageId, match=message):
            decode_message_id(said)
        assert not is_offset_message_id_candidate(said)


@given(property_blocks)
def test_parsing_pieces_of_bytes_equals_parsing_the_decoded_text(block: bytes) -> None:
    expected = oracles.parse_properties(oracles.decode_java(block))
    assert parse_properties(block) == parse_properties(memoryview(block)) == expected


@given(property_blocks, property_names)
def test_removing_a_property_leaves_all_others(block: bytes, name: str) -> None:
    expected = parse_properties(block)
    expected.pop(name, None)
    assert parse_properties(remove_property(block, name)) == expected


@given(st.one_of(utf8_like, st.binary()))
def test_decoding_equals_the_oracle(data: bytes) -> None:
    assert decode_java(data) == decode_java(memoryview(data)) == oracles.decode_java(data)


@given(st.one_of(texts, st.text(), st.text("aé标😀\udc00", min_size=200, max_size=1100)))
def test_hashing_equals_the_oracle(string: str) -> None:
    assert java_hash(string) == oracles.java_hash(string)
    assert index_hash(string) == oracles.index_hash(string)


SEGMENT = Path("/data/store/commitlog/00000000000000000000")

SENTENCES = [
    (errors.RequestByHttp(),
     "a request by HTTP, and this is the remoting port: the page has a port of its own, that of --http"),
    (errors.NoSuchTopic("ordrs"), "there is no topic ordrs"),
    (errors.NoSuchTopic("ordrs", "did you mean orders?"), "there is no topic ordrs; did you mean orders?"),
    (errors.FrameTooLarge(2**24 + 1, 2**24), "a frame of 16777217 bytes, more than the limit of 16777216"),
    (errors.BadHeader("beginTimestamp"), "beginTimestamp is missing"),
    (errors.BadHeader("maxNum", "abc", "is no 32-bit integer"), "maxNum: 'abc' is no 32-bit integer"),
    (errors.BadHeader("maxNum", "-1", "expected 0 or more"), "maxNum: '-1', expected 0 or more"),
    (errors.BadHeader("maxNum", ""), "maxNum: ''"),
    (errors.BadHeader("key", "k" * 200, "is too long"), f"key: '{'k' * 80}'… (200 characters) is too long"),
    (errors.BadHeader("key", "a\n\0", "is odd"), r"key: 'a\n\x00' is odd"),
    (errors.CorruptRecord(SEGMENT, 4096, expected=0xDAA320A7, found=0),
     "00000000000000000000 at physical offset 4096: magic 0x00000000, expected 0xdaa320a7"),
    (errors.CorruptRecord("record", 7, expected=0x0102, found=3, what="body CRC"),
     "record at physical offset 7: body CRC 0x00000003, expected 0x00000102"),
    (errors.CorruptRecord("record", 7, expected="at least 91", found=3, what="total size"),
     "record at physical offset 7: total size 3, expected at least 91"),
    (errors.TruncatedFile(SEGMENT, 4096, expected=300, found=40, what="record of"),
     "00000000000000000000 at physical offset 4096: record of 300 bytes, but only 40 are there"),
    (errors.TruncatedFile("/s/index/20260101000000000", expected=40, found=0),
     "/s/index/20260101000000000: needs 40 bytes, but only 0 are there"),
    (errors.TruncatedFile("/s/checkpoint", expected="a header", found="nothing"),
     "/s/checkpoint: needs nothing, expected a header"),
    (errors.StoreError("/s/lock", what="permission denied"), "/s/lock: permission denied"),
    (errors.StoreError("/s/lock"), "/s/lock: cannot be read"),
    (errors.NotAStore(Path("/s"), expected="commitlog/ with segments", found="an empty directory"),
     "/s is no store that can be served: found an empty directory, expected commitlog/ with segments"),
    (errors.FilterSyntaxError("a > ) b", (4, 5), "expected a value"), "expected a value\n    a > ) b\n        ^"),
    (errors.FilterSyntaxError("a >", (3, 3), "expected a value"), "expected a value\n    a >\n       ^"),
    (errors.FilterSyntaxError("abc def", (4, 7), "unknown word"), "unknown word\n    abc def\n        ^^^"),
    (errors.FilterSyntaxError("a =\n\tb @ c\r\nd", (7, 8), "odd"), "odd\n     b @ c\n       ^"),
    (errors.FilterSyntaxError("价 = @", (4, 5), "odd"), "odd\n    价 = @\n         ^"),
    (errors.FilterSyntaxError(f"{'a' * 90} @", (91, 92), "odd"), f"odd\n    …{'a' * 39} @\n    {' ' * 41}^"),
    (errors.FilterSyntaxError("'" + "x" * 90, (0, 91), "odd"), f"odd\n    '{'x' * 79}…\n    {'^' * 81}"),
]  # fmt: skip


def test_an_error_reads_as_one_sentence_and_does_so_in_another_process() -> None:
    for error, sentence in SENTENCES:
        assert str(error) == sentence
        if not isinstance(error, errors.FrameTooLarge):  # each other comes from a child
            assert str(pickle.loads(pickle.dumps(error))) == sentence


def message(topic="T", **properties):
    return decode_message(encode_message(topic=topic, physical_offset=7, store_timestamp=50, properties=properties))


@given(st.integers(0, question.LARGEST), st.integers(0, 40))
def test_digits_are_a_physical_offset_however_many_zeros_lead_them(offset: int, zeros: int) -> None:
    assert question.physical_offset_of("0" * zeros + str(offset)) == offset


@given(st.ip_addresses().map(str), st.integers(0, 65535), st.integers(0, question.LARGEST))
def test_an_offset_message_id_names_a_place_in_either_case(ip: str, port: int, offset: int) -> None:
    address = HostAddress(ip, port)
    text = encode_message_id(address, offset)
    for each in (text, text.lower()):
        found = question.message_id_of(each)
        assert (found.address, found.physical_offset) == (address, offset)
        assert question.places_of(each)[0] == ("offset message id", offset, found)


def test_what_is_at_a_place_says_whose_it_is() -> None:
    found, message_id = message("orders"), question.message_id_of(encode_message_id(HostAddress("10.0.0.1", 1), 7))
    assert [question.other_topic(found, asked) for asked in ("orders", None, "")] == [""] * 3
    assert question.other_topic(found, "refunds") == "the message there is one of topic orders"
    waiting = message("SCHEDULE_TOPIC_XXXX", REAL_TOPIC="refunds")
    assert (question.other_topic(waiting, "refunds"), question.other_host(found, None)) == ("", "")
    assert question.other_host(found, message_id) == (
        f"the id names 10.0.0.1:1, the message there was stored by {found.store_host}"
    )


def test_a_question_is_answered_by_the_part_that_it_names() -> None:
    for kind, said, is_one in [
        (question.KeyKind.KEY, "k1", True), (question.KeyKind.KEY, "U1", False), (question.KeyKind.UNIQUE, "U1", True),
        (question.KeyKind.UNIQUE, "k1", False), (question.KeyKind.ANY, "U1", True), (question.KeyKind.ANY, "k2", True),
        (question.KeyKind.TAG, "paid", True), (question.KeyKind.TAG, "k1", False),
    ]:  # fmt: skip
        found = message(KEYS="k1 k2", UNIQ_KEY="U1", TAGS="paid")
        assert question.Question("T", said, kind).is_answered_by(found) is is_one
        assert not question.Question("Other", said, kind).is_answered_by(found)
        late = question.Question("T", said, kind, begin_timestamp=51)
        assert late.is_answered_by(found) is (is_one and kind is question.KeyKind.UNIQUE)
        assert late.is_narrowed is (kind is not question.KeyKind.UNIQUE)


def test_a_born_host_is_an_address_one_with_a_port_or_a_network() -> None:
    for said, inside, outside in [
        ("10.1.2.3", ("10.1.2.3", 5), ("10.1.2.4", 5)), ("10.1.2.3:5", ("10.1.2.3", 5), ("10.1.2.3", 6)),
        ("10.1.0.0/16", ("10.1.9.9", 5), ("10.2.0.0", 5)), ("10.1.2.3/16", ("10.1.9.9", 5), ("::1", 5)),
        ("::1", ("::1", 5), ("::2", 5)), ("[::1]:5", ("::1", 5), ("::1", 6)), ("[::1]", ("::1", 6), ("::2", 6)),
        ("2001:db8::/32", ("2001:db8::9", 1), ("2001:db9::", 1)),
    ]:  # fmt: skip
        host = BornHost.parse(said)
        assert host.holds_address(HostAddress(*inside))
        assert not host.holds_address(HostAddress(*outside))


# As a proxy 5.5.0 writes it: what the client says, which official Java clients make their host name, else its address.
def test_a_message_from_behind_a_proxy_is_from_the_host_that_the_proxy_names() -> None:
    for named, inside, outside in [
        (
            "10.1.1.1:5000",
            ["10.1.1.1", "10.1.0.0/16", "10.1.1.1:5000", "0.0.0.0/0"],
            ["10.1.1.1:5", "10.1.1.2", "::/0"],
        ),
        ("10.1.1.1", ["10.1.1.1"], ["10.1.1.1:5000"]),
        ("[2001:db8::1]:5000", ["2001:db8::1", "2001:db8::/32", "[2001:db8::1]:5000"], ["2001:db8::2", "0.0.0.0/0"]),
        ("2001:db8::1", ["2001:db8:0::1"], ["[2001:db8::1]:1"]),
        ("App-host-7", ["app-host-7", "APP-HOST-7"], ["app-host-70", "app-host", "app-host-7:1"]),
        ("app-host-7:1", ["app-host-7:1", "app-host-7"], ["app-host-7:2"]),
        ("10.1.0.0/16", [], ["10.1.0.0/16", "10.1.0.0"]),
        ("***", [], ["0.0.0.0/0"]),
    ]:
        record = encode_message(topic="T", properties={"__BORNHOST": named}, born_host=HostAddress("10.0.0.9", 8081))
        message = decode_message(record)
        for said in inside:
            assert BornHost.parse(said).holds(message), said
            assert BornHost.parse(said).holds_sender(message), said
        for said in outside:
            assert not BornHost.parse(said).holds_sender(message), said
        proxy = BornHost.parse("10.0.0.9")
        assert proxy.holds(message)
        assert proxy.is_proxy_of(message) is (sender_behind_proxy(named) is not None)


NAMES = st.text("abc_-1", min_size=1, max_size=6)


def test_a_topic_has_its_stage_and_kind() -> None:
    for topic, stage, kind in [
        ("orders", Stage.DELIVERED, "normal"), ("%RETRY%g", Stage.RETRY, "retry"),
        ("%DLQ%g", Stage.DEAD_LETTER, "dead letter"), ("SCHEDULE_TOPIC_XXXX", Stage.SCHEDULED, "system"),
        ("rmq_sys_wheel_timer", Stage.TIMER, "system"), ("RMQ_SYS_TRANS_HALF_TOPIC", Stage.HALF, "system"),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", Stage.HALF, "system"),
        ("TRANS_CHECK_MAX_TIME_TOPIC", Stage.DISCARDED, "system"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", Stage.DELIVERED, "system"),
        ("DefaultHeartBeatSyncerTopic", Stage.DELIVERED, "system"), ("rmq_sys_anything", Stage.DELIVERED, "system"),
        ("rmq_sys_wheel_timer2", Stage.DELIVERED, "system"), ("my_RMQ_SYS_topic", Stage.DELIVERED, "normal"),
    ]:  # fmt: skip
        assert stage_of(topic) is stage
        assert kind_of(topic) == kind


# What brokers of 5.x store of popped messages, in `tests/golden/cases/A1-A2-B1-pop`, and of 5.3 without ORIGIN_GROUP.
def test_a_record_says_where_it_was_sent_to_and_which_group_failed() -> None:
    for topic, properties, origin in [
        ("%RETRY%g1_orders", {"ORIGIN_GROUP": "g1"}, Origin("orders", "g1")),
        ("%RETRY%g1+orders", {"ORIGIN_GROUP": "g1"}, Origin("orders", "g1")),
        ("%RETRY%g1+or_ders", {}, Origin("or_ders", "g1")),
        ("%DLQ%g1", {"RETRY_TOPIC": "%RETRY%g1_orders", "ORIGIN_GROUP": "g1"}, Origin("orders", "g1")),
        ("%DLQ%g1", {"RETRY_TOPIC": "%RETRY%g1_orders"}, Origin("orders", "g1")),
        ("%DLQ%g1", {"RETRY_TOPIC": "%RETRY%g1+orders"}, Origin("orders", "g1")),
        ("%DLQ%a_b", {"RETRY_TOPIC": "%RETRY%a_b_c"}, Origin("c", "a_b")),
        # A message that came back by a delay, and one of a group that is called like a group and a topic.
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%a_b", "ORIGIN_GROUP": "a"}, Origin("b", "a")),
        ("%RETRY%a_b", {"RETRY_TOPIC": "orders"}, Origin("orders", "a_b")),
        # A group that does not fit the name decides nothing.
        ("%RETRY%a_b", {"ORIGIN_GROUP": "other"}, Origin(None)),
        ("%RETRY%a_", {"ORIGIN_GROUP": "a"}, Origin(None)),
        ("%DLQ%g", {}, Origin(None, "g")),
        ("%DLQ%g", {"RETRY_TOPIC": "%RETRY%other_orders"}, Origin(None, "g")),
        ("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "payments"}, Origin("payments")),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {}, Origin(None)),
    ]:
        assert origin_of(message(topic, **properties)) == origin


@given(group=NAMES, topic=NAMES, known=st.sets(st.tuples(NAMES, NAMES), max_size=3))
def test_without_the_group_one_known_reading_is_the_origin_and_of_several_none(group, topic, known) -> None:
    known.add((group, topic))
    name = f"{group}_{topic}"

    expected = {pair for pair in known if "_".join(pair) == name}
    readings = lambda asked: tuple(pair for pair in splits(asked) if pair in known)  # noqa: E731
    found = origin_of(message(f"%RETRY%{name}"), readings)
    if len(expected) == 1:
        assert found == Origin(topic, group)
    else:
        assert found.topic is None
        assert set(found.readings) == expected
    assert is_known_by(message(f"%RETRY%{name}"), topic)
