"""Browsing by queue and by time, histogram, and how many pass a filter: against mqadmin's and consumers' records."""

import itertools
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from broker.web.api.request_context import RequestContext
from golden_store import CASES, G1, unpack
from protocol.errors import StoreError
from storage.queue.queue_store import QueueStore
from store_writer import StoreWriter
from web_questions import ApiOf

STATUS = [
    line.split() for line in (G1 / "mqadmin-out" / "topicStatus.txt").read_text().splitlines() if line[:6] == "broker"
]


def lines(pages: list[Any]) -> list[Any]:
    return [each for page in pages for each in page["messages"]]


def test_the_queues_of_a_topic_are_what_mqadmin_printed(api: ApiOf) -> None:
    answer = api.get("/topic", topic="TopicTest")
    wanted = [(int(row[1]), int(row[2]), int(row[3])) for row in STATUS]
    assert [(each["queueId"], each["minOffset"], each["maxOffset"]) for each in answer["queues"]] == wanted
    pages = api.pages("/topic", topic="TopicTest", limit=3)
    assert [each["queueId"] for page in pages for each in page["queues"]] == [row[0] for row in wanted]
    groups = [each for page in one_by_one(api) for each in page["groups"]]
    assert [each["group"] for each in groups] == ["CG_SQL", "CG_TAG"]
    assert groups[1]["lag"] == 44
    assert groups[1]["nextOffsets"] == {"0": 2, "1": 2, "2": 2, "3": 2}


def one_by_one(api: ApiOf) -> list[Any]:
    """The answers about a topic with one group each."""
    found = [api.get("/topic", topic="TopicTest", groupsLimit=1)]
    while found[-1]["groupsCursor"] is not None:
        assert len(found) < 10
        found.append(api.get("/topic", topic="TopicTest", groupsLimit=1, groupsCursor=found[-1]["groupsCursor"]))
    return found


def test_the_topics_are_what_mqadmin_printed_and_more_that_lie_on_the_disk(api: ApiOf) -> None:
    wanted = {line for line in (G1 / "mqadmin-out" / "topicList.txt").read_text().splitlines() if line}
    pages = api.pages("/topics", limit=4, counts=True)
    found = {each["topic"]: each for page in pages for each in page["topics"]}
    own = {"%RETRY%TOOLS_CONSUMER"}  # made by mqadmin itself, after the store was copied
    assert wanted - own <= set(found)
    assert found["TopicTest"]["messages"] == sum(int(row[3]) for row in STATUS)
    assert [found[each]["kind"] for each in ("TopicTest", "%RETRY%CG_FAIL", "TBW102")] == ["normal", "retry", "system"]
    assert {each["topic"] for each in api.get("/topics", contains="Tx")["topics"]} == {"TopicTx"}


