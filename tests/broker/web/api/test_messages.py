"""A message whole: as mqadmin printed it, with its body in every form, by offset and by its place in a queue."""

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asking import FakeConnection
from bombs import EMPTY_LZ4, EMPTY_ZSTD
from broker.web.api import bodies as shown_bodies
from golden_store import CASES, G1, unpack
from heartbeats import consumer, heartbeat, subscription
from protocol.bodies import HeartbeatData, decode_json
from protocol.body_content import text_in as text_in_body
from store_writer import StoreWriter
from web_questions import ApiOf


def printed(name: str) -> list[dict[str, str]]:
    """The messages that mqadmin printed in detail, field by field."""
    text = (G1 / "mqadmin-out" / f"{name}.txt").read_text("utf-8")
    blocks = text.split("OffsetID:")[1:]
    assert blocks
    return [
        {
            name.strip(): value.strip()
            for name, _, value in (line.partition(":") for line in f"OffsetID:{block}".splitlines())
        }
        for block in blocks
    ]


def test_every_field_is_what_mqadmin_printed(api: ApiOf) -> None:
    for told in (*printed("queryMsgById-hot0"), *printed("queryMsgById-two"), *printed("queryMsgById-zstd")):
        message = api.get("/message", offset=int(told["CommitLog Offset"]))
        found = {
            "OffsetID": message["offsetMessageId"],
            "Topic": message["topic"],
            "Tags": f"[{message['tags']}]",
            "Keys": f"[{' '.join(message['keys'])}]",
            "Queue ID": str(message["queueId"]),
            "Queue Offset": str(message["queueOffset"]),
            "Reconsume Times": str(message["reconsumeTimes"]),
            "Born Host": message["bornHost"],
            "Store Host": message["storeHost"],
        }
        assert found == {name: told[name] for name in found}
        # mqadmin prints the flag of a body that its client has decompressed.
        assert message["sysFlag"] & ~1 == int(told["System Flag"]) & ~1
        told_properties = dict(pair.split("=", 1) for pair in told["Properties"].strip("{}").split(", "))
        assert {name: message["properties"][name] for name in told_properties} == told_properties
        place = {"queueId": message["queueId"], "queueOffset": message["queueOffset"]}
        assert api.get("/queue/message", topic="TopicTest", **place) == message


def test_who_has_consumed_it_is_what_mqadmin_printed(api: ApiOf) -> None:
    rows = [
        line.split() for line in (G1 / "mqadmin-out" / "consumerProgress-gt.txt").read_text().splitlines()
        if line.startswith("TopicTest")
    ]  # fmt: skip
    assert rows
    for _, _, queue_id, end, consumed, lag, *_ in rows:
        for queue_offset in (int(consumed) - 1, int(consumed)):
            message = api.get("/queue/message", topic="TopicTest", queueId=queue_id, queueOffset=queue_offset)
            (group,) = [each for each in message["groups"] if each["group"] == "CG_TAG"]
            assert group["hasPassed"] is (queue_offset < int(consumed))
            assert (group["nextOffset"], group["lag"]) == (int(consumed), int(lag))
        assert api.ask("/queue/message", topic="TopicTest", queueId=queue_id, queueOffset=end).status == 404


@pytest.mark.parametrize("compression", ["lz4", "zstd", "zlib"])
def test_a_compressed_body_is_shown_and_downloaded_decompressed(api: ApiOf, compression: str) -> None:
    (found, *_) = api.get("/find", text=f"big-{compression.upper()}")["messages"]
    body = body_in(api.get("/message", offset=found["physicalOffset"], bodyLimit=1000))
    assert (body["kind"], body["compression"], body["size"], body["shown"]) == ("text", compression, 200_000, 1000)
    assert body["text"] == "abcdefgh" * 125
    download = api.ask("/message/body", offset=found["physicalOffset"])
    assert download.content == b"abcdefgh" * 25_000
    assert download.headers["content-type"] == "application/octet-stream"
    assert download.headers["content-disposition"].startswith("attachment;")
    assert "sandbox" in download.headers["content-security-policy"]


