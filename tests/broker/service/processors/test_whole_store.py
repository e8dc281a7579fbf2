"""Topics, routes and queue units beyond what was recorded, and what only RocketLens is asked for."""

import asyncio
import json
import shutil
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketlens
from acl_file import READER, READER_SECRET, write_accounts
from asking import Asker
from blocking_client import eventually
from broker.cluster.client import Client, ResponseError
from broker.security.answer_rights import OF_ACCOUNT
from broker.service._metadata_page import page_of
from broker.service.kept_work import KeptWorks, WorkState
from broker.service.store_answers import SentLife, decode_answer, decode_life
from broker_harness import service_of, serving_in_a_thread
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from protocol.errors import ProtocolError, RocketLensError, StoreError
from storage.layout.store_config import DataVersion
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, appended, closed_store

KEYS = {"access_key": READER, "secret_key": READER_SECRET}


@pytest.fixture(scope="module")
def address(g1_store):
    with serving_in_a_thread(service_of(MessageStore.open(g1_store))) as endpoint:
        yield endpoint


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"question": "weather"},
            "expected one of life, pending, space, doctor, notes, copies, extent, topics, popped",
        ),
        ({"question": "space", "diskMaxUsedSpaceRatio": "101"}, "diskMaxUsedSpaceRatio"),
    ],
)
def test_what_cannot_be_asked_is_refused(fields, says, address) -> None:
    async def ask() -> ResponseError:
        async with Client() as client:
            with pytest.raises(ResponseError, match=says) as caught:
                await client.call(address, OwnRequestCode.ASK_STORE, fields)
            return caught.value

    assert asyncio.run(ask()).code == ResponseCode.INVALID_PARAMETER


def test_only_an_administrator_is_answered(g1_store, tmp_path) -> None:
    acl = write_accounts(tmp_path / "plain_acl.yml")
    service = service_of(MessageStore.open(g1_store), acl=acl)
    with serving_in_a_thread(service) as address, rocketlens.connect(str(address), group="readers", **KEYS) as remote:
        for ask in (remote.space, remote.doctor, remote.pending, lambda: remote.life("a")):
            with pytest.raises(rocketlens.ResponseError) as caught:
                ask()
            assert caught.value.code == ResponseCode.NO_PERMISSION
        known = remote.topics()
        assert ([topic.name for topic in known], known.notes) == (["TopicTest"], (OF_ACCOUNT,))
        found, of_topic = remote.find("hotkey"), remote.find("hotkey", topic="TopicTest")
        assert found.messages == of_topic.messages != ()
        assert OF_ACCOUNT in found.notes
        assert [each.body for each in remote.search(topic="TopicTest", contains="hot", limit=2)] == [b"hot 0", b"hot 1"]
        (denied,) = (each for each in rocketlens.open(g1_store).find("batch-0") if each.topic == "TopicBatch")
        assert not remote.find(str(denied.physical_offset))


def test_a_client_asks_again_until_the_work_is_done(address, monkeypatch) -> None:
    states = [WorkState(True, 4, 0.1, None, None), WorkState(True, 5, 0.2, None, None)]
    ask = KeptWorks.ask

    def ask_slowly(works: KeptWorks[object], key: str, work: object, maximum_age: float) -> WorkState[object]:
        return states.pop() if states else ask(works, key, work, maximum_age)

    monkeypatch.setattr(KeptWorks, "ask", ask_slowly)
    with rocketlens.open(str(address)) as remote:
        assert remote.space().messages == 390
    assert states == []


@given(st.binary(max_size=60))
def test_any_bytes_are_a_life_or_an_error_of_ours(data: bytes) -> None:
    try:
        decode_life(data)
    except (ProtocolError, StoreError):
        return
    assert isinstance(decode_answer(data, SentLife), SentLife)


OLD = 3600


def ended(works, work, maximum_age=OLD) -> WorkState[int]:
    def look() -> WorkState[int] | None:
        state = works.ask("broker-a", work, maximum_age)
        return None if state.is_running else state

    return eventually(look)


def test_of_many_works_only_some_are_kept_and_none_that_runs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.service.kept_work.MOST_KEPT", 2)
    works: KeptWorks[int] = KeptWorks("count", "counting")
    goes_on = threading.Event()
    works.ask("runs", lambda _report: int(goes_on.wait(60)), OLD)
    assert ended(works, lambda _report: 1).outcome == 1
    works.ask("takes the place of what ended", lambda _report: int(goes_on.wait(60)), OLD)
    with pytest.raises(RocketLensError, match="counting is under way for 2 others: ask again"):
        works.ask("too much", lambda _report: 3, OLD)
    goes_on.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_that_nobody_expected_is_not_shown() -> None:
    def work(_report) -> int:
        raise ZeroDivisionError("a secret")

    assert ended(KeptWorks("count", "counting"), work).problem == "counting failed; the server's log has the reason"


