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


def test_statistics_that_nobody_keeps_are_refused_in_a_brokers_words(g1: Asker) -> None:
    for name, key in (
        ("TOPIC_PUT_NUMS", "TopicTest"),
        ("TOPIC_PUT_NUMS", "TopicTest@CG_TAG"),
        ("GROUP_GET_NUMS", "TopicTest@Nobody"),
        ("GROUP_GET_NUMS", "TopicTest"),
        ("GROUP_GET_NUMS", "NoSuchTopic@CG_TAG"),
        ("BROKER_PUT_NUMS", "AnotherCluster"),
        ("BROKER_NO_SUCH", "DefaultCluster"),
    ):
        answer = g1.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")


def test_what_a_group_commits_is_what_it_has_consumed_lately(g1_store: Path) -> None:
    asker = Asker(g1_store)

    def stats(name: str, key: str) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = asker.value(
            RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key}
        )
        return found

    asker.ask(RequestCode.HEART_BEAT, {}, heartbeat("c", consumer("CG_TAG", subscription("TopicTest"))))
    for offset in ("5", "9"):  # the store has 2 on record
        fields = {"consumerGroup": "CG_TAG", "topic": "TopicTest", "queueId": "0", "commitOffset": offset}
        assert asker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    found = stats("GROUP_GET_NUMS", "TopicTest@CG_TAG")
    assert {name: item["sum"] for name, item in found.items()} == {"statsMinute": 7, "statsHour": 7, "statsDay": 7}
    assert 0 < found["statsMinute"]["tps"] <= 7
    assert asker.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG_TAG"})["consumeTps"] > 0
    assert stats("GROUP_GET_SIZE", "TopicTest@CG_TAG")["statsDay"]["sum"] == 0
    for name, count in (("BROKER_GET_NUMS", 7), ("BROKER_PUT_NUMS", 0)):
        assert stats(name, "DefaultCluster")["statsDay"]["sum"] == count


@pytest.mark.parametrize(
    ("used", "free", "ratio"),
    [(0, 100, 0.0), (1, 999_999, 0.01), (19, 81, 0.19), (190_001, 809_999, 0.2), (100, 0, 1.0), (0, 0, 0.0)],
)
def test_the_disk_ratio_is_rounded_up_and_of_what_users_may_fill(used: int, free: int, ratio: float) -> None:
    assert disk_ratio(used, free) == ratio
