"""Browsing by queue and by time, against mqadmin's and consumers' records, and the whole store by the API."""

import asyncio
import itertools
import shutil
import time as clock
from bisect import bisect_left, bisect_right
from datetime import datetime
from zoneinfo import ZoneInfo

import httpx
import pytest

from acl_file import READER, READER_SECRET, write_accounts
from broker.service.denials import Want
from broker.web.api.endpoint import LARGEST
from broker.web.api.queue_spans import offset_at, offset_behind, span_between
from broker_harness import until
from command_line import rocketlens
from damaged_units import damage_queues
from doctoring import make_store, put
from golden_store import CASES, G1, GOLDEN, unpack
from oracles import read_log
from protocol.host_address import HostAddress
from queue_stores import open_queues
from space_oracle import count
from store_writer import START_TIMESTAMP, StoreWriter, appended, closed_store
from web_questions import PLACE, ApiOf, keys

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


@pytest.mark.parametrize("lost", [[], [1, 30, 31, 60]])
@pytest.mark.parametrize("data", [bytes(20), b"\xff" * 20])
def test_damaged_units_do_not_move_a_span(lost, data, tmp_path) -> None:
    """In the place of a message that the log lacks too counts the next one, which has a damaged unit as well."""
    writer, written = make_store(tmp_path, 300, queue_file_size=4000)
    writer.close()
    own = written[1::2]
    put(tmp_path / "consumequeue" / "T" / "1" / f"{0:020d}", 20, data * 60)
    for number in lost:
        writer.overwrite(own[number].physical_offset, bytes(own[number].size))
    queue = open_queues(tmp_path)[0].queue("T", 1)
    assert queue is not None
    counted = [next(each for each in own[number:] if each.queue_offset not in lost) for number in range(150)]
    stamps, places = [each.store_timestamp for each in counted], [each.physical_offset for each in counted]
    for number in (0, 1, 2, 29, 30, 32, 61, 69, 75, 148, 149):
        stamp, place = stamps[number], places[number]
        first, behind = bisect_left(stamps, stamp), bisect_right(stamps, stamp)
        assert offset_at(queue, stamp, 0, 150) == first
        assert offset_behind(queue, place, 0, 150) == first
        assert offset_behind(queue, place + 1, 0, 150) == behind
        assert (span_between(queue, stamp, LARGEST).first, span_between(queue, 0, stamp).end) == (first, behind)


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
    damage_queues(writer.root, [49], topic="%LMQ%plain")
    answer = ApiOf(writer.root).get("/light-topics", milliseconds=9000)
    assert (answer["lookedAt"], answer["total"], answer["cursor"]) == (2, 2, None)
    (line,) = answer["parents"]
    assert (line["parent"], line["count"], line["expired"], line["lag"]) == ("orders", 2, 1, 5)


def _api(root) -> ApiOf:
    closed_store(root, appended("orders", b"body", keys="key"))
    return ApiOf(root)


def test_administrators_see_which_accounts_lacked_what_and_the_line_to_add(tmp_path) -> None:
    api = _api(tmp_path / "store")
    assert api.get("/store")["refused"] == []
    want = Want("reader-key", "SUB of topic orders", "topicPerms: - orders=SUB")
    api.service.denials.note(want)
    api.service.denials.note(want)
    (line,) = api.get("/store")["refused"]
    assert (line["account"], line["lacks"], line["add"], line["count"]) == (*want, 2)


def test_a_store_that_was_taken_away_is_told(tmp_path) -> None:
    api = _api(tmp_path / "store")
    shutil.rmtree(tmp_path / "store")
    problem = api.get("/store")["gone"]
    assert api.get("/store")["problems"][0] == problem
    assert problem.startswith("the store cannot be followed, answers are of what was read before: ")
    assert "found nothing there" in problem
    for condition in ({"contains": "body"}, {"regex": "b.dy"}):
        assert len(api.get("/search", **condition)["messages"]) == 1


