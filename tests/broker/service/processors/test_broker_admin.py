"""The broker's figures and configuration, in the forms that the tools parse (remoting-protocol §2.3)."""

import json
from pathlib import Path

import pytest

from asking import BROKER, Asker
from broker.config import RegisterOptions
from broker.endpoint import Endpoint
from broker.service.processors.broker_admin import disk_ratio
from golden_deviations import EXPORTED
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode
from store_writer import StoreWriter

CLUSTER_LIST = [
    "brokerActive",
    "brokerVersionDesc",
    "putTps",
    "getTransferredTps",
    "getTransferedTps",
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "ackThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "commitLogDiskRatio",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
]
"""What clusterList of 4.9 to 5.5 reads."""

TOTALS = [f"msg{what}Total{day}" for what in ("Put", "Get") for day in ("YesterdayMorning", "TodayMorning", "TodayNow")]


@pytest.fixture(scope="module")
def g1(g1_store: Path) -> Asker:
    return Asker(g1_store)


def test_every_figure_that_the_tools_read_is_there_as_a_text(g1: Asker) -> None:
    table = g1.value(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert set(table) >= {*CLUSTER_LIST, *TOTALS, "putMessageAverageSize", "consumeQueueDiskRatio", "bootTimestamp"}
    assert all(isinstance(text, str) for text in table.values())


def test_figures_parse_as_the_tools_parse_them(g1: Asker) -> None:
    table = g1.value(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    for name in ("putTps", "getTransferredTps", "getTransferedTps"):
        assert [float(rate) for rate in table[name].split()] == [0.0, 0.0, 0.0]
    assert 0.0 <= float(table["commitLogDiskRatio"]) <= 1.0
    for name in (*TOTALS, "earliestMessageTimeStamp", "timerCongestNum", "bootTimestamp", "commitLogMaxOffset"):
        int(table[name])
    for name in ("timerEnqueueTps", "timerDequeueTps", "putMessageAverageSize"):
        float(table[name])


def test_an_empty_log_has_no_earliest_message_and_still_a_number(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("T")
    writer.close()
    for path in (writer.root / "commitlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert Asker(writer.root).value(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]["earliestMessageTimeStamp"] == "-1"


def test_the_earliest_message_of_a_ledger_lies_behind_a_head(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", is_ledger=True)
    written = writer.append("T")
    writer.close()
    table = Asker(writer.root).value(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert table["earliestMessageTimeStamp"] == str(written.store_timestamp)


def test_the_configuration_has_what_exports_need_and_tells_our_own_names(g1: Asker) -> None:
    answer = g1.ask(RequestCode.GET_BROKER_CONFIG)
    assert answer.ext_fields is not None
    assert json.loads(answer.ext_fields["version"])["timestamp"] == g1.service.started_timestamp
    properties = g1.value(RequestCode.GET_BROKER_CONFIG)
    assert set(properties) >= EXPORTED
    assert (properties["brokerName"], properties["brokerClusterName"]) == ("broker-a", "DefaultCluster")
    assert (properties["brokerId"], properties["brokerPermission"], properties["listenPort"]) == ("0", "4", "10911")
    assert (properties["brokerRole"], properties["slaveReadEnable"]) == ("ASYNC_MASTER", "false")
    assert properties["useTLS"] == "false"


def test_a_replica_says_that_it_is_one_and_under_which_id_name_servers_have_it(g1_store: Path) -> None:
    register = RegisterOptions((Endpoint("10.0.0.1", 9876),), broker_id=990_007)
    properties = Asker(g1_store, listen=(BROKER,), register=register).value(RequestCode.GET_BROKER_CONFIG)
    assert properties["brokerId"] == "990007"
    assert (properties["brokerRole"], properties["slaveReadEnable"]) == ("SLAVE", "true")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("BROKER_PUT_NUMS", "DefaultCluster"),
        ("BROKER_GET_NUMS", "DefaultCluster"),
        ("GROUP_GET_NUMS", "TopicTest@CG_TAG"),
    ],
)
def test_nothing_comes_and_goes_in_an_archive(name: str, key: str, g1: Asker) -> None:
    nothing = {"avgpt": 0.0, "sum": 0, "tps": 0.0}
    expected = {"statsDay": nothing, "statsHour": nothing, "statsMinute": nothing}
    assert g1.value(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key}) == expected


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "TopicTest"),
        ("TOPIC_PUT_SIZE", "TopicTest"),
        ("TOPIC_PUT_NUMS", "NoSuchTopic"),
        ("TOPIC_PUT_NUMS", "TopicTest@CG_TAG"),
        ("GROUP_GET_NUMS", "TopicTest@Nobody"),
        ("GROUP_GET_NUMS", "TopicTest"),
        ("GROUP_GET_NUMS", "NoSuchTopic@CG_TAG"),
        ("BROKER_PUT_NUMS", "AnotherCluster"),
        ("BROKER_PUT_NUMS", "broker-a"),
        ("BROKER_NO_SUCH", "DefaultCluster"),
    ],
)
def test_statistics_that_nobody_keeps_are_refused_in_a_brokers_words(name: str, key: str, g1: Asker) -> None:
    answer = g1.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")


