"""VIEW_MESSAGE_BY_ID and QUERY_MESSAGE on g1, whose ids, keys and tags `produced.tsv` has as the producer had them."""

import csv
from dataclasses import dataclass
from itertools import product

import pytest

from asking import Asker
from broker.endpoint import Endpoint
from broker.service.processors import query_message
from golden_frames import Session
from golden_store import G1, GOLDEN, unpack
from protocol.codes import ResponseCode
from protocol.message import decode_message, decode_messages
from store_writer import appended, closed_store

VIEW, QUERY = 33, 12
FOREVER = "9223372036854775807"


@dataclass(frozen=True)
class Produced:
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
def asker(g1_store) -> Asker:
    return Asker(g1_store)


def query(asker, topic="TopicTest", key="hotkey", **fields):
    wanted = {"topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": FOREVER} | fields
    return asker.ask(QUERY, {name: value for name, value in wanted.items() if value != "(absent)"})


def messages(response):
    assert response.code == ResponseCode.SUCCESS, response.remark
    return list(decode_messages(response.body))


def unique_keys(response) -> set[str | None]:
    return {message.unique_key for message in messages(response)}


def stored_bytes(root, physical_offset, size) -> bytes:
    segment, position = divmod(physical_offset, 131072)
    with (root / "commitlog" / f"{segment * 131072:020}").open("rb") as file:
        file.seek(position)
        return file.read(size)


def test_a_view_answers_the_record_byte_for_byte_and_each_key_unique_key_and_tag_finds_it(asker, g1_store) -> None:
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


def test_a_unique_key_is_found_where_the_index_type_does_not_forbid_it_and_the_flag_wins(asker: Asker) -> None:
    for index_type, flag in product(("(absent)", "", "U", "X", "K", "T"), ("(absent)", "false", "true", "TRUE")):
        response = query(asker, FIRST.topic, FIRST.unique_key, indexType=index_type, _UNIQUE_KEY_QUERY=flag)
        if index_type in ("K", "T") and flag.lower() != "true":
            assert response.code == ResponseCode.QUERY_NOT_FOUND
        else:
            assert unique_keys(response) == {FIRST.unique_key}


@pytest.mark.parametrize("form", ["{0}", "1795240800000@TopicTest@K@hotkey@ID@{0}", "a@@{0}"])
@pytest.mark.parametrize("maximum", ["1", "7", "39"])
def test_all_matches_can_be_paged(asker: Asker, form: str, maximum: str) -> None:
    everything = messages(query(asker))
    pages = []
    fields: dict[str, str] = {}
    while True:
        response = query(asker, maxNum=maximum, **fields)
        pages = messages(response) + pages
        cursor = (response.ext_fields or {}).get("rocketlensCursor")
        if cursor is None:
            break
        fields = {"lastKey": form.format(cursor)}
    assert pages == everything


def with_room_for(monkeypatch, root, size) -> Asker:
    monkeypatch.setattr(query_message, "HEADER_RESERVE", 65536 - size)
    return Asker(root, frame_limit=65536)


def test_a_record_longer_than_any_frame_is_said_to_be(g1_store, monkeypatch) -> None:
    tiny = with_room_for(monkeypatch, g1_store, 10)
    response = query(tiny)
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "the newest match is longer than 10 bytes")
    response = tiny.ask(VIEW, {"offset": "0"})
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "has 275 bytes, one answer at most 10" in response.remark
    assert query(tiny, key=FIRST.offset_message_id, _UNIQUE_KEY_QUERY="true").code != ResponseCode.SUCCESS


def test_a_unique_query_for_an_offset_id_is_answered_so_that_java_takes_it(asker: Asker) -> None:
    for one, topic in product(PRODUCED, (None, "TopicTest", "AnyTopic")):
        asked = {"_UNIQUE_KEY_QUERY": "true", "indexType": "U", "maxNum": "32"}
        (message,) = messages(query(asker, topic or one.topic, one.offset_message_id, **asked))
        # What MessageExt.getMsgId() gives for this record.
        assert (message.unique_key, message.message_id) == (None, one.offset_message_id)
        original = decode_message(asker.ask(VIEW, {"offset": str(one.physical_offset)}).body)
        assert bytes(message.body) == bytes(original.body)
        assert message.properties == {name: text for name, text in original.properties.items() if name != "UNIQ_KEY"}


