"""A stock broker on what was converted from DLedger's and from RocksDB: it goes on, and what waits comes once."""

import itertools
import json
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.server_process import free_port
from blocking_client import eventually
from golden_frames import Answer, Session, answer_of, parse_java_json, value_of
from golden_store import GOLDEN, log_folders, unpack
from interop.jars import SERVER_VERSION
from interop.official_broker import STOCK_INTERVALS, official_broker
from interop.recovery_oracle import Sizes
from interop.wire import ask
from loop_engine import run_jobs_here
from oracles import read_record, signed
from plain_oracle import plain_log
from protocol.codes import RequestCode
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_convert, run_rebuild
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.run.progress import Silence
from storage.layout.timer_check import TIMER_CHECK_FILE
from storage.layout.timer_log import TIMER_LOG, TIMER_WHEEL

pytestmark = pytest.mark.interop

SEND_MESSAGE, PULL_MESSAGE, QUERY_MESSAGE, VIEW_MESSAGE_BY_ID = 10, 11, 12, 33
GET_MAX_OFFSET, GET_MIN_OFFSET = 30, 31
PULL_NOT_FOUND = 19
TOPIC, DELAYED = "ConvertedTopic", "ConvertedDelay"
SMALL_FILES = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeTimerLog": "131072", "messageDelayLevel": "1s 60s"}
SMALL_FILES |= STOCK_INTERVALS