def body_in(message: dict[str, Any]) -> dict[str, Any]:
    """The fields of a message about its body, named without `body`; `text` or `base64`, None for the other."""
    found = {name[4:5].lower() + name[5:]: value for name, value in message.items() if name[:4] == "body"}
    content, is_text, data = found.pop(""), found.pop("encoding") == "text", found.pop("bytes")
    return found | {"text": content if is_text and content else None, "base64": data if is_text else content}


class Bodies:
    """A store of one message for each body."""

    def __init__(self, root: Path) -> None:
        self.writer = StoreWriter(root, segment_size=4 << 20)

    def body_of(self, data: bytes, **more: Any) -> dict[str, Any]:
        written = self.writer.append("bodies", data, **more)
        self.writer.close()
        return body_in(ApiOf(self.writer.root).get("/message", offset=written.physical_offset))


@pytest.fixture
def bodies(tmp_path: Path) -> Bodies:
    return Bodies(tmp_path / "store")


def test_json_is_indented_and_its_numbers_stay_as_they_are(bodies: Bodies) -> None:
    text = '{"id":12345678901234567890123,"price":1.10,"名":["\\u2028",null]}'
    body = bodies.body_of(text.encode())
    assert (body["kind"], body["text"]) == ("json", text)
    assert body["formatted"].splitlines()[1:3] == ['  "id": 12345678901234567890123,', '  "price": 1.10,']
    assert json.loads(body["formatted"]) == json.loads(text)


def test_a_body_is_told_what_it_is(bodies: Bodies) -> None:
    for data, kind in (
        (b"", "empty"),
        (b"plain", "text"),
        (b"{not json", "text"),
        (b"bell\x07", "binary"),
        (b"\0\0\0*", "binary"),
        (b"id\0\0\0name\0", "text"),
        (b"[" * 60 + b"]" * 60, "text"),
        (b'[{"a":' * 200 + b"1" + b"}]" * 200, "text"),
        (("[" + "1," * 200_000 + "1]").encode(), "json"),
    ):
        body = bodies.body_of(data)
        assert (body["kind"], body["size"]) == (kind, len(data))
        assert (body["text"] is None) == (kind in ("empty", "binary"))


def test_text_is_cut_between_characters(bodies: Bodies) -> None:
    written = bodies.writer.append("bodies", "äöü".encode() * 100)
    bodies.writer.close()
    body = body_in(ApiOf(bodies.writer.root).get("/message", offset=written.physical_offset, bodyLimit=5))
    assert (body["text"], body["shown"], body["size"]) == ("äö", 4, 600)