def test_a_topic_is_looked_up_inside_its_clients_namespace_too(tmp_path) -> None:
    writer = closed_store(tmp_path / "store", appended("space%Orders", b"body", keys="k"))
    asker = Asker(writer.root)
    inside = {"nsd": "true", "ns": "space"}, {"nsd": "TRUE", "ns": "space"}
    others = {"nsd": "false", "ns": "space"}, {"ns": "space"}, {"nsd": "true"}, {"nsd": "true", "ns": "other"}
    for fields, is_found in (*((each, True) for each in inside), *((each, False) for each in others)):
        assert (query(asker, "Orders", "k", **fields).code == ResponseCode.SUCCESS) is is_found, fields
        viewed = asker.ask(VIEW, {"offset": "0", "topic": "Orders", **fields})
        assert viewed.code == (0 if is_found else NO_PERMISSION), fields


def test_records_may_go_out_with_our_own_address(g1_store) -> None:
    own = Endpoint("10.1.2.3", 10911)
    ours = Asker(g1_store, rewrite_store_host=True, advertise=own)
    plain = Asker(g1_store)
    viewed = decode_message(ours.ask(VIEW, {"offset": "0"}).body)
    assert str(viewed.store_host) == str(own)
    assert viewed.unique_key == decode_message(plain.ask(VIEW, {"offset": "0"}).body).unique_key
    found = messages(query(ours))
    assert {str(message.store_host) for message in found} == {str(own)}
    assert [each.physical_offset for each in found] == [each.physical_offset for each in messages(query(plain))]
    # The ids that clients now print lead to us, and the old ones still resolve.
    for message_id in (found[0].offset_message_id, PRODUCED[-1].offset_message_id):
        (message,) = messages(query(ours, key=message_id, _UNIQUE_KEY_QUERY="true"))
        assert message.message_id == message_id


FOLDER = GOLDEN / "g2" / "g2-queues-5.5.1"
VIEW, QUERY = 33, 12
RECORDED = Session("g2-queues-5.5.1", FOLDER / "views.jsonl.xz", FOLDER / "store.tar.xz").exchanges()
NO_PERMISSION, REMARK = ResponseCode.NO_PERMISSION, "The topic does not match the message"


def without_topic(exchange) -> dict[str, str]:
    return {"offset": exchange.ext_fields["offset"]}


def test_views_are_answered_as_recorded_but_for_topics_that_the_record_itself_names(tmp_path) -> None:
    asker = Asker(unpack("store", tmp_path, archives=FOLDER))
    ours_alone = set()
    for exchange in RECORDED:
        answer, expected = asker.ask(VIEW, exchange.ext_fields), exchange.recorded
        if (answer.code, expected.code) == (0, NO_PERMISSION):
            body = asker.ask(VIEW, without_topic(exchange)).body
            assert bytes(answer.body) == bytes(body), str(exchange)
            ours_alone.add((kind_of(decode_message(body).topic), kind_of(exchange.ext_fields["topic"])))
        else:
            assert (answer.code, answer.remark) == (expected.code, expected.remark), str(exchange)
            assert bytes(answer.body) == expected.body, str(exchange)
    kinds = {"%RETRY%": {"LightParent", "%LMQ%alpha"}, "%DLQ%": {"LightParent", "%LMQ%alpha", "%RETRY%"}}
    kinds |= {name: {name} for name in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")}
    assert ours_alone == {(topic, named) for topic, names in kinds.items() for named in names}


def kind_of(topic: str) -> str:
    return topic[: topic.index("%", 1) + 1] if topic.startswith(("%RETRY%", "%DLQ%")) else topic