@pytest.mark.parametrize("ends", ["nobody asks", "the server stops"])
def test_a_work_is_given_up(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    works: KeptWorks[int] = KeptWorks("count", "counting")
    has_begun, has_ended = threading.Event(), threading.Event()

    def work(report) -> int:
        deadline = time.monotonic() + 60
        try:
            while time.monotonic() < deadline:
                report(0)
                has_begun.set()
        finally:
            has_ended.set()
        return 1

    works.ask("broker-a", work, OLD)
    assert has_begun.wait(60)
    if ends == "nobody asks":
        monkeypatch.setattr("broker.service.kept_work.PATIENCE_SECONDS", 0.0)
    else:
        works.close()
    assert has_ended.wait(30)


@pytest.fixture
def store(g1_store, tmp_path):
    return shutil.copytree(g1_store, tmp_path / "store")


def test_a_proxy_finds_brokers_by_their_cluster_and_its_own_topic_whatever_the_store_knows(store) -> None:
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
    asker = Asker(store, broker_name="archive-1", cluster="Archive")
    for topic in ("Archive", "archive-1", "DefaultHeartBeatSyncerTopic"):
        route = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        assert [broker["brokerName"] for broker in route["brokerDatas"]] == ["archive-1"]
        assert [(queues["readQueueNums"], queues["perm"]) for queues in route["queueDatas"]] == [(1, 4)]
    topics = asker.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
    assert not {"Archive", "archive-1", "DefaultHeartBeatSyncerTopic"}.intersection(topics)


def test_numbers_that_only_damage_explains_do_not_make_clients_build_billions_of_queues(store) -> None:
    (store / "consumequeue" / "TopicTest" / "2147483647").mkdir()
    path = store / "config" / "topics.json"
    config = json.loads(path.read_text())
    config["topicConfigTable"]["TopicTx"] |= {"readQueueNums": 2147483647, "writeQueueNums": 2147483647}
    path.write_text(json.dumps(config))
    asker = Asker(store)
    for topic in ("TopicTest", "TopicTx"):
        (queues,) = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})["queueDatas"]
        assert queues["readQueueNums"] == 16384


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    """A queue of five messages at 10, 20, 20, 20 and 30 ms."""
    times = (START_TIMESTAMP + each for each in (10, 20, 20, 20, 30))
    messages = (appended("Timed", b"body", store_timestamp=time) for time in times)
    writer = closed_store(tmp_path_factory.mktemp("timed") / "store", *messages)
    return Asker(writer.root)


def offset_at(asker: Asker, time: int, boundary: str | None = None) -> int:
    fields = {"topic": "Timed", "queueId": "0", "timestamp": str(START_TIMESTAMP + time)}
    fields |= {"boundaryType": boundary} if boundary else {}
    answer = asker.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
    assert answer.code == 0
    return int(answer.ext_fields["offset"])


@pytest.mark.parametrize(
    ("time", "lower", "upper"), [(5, 0, 0), (10, 0, 0), (15, 1, 0), (20, 1, 3), (25, 4, 3), (30, 4, 4), (35, 5, 4)]
)
def test_a_time_finds_the_first_message_from_it_on_or_the_last_before(time, lower, upper, timed) -> None:
    assert offset_at(timed, time) == lower
    assert offset_at(timed, time, "LOWER") == lower
    assert offset_at(timed, time, "UPPER") == upper


def test_units_with_an_extension_show_it_and_whether_a_live_group_takes_them(tmp_path) -> None:
    writer = closed_store(
        tmp_path / "store", appended("Ext", tags="TagA"), appended("Ext", tags="TagB"), ext_bit_map=bytes([0x80, 1])
    )
    asker = Asker(writer.root)
    asker.ask(RequestCode.HEART_BEAT, body=heartbeat("client-1", consumer("G", subscription("Ext", "TagA"))))
    asked = {"topic": "Ext", "queueId": "0", "index": "0", "count": "9", "consumerGroup": "G"}
    body = asker.value(RequestCode.QUERY_CONSUME_QUEUE, asked)
    assert body["subscriptionData"]["subString"] == "TagA"
    assert [unit["eval"] for unit in body["queueData"]] == [True, False]
    assert [unit["tagsCode"] for unit in body["queueData"]] == [2598919, 2598920]
    assert json.loads(body["queueData"][0]["extendDataJson"])["filterBitMap"] == [-128, 1]
    assert body["queueData"][0]["bitMap"] == "0000000110000000\n"


NAMES = [f"t{number:02}" for number in range(10)]
VERSION = DataVersion(counter=3, state_version=1, timestamp=99)
SEEN = json.dumps({"counter": 3, "stateVersion": 1, "timestamp": 99})


@pytest.mark.parametrize("seen", [None, "", " ", "{}", "[]", "nonsense", SEEN.replace("99", "98"), '{"counter":"x"}'])
def test_any_other_client_starts_at_the_beginning(seen: str | None) -> None:
    assert page_of(NAMES, 4, 3, seen, VERSION) == NAMES[:3]