BOMBS: dict[str, Callable[[], tuple[bytes, int]]] = {
    "empty LZ4 frames": lambda: (EMPTY_LZ4 * (4_000_000 // len(EMPTY_LZ4)), 0x101),
    "empty zstd frames": lambda: (EMPTY_ZSTD * (4_000_000 // len(EMPTY_ZSTD)), 0x201),
    "zeros": lambda: (zlib.compress(bytes(65 << 20)), 0x301),
    "empty gzip members": lambda: (gzip.compress(b"", mtime=0) * 200_000, 0),
    "a bomb in a bomb": lambda: (zlib.compress(gzip.compress(bytes(65 << 20))), 0x301),
}
"""Body and sysFlag, made by the test: every process that collects tests has this module."""


@pytest.mark.parametrize(
    "bomb",
    [pytest.param(name, marks=[] if name == "empty gzip members" else [pytest.mark.soak]) for name in BOMBS],
)
def test_a_bomb_is_shown_as_stored_with_the_reason_and_what_lies_behind_it_is_found(bodies: Bodies, bomb: str) -> None:
    data, sys_flag = BOMBS[bomb]()
    body = bodies.body_of(data, sys_flag=sys_flag)
    assert (body["kind"], body["storedSize"]) == ("unreadable", len(data))
    assert "more, expected at most" in body["error"]
    behind = bodies.writer.append("bodies", b"what is behind it")
    bodies.writer.close()
    api = ApiOf(bodies.writer.root)
    assert [line["preview"] for line in api.get("/messages", topic="bodies", order="oldest")["messages"]] == [
        None, "what is behind it",
    ]  # fmt: skip
    for exhaustive in ("true", "false"):
        pages = api.pages("/search", contains="behind", topic="bodies", exhaustive=exhaustive, limit=1)
        found = [line["physicalOffset"] for page in pages for line in page["messages"]]
        assert found == [behind.physical_offset]
        notes = " ".join(note for page in pages for note in page["notes"])
        assert "1 record whose body cannot be decompressed" in notes
    hidden = ApiOf(bodies.writer.root, masked=("$.phone",)).get("/message", offset=0)
    assert (hidden["body"], hidden["bodyKind"]) == ("***", "text")


def test_what_is_packed_in_the_messages_of_a_batch_is_bounded_together(bodies: Bodies) -> None:
    run = gzip.compress(bytes(20 << 20), mtime=0)
    written = bodies.writer.append_inner_batch("batches", [(run, {})] * 70)
    bodies.writer.append_inner_batch("batches", [(b"behind", {})])
    bodies.writer.close()
    api = ApiOf(bodies.writer.root)
    message = api.get("/message", offset=written.physical_offset)
    assert (message["innerCount"], len(message["inner"])) == (70, 64)
    kinds = [each["bodyKind"] for each in message["inner"]]
    assert kinds == ["binary"] * 3 + ["unreadable"] * 61
    assert "gzip body more, expected at most 67108864 bytes" in message["inner"][-1]["bodyError"]
    pages = api.pages("/search", contains="behind", topic="batches")
    assert [line["queueOffset"] for page in pages for line in page["messages"]] == [70]
    assert "1 record whose body cannot be decompressed" in " ".join(note for page in pages for note in page["notes"])


def test_a_long_body_is_judged_by_the_part_that_is_shown(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of few bytes may unpack to very many: no more of them are decoded than are shown."""
    decoded: list[int] = []

    def text_in(data: bytes, *arguments: Any, **more: Any) -> str | None:
        decoded.append(len(data))
        return text_in_body(data, *arguments, **more)

    monkeypatch.setattr(shown_bodies, "text_in", text_in)
    for unit, kind in (("号", "text"), ("[1, ", "json"), ("\0", "binary")):
        data = (unit * (12_000_000 // len(unit.encode()))).encode()
        body = bodies.body_of(gzip.compress(data, 1, mtime=0))
        assert (body["kind"], body["size"], body["packings"]) == (kind, len(data), ["gzip"])
        assert decoded.pop() == 256 * 1024
        if kind != "binary":
            assert (body["text"], body["formatted"]) == (data[: 64 << 10].decode(errors="ignore"), None)
            assert body["shown"] == len(body["text"].encode())


def test_a_body_is_text_in_the_charset_that_is_asked_for(bodies: Bodies) -> None:
    bodies.writer.append("bodies", "订单号".encode("gbk"))
    bodies.writer.close()
    api = ApiOf(bodies.writer.root)
    assert api.get("/message", offset=0)["bodyKind"] == "binary"
    body = body_in(api.get("/message", charset="GBK", offset=0))
    assert (body["kind"], body["text"], body["size"]) == ("text", "订单号", 6)
    assert base64.b64decode(body["base64"]) == "订单号".encode("gbk")
    cut = body_in(api.get("/message", offset=0, charset="gbk", bodyLimit=5))
    assert (cut["text"], cut["shown"], len(base64.b64decode(cut["base64"]))) == ("订单", 5, 5)
    for path, question in (("/messages", {"topic": "bodies"}), ("/search", {"contains": "单号", "topic": "bodies"})):
        assert [line["preview"] for line in api.get(path, charset="gbk", **question)["messages"]] == ["订单号"]
        refused = api.ask(path, charset="klingon", **question)
        assert (refused.status, refused.error["parameter"]) == (400, "charset")


def test_messages_that_share_a_record_are_told_one_by_one(bodies: Bodies) -> None:
    inner = [(b"one", {"KEYS": "k1", "TAGS": "A"}), (b"two", {"KEYS": "k2", "UNIQ_KEY": "U2"})]
    written = bodies.writer.append_inner_batch("batches", inner)
    bodies.writer.close()
    message = ApiOf(bodies.writer.root).get("/message", offset=written.physical_offset)
    assert message["innerCount"] == 2
    assert [(each["queueOffset"], each["keys"], each["body"]) for each in message["inner"]] == [
        (0, ["k1"], "one"),
        (1, ["k2"], "two"),
    ]


def test_where_no_message_starts_the_answer_says_what_is_there(api: ApiOf) -> None:
    answer = api.ask("/message", offset=1)
    assert answer.status == 404
    assert "lies inside the record that starts at 0 (275 bytes)" in answer.error["message"]
    assert api.ask("/message", offset=2**63 - 1).status == 404
    assert api.ask("/queue/message", topic="TopicTest", queueId=9, queueOffset=0).error["parameter"] == "queueId"
    assert api.ask("/queue/message", topic="none", queueId=0, queueOffset=0).error["parameter"] == "topic"


def test_a_life_is_what_the_command_line_tells(api: ApiOf) -> None:
    failed = [line.split("\t") for line in (G1 / "consumed-fail.tsv").read_text("utf-8").splitlines()[1:]]
    life = api.get("/message/life", uniqueKey=failed[0][4])
    assert [event["stage"] for event in life["events"]] == ["delivered", "scheduled", "retry"]
    assert life["events"][0]["groups"] == [
        {
            "group": "CG_FAIL",
            "nextOffset": 10,
            "hasPassed": True,
            "passage": "consumed",
            "text": "has passed",
            "untilTimestamp": None,
        }
    ]
    assert life["leftOut"] == 0
    # consumerOffset.json has nothing of the group in its retry topic.
    waits = {"group": "CG_FAIL", "ending": "retrying", "retries": 1, "text": "failed, retry 1 waits"}
    assert life["verdicts"] == [{**waits, "isCertain": True, "untilTimestamp": None, "messageNumber": 1}]
    born = life["events"][0]["message"]["bornTimestamp"]
    assert life["messages"] == [{"number": 1, "topic": "TopicBatch", "bornTimestamp": born, "transaction": None}]
    assert api.get("/message/life", uniqueKey="nobody's")["events"] == []


def test_a_life_of_several_messages_says_of_each_event_which_it_is_of(tmp_path: Path) -> None:
    api = ApiOf(unpack("store", tmp_path, archives=CASES / "B6-two-messages-one-id"))
    life = api.get("/message/life", uniqueKey="7F000001000130946E09000000000001")
    assert [event["messageNumber"] for event in life["events"]] == [1, 2, 2, 2]
    assert [(each["number"], each["topic"]) for each in life["messages"]] == [(1, "T"), (2, "T2")]
    said = [(each["messageNumber"], each["text"], each["isCertain"]) for each in life["verdicts"]]
    assert said == [(1, "is beyond it", False), (2, "gave up after 1 retry → DLQ", True)]


def test_what_live_members_subscribe_to_says_whom_their_filter_skipped(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("T", b"body", unique_key="U", tags="A")
    writer.close()
    groups = ("wants-a", "wants-b", "offline")
    writer.write_config("consumerOffset.json", {"offsetTable": {f"T@{group}": {"0": 1} for group in groups}})
    api = ApiOf(writer.root)
    for group, tag in (("wants-a", "A"), ("wants-b", "B || C")):
        data = decode_json(heartbeat(group, consumer(group, subscription("T", tag))), HeartbeatData)
        assert api.service.clients.heartbeat(FakeConnection(), data, "JAVA", 0)
    said = {each["group"]: each["text"] for each in api.get("/message/life", uniqueKey="U")["verdicts"]}
    assert said == {"wants-a": "has passed it", "wants-b": "skipped by its filter", "offline": "is beyond it"}