def test_why_messages_of_a_topic_are_not_counted_is_said(
    api: ApiOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = api.get("/topics", counts=True, milliseconds=9000)
    assert counted["messagesNote"] is None
    assert None not in [each["messages"] for each in counted["topics"]]
    answer = api.get("/topics")
    assert {each["messages"] for each in answer["topics"]} == {None}
    assert "counts=true" in answer["messagesNote"]
    assert api.get("/topics", contains="nothing named so")["messagesNote"] is None
    monkeypatch.setattr(RequestContext, "is_time_up", True)
    hurried = api.get("/topics", counts=True, milliseconds=7)
    assert {each["messages"] for each in hurried["topics"]} == {None}
    assert f"of {len(hurried['topics'])} topics are null because there was no time" in hurried["messagesNote"]


def test_a_topic_whose_queue_cannot_be_read_says_so(api: ApiOf, monkeypatch: pytest.MonkeyPatch) -> None:
    queues_of = QueueStore.queues_of

    def refuse(queues: QueueStore, topic: str) -> object:
        if topic == "BulkTopic":
            raise StoreError(Path("consumequeue/BulkTopic/0"), what="may not be read")
        return queues_of(queues, topic)

    monkeypatch.setattr(QueueStore, "queues_of", refuse)
    answer = api.get("/topics", counts=True, milliseconds=9000)
    lines = {each["topic"]: each for each in answer["topics"]}
    assert (lines["TopicTest"]["problem"], lines["BulkTopic"]["messages"]) == (None, None)
    assert "may not be read" in lines["BulkTopic"]["problem"]
    assert answer["messagesNote"] is None


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_all_messages_of_a_topic_come_in_the_order_of_the_log(api: ApiOf, order: str) -> None:
    found = lines(api.pages("/messages", topic="TopicTest", limit=7, order=order))
    offsets = [each["physicalOffset"] for each in found]
    assert offsets == sorted(offsets, reverse=order == "newest")
    places = {(each["queueId"], each["queueOffset"]) for each in found}
    assert places == {(int(row[1]), number) for row in STATUS for number in range(int(row[3]))}


def without_pace(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what says how fast it was made."""
    return {name: value for name, value in answer.items() if name not in ("rate", "sentence")}


@pytest.mark.parametrize("path", ["/filter", "/find", "/pending"])
def test_times_may_be_as_a_person_writes_them(api: ApiOf, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = ("dueAfter", "dueBefore") if path == "/pending" else ("begin", "end")
    conditions: dict[str, dict[str, str]] = {
        "/pending": {},
        "/find": {"text": "hotkey"},
        "/filter": {"topic": "TopicTest", "tag": "TagD"},
    }
    asked = conditions[path]
    begin, end = (datetime(2026, 11, 21, 14, 45, second, tzinfo=ZoneInfo("Asia/Shanghai")) for second in (6, 20))
    times = [int(each.timestamp()) * 1000 for each in (begin, end)]
    expected = without_pace(api.get(path, **asked, **{first: times[0], last: times[1]}))
    monkeypatch.setattr("storage.times.time.time_ns", lambda: (times[1] + 3_600_000) * 1_000_000)
    for texts in (
        {first: f"{begin:%Y-%m-%d %H:%M:%S}", last: f"{end:%Y-%m-%d %H:%M:%S}", "timezone": "Asia/Shanghai"},
        {first: f"{begin:%Y-%m-%d %H:%M:%S}+08:00", last: "-1h"},
    ):
        assert without_pace(api.get(path, **asked, **texts)) == expected, texts
    for wrong, name in (({first: "soon"}, first), ({last: "9" * 30}, last), ({"timezone": "Mars/Olympus"}, "timezone")):
        answer = api.ask(path, **asked, **wrong)
        assert (answer.status, answer.error["parameter"]) == (400, name), answer.content


@pytest.mark.parametrize(
    ("filter_", "name"),
    [({"tag": "TagA || Aa"}, "consumed-tag"), ({"sql": "a > 10 AND a <= 30 AND region = 'hz'"}, "consumed-sql")],
)
def test_what_passes_a_filter_is_what_a_consumer_received(api: ApiOf, filter_: dict[str, str], name: str) -> None:
    rows = [line.split("\t") for line in (G1 / f"{name}.tsv").read_text("utf-8").splitlines()[1:]]
    wanted = {row[4] for row in rows}
    found = lines(api.pages("/messages", topic="TopicTest", limit=3, **filter_))
    assert {each["uniqueKey"] for each in found} == wanted
    for milliseconds in (1, 1000):
        pages = api.pages("/filter", topic="TopicTest", milliseconds=milliseconds, **filter_)
        assert sum(page["passed"] for page in pages) == len(wanted)
        assert sum(page["lookedAt"] for page in pages) == pages[0]["total"] == 52
        assert [page["before"] for page in pages] == [
            0, *itertools.accumulate(page["lookedAt"] for page in pages[:-1])
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("filter_", "count"),
    [({"sql": "TAGS IS NULL"}, 3), ({"sql": "TAGS = 'TagC'"}, 0), ({"tag": "TagC"}, 0), ({"tag": "*"}, 3)],
)
def test_a_batch_passes_as_its_record_does(filter_: dict[str, str], count: int, tmp_path: Path) -> None:
    """A broker stored three messages with TagC in one record without a tag, as its README says."""
    api = ApiOf(unpack("store", tmp_path, archives=CASES / "B2-B3-batches"))
    found = lines(api.pages("/messages", topic="batched", **filter_))
    assert [each["tags"] for each in found] == ["TagC"] * count
    (page,) = api.pages("/filter", topic="batched", **filter_)
    assert page["passed"] == count


def test_a_property_that_no_message_has_is_named_where_nothing_passes(api: ApiOf) -> None:
    note = api.get("/filter", topic="TopicTest", sql="nowhere = 1 AND TAGS IS NOT NULL")["note"]
    assert re.fullmatch(r"none of the first \d+ messages there has property nowhere", note)
    assert api.get("/filter", topic="TopicTest", sql="TAGS = 'nosuch'")["note"] is None
    assert api.get("/filter", topic="TopicTest", sql="nowhere IS NULL")["note"] is None


def test_a_filter_that_is_none_is_drawn_under_its_text(api: ApiOf) -> None:
    answer = api.ask("/filter", topic="TopicTest", sql="a >")
    assert (answer.status, answer.error["parameter"]) == (400, "sql")
    assert "^" in answer.error["message"]
    assert api.ask("/filter", topic="TopicTest").error["parameter"] == "tag"
    assert api.ask("/messages", topic="TopicTest", tag="a", sql="b = 1").error["parameter"] == "sql"
    assert "is ignored, as by brokers" in api.get("/filter", topic="TopicTest", sql="a > 1 b")["note"]


def test_a_histogram_counts_every_message_in_its_bucket(api: ApiOf) -> None:
    times = [each["storeTimestamp"] for each in lines(api.pages("/messages", topic="TopicTest"))]
    for buckets in (1, 7, 400):
        answer = api.get("/histogram", topic="TopicTest", buckets=buckets)
        wanted = [0] * len(answer["counts"])
        for time in times:
            wanted[(time - answer["begin"]) // answer["width"]] += 1
        assert answer["counts"] == wanted
        assert len(wanted) <= buckets + 1
        assert (answer["before"], answer["after"], answer["cursor"]) == (0, 0, None)


def test_a_histogram_of_a_part_says_what_lies_outside(api: ApiOf) -> None:
    times = sorted(each["storeTimestamp"] for each in lines(api.pages("/messages", topic="TopicTest")))
    answer = api.get("/histogram", topic="TopicTest", begin=times[20], end=times[30], buckets=5)
    assert answer["before"] + sum(answer["counts"]) + answer["after"] == len(times)
    assert answer["before"] == sum(time < answer["begin"] for time in times)


def test_times_the_wrong_way_round_are_refused_and_not_answered_with_nothing(api: ApiOf) -> None:
    for path, tag in (("/messages", None), ("/histogram", None), ("/filter", "TagA")):
        answer = api.ask(path, topic="TopicTest", begin=5, end=4, tag=tag)
        assert (answer.status, answer.error["parameter"]) == (400, "end")


def test_what_cannot_be_read_is_counted_and_hides_nothing(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    written = [writer.append("t", b"body %d" % number, keys=f"k{number}") for number in range(6)]
    writer.overwrite(written[2].physical_offset + 4, b"\0\0\0\0")
    writer.overwrite(written[4].physical_offset + 90, b"!")
    writer.close()
    api = ApiOf(tmp_path / "store")
    answer = api.get("/messages", topic="t")
    assert [each["queueOffset"] for each in answer["messages"]] == [0, 1, 3, 4, 5]
    assert (answer["unreadable"], answer["lookedAt"]) == (1, 6)
    assert [each["damage"] is not None for each in answer["messages"]] == [False, False, False, True, False]
