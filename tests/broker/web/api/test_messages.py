"""A message whole, and finding it by text and content: as mqadmin printed it, with its body in every form."""

import base64
import gzip
import time
import zlib

import pytest

from bombs import EMPTY_LZ4, EMPTY_ZSTD
from damaged_units import QueueImage
from golden_store import G1
from queue_stores import unit_bytes
from store_writer import StoreWriter, appended, closed_store
from web_questions import ApiOf


def printed(name: str) -> list[dict[str, str]]:
    text = (G1 / "mqadmin-out" / f"{name}.txt").read_text("utf-8")
    blocks = text.split("OffsetID:")[1:]
    assert blocks
    pairs = ((line.partition(":") for line in f"OffsetID:{block}".splitlines()) for block in blocks)
    return [{name.strip(): value.strip() for name, _, value in each} for each in pairs]


def test_every_field_is_what_mqadmin_printed(api: ApiOf) -> None:
    for told in (*printed("queryMsgById-hot0"), *printed("queryMsgById-two"), *printed("queryMsgById-zstd")):
        message = api.get("/message", offset=int(told["CommitLog Offset"]))
        found = {
            "OffsetID": message["offsetMessageId"], "Topic": message["topic"], "Tags": f"[{message['tags']}]",
            "Keys": f"[{' '.join(message['keys'])}]", "Queue ID": str(message["queueId"]),
            "Queue Offset": str(message["queueOffset"]), "Reconsume Times": str(message["reconsumeTimes"]),
            "Born Host": message["bornHost"], "Store Host": message["storeHost"]
        }  # fmt: skip
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


@pytest.mark.parametrize("is_lost", [False, True])
def test_no_other_message_is_shown_in_the_place_of_one_whose_unit_is_damaged(tmp_path, is_lost: bool) -> None:
    with StoreWriter(tmp_path) as writer:
        written = [writer.append("TU"[number % 2], b"%d" % number) for number in range(20)]
    image, own, other = QueueImage(tmp_path / "consumequeue" / "T" / "0"), written[10], written[19]
    image.put(5, unit_bytes(other.physical_offset, other.size, 0))
    if is_lost:
        writer.overwrite(own.physical_offset, bytes(own.size))
    answer = ApiOf(tmp_path).ask("/queue/message", topic="T", queueId=0, queueOffset=5)
    if is_lost:
        assert (answer.status, "the log lacks it too" in answer.error["message"]) == (404, True)
    else:
        assert answer.json["body"] == "10"


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


def body_in(message):
    found = {name[4:5].lower() + name[5:]: value for name, value in message.items() if name[:4] == "body"}
    content, is_text, data = found.pop(""), found.pop("encoding") == "text", found.pop("bytes")
    return found | {"text": content if is_text and content else None, "base64": data if is_text else content}


class Bodies:
    def __init__(self, root) -> None:
        self.writer = StoreWriter(root, segment_size=4 << 20)

    def body_of(self, data, **more):
        written = self.writer.append("bodies", data, **more)
        self.writer.close()
        return body_in(ApiOf(self.writer.root).get("/message", offset=written.physical_offset))


@pytest.fixture
def bodies(tmp_path) -> Bodies:
    return Bodies(tmp_path / "store")


