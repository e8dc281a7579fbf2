"""What is masked is nowhere in a message any more, however it was written down, and the rest is as it was."""

import gzip
import json
import re
import zlib

import pytest

import rocketlens as face
from golden_store import CASES, unpack
from protocol.errors import ConfigError
from protocol.mask import Mask, may_be_report
from protocol.message import decode_message
from store_writer import StoreWriter

PHONE = "13812345678"
PATTERN = r"/1[3-9]\d{9}/"


@pytest.fixture
def writer(tmp_path):
    return StoreWriter(tmp_path / "store")


def stored(writer, body=b"", topic="T", **more):
    record = writer.append(topic, body, **more)  # type: ignore[arg-type]
    writer.flush()
    (segment,) = writer.log.segments.values()
    return decode_message(segment.read_bytes()[record.physical_offset :])


def body(text: str | bytes, *rules: str) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return bytes(Mask(rules).body(data))


def test_what_a_path_finds_is_hidden_and_numbers_stay_as_they_are_written() -> None:
    text = '{"id":1.10,"big":123456789012345678901,"customer":{"phone":"138","name":"Li"},"items":[{"p":1},{"p":2}]}'
    hidden = body(text, "$.customer.phone", "$.items[*].p")
    assert hidden == text.replace('"138"', '"***"').replace(":1}", ':"***"}').replace(":2}", ':"***"}').encode()
    assert body(text, "$..phone", "$.nowhere") == text.replace('"138"', '"***"').encode()


@pytest.mark.parametrize("text", [
    *("phone: 138", '{"phone": "138"', '{"phone":"1"}\n{"phone":"2"}', '"138"', "[" * 5000 + "]" * 5000),
    *(b'\xff{"phone":"138"}', '{"phone":"138"}'.encode("utf-16")),
    gzip.compress(b'{"phone":"138"}', mtime=0)[:-1],
    *(gzip.compress(b"138", mtime=0), '{"phone":"\\ud800"}', '{"phone":NaN}'),
])  # fmt: skip
def test_a_body_in_which_places_cannot_be_found_is_hidden_whole(text: str | bytes) -> None:
    assert body(text, "$.phone") == b"***"


def test_what_it_matches_is_nowhere() -> None:
    for text in [
        f"call {PHONE} now", f'{{"a":"{PHONE}"}}', f'{{"a":{PHONE}}}', f'[["x{PHONE}"]]', f'{{"{PHONE}":1}}',
        json.dumps({"inner": json.dumps({"phone": PHONE})}),
        '{"a":"' + "".join(f"\\u{ord(digit):04x}" for digit in PHONE) + '"}',
    ]:  # fmt: skip
        for data in (text.encode(), gzip.compress(text.encode())):
            hidden = body(data, PATTERN)
            assert PHONE not in hidden.decode()
            assert "\\u0031" not in hidden.decode()
            assert "***" in hidden.decode()


@pytest.mark.parametrize("data", [b"\x001\x003\x008", PHONE.encode("utf-16-le"), b"\xff" + PHONE.encode()])
def test_a_body_that_is_no_text_is_hidden_whole(data: bytes) -> None:
    assert body(data, PATTERN) == b"***"


class TestMessages:
    def test_each_field_goes_from_wherever_it_stands(self, writer: StoreWriter) -> None:
        message = stored(
            writer, b"secret", tags="TAG1", keys="KEY1 KEY2", unique_key="UNIQUE1", properties={"card": "4111"}
        )
        for rule, secrets in {
            "body": ["secret", str(message.body_crc)], "keys": ["KEY1", "KEY2"], "tags": ["TAG1"],
            "unique_key": ["UNIQUE1"], "properties.card": ["4111"], "properties": ["KEY1", "TAG1", "UNIQUE1", "4111"],
            "born_host": [str(message.born_host)], "store_host": [str(message.store_host), message.offset_message_id],
        }.items():  # fmt: skip
            before, after = text_of(message), text_of(Mask((rule,)).message(message))
            for secret in secrets:
                assert secret in before
                assert secret not in after

    def test_copies_that_a_broker_makes_of_ids_go_too(self, writer: StoreWriter) -> None:
        copies = {"DLQ_ORIGIN_MESSAGE_ID": "UNIQUE1", "ORIGIN_MESSAGE_ID": "UNIQUE1", "__transactionId__": "UNIQUE1"}
        message = stored(writer, b"", unique_key="UNIQUE1", properties=copies | {"__CRC32#": "12345"})
        shown = Mask(("unique_key",)).message(message)
        assert "UNIQUE1" not in text_of(shown)
        assert shown.properties["__CRC32#"] == "***"

    def test_a_compressed_body_is_hidden_within(self, writer: StoreWriter) -> None:
        message = stored(writer, zlib.compress(PHONE.encode() * 9), sys_flag=1)
        shown = Mask((PATTERN,)).message(message)
        assert (shown.body, shown.body_crc, shown.sys_flag) == (b"***" * 9, 0, 0)
        damaged = stored(writer, b"no zl\xff\x01", sys_flag=1)
        assert Mask((PATTERN,)).message(damaged).body == b"***"

    @pytest.mark.parametrize("rule", ["keys", "/x/", "$.a"])
    def test_a_batch_is_hidden_whole_and_so_are_traces(self, writer: StoreWriter, rule: str) -> None:
        batch = stored(writer, b"inner records", sys_flag=0xC0)
        assert Mask((rule,)).message(batch).body == b"***"
        trace = stored(writer, b"Pub KEY1", topic="RMQ_SYS_TRACE_TOPIC")
        assert Mask((rule,)).message(trace).body == b"***"