@pytest.mark.untraced
def test_every_queue_has_its_messages_under_their_old_numbers(tmp_path, oracle, monkeypatch) -> None:
    """And groups go on from where they were: their offsets are kept as they are."""
    run_jobs_here(monkeypatch)
    recorded = GOLDEN / "g2" / "g2-dledger-mixed"
    properties = json.loads((recorded / "store.json").read_text())["properties"]
    old, new = unpack("store", tmp_path, archives=recorded), tmp_path / "plain"
    request = ConvertRequest(store=str(old), out=str(new), delay_levels=properties["messageDelayLevel"])
    assert run_convert(request, Silence()).exit_code == 0
    moves = plain_log(log_folders(old), 16384).moves
    offsets = "config/consumerOffset.json"
    assert (new / offsets).read_bytes() == (old / offsets).read_bytes()
    assert oracle.load(new, Sizes(16384, int(properties["mappedFileSizeConsumeQueue"]))).is_loaded
    consumed, read = oracle.consume(), 0
    for directory in sorted((old / "consumequeue").glob("*/*")):
        paths = sorted(directory.iterdir())
        units, first = b"".join(path.read_bytes() for path in paths), int(paths[0].name) // 20
        filled = (at for at in range(0, len(units), 20) if signed(units, at + 8, 4))
        known = {first + at // 20: moves[signed(units, at, 8)] for at in filled}
        queue = consumed[directory.parent.name, int(directory.name)]
        assert queue.maximum == max(known, default=first - 1) + 1, directory
        assert list(queue.places) == [place for number, place in sorted(known.items()) if number >= queue.minimum]
        read += len(queue.places)
    assert read > 80


def split(body: bytes) -> list[bytes]:
    records, position = [], 0
    while position < len(body):
        size = signed(body, position, 4)
        records.append(body[position : position + size])
        position += size
    return records


def pull(broker, topic, queue_id, offset, maximum=32) -> list[bytes]:
    fields = {
        "consumerGroup": "CG_CONVERTED", "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset),
        "maxMsgNums": str(maximum), "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    answer = ask(broker.address, PULL_MESSAGE, fields)
    assert answer.code in (0, PULL_NOT_FOUND), answer.header
    return split(answer.body) if answer.code == 0 else []


def send(broker, topic, key, **properties) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in {"UNIQ_KEY": key, "KEYS": key, **properties}.items())
    fields = {
        "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": str(int(time.time() * 1000)), "flag": "0", "properties": text,
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    }  # fmt: skip
    eventually(lambda: ask(broker.address, SEND_MESSAGE, fields, body=key.encode()).code == 0, f"{key} to be sent", 60)


def delivered(broker, topic) -> list[str]:
    found: list[str] = []
    for _ in itertools.count():
        records = [read_record(each, 0) for each in pull(broker, topic, 0, len(found))]
        if not records:
            return found
        found += [each.properties["UNIQ_KEY"] for each in records if each is not None]
    return found


def in_ms(seconds: int) -> str:
    return str((int(time.time()) + seconds) * 1000)


@pytest.mark.soak
def test_what_waits_is_delivered_once_and_without_the_timers_files_everything_again(tmp_path, monkeypatch) -> None:
    """A ledger's broker has delivered one timer; another one and a message of a delay level wait when it stops."""
    run_jobs_here(monkeypatch)
    old, new = tmp_path / "ledger", tmp_path / "plain"
    peers = f"n0-127.0.0.1:{free_port()}"
    ledger = {"enableDLegerCommitLog": "true", "dLegerGroup": "broker-a", "dLegerSelfId": "n0", "dLegerPeers": peers}
    with official_broker(old, tmp_path, properties=SMALL_FILES | ledger) as broker:
        send(broker, TOPIC, "at-once")
        send(broker, TOPIC, "early", TIMER_DELIVER_MS=in_ms(4))
        send(broker, TOPIC, "late", TIMER_DELIVER_MS=in_ms(90))
        send(broker, DELAYED, "level", DELAY="2")
        for number in range(200):
            send(broker, DELAYED, f"filler-{number}", FILL="x" * 200)
        eventually(lambda: delivered(broker, TOPIC) == ["at-once", "early"], "the first timer", 80)
        broker.stop()
    request = ConvertRequest(store=str(old), out=str(new), delay_levels=SMALL_FILES["messageDelayLevel"])
    report = run_convert(request, Silence())
    assert report.exit_code == 0
    assert report.details.converted.timers >= 2
    assert report.details.converted.lost == 0
    forgetful = tmp_path / "forgetful"
    shutil.copytree(new, forgetful)
    (forgetful / "config" / TIMER_CHECK_FILE).unlink()
    (forgetful / TIMER_WHEEL).unlink()
    shutil.rmtree(forgetful / TIMER_LOG)
    with official_broker(new, tmp_path, properties=SMALL_FILES) as broker:
        eventually(lambda: "late" in delivered(broker, TOPIC), "the second timer", 150)
        eventually(lambda: "level" in delivered(broker, DELAYED), "the delay level", 100)
        # Timers are delivered in order: what came twice would have come before this one.
        send(broker, TOPIC, "last", TIMER_DELIVER_MS=in_ms(4))
        eventually(lambda: "last" in delivered(broker, TOPIC), "a new timer", 80)
        assert delivered(broker, TOPIC) == ["at-once", "early", "late", "last"]
        assert delivered(broker, DELAYED).count("level") == 1
        assert len(set(delivered(broker, DELAYED))) == 201
    with official_broker(forgetful, tmp_path, properties=SMALL_FILES) as broker:
        eventually(lambda: delivered(broker, TOPIC).count("early") == 2, "the first timer once more", 150)


RECORDED = GOLDEN / "g2" / "g2-rocksdb"
ASKED = {
    RequestCode.PULL_MESSAGE: 40, RequestCode.QUERY_CONSUMER_OFFSET: 80, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: 80,
    RequestCode.GET_MAX_OFFSET: 15, RequestCode.GET_MIN_OFFSET: 15, RequestCode.GET_EARLIEST_MSG_STORETIME: 15,
    RequestCode.GET_TOPIC_STATS_INFO: 15
}  # fmt: skip
"""What is asked about queues and groups, and of how many requests there are at least as many."""


class WayOut(NamedTuple):
    before: Path
    made: Path
    store: Path
    properties: dict[str, str]


@pytest.fixture(scope="module")
def way_out(tmp_path_factory: pytest.TempPathFactory) -> WayOut:
    work = tmp_path_factory.mktemp("way-out")
    properties = json.loads((RECORDED / "store.json").read_text())["properties"]
    assert properties.pop("storeType") == "defaultRocksDB"
    before, made, store = unpack("store", work, archives=RECORDED), work / "made", work / "files"
    with pytest.MonkeyPatch.context() as patch:
        run_jobs_here(patch)
        sizes = {"queue_file_size": int(properties["mappedFileSizeConsumeQueue"])}
        sizes["delay_levels"] = properties["messageDelayLevel"]
        request = RebuildRequest(store=str(before), out=str(made), queues=True, **sizes)
        assert run_rebuild(request, Silence()).exit_code == 0
    shutil.copytree(before, store)
    shutil.rmtree(store / "consumequeue")
    shutil.copytree(made / "consumequeue", store / "consumequeue")
    shutil.copytree(made / "config", store / "config", dirs_exist_ok=True)
    return WayOut(before, made, store, properties | {"storeType": "default"})


@pytest.fixture(scope="module")
def broker(way_out, tmp_path_factory):
    work = tmp_path_factory.mktemp("broker")
    shutil.copytree(way_out.store, work / "store")
    with official_broker(work / "store", work, properties=way_out.properties) as running:
        yield running


def exchanges(code):
    session = Session("g2-rocksdb", RECORDED / "frames.jsonl.xz", RECORDED / "store.tar.xz")
    return [each for each in session.exchanges() if each.code == code and each.recorded is not None]


def comparable(answer: Answer) -> Answer:
    body = value_of(answer.body)
    if isinstance(body, dict):
        body.pop("topicPutTps", None)
    return Answer(answer.code, answer.remark, answer.ext_fields, body)


@pytest.mark.untraced
def test_queues_have_the_bounds_that_the_broker_answered(way_out, oracle, tmp_path) -> None:
    shutil.copytree(way_out.store, tmp_path / "store")
    names = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")
    segment, queue_file = (int(way_out.properties[name]) for name in names)
    assert oracle.load(tmp_path / "store", Sizes(segment, queue_file)).is_loaded
    consumed, judged = oracle.consume(), 0
    for code, bound in ((RequestCode.GET_MAX_OFFSET, "maximum"), (RequestCode.GET_MIN_OFFSET, "minimum")):
        for exchange in exchanges(code):
            queue = consumed.get((exchange.ext_fields["topic"], int(exchange.ext_fields["queueId"])))
            if queue is not None and exchange.recorded is not None:
                assert getattr(queue, bound) == int(exchange.recorded.ext_fields["offset"]), exchange
                judged += 1
    assert judged >= 30
    assert sum(len(queue.places) for queue in consumed.values()) > 50


@pytest.mark.soak
@pytest.mark.parametrize("code", ASKED)
def test_queues_and_offsets_are_as_the_broker_had_them(code, broker) -> None:
    asked = exchanges(code)
    assert len(asked) >= ASKED[code]
    for exchange in asked:
        frame = ask(broker.address, exchange.code, exchange.ext_fields, body=exchange.body)
        assert exchange.recorded is not None
        answered = comparable(answer_of(frame.header, frame.body))
        assert answered == comparable(exchange.recorded), exchange


def as_rocketmq_shows(java, directory, table):
    printed = java(SERVER_VERSION, "JSON").mqadmin("rocksDBConfigToJson", "-p", str(directory), "-t", table)
    shown = parse_java_json(printed[printed.index("{") :])
    return shown


def test_configuration_says_what_rocketmq_shows_of_the_databases(java, way_out, tmp_path) -> None:
    databases = tmp_path / "config"  # which the tool opens for writing
    shutil.copytree(way_out.before / "config", databases)
    tables = {"topics": ("topics.json", "topicConfigTable")}
    tables["subscriptionGroups"] = ("subscriptionGroup.json", "subscriptionGroupTable")
    for table, (name, member) in tables.items():
        made = json.loads((way_out.made / "config" / name).read_text())
        shown = as_rocketmq_shows(java, databases, table)
        assert len(shown[member]) > 10
        assert made[member] == shown[member]
        assert made["dataVersion"] == shown["dataVersion"]


@pytest.mark.soak
def test_the_broker_knows_topics_and_groups_with_all_that_was_set(way_out, broker) -> None:
    for code, name, member in (
        (RequestCode.GET_ALL_TOPIC_CONFIG, "topics.json", "topicConfigTable"),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroup.json", "subscriptionGroupTable"),
    ):
        made = json.loads((way_out.made / "config" / name).read_text())[member]
        known = value_of(ask(broker.address, code).body)[member]
        assert len(made) > 10
        assert {each: known.get(each) for each in made} == made