BOMBS = {
    "empty LZ4 frames": lambda: (EMPTY_LZ4 * (4_000_000 // len(EMPTY_LZ4)), 0x101),
    "empty zstd frames": lambda: (EMPTY_ZSTD * (4_000_000 // len(EMPTY_ZSTD)), 0x201),
    "zeros": lambda: (zlib.compress(bytes(65 << 20)), 0x301),
    "empty gzip members": lambda: (gzip.compress(b"", mtime=0) * 200_000, 0),
    "a bomb in a bomb": lambda: (zlib.compress(gzip.compress(bytes(65 << 20))), 0x301),
}
"""Body and sysFlag, made by the test: every process that collects tests has this module."""


@pytest.mark.parametrize(
    "bomb", [pytest.param(name, marks=[] if name == "empty gzip members" else [pytest.mark.soak]) for name in BOMBS]
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


def test_where_no_message_starts_the_answer_says_what_is_there(api: ApiOf) -> None:
    answer = api.ask("/message", offset=1)
    assert answer.status == 404
    assert "lies inside the record that starts at 0 (275 bytes)" in answer.error["message"]
    assert api.ask("/message", offset=2**63 - 1).status == 404
    assert api.ask("/queue/message", topic="TopicTest", queueId=9, queueOffset=0).error["parameter"] == "queueId"
    assert api.ask("/queue/message", topic="none", queueId=0, queueOffset=0).error["parameter"] == "topic"


def printed_of_find(name: str) -> list[list[str]]:
    lines = (G1 / "mqadmin-out" / f"{name}.txt").read_text("utf-8").splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize(("text", "name"), [("hotkey", "queryMsgByKey-hot"), ("Aa", "queryMsgByKey-collide")])
def test_a_key_is_found_where_mqadmin_found_it(api: ApiOf, text: str, name: str) -> None:
    found = [each for page in api.pages("/find", text=text, limit=7) for each in page["messages"]]
    by_key = [each for each in found if each["foundBy"] == "key" and each["topic"] == "TopicTest"]
    wanted = [(row[0], int(row[1]), int(row[2])) for row in printed_of_find(name)]
    assert [(each["uniqueKey"], each["queueId"], each["queueOffset"]) for each in reversed(by_key)] == wanted


def test_topics_that_may_be_meant_are_named_where_nothing_is_found(api: ApiOf) -> None:
    assert api.get("/find", text="TopicTets")["similarTopics"][0] == "TopicTest"
    assert api.get("/find", text="hotkey", topic="TopicTets")["similarTopics"][0] == "TopicTest"
    assert api.get("/find", text="hotkey")["similarTopics"] == []
    assert api.get("/message/life", uniqueKey="nobody", topic="TopicBtach")["similarTopics"] == ["TopicBatch"]
    for path in ("/topic", "/messages", "/histogram"):
        answer = api.ask(path, topic="TopicBtach")
        said = "the store has no topic TopicBtach; did you mean TopicBatch?"
        assert (answer.status, answer.error["message"]) == (404, said)
        assert answer.error["similarTopics"] == ["TopicBatch"]


def test_a_cursor_of_nobody_is_refused(api: ApiOf) -> None:
    for cursor in ("x", "e30", "WzEsMiwzXQ", "ÿ"):
        assert api.ask("/find", text="a", cursor=cursor).error["parameter"] == "cursor"


def test_a_search_goes_on_by_cursor_and_says_how_far_it_is(api: ApiOf) -> None:
    whole = [each["physicalOffset"] for each in api.get("/search", contains="hot ", limit=200)["messages"]]
    assert len(whole) == 40
    pages = api.pages("/search", contains="hot ", limit=7)
    assert [each["physicalOffset"] for page in pages for each in page["messages"]] == whole
    assert [len(page["messages"]) for page in pages[:5]] == [7] * 5
    assert all(page["sentence"].startswith("searched ") for page in pages)


LONG = "x" * 500 + " \n before it  order-4711 behind it " + "y" * 500


@pytest.fixture(scope="module")
def matched(tmp_path_factory: pytest.TempPathFactory) -> ApiOf:
    writer = StoreWriter(tmp_path_factory.mktemp("matched") / "store")
    writer.append("orders", LONG.encode(), properties={"region": "hz order-12"})
    writer.append("orders", b"order-4711")
    writer.append("orders", "Bestellung 4711".encode("utf-16-le"), keys="binary")
    writer.append("orders", "订单 order-4711".encode("gbk"))
    writer.close()
    return ApiOf(writer.root)


def test_the_match_is_shown_with_the_text_around_it(matched: ApiOf) -> None:
    for conditions, expected in (
        ({"contains": "order-4711"}, ["order-4711"] * 2),
        ({"regex": "order-[0-9]+"}, ["order-4711"] * 2),
        ({"contains": "order-12", "place": "properties"}, ["order-12"]),
        ({"regex": "order-(12|99)", "place": "any"}, ["order-12"]),
        ({"contains": "订单", "charset": "gbk"}, ["订单"]),
        ({"tag": "none", "topic": "orders"}, []),
    ):
        found = [each["match"] for each in matched.get("/search", **conditions)["messages"]]
        assert [match for _, match, _ in (each for each in found if each is not None)] == expected, conditions
    before, _, behind = matched.get("/search", contains="order-4711")["messages"][0]["match"]
    assert (before[0], before[-11:], behind[:12], behind[-1]) == ("…", " before it ", " behind it y", "…")
    assert max(len(before), len(behind)) < 100


def test_a_match_that_a_mask_hides_is_not_shown(tmp_path) -> None:
    writer = closed_store(tmp_path / "store", appended("orders", b'{"card": "4711-0815", "id": "order-4711"}'))
    masked = ApiOf(writer.root, masked=("$.card",))
    (found,) = masked.get("/search", contains="4711")["messages"]
    assert "0815" not in "".join(found["match"])


@pytest.mark.parametrize(
    "place", ["any", *(pytest.param(each, marks=pytest.mark.soak) for each in ("body", "properties"))]
)
def test_a_message_that_would_hold_an_expression_up_for_ever_is_left_out_and_passed(tmp_path, place) -> None:
    writer = StoreWriter(tmp_path / "store")
    held_up = [writer.append("orders", b"a" * 4000, keys="a" * 4000).physical_offset for _ in range(3)]
    found = writer.append("orders", b"aab", keys="aab").physical_offset
    writer.close()
    pages = ApiOf(tmp_path / "store").pages("/search", regex="^(a+)+b$", milliseconds=200, place=place)
    assert [each["physicalOffset"] for page in pages for each in page["messages"]] == [found]
    notes = " ".join(note for page in pages for note in page["notes"])
    assert "holds a pattern up without end" in notes
    assert all(str(offset) in notes for offset in held_up)


def test_what_cannot_be_searched_for_is_named(api: ApiOf) -> None:
    for parameters, wrong in (
        ({"regex": "("}, "regex"),
        ({"regex": "(?:" * 1000 + "a" + "{9}" * 9 + ")" * 1000}, "regex"),
        ({"jsonPath": "no value"}, "jsonPath"),
        ({"jsonPath": ("$[?@.a==1&&" + "@.b==1&&" * 500)[:4090] + "=1"}, "jsonPath"),
        ({"where": "a >"}, "where"),
        ({"tag": "||"}, "tag"),
        ({"bornHost": "no host"}, "bornHost"),
        ({"contains": "a", "cursor": "abc"}, "cursor"),
        ({"place": "nowhere"}, "place"),
        ({"begin": "5", "end": "4"}, "end"),
        ({"minimumSize": "5", "maximumSize": "4"}, "maximumSize"),
    ):
        before = time.process_time()
        answer = api.ask("/search", **parameters)
        assert (answer.status, answer.error["parameter"]) == (400, wrong), answer.content
        assert time.process_time() - before < 1.0, "what takes long to compile holds nobody up"