def test_what_is_read_while_a_file_is_cut_is_not_shown(api: ApiOf, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.ask("/store").status == 200
    monkeypatch.setattr("broker.web.api.request_context.count_cuts", lambda: -1)  # one less than there were at the end
    answer = api.ask("/store")
    assert answer.status >= 500
    assert "a file was cut or could not be read" in answer.error["message"]


COLUMNS = ("group", "topic", "lag", "popped")


def listed(answers):
    return [tuple(line[name] for name in COLUMNS) for answer in answers for line in answer["groups"]]


def printed(root):
    lines = rocketlens("groups", root, "--json").messages
    return [tuple(line[name] for name in COLUMNS) for line in lines]


@pytest.mark.parametrize("name", ["g1/store", "g2/g2-rocksdb-selective/store"])
def test_the_list_is_what_the_command_prints_of_the_same_store(name, tmp_path) -> None:
    root = unpack("store", tmp_path, archives=(GOLDEN / name).parent)
    shown = listed(ApiOf(root).pages("/groups", popped=True, limit=3, milliseconds=10_000))
    expected = printed(root)
    assert len(expected) > 5
    assert [row for row in shown if row[1] is not None] == [row for row in expected if row[1] is not None]
    assert {row[0] for row in shown} == {row[0] for row in expected}


def test_only_those_that_are_behind_are_listed_if_that_is_asked_for(api: ApiOf) -> None:
    everything = listed(api.pages("/groups"))
    behind = listed(api.pages("/groups", behind=True))
    assert behind == [row for row in everything if row[2] != 0]
    assert 0 < len(behind) < len(everything)
    assert {row[1] for row in listed(api.pages("/groups", topic="TopicTest"))} == {"TopicTest"}
    assert {row[0] for row in listed(api.pages("/groups", contains="cg_t"))} == {"CG_TAG"}


def test_dead_letters_are_counted_by_the_group_that_gave_up(tmp_path) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-hosts")
    records = [record for record in read_log(root / "commitlog") if record.topic.startswith("%DLQ%")]
    assert records
    (answer,) = ApiOf(root).pages("/dead-letters")
    expected = {}
    for topic in {record.topic for record in records}:
        times = [record.store_timestamp for record in records if record.topic == topic]
        expected[topic] = topic.removeprefix("%DLQ%"), len(times), max(times)
    lines = {line["topic"]: (line["group"], line["messages"], line["lastTimestamp"]) for line in answer["groups"]}
    assert {topic: lines[topic] for topic in expected} == expected
    assert answer["total"] == len(lines)


def test_an_account_sees_its_own_groups_and_dead_letters_alone(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for topic in ("TopicTest", "secret", "%DLQ%readers", "%DLQ%others"):
        writer.append(topic, b"body")
    writer.consumer_offsets = {f"{topic}@{group}": {0: 0} for topic in ("TopicTest", "secret") for group in GROUPS}
    writer.close()
    api = ApiOf(writer.root, write_accounts(tmp_path / "plain_acl.yml"))
    header = keys(READER, READER_SECRET)
    assert listed([api.ask("/groups", headers=header).json]) == [("readers", "TopicTest", 1, None)]
    assert [line["group"] for line in api.ask("/dead-letters", headers=header).json["groups"]] == ["readers"]


GROUPS = ("readers", "others")


def test_what_is_not_known_is_said(tmp_path) -> None:
    writer = closed_store(tmp_path / "store", appended("T", b"body"))
    (writer.root / "config" / "consumerOffset.json").write_text("{")
    answer = ApiOf(writer.root).get("/groups")
    assert answer["groups"] == []
    assert "consumerOffset.json" in answer["groupsProblem"]


DUE = START_TIMESTAMP + 3_600_000


@pytest.fixture
def store(tmp_path):
    """Nine timer messages of two topics, a cancelled one, and one of a delay level."""
    writer = StoreWriter(tmp_path / "store")
    for number in range(9):
        more = {"TIMER_OUT_MS": str(DUE + number // 3), "REAL_TOPIC": "TopicTest" if number % 3 else "other"}
        writer.append("rmq_sys_wheel_timer", properties=more, unique_key=f"K{number}")
    cancels = {"TIMER_OUT_MS": str(DUE), "REAL_TOPIC": "other", "TIMER_DEL_UNIQKEY": "K0"}
    writer.append("rmq_sys_wheel_timer", properties=cancels, unique_key="C")
    writer.append("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "other", "DELAY": "18"}, queue_id=17)
    writer.crash()
    return writer.root


def test_counts_and_messages_come_when_all_is_read(store) -> None:
    answer = ApiOf(store).done("/pending")
    assert answer["state"] == "done"
    topics = {each["topic"]: each for each in answer["topics"]}
    assert (topics["TopicTest"]["waiting"], topics["TopicTest"]["cancelled"]) == (6, 0)
    assert (topics["other"]["waiting"], topics["other"]["cancelled"], topics["other"]["cancelRequests"]) == (3, 1, 1)
    assert [each["message"]["uniqueKey"] for each in answer["messages"]][:9] == [f"K{number}" for number in range(9)]
    assert (answer["messages"][0]["state"], answer["messages"][9]["delayLevel"]) == ("cancelled", 18)
    assert answer["timersTimestamp"] is None
    assert len(answer["notes"]) == 2


def test_an_account_sees_what_waits_for_its_topics(store, tmp_path) -> None:
    write_accounts(tmp_path / "plain_acl.yml")
    api = ApiOf(store, tmp_path / "plain_acl.yml")
    reader, admin = keys("reader-key", "reader-secret-1"), keys("admin-key", "admin-secret-1")
    assert len(api.done("/pending", headers=admin)["messages"]) == 10
    assert api.ask("/pending", headers=reader).status == 403
    assert api.ask("/pending", headers=reader, topic="other").status == 403
    own = api.done("/pending", headers=reader, topic="TopicTest")
    assert [each["topic"] for each in own["topics"]] == ["TopicTest"]
    assert own["topics"][0]["waiting"] == 6
    # As everywhere, a record needs the right to the topic that it is stored under as well.
    assert (own["messages"], own["leftOut"]) == ([], 6)
    bounded = api.done("/pending", headers=keys("bounded-key", "bounded-secret"))
    assert ([each["topic"] for each in bounded["topics"]], bounded["leftOut"]) == (["TopicTest"], 10)


HOUR_MS = 3_600_000


def counted(api, **parameters):
    answer = api.done("/space", **parameters)
    assert answer["state"] == "done", answer
    outcome = answer["outcome"]
    return outcome


def named(rows) -> dict[tuple[object, ...], list[int]]:
    def text(part: object) -> object:
        return part.decode() if isinstance(part, bytes) else part

    return {tuple(map(text, name if isinstance(name, tuple) else (name,))): row for name, row in rows.items()}


@pytest.mark.parametrize("archives", ["g2/g2-hosts"])
def test_every_count_is_as_the_oracle_has_it(tmp_path, archives) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / archives)
    outcome = counted(ApiOf(root), limit=200)
    records = read_log(root / "commitlog")
    expected = count(records)
    assert (outcome["messages"], outcome["bytes"]) == (len(records), sum(record.total_size for record in records))
    stored = [record.store_timestamp for record in records]
    assert (outcome["oldestTimestamp"], outcome["newestTimestamp"]) == (min(stored), max(stored))
    for table, fields, rows in (
        ("topics", ("topic",), named(expected.topics)),
        ("queues", ("topic", "queueId"), named(expected.queues)),
        ("tags", ("topic", "tag"), named(expected.tags)),
        ("hosts", ("host",), {(HostAddress.from_raw(name, 0).ip,): row for name, row in expected.hosts.items()}),
        ("hours", ("hourTimestamp",), {(int(str(name)) * HOUR_MS,): row for name, row in expected.hours.items()}),
    ):
        lines = outcome[table]["lines"]
        assert lines
        assert outcome[table]["names"] == len(rows)
        assert len(lines) == min(len(rows), 200)
        found = {tuple(line[field] for field in fields): [line["messages"], line["bytes"]] for line in lines}
        assert found == {name: rows[name] for name in found}
        order = [line["hourTimestamp" if table == "hours" else "bytes"] for line in lines]
        assert order == sorted(order, reverse=True)
    largest = [(each["bytes"], each["physicalOffset"]) for each in outcome["largest"]]
    assert largest == expected.largest[: min(len(records), 100)]
    keys_of = {record.physical_offset: record.topic_bytes.decode() for record in records}
    assert all(each["message"]["topic"] == keys_of[each["physicalOffset"]] for each in outcome["largest"])
    assert outcome["forecast"]["assumed"] == ["diskMaxUsedSpaceRatio", "fileReservedTime"]
    assert (outcome["notes"], outcome["leftOut"]) == ([], 0)


@pytest.fixture
def store_of_space(tmp_path):
    """A log of many segments and two topics; one message is larger than all others."""
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    for number in range(100):
        size = 1500 if number == 41 else 100
        writer.append("other" if number % 3 else "TopicTest", b"x" * size, tags="A", unique_key=f"K{number}")
    writer.close()
    return writer.root


def test_an_administrator_sees_it_and_of_topics_those_that_it_may_read(store_of_space, tmp_path) -> None:
    write_accounts(tmp_path / "plain_acl.yml")
    api = ApiOf(store_of_space, tmp_path / "plain_acl.yml")
    assert api.ask("/space").status == 401
    assert api.ask("/space", headers=keys("reader-key", "reader-secret-1")).status == 403
    whole = counted(api, headers=keys("admin-key", "admin-secret-1"))
    assert ({line["topic"] for line in whole["topics"]["lines"]}, whole["leftOut"]) == ({"other", "TopicTest"}, 0)
    own = counted(api, headers=keys("bounded-key", "bounded-secret"), limit=200)
    for table in ("topics", "queues", "tags"):
        assert {line["topic"] for line in own[table]["lines"]} == {"TopicTest"}
    assert {each["message"]["topic"] for each in own["largest"]} == {"TopicTest"}
    assert own["hosts"]["lines"] == []
    # A topic, its queue and its tag, the sender of all; and the messages.
    assert own["leftOut"] == 4 + sum(number % 3 > 0 for number in range(100))
    assert own["bytes"] == whole["bytes"]


@pytest.mark.parametrize("alone", [False, True])
def test_the_log_of_a_tier_is_not_counted(tmp_path, alone) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-tier")
    api = ApiOf(root / "tiered") if alone else ApiOf(root, tier=root / "tiered")
    assert api.ask("/space").error["code"] == "in_tier"
