"""The whole store by the API: what is first shown, groups, what waits, what takes the disk."""

import shutil

import pytest

from acl_file import READER, READER_SECRET, write_accounts
from broker.service.denials import Want
from command_line import rocketlens
from golden_store import GOLDEN, unpack
from oracles import read_log
from protocol.host_address import HostAddress
from space_oracle import count
from store_writer import START_TIMESTAMP, StoreWriter, appended, closed_store
from web_questions import ApiOf, keys


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