def test_what_a_group_commits_is_what_it_has_consumed_lately(g1_store: Path) -> None:
    asker = Asker(g1_store)
    asked = {"statsName": "GROUP_GET_NUMS", "statsKey": "TopicTest@CG_TAG"}
    for offset in ("5", "9"):  # the store has 2 on record
        fields = {"consumerGroup": "CG_TAG", "topic": "TopicTest", "queueId": "0", "commitOffset": offset}
        assert (
            asker.ask(RequestCode.HEART_BEAT, {}, heartbeat("c", consumer("CG_TAG", subscription("TopicTest")))).code
            == 0
        )
        assert asker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    stats = asker.value(RequestCode.VIEW_BROKER_STATS_DATA, asked)
    assert {name: item["sum"] for name, item in stats.items()} == dict.fromkeys(
        ("statsMinute", "statsHour", "statsDay"), 7
    )
    assert 0 < stats["statsMinute"]["tps"] <= 7
    assert asker.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG_TAG"})["consumeTps"] > 0
    assert (
        asker.value(RequestCode.VIEW_BROKER_STATS_DATA, asked | {"statsName": "GROUP_GET_SIZE"})["statsDay"]["sum"] == 0
    )
    for name, count in (("BROKER_GET_NUMS", 7), ("BROKER_PUT_NUMS", 0)):
        assert (
            asker.value(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": "DefaultCluster"})[
                "statsDay"
            ]["sum"]
            == count
        )


NUMBERS = [
    "bootTimestamp",
    "brokerVersion",
    "commitLogDiskRatio",
    "commitLogMaxOffset",
    "commitLogMinOffset",
    "consumeQueueDiskRatio",
    "dispatchBehindBytes",
    "dispatchMaxBuffer",
    "earliestMessageTimeStamp",
    "getMessageEntireTimeMax",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putLatency99",
    "putLatency999",
    "putMessageAverageSize",
    "putMessageEntireTimeMax",
    "putMessageSizeTotal",
    "putMessageTimesTotal",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "remainTransientStoreBufferNumbs",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "startAcceptSendRequestTimeStamp",
]
"""The figures that Prometheus' exporter for RocketMQ reads as numbers; where one is missing it shows none at all."""


def test_the_exporter_finds_every_figure_that_it_reads(g1: Asker) -> None:
    table = g1.value(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    for name in NUMBERS:
        assert float(table[name]) >= 0, name
    assert (int(table["brokerVersion"]), table["brokerVersionDesc"]) == (513, "V5_5_0")
    for name in ("putTps", "getMissTps", "getTransferedTps", "getTotalTps", "getFoundTps"):
        assert len([float(word) for word in table[name].split()]) == 3
    number, unit = table["remainHowManyDataToFlush"].split(" ")
    assert (float(number), unit) == (0, "B")
    for word in table["putMessageDistributeTime"].split():
        assert int(word.partition("]:")[2]) == 0
    total, free = (table["commitLogDirCapacity"].split(" ")[number] for number in (2, 6))
    assert float(total) >= float(free) > 0


@pytest.mark.parametrize(
    ("used", "free", "ratio"),
    [(0, 100, 0.0), (1, 999_999, 0.01), (19, 81, 0.19), (190_001, 809_999, 0.2), (100, 0, 1.0), (0, 0, 0.0)],
)
def test_the_disk_ratio_is_rounded_up_and_of_what_users_may_fill(used: int, free: int, ratio: float) -> None:
    assert disk_ratio(used, free) == ratio


def test_offsets_of_delay_levels_are_those_of_the_store(g1: Asker) -> None:
    assert g1.value(RequestCode.GET_ALL_DELAY_OFFSET) == {"offsetTable": {"1": 1, "3": 10}}


def test_no_controller_runs_us(g1: Asker) -> None:
    answer = g1.ask(RequestCode.GET_BROKER_EPOCH_CACHE)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
