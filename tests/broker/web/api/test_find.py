"""One box for anything: what a recorded producer and mqadmin know of a message is enough to find it."""

from pathlib import Path
from typing import Any

import pytest

from golden_store import G1
from store_writer import StoreWriter
from web_questions import ApiOf

PRODUCED = [line.split("\t") for line in (G1 / "produced.tsv").read_text("utf-8").splitlines() if line]
"""Label, status, unique key, offset message id, topic, queue, queue offset, keys, tags."""

SINGLE = [row for row in PRODUCED if len(row) == 9 and "," not in row[2] and row[3] != "null"]


def printed(name: str) -> list[list[str]]:
    """The rows that mqadmin printed under a heading."""
    lines = (G1 / "mqadmin-out" / f"{name}.txt").read_text("utf-8").splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]


def place(message: dict[str, Any]) -> tuple[str, int, int]:
    return message["topic"], message["queueId"], message["queueOffset"]


@pytest.mark.parametrize("row", SINGLE, ids=lambda row: row[0])
def test_a_message_is_found_by_both_its_ids(api: ApiOf, row: list[str]) -> None:
    _, _, unique_key, offset_id, topic, queue_id, queue_offset, keys, tags = row
    # What was sent to be delayed tells the id of the record that waited.
    delivered = [each for each in api.get("/find", text=unique_key)["messages"] if each["topic"] == topic]
    assert {place(each) for each in delivered} == {(topic, int(queue_id), int(queue_offset))}
    assert {each["foundBy"] for each in delivered} == {"unique key"}
    (by_offset, *_) = api.get("/find", text=offset_id)["messages"]
    assert (by_offset["offsetMessageId"], by_offset["uniqueKey"]) == (offset_id, unique_key)
    assert by_offset["foundBy"] == "offset message id"
    assert by_offset["keys"] == ([] if keys == "null" else keys.split())
    assert by_offset["tags"] == (None if tags == "null" else tags)


@pytest.mark.parametrize(("text", "name"), [("hotkey", "queryMsgByKey-hot"), ("Aa", "queryMsgByKey-collide")])
def test_a_key_is_found_where_mqadmin_found_it(api: ApiOf, text: str, name: str) -> None:
    found = [each for page in api.pages("/find", text=text, limit=7) for each in page["messages"]]
    by_key = [each for each in found if each["foundBy"] == "key" and each["topic"] == "TopicTest"]
    wanted = [(row[0], int(row[1]), int(row[2])) for row in printed(name)]
    assert [(each["uniqueKey"], each["queueId"], each["queueOffset"]) for each in reversed(by_key)] == wanted


def test_a_tag_is_found_where_mqadmin_found_it(api: ApiOf) -> None:
    pages = api.pages("/find", text="TagD", topic="TopicTest", limit=9)
    found = [each for page in pages for each in page["messages"]]
    assert {each["foundBy"] for each in found} == {"tag"}
    assert [each["uniqueKey"] for each in reversed(found)] == [row[0] for row in printed("queryMsgByKey-tag")]
    assert pages[-1]["topicsSearched"] == pages[-1]["topicsToSearch"] == 2


def test_a_physical_offset_is_taken_for_one_and_may_be_a_key_too(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    first = writer.append("orders", b"first", keys="275")
    writer.append("orders", b"x" * 100, keys=str(first.size))
    writer.close()
    answer = ApiOf(tmp_path / "store").get("/find", text=str(first.size))
    assert [(each["foundBy"], each["physicalOffset"]) for each in answer["messages"]] == [
        ("physical offset", first.size)
    ]
    assert [(each["kind"], each["found"]) for each in answer["tried"]] == [
        ("physical offset", 1),
        ("unique key or key", 1),
        ("tag", 0),
    ]


def test_a_text_that_is_nothing_says_what_was_tried(api: ApiOf) -> None:
    answer = api.get("/find", text="7F00000100002A9F00000000000FFFFF")
    assert not answer["messages"]
    assert [each["kind"] for each in answer["tried"]] == ["offset message id", "unique key or key", "tag"]
    assert "lies past the end" in answer["tried"][0]["note"]
    assert answer["topicsSearched"] == answer["topicsToSearch"]
    assert api.get("/find", text="9" * 400)["messages"] == []


def test_digits_of_any_number_are_an_offset_only_by_their_value(api: ApiOf) -> None:
    for text, offsets in (("0" * 30, [0]), ("0" * 30 + "275", [275]), ("0" * 20 + "1" * 20, [])):
        found = api.get("/find", text=text)["messages"]
        assert [each["physicalOffset"] for each in found if each["foundBy"] == "physical offset"] == offsets, text


def test_a_topic_is_told_by_a_part_of_its_name(api: ApiOf) -> None:
    assert api.get("/find", text="TopicT")["topics"] == ["TopicTest", "TopicTx"]
    assert api.get("/find", text="topict")["topics"] == ["TopicTest", "TopicTx"]


def test_topics_that_may_be_meant_are_named_where_nothing_is_found(api: ApiOf) -> None:
    assert api.get("/find", text="TopicTets")["similarTopics"][0] == "TopicTest"
    assert api.get("/find", text="hotkey", topic="TopicTets")["similarTopics"][0] == "TopicTest"
    assert api.get("/find", text="hotkey")["similarTopics"] == []
    assert api.get("/message/life", uniqueKey="nobody", topic="TopicBtach")["similarTopics"] == ["TopicBatch"]
    for path in ("/topic", "/messages", "/histogram"):
        answer = api.ask(path, topic="TopicBtach")
        assert (answer.status, answer.error["message"]) == (
            404,
            "the store has no topic TopicBtach; did you mean TopicBatch?",
        )
        assert answer.error["similarTopics"] == ["TopicBatch"]


def test_the_host_of_an_id_need_not_be_the_stores_but_is_told(api: ApiOf) -> None:
    answer = api.get("/find", text="0A00000100002A9F00000000000019B5")
    assert [each["physicalOffset"] for each in answer["messages"]] == [6581]
    assert "the id names 10.0.0.1:10911" in answer["tried"][0]["note"]


def test_times_bound_keys(api: ApiOf) -> None:
    everything = [each for page in api.pages("/find", text="hotkey") for each in page["messages"]]
    times = sorted(each["storeTimestamp"] for each in everything)
    answer = api.get("/find", text="hotkey", begin=times[3], end=times[5])
    assert [each["storeTimestamp"] for each in answer["messages"]] == times[3:6][::-1]


def test_little_time_makes_many_answers_that_are_the_same_together(api: ApiOf) -> None:
    whole = [each["physicalOffset"] for each in api.get("/find", text="TagA", limit=200)["messages"]]
    pages = api.pages("/find", text="TagA", milliseconds=1, limit=2)
    assert len(pages) > 1
    assert [each["physicalOffset"] for page in pages for each in page["messages"]] == whole


def test_a_cursor_of_nobody_is_refused(api: ApiOf) -> None:
    for cursor in ("x", "e30", "WzEsMiwzXQ", "ÿ"):
        assert api.ask("/find", text="a", cursor=cursor).error["parameter"] == "cursor"
