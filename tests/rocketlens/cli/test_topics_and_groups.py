"""`rocketlens topics`, `groups`, `info` and `space`: what mqadmin printed and the oracle counts."""

import json
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
