"""A stock broker goes on where one with queues in RocksDB has stopped: with files of queues and configuration."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from golden_frames import Answer, Session, answer_of, parse_java_json, value_of
from golden_store import GOLDEN, unpack
from interop.jars import SERVER_VERSION
from interop.official_broker import official_broker
from interop.recovery_oracle import Sizes
from interop.wire import ask
from loop_engine import run_jobs_here
from protocol.codes import RequestCode
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.run.progress import Silence

pytestmark = pytest.mark.interop

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
