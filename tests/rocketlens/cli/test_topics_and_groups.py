"""`rocketlens topics`, `groups`, `info`, `space`, `life`, `pending`: what mqadmin printed and the oracle counts."""

import json
import re
import shutil
from pathlib import Path

import pytest

from command_line import rocketlens
from golden_store import CASES, G1, unpack
from oracles import read_log
from protocol.fastjson import parse_fastjson
from space_oracle import count
from store_writer import START_TIMESTAMP, StoreWriter


def printed(name: str) -> list[list[str]]:
    lines = (G1 / "mqadmin-out" / f"{name}.txt").read_text("utf-8").splitlines()
    return [line.split() for line in lines if line.strip() and line[0] != "#"]


def rows_of(outcome):
    assert outcome.code == 0, outcome.errors
    return outcome.messages


def test_queues_and_how_far_groups_are_behind_are_what_mqadmin_printed(where) -> None:
    queues = rows_of(rocketlens("topics", *where, "--topic", "TopicTest", "--json"))
    expected = [(int(row[1]), int(row[2]), int(row[3])) for row in printed("topicStatus") if row[0] == "broker-a"]
    assert len(expected) == 4
    assert [(each["queueId"], each["minOffset"], each["maxOffset"]) for each in queues] == expected
    assert all(each["lastTimestamp"] for each in queues)
    listed = rows_of(rocketlens("groups", *where, "--topic", "TopicTest", "--json"))
    expected = {row[0]: int(row[-1]) for row in printed("consumerProgress")}
    assert {each["group"]: each["lag"] for each in listed} == {name: expected[name] for name in ("CG_TAG", "CG_SQL")}
    assert expected["CG_TAG"] == 44
    (row,) = rows_of(rocketlens("groups", *where, "--group", "CG_TAG", "--json"))
    expected = [[int(each) for each in line[2:6]] for line in printed("consumerProgress-gt") if line[1] == "broker-a"]
    names = ("queueId", "endOffset", "nextOffset", "lag")
    assert [[each[name] for name in names] for each in row["queues"]] == expected
    assert len(expected) == 4
    lines = rocketlens("groups", *where, "--group", "CG_TAG").text.splitlines()
    assert [line.split()[1:] for line in lines[1:]] == [
        ["TopicTest", *map(str, (queue_id, consumed, end, lag))] for queue_id, end, consumed, lag in expected
    ]


def test_how_far_the_log_reaches_is_what_mqadmin_printed(where: tuple[object, ...]) -> None:
    (info,) = rows_of(rocketlens("info", *where, "--json"))
    lines = (G1 / "mqadmin-out" / "brokerStatus.txt").read_text().splitlines()
    status = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert info["minOffset"] == int(status["commitLogMinOffset"])
    assert info["endOffset"] == int(status["commitLogMaxOffset"])
    assert info["firstTimestamp"] == int(status["earliestMessageTimeStamp"])
    assert (info["broker"], info["cluster"], info["state"]) == ("broker-a", "DefaultCluster", "stopped")
    assert info["topics"] == len(rows_of(rocketlens("topics", *where, "--json")))
    assert info["groups"] == len({each["group"] for each in rows_of(rocketlens("groups", *where, "--json"))})


QUESTIONS = ("find nobody", "life nobody", "search --contains x", "tail", "topics", "groups")
OF_A_TOPIC_THAT_IS_NOWHERE = [(*each.split(), "--topic", "TopicTets") for each in QUESTIONS]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        *((each, "there is no topic TopicTets; did you mean TopicTest") for each in OF_A_TOPIC_THAT_IS_NOWHERE),
        (("topics", "--contains", "nowhere"), "no topic holds nowhere in its name"),
        (("groups", "--group", "CG_TGA"), "there is no consumer group CG_TGA; did you mean CG_TAG"),
        (("groups", "--group", "CG_TAG", "--topic", "TopicBatch"), "group CG_TAG has committed no offset in topic"),
    ],
)
def test_what_is_not_there_is_code_1_with_what_may_be_meant(where, arguments, says) -> None:
    outcome = rocketlens(arguments[0], *where, *arguments[1:])
    assert (outcome.code, outcome.output) == (1, b"")
    assert says in outcome.errors