def test_a_field_that_is_hidden_is_refused() -> None:
    mask = Mask(("keys", "properties.card"))
    for refused in (
        lambda: mask.refuse("keys"), lambda: mask.refuse("properties.card"), lambda: mask.refuse("properties.KEYS"),
        lambda: mask.refuse_value("keys", "k"), lambda: mask.refuse_expression(["a", "card"]),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="what is masked cannot be searched"):
            refused()
    with pytest.raises(ConfigError, match=r"properties\.a is masked"):
        Mask(("properties",)).refuse_expression(["a"])
    with pytest.raises(ConfigError, match="cannot be searched"):
        Mask(("unique_key",)).refuse_expression(["KEYS"])
    Mask(("unique_key",)).refuse_expression(["card"])
    mask.refuse("tags", "unique_key", "properties.a")
    mask.refuse_expression(["a", "TAGS"])


def test_what_is_no_rule_is_refused() -> None:
    for rule, says in [
        ("topic", "no field 'topic' to mask"), ("", "no field '' to mask"), ("/(/", "is no regular expression"),
        ("/a*/", "matches nothing at all"), ("$[", "is no JSONPath"), ("charset=klingon", "is no charset"),
        ("keys:/a/", "no field 'keys:/a/' to mask"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            Mask((rule,))
        assert says in str(caught.value)


def text_of(message):
    return " ".join([
        *map(str, (message.keys, message.tags, message.unique_key, message.properties, message.body)),
        *map(str, (message.body_crc, message.born_host, message.store_host)),
        *(message.message_id, message.offset_message_id),
    ])  # fmt: skip


class TestReports:
    """What says something of other messages is hidden whole, wherever it lies."""

    def test_a_recorded_trace_says_nothing_under_any_rule(self, tmp_path) -> None:
        root = unpack("store", tmp_path, archives=CASES / "M1-mask-traces")
        topics = ("RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_cn-1", "MyTraceTopic")
        with face.open(root) as plain:
            for topic in topics:
                (whole,) = plain.pull(topic, 0, 0)
                assert {b"key-secret-1", b"TagSecret", b"10.9.8.7"} <= {*re.findall(rb"[\w.-]{5,}", whole.body)}
        for rule in ("keys", "tags", "unique_key", "hosts", "born_host", "store_host", "properties.x"):
            with face.open(root, mask=[rule]) as masked:
                for topic in topics:
                    (shown,) = masked.pull(topic, 0, 0)
                    assert (shown.body, shown.body_crc) == (b"***", 0), (rule, topic)

    @pytest.mark.parametrize("packed", [bytes, gzip.compress])
    @pytest.mark.parametrize("kind", ["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"])
    def test_a_trace_is_known_by_its_body(self, packed, kind) -> None:
        for text in (f"{kind}\x011700000000000\x01", f"junk\x02{kind}\x01"):
            assert may_be_report("T", packed(text.encode()))
        for text in (kind, f"a {kind}\x01", f'{{"kind":"{kind}"}}'):
            assert not may_be_report("T", packed(text.encode()))

    def test_what_cannot_be_looked_into_may_be_one(self, writer: StoreWriter) -> None:
        assert may_be_report("T", None)
        assert may_be_report("T", gzip.compress(b"text", mtime=0)[:-1])
        message = stored(writer, zlib.compress(b"text")[:-4], sys_flag=1)
        assert (Mask(("keys",)).message(message).body, Mask(("charset=gbk",)).message(message)) == (b"***", message)
