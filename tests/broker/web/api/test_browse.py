"""Browsing by queue and by time, live and in tiers: against mqadmin's and consumers' records."""

import asyncio
import itertools
import time as clock
from datetime import datetime
from zoneinfo import ZoneInfo

import httpx
import pytest

from broker.web.api.endpoint import LARGEST
from broker.web.api.queue_spans import offset_at, offset_behind, span_between
from broker_harness import until
from doctoring import make_store, put
from golden_store import CASES, G1, GOLDEN, unpack
from queue_stores import open_queues
from store_writer import StoreWriter
from web_questions import PLACE, ApiOf

PRINTED = (G1 / "mqadmin-out" / "topicStatus.txt").read_text().splitlines()
STATUS = [line.split() for line in PRINTED if line[:6] == "broker"]


def lines(pages):
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


def one_by_one(api):
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


def without_pace(answer):
    return {name: value for name, value in answer.items() if name not in ("rate", "sentence")}


@pytest.mark.parametrize("path", ["/filter", "/pending"])
def test_times_may_be_as_a_person_writes_them(api: ApiOf, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = ("dueAfter", "dueBefore") if path == "/pending" else ("begin", "end")
    conditions = {"/find": {"text": "hotkey"}, "/filter": {"topic": "TopicTest", "tag": "TagD"}, "/pending": {}}
    asked = conditions[path]
    begin, end = (datetime(2026, 11, 21, 14, 45, second, tzinfo=ZoneInfo("Asia/Shanghai")) for second in (6, 20))
    times = [int(each.timestamp()) * 1000 for each in (begin, end)]
    expected = without_pace(api.get(path, **asked, **{first: times[0], last: times[1]}))
    monkeypatch.setattr("storage.times.time.time_ns", lambda: (times[1] + 3_600_000) * 1_000_000)
    when = "%Y-%m-%d %H:%M:%S"
    zoned = {first: f"{begin:{when}}", last: f"{end:{when}}", "timezone": "Asia/Shanghai"}
    for texts in (zoned, {first: f"{begin:{when}}+08:00", last: "-1h"}):
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


@pytest.mark.parametrize(("filter_", "count"), [({"sql": "TAGS IS NULL"}, 3), ({"tag": "TagC"}, 0)])
def test_a_batch_passes_as_its_record_does(filter_, count, tmp_path) -> None:
    """A broker stored three messages with TagC in one record without a tag, as its README says."""
    api = ApiOf(unpack("store", tmp_path, archives=CASES / "B2-B3-batches"))
    found = lines(api.pages("/messages", topic="batched", **filter_))
    assert [each["tags"] for each in found] == ["TagC"] * count
    (page,) = api.pages("/filter", topic="batched", **filter_)
    assert page["passed"] == count


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


def test_what_cannot_be_read_is_counted_and_hides_nothing(tmp_path) -> None:
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


class Growing:
    def __init__(self, root) -> None:
        self.writer = StoreWriter(root)
        self.count = 0
        self.add(4)
        self.api = ApiOf(root)
        self.follower = self.api.store.follower()

    def add(self, count: int) -> list[int]:
        written = []
        for number in range(self.count, self.count + count):
            tag = f"T{number % 3}"
            message = self.writer.append("orders", b"%d" % number, tags=tag, queue_id=number % 2)
            written.append(message.physical_offset)
        self.count += count
        self.writer.flush()
        return written

    def follow(self) -> None:
        for _ in range(3):
            arrivals = self.follower.poll()
            if arrivals is not None:
                self.api.service.polls.wake(arrivals.queues)


@pytest.fixture
def growing(tmp_path):
    grown = Growing(tmp_path / "store")
    yield grown
    grown.writer.close()


def offsets(answer) -> list[int]:
    return [line["physicalOffset"] for line in answer["messages"]]


def test_a_tail_begins_now_and_goes_on_behind_what_it_gave(growing: Growing) -> None:
    first = growing.api.get("/tail", topic="orders")
    assert (first["messages"], first["lookedAt"], first["skipped"]) == ([], 0, 0)
    written = growing.add(5)
    growing.follow()
    answer = growing.api.get("/tail", topic="orders", cursor=first["cursor"], limit=3)
    assert offsets(answer) == written[:3]
    rest = growing.api.get("/tail", topic="orders", cursor=answer["cursor"])
    assert offsets(rest) == written[3:]
    assert growing.api.get("/tail", topic="orders", cursor=rest["cursor"])["messages"] == []


def test_who_is_too_far_behind_goes_on_with_the_newest(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.web.api.tail.MOST_BEHIND", 10)
    cursor = growing.api.get("/tail", topic="orders")["cursor"]
    written = growing.add(20)
    growing.follow()
    answer = growing.api.get("/tail", topic="orders", cursor=cursor, limit=3)
    assert answer["skipped"] == 14
    assert offsets(answer) == written[-6:-3]
    last = growing.api.get("/tail", topic="orders", cursor=answer["cursor"], limit=3)
    assert (offsets(last), last["skipped"]) == (written[-3:], 0)


async def _held(growing, cursor, *, arrives):
    growing.api.service.polls.start(lambda work: asyncio.get_running_loop().run_in_executor(None, work))
    transport = httpx.ASGITransport(growing.api.application)
    async with httpx.AsyncClient(transport=transport, base_url=PLACE) as client:
        started = clock.monotonic()
        wait = 10_000 if arrives else 300
        question = {"topic": "orders", "cursor": cursor, "wait": wait}
        asked = asyncio.create_task(client.get("/tail", params=question, timeout=60))
        await until(lambda: len(growing.api.service.polls) > 0 or asked.done())
        assert len(growing.api.service.polls) == 2
        if arrives:
            growing.add(1)
            await asyncio.to_thread(growing.follow)
        answer = await asked
    assert len(growing.api.service.polls) == 0
    assert answer.status_code == 200
    return answer.json(), clock.monotonic() - started


def test_an_answer_waits_until_a_message_is_stored(growing: Growing) -> None:
    cursor = growing.api.get("/tail", topic="orders")["cursor"]
    answer, _ = asyncio.run(_held(growing, cursor, arrives=True))
    assert [line["preview"] for line in answer["messages"]] == ["4"]


@pytest.mark.parametrize("cursor", ["x", "eyJhIjoxfQ", "W1sxXV0"])
def test_what_is_no_cursor_of_a_tail_is_refused(growing: Growing, cursor: str) -> None:
    refused = growing.api.ask("/tail", topic="orders", cursor=cursor)
    assert (refused.status, refused.error["parameter"]) == (400, "cursor")


QUEUES = {0: 87, 1: 95}


@pytest.fixture(scope="module", params=[False, True], ids=["joined", "alone"])
def tiered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ApiOf:
    root = unpack("store", tmp_path_factory.mktemp("tier"), archives=GOLDEN / "g2" / "g2-tier")
    return ApiOf(root / "tiered") if request.param else ApiOf(root, tier=root / "tiered")


@pytest.mark.parametrize("order", ["newest"])
@pytest.mark.parametrize("queue_id", QUEUES)
def test_one_queue_is_browsed_over_both_parts_page_by_page(tiered: ApiOf, queue_id: int, order: str) -> None:
    pages = tiered.pages("/messages", topic="TierTopic", queueId=queue_id, order=order, limit=7)
    assert len(pages) > 10
    found = [each["queueOffset"] for page in pages for each in page["messages"]]
    wanted = list(range(QUEUES[queue_id]))
    assert found == (wanted if order == "oldest" else wanted[::-1])
    assert all(page["total"] == QUEUES[queue_id] for page in pages)


@pytest.mark.parametrize("part", ["old", "new"])
def test_the_box_finds_what_either_part_has(tiered: ApiOf, part: str) -> None:
    (message,) = tiered.get("/find", text=f"{part}-7")["messages"]
    found = message["topic"], message["keys"], message["foundBy"]
    assert found == ("TierTopic", [f"{part}-7", "shared", part], "key")


@pytest.mark.parametrize("count", [60])
@pytest.mark.parametrize("data", [bytes(20), b"\xff" * 20])
def test_damaged_units_do_not_move_a_span(count, data, tmp_path) -> None:
    writer, written = make_store(tmp_path, 300, queue_file_size=4000)
    writer.close()
    own = written[1::2]
    put(tmp_path / "consumequeue" / "T" / "1" / f"{0:020d}", 20, data * count)
    queue = open_queues(tmp_path)[0].queue("T", 1)
    assert queue is not None
    for number in (0, 1, 2, 30, 69, 75, 148, 149):
        stamp, place = own[number].store_timestamp, own[number].physical_offset
        assert offset_at(queue, stamp, 0, 150) == number
        assert offset_behind(queue, place, 0, 150) == number
        assert offset_behind(queue, place + 1, 0, 150) == number + 1
        assert (span_between(queue, stamp, LARGEST).first, span_between(queue, 0, stamp).end) == (number, number + 1)


def test_a_parent_is_named_by_a_lite_topic_even_when_its_messages_have_expired(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    for number in range(60):
        name = "%LMQ%$orders$chat-1" if number < 10 else "%LMQ%plain"
        offset = number if number < 10 else number - 10
        light = {"INNER_MULTI_DISPATCH": name, "INNER_MULTI_QUEUE_OFFSET": str(offset)}
        writer.append("orders", b"x" * 300, properties=light)
    writer.consumer_offsets = {"%LMQ%plain@readers": {0: 45}, "%LMQ%plain@others": {0: 50}}
    writer.close()
    for segment in sorted((writer.root / "commitlog").iterdir())[:2]:
        segment.unlink()
    answer = ApiOf(writer.root).get("/light-topics", milliseconds=9000)
    assert (answer["lookedAt"], answer["total"], answer["cursor"]) == (2, 2, None)
    (line,) = answer["parents"]
    assert (line["parent"], line["count"], line["expired"], line["lag"]) == ("orders", 2, 1, 5)