def test_what_a_group_popped_and_did_not_acknowledge_is_not_behind_and_said(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "A1-A2-B1-pop")
    outcome = rocketlens("groups", store, "--topic", "orders", "--json")
    (row,) = rows_of(outcome)
    assert (row["group"], row["lag"], row["popped"]) == ("g1", 0, 1)
    assert [(queue["queueId"], queue["popped"]) for queue in row["queues"]] == [(0, 1)]
    said = "group g1 has popped 1 message of topic orders and not acknowledged it: BEHIND counts it as consumed"
    assert said in outcome.errors
    (back,) = rows_of(rocketlens("groups", store, "--topic", "%RETRY%g1_orders", "--json"))
    assert (back["lag"], back["popped"]) == (0, 0)
    for options, heading in (((), "QUEUES"), (("--group", "g1"), "NEXT")):
        lines = rocketlens("groups", store, "--topic", "orders", *options).text.splitlines()
        assert heading in lines[0]
        assert (lines[0].split()[-1], lines[1].split()[-1]) == ("POPPED", "1")


def test_an_older_file_of_offsets_that_is_used_instead_is_said_with_the_offsets(tmp_path: Path) -> None:
    """The file holds a whole object and the end of an older, longer one, of which a broker reads nothing."""
    store = unpack("store", tmp_path, archives=CASES / "B13-stale-tail-json")
    outcome = rocketlens("groups", store, "--json")
    assert [(row["group"], row["queues"][0]["nextOffset"]) for row in rows_of(outcome)] == [("g", 4)]
    end = (store / "config" / "consumerOffset.json").read_bytes().index(b"\n}") + 2
    assert f"a whole object ends at byte {end}, with group g at 10 of orders 0" in outcome.errors
    assert "consumerOffset.json.bak is used instead" in outcome.errors


def test_a_group_that_is_ahead_of_a_queue_is_not_up_to_date(g1_store: Path, tmp_path: Path) -> None:
    """The files of the queue are lost, and the log still has its messages: it ends where it did."""
    store = Path(shutil.copytree(g1_store, tmp_path / "store"))
    shutil.rmtree(store / "consumequeue" / "TopicTest" / "2")
    offsets = store / "config" / "consumerOffset.json"
    content = parse_fastjson(offsets.read_bytes())
    content["offsetTable"]["TopicTest@CG_TAG"]["2"] = 99
    offsets.write_text(json.dumps(content))
    outcome = rocketlens("groups", store, "--group", "CG_TAG", "--json")
    (row,) = rows_of(outcome)
    (end,) = [int(line[3]) for line in printed("consumerProgress-gt") if line[1:3] == ["broker-a", "2"]]
    queues = {each["queueId"]: each for each in row["queues"]}
    assert (queues[2]["nextOffset"], queues[2]["endOffset"], queues[2]["lag"], row["lag"]) == (99, end, None, None)
    assert [queues[each]["lag"] > 0 for each in (0, 1, 3)] == [True] * 3
    assert outcome.errors == (
        "rocketlens: group CG_TAG is ahead of queue 2 of topic TopicTest: it reads 99 next, and the "
        f"queue ends at {end}; files of it may be lost\n"
    )
    line = rocketlens("groups", store, "--group", "CG_TAG").text.splitlines()[3]
    assert line.split()[-4:] == ["2", "99", str(end), "unknown"]


def test_a_store_of_a_broker_that_was_renamed_has_one_of_its_names_and_both_are_said(tmp_path: Path) -> None:
    outcome = rocketlens("info", unpack("store", tmp_path, archives=CASES / "B9-renamed"))
    assert "broker        new" in outcome.text
    assert "several brokers, as after it was renamed (old, new): it is taken for new" in outcome.errors


HOUR_MS = 3_600_000


def maps(output, kind):
    found = [each for each in output if each["kind"] == kind]
    assert found
    return found


def by_bytes(rows) -> list[list[int]]:
    return sorted(rows.values(), key=lambda row: (-row[1], -row[0]))


def test_a_program_gets_every_count_as_the_oracle_has_it(g1_store: Path) -> None:
    outcome = rocketlens("space", g1_store, "--json", "--top", "10000")
    assert (outcome.code, outcome.errors) == (0, "")
    expected, records = count(read_log(g1_store / "commitlog")), read_log(g1_store / "commitlog")
    (total,) = maps(outcome.messages, "total")
    assert (total["messages"], total["bytes"]) == (len(records), sum(record.total_size for record in records))
    kinds = {"topic": expected.topics, "queue": expected.queues, "tag": expected.tags, "host": expected.hosts}
    for kind, rows in kinds.items():
        found = maps(outcome.messages, kind)
        assert [[each["messages"], each["bytes"]] for each in found] == by_bytes(rows)
        assert all(each["mostBytes"] == each["bytes"] for each in found)
    by_hour = {each["hourTimestamp"]: [each["messages"], each["bytes"]] for each in maps(outcome.messages, "hour")}
    assert by_hour == {int(str(hour)) * HOUR_MS: row for hour, row in expected.hours.items()}
    largest = [(each["bytes"], each["physicalOffset"]) for each in maps(outcome.messages, "largest")]
    assert largest == expected.largest[: len(largest)]
    assert len(largest) == 100
    (forecast,) = maps(outcome.messages, "forecast")
    assert forecast["assumed"] == ["diskMaxUsedSpaceRatio", "fileReservedTime"]


def test_times_narrow_every_count(where: tuple[object, ...], g1_store: Path) -> None:
    times = sorted(record.store_timestamp for record in read_log(g1_store / "commitlog"))
    first, last = times[len(times) // 4], times[len(times) // 2]
    records = [each for each in read_log(g1_store / "commitlog") if first <= each.store_timestamp <= last]
    outcome = rocketlens("space", *where, "--since", first, "--until", last, "--json", "--top", "10000")
    (total,) = maps(outcome.messages, "total")
    assert (total["messages"], total["bytes"]) == (len(records), sum(record.total_size for record in records))
    found = [[each["messages"], each["bytes"]] for each in maps(outcome.messages, "topic")]
    assert found == by_bytes(count(records).topics)
    assert "forecast" not in {each["kind"] for each in outcome.messages}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two days, some of it damaged."""
    writer = StoreWriter(tmp_path_factory.mktemp("space") / "store", segment_size=8192)
    for hour in range(48):
        for number in range(1 + hour % 2):
            stamp = START_TIMESTAMP + hour * HOUR_MS + number
            writer.append(f"T{hour % 3}", b"x" * 200, tags="A" if hour % 2 else None, store_timestamp=stamp)
    writer.overwrite(writer.written[7].physical_offset + 4, b"\0\0\0\0")
    writer.close()
    return writer.root


def test_a_person_gets_tables_or_one_kind_with_the_brokers_own_limits(store, tmp_path) -> None:
    outcome = rocketlens("space", store, "--top", "2")
    assert outcome.code == 0
    for heading in ("TOPIC", "QUEUE ID", "TAG", "SENT FROM", "HOUR", "PHYSICAL"):
        assert heading in outcome.text
    assert "71 messages, " in outcome.text
    assert "… and 46 more" in outcome.text
    for said in ("growth: ", " a day, in the ", "disk of ", "75 % (assumed)", "retention of 72 h (assumed)"):
        assert said in outcome.text
    assert "in 1 place hold no intact record and are not counted" in outcome.errors
    (tmp_path / "broker.conf").write_text("fileReservedTime=24\ndiskMaxUsedSpaceRatio=60\n")
    outcome = rocketlens("space", store, "--by", "topic", "--broker-config", tmp_path / "broker.conf")
    assert "TAG" not in outcome.text
    assert "retention of 24 h: " in outcome.text
    assert "60 % of the disk" in outcome.text


FAILED = [line.split("\t") for line in (G1 / "consumed-fail.tsv").read_text("utf-8").splitlines()[1:]]
UNIQUE_KEY, KEY = FAILED[0][4], FAILED[0][7]
TRACED = "7F0000010007"
TRACES = [line.split("\t") for line in (G1.parent / "trace-vectors.tsv").read_text("utf-8").splitlines()]
SENT_TIMESTAMP = 1_795_243_506_437
"""Of the message in the traces."""


@pytest.fixture
def whole_life(tmp_path):
    """A traced message that waited in every way there is, was retried, and given up; where its records are."""
    writer = StoreWriter(tmp_path / "store")
    in_retry = {"RETRY_TOPIC": "Topic-Pub"}
    places: list[tuple[str, dict[str, str], int]] = [
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "Topic-Pub"}, 0),
        ("rmq_sys_wheel_timer", {"REAL_TOPIC": "Topic-Pub", "TIMER_OUT_MS": str(SENT_TIMESTAMP + 3_000)}, 0),
        ("Topic-Pub", {}, 0),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%group-1", "DELAY": "3", **in_retry}, 1),
        ("%RETRY%group-1", in_retry, 1),
        ("%DLQ%group-1", {"DLQ_ORIGIN_TOPIC": "Topic-Pub", **in_retry}, 2),
    ]
    for number, (topic, properties, retries) in enumerate(places, 1):
        stamp = SENT_TIMESTAMP + 1_000 * number
        more = {"store_timestamp": stamp, "reconsume_times": retries, "queue_id": 2 if "DELAY" in properties else 0}
        writer.append(topic, b"body", unique_key=TRACED, properties=properties, **more)
    for kind in ("Pub", "SubBefore", "SubAfter"):
        body = next(data for each, success, _, _, data in TRACES if (each, success) == (kind, "true"))
        writer.append("RMQ_SYS_TRACE_TOPIC", bytes.fromhex(body), keys=TRACED)
    writer.close()
    config = tmp_path / "store" / "config"
    config.mkdir(exist_ok=True)
    offsets = {"Topic-Pub@group-1": {"0": 1}, "%RETRY%group-1@group-1": {"0": 1}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return tmp_path / "store", [written.physical_offset for written in writer.written]


def test_a_whole_life_with_traces_is_told_in_order_of_time(whole_life) -> None:
    store, at = whole_life
    outcome = rocketlens("life", store, TRACED, "--timezone", "UTC")
    heading, *lines = outcome.text.splitlines()
    columns = "TIME (UTC) WHAT TOPIC QUEUE OFFSET PHYSICAL RETRIES GROUPS NOTE"
    assert heading.split() == columns.split()
    ends = next(number for number, line in enumerate(lines) if not line.strip())
    told = [line.split(maxsplit=2)[2] for line in lines[:ends]]
    ending = [["TRANSACTION"], ["not", "ended"], [], ["GROUP", "THIS", "MESSAGE"]]
    said = ["group-1", "gave", "up", "after", "1", "retry", "→", "DLQ"]
    assert [line.split() for line in lines[ends + 1 :]] == [*ending, said]
    assert [re.sub(" +", " ", line).strip() for line in told] == [
        "traced: sent Topic-Pub group-1 success, 17 ms",
        "traced: consuming 3 group-1",
        "traced: consumed group-1 SUCCESS, 17 ms",
        "half RMQ_SYS_TRANS_HALF_TOPIC 0 0 0 0 not ended",
        f"timer rmq_sys_wheel_timer 0 0 {at[1]} 0 delivered, until 2026-11-21 06:45:09.437+00:00",
        f"delivered Topic-Pub 0 0 {at[2]} 0 group-1 has passed",
        f"scheduled SCHEDULE_TOPIC_XXXX 2 0 {at[3]} 1 delay level 3, delivered, until 2026-11-21 06:45:20.437+00:00",
        f"retry %RETRY%group-1 0 0 {at[4]} 1 group-1 has passed",
        f"dead letter %DLQ%group-1 0 0 {at[5]} 2 group-1 gave up after 1 retry → DLQ",
    ]
    as_maps = rocketlens("life", store, TRACED, "--json").messages
    assert [event["trace"]["kind"] for event in as_maps[:3]] == ["Pub", "SubBefore", "SubAfter"]
    assert [event["message"]["queueId"] for event in as_maps[3:]] == [0, 0, 0, 2, 0, 0]


def test_traces_under_a_topic_of_ones_own_are_asked_for(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for number, topic in enumerate(("RMQ_SYS_TRACE_TOPIC", "own-traces", "more-traces")):
        kind = ("Pub", "SubBefore", "SubAfter")[number]
        body = next(data for each, success, _, _, data in TRACES if (each, success) == (kind, "true"))
        writer.append(topic, bytes.fromhex(body), keys=TRACED)
    writer.close()
    asked = ("life", tmp_path / "store", "--unique-key", TRACED, "--json")
    own = ("--trace-topic", "own-traces", "--trace-topic", "more-traces")
    for options, kinds in (((), {"Pub"}), (own[:2], {"Pub", "SubBefore"}), (own, {"Pub", "SubBefore", "SubAfter"})):
        assert {each["trace"]["kind"] for each in rocketlens(*asked, *options).messages} == kinds


def test_two_messages_of_one_id_are_told_apart(tmp_path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "B6-two-messages-one-id")
    named = "7F000001000130946E09000000000001"
    outcome = rocketlens("life", store, named, "--timezone", "UTC")
    assert outcome.code == 0
    assert f"2 messages are named {named}: message 1 was sent to T and born 2023-11-14 22:13:21" in outcome.errors
    heading, *lines = outcome.text.splitlines()
    assert heading.split()[0] == "MESSAGE"
    assert [line.split()[0] for line in lines[:4]] == ["1", "2", "2", "2"]
    said = ["1 g is beyond it", "2 g gave up after 1 retry → DLQ"]
    assert [line.split() for line in lines[6:]] == [each.split() for each in said]
    rows = rocketlens("life", store, named, "--json").messages
    assert [(row["messageNumber"], row["messagesNamedSo"]) for row in rows] == [(1, 2), (2, 2), (2, 2), (2, 2)]
    assert [row["verdicts"][0]["ending"] for row in rows] == ["passed", "gave up", "gave up", "gave up"]


DUE = START_TIMESTAMP + 3_600_000


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A store without the checkpoints of timer and delay levels: rolled, cancelled and delayed messages."""
    writer = StoreWriter(tmp_path_factory.mktemp("crashed") / "store")
    for topic, key, rolls, due in (("B", "K1", 0, DUE), ("B", "K1", 1, DUE), ("A", "K2", 2, DUE + 1000)):
        more = {"TIMER_OUT_MS": str(due), "REAL_TOPIC": topic} | ({"TIMER_ROLL_TIMES": str(rolls)} if rolls else {})
        writer.append("rmq_sys_wheel_timer", properties=more, unique_key=key, tags="TagX", keys="k1 k2")
    more = {"TIMER_OUT_MS": str(DUE), "REAL_TOPIC": "B"}
    writer.append("rmq_sys_wheel_timer", properties=more, unique_key="K3")
    writer.append("rmq_sys_wheel_timer", properties=more | {"TIMER_DEL_UNIQKEY": "K3"}, unique_key="K4")
    writer.append("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "B", "DELAY": "18"}, queue_id=17, unique_key="K5")
    writer.crash()
    return writer.root


def test_counts_come_first_then_the_messages_by_due_time_and_a_program_gets_maps_of_each_kind(crashed) -> None:
    outcome = rocketlens("pending", crashed, "--timezone", "UTC")
    assert outcome.code == 0
    counts, _, messages = outcome.text.partition("\n\n")
    heading, *lines = counts.splitlines()
    assert heading.split("  ")[0] == "TOPIC"
    assert [line.split()[:5] for line in lines] == [["B", "2", "0", "1", "1"], ["A", "1", "0", "0", "0"]]
    heading, *lines = messages.splitlines()
    columns = "DUE (UTC)  STATE  TOPIC  BY  MESSAGE ID  PHYSICAL  STORED (UTC)  TAG  KEYS"
    assert heading.split() == columns.split()
    told = [" ".join(line.split()[2:]).split(" 20")[0].rsplit(" ", 2)[0] for line in lines]
    timers = ["waiting B timer, rolled 1 time", "cancelled B timer", "waiting A timer, rolled 2 times"]
    assert told == [*timers, "waiting B level 18"]
    assert "timercheck is missing or empty: timer messages that were due when" in outcome.errors
    assert "delayOffset.json is missing: delayed messages that were due when" in outcome.errors
    as_of, *rest = rocketlens("pending", crashed, "--json").messages
    assert (as_of["kind"], as_of["timersKnown"], as_of["levelsKnown"]) == ("asOf", False, False)
    assert [each["kind"] for each in rest] == ["topic"] * 2 + ["message"] * 4
    found = [(each["topic"], each["waiting"], each["rolled"], each["cancelRequests"]) for each in rest[:2]]
    assert found == [("B", 2, 1, 1), ("A", 1, 0, 0)]
    found = [(each["message"]["uniqueKey"], each["delayLevel"], each["rolls"]) for each in rest[2:]]
    assert found == [("K1", None, 1), ("K3", None, 0), ("K2", None, 2), ("K5", 18, 0)]
    assert rest[2]["dueTimestamp"] == DUE
    assert rest[5]["dueTimestamp"] == rest[5]["message"]["storeTimestamp"] + 2 * 3_600_000


def test_a_limit_and_times_narrow_what_is_listed(crashed) -> None:
    outcome = rocketlens("pending", crashed, "--limit", "1")
    assert len(outcome.text.partition("\n\n")[2].splitlines()) == 2
    assert "3 messages more that are due later: use a higher --limit" in outcome.errors
    counts_alone = rocketlens("pending", crashed, "--limit", "0", "--json").messages
    assert [each["kind"] for each in counts_alone] == ["asOf", "topic", "topic"]
    stored = ("--since", START_TIMESTAMP, "--until", START_TIMESTAMP + 60_000)
    outcome = rocketlens("pending", crashed, "--due-after", DUE + 1, "--due-before", DUE + 1000, *stored, "--json")
    assert [each["message"]["uniqueKey"] for each in outcome.messages if each["kind"] == "message"] == ["K2"]
    assert "is after --due-before" in rocketlens("pending", crashed, "--due-after", DUE, "--due-before", 5).errors
