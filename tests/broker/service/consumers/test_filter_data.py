"""What QUERY_CONSUME_QUEUE shows of a group's filter: recorded from a broker 5.5.0 with `enablePropertyFilter`."""

import itertools
import json
import time
from pathlib import Path

import pytest

from asking import Asker
from broker.service.consumers.filter_data import FilterData
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode
from storage.layout.store_config import ConsumerFilter
from store_writer import StoreWriter

RECORDED = (
    '{\n\t"bloomFilterData":{\n\t\t"bitNum":112,\n\t\t"bitPos":[106,45,15]\n\t},\n\t"bornTime":1795281385657,\n\t'
    '"clientVersion":5,\n\t"consumerGroup":"GS",\n\t"dead":false,\n\t"deadTime":0,\n\t'
    '"expression":"a > 2 AND b = \'x\'",\n\t"expressionType":"SQL92",\n\t"topic":"T"\n}'
)
DEAD = (
    '{\n\t"bloomFilterData":{\n\t\t"bitNum":112,\n\t\t"bitPos":[106,95,84]\n\t},\n\t"bornTime":1795281386649,\n\t'
    '"clientVersion":6,\n\t"consumerGroup":"GT",\n\t"dead":true,\n\t"deadTime":1795281387322,\n\t'
    '"expression":"a > 7",\n\t"expressionType":"SQL92",\n\t"topic":"T"\n}'
)
STORED = {
    "consumerGroup": "GT",
    "topic": "T",
    "expression": "a > 7",
    "expressionType": "SQL92",
    "bornTime": 1795281386649,
    "deadTime": 1795281387322,
    "clientVersion": 6,
    "bloomFilterData": {"bitNum": 112, "bitPos": [106, 95, 84]},
}


def asker(root: Path, stored: dict[str, object] | None = None) -> Asker:
    """A store of one message, in whose registry a filter stands perhaps."""
    writer = StoreWriter(root / "store")
    writer.append("T", b"", tags="TagA")
    writer.close()
    if stored is not None:
        registry = {"filterDataByTopic": {"T": {"groupFilterData": {stored["consumerGroup"]: stored}, "topic": "T"}}}
        (writer.root / "config").mkdir(exist_ok=True)
        (writer.root / "config" / "consumerFilter.json").write_text(json.dumps(registry))
    return Asker(writer.root)


def shown(client: Asker, group: str) -> str:
    """The filter data of a group, as the server answers it."""
    body = client.value(
        RequestCode.QUERY_CONSUME_QUEUE,
        {"topic": "T", "queueId": "0", "index": "0", "count": "1", "consumerGroup": group},
    )
    return str(body["filterData"])


def beat(client: Asker, group: str, expression: str, version: int, kind: str = "SQL92") -> None:
    client.ask(
        RequestCode.HEART_BEAT, body=heartbeat("c1", consumer(group, subscription("T", expression, version, kind)))
    )


def born(text: str) -> int:
    return int(json.loads(text)["bornTime"])


def test_the_filter_of_a_live_group_is_shown_as_a_broker_prints_it(tmp_path: Path) -> None:
    client = asker(tmp_path)
    before = time.time_ns() // 1_000_000
    beat(client, "GS", "a > 2 AND b = 'x'", 5)
    text = shown(client, "GS")
    assert before <= born(text) <= time.time_ns() // 1_000_000
    assert text.replace(str(born(text)), "1795281385657") == RECORDED


def test_a_newer_version_of_the_same_expression_was_born_when_the_first_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = asker(tmp_path)
    clock = itertools.count(1_795_281_385_657_000_000, 1_000_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    beat(client, "GS", "a > 3", 5)
    first = born(shown(client, "GS"))
    beat(client, "GS", "a > 3", 6)
    told = json.loads(shown(client, "GS"))
    assert (told["bornTime"], told["clientVersion"]) == (first, 6)
    beat(client, "GS", "a > 4", 7)
    told = json.loads(shown(client, "GS"))
    assert told["bornTime"] > first
    assert (told["expression"], told["clientVersion"]) == ("a > 4", 7)
    beat(client, "GS", "TagB", 8, "TAG")
    assert json.loads(shown(client, "GS"))["expression"] == "a > 4", "as a broker keeps it"


def test_a_filter_of_which_only_the_store_knows_is_dead(tmp_path: Path) -> None:
    client = asker(tmp_path, STORED)
    beat(client, "GT", "TagA", 5, "TAG")
    assert shown(client, "GT") == DEAD


def test_a_stored_expression_that_is_told_again_keeps_its_time_and_bits(tmp_path: Path) -> None:
    bloom = {"bitNum": 120, "bitPos": [1, 2]}
    client = asker(tmp_path, STORED | {"bloomFilterData": bloom})
    beat(client, "GT", "a > 7", 9)
    told = json.loads(shown(client, "GT"))
    assert (told["bornTime"], told["clientVersion"], told["dead"], told["deadTime"]) == (1795281386649, 9, False, 0)
    assert told["bloomFilterData"] == bloom
    beat(client, "GT", "a > 8", 10)
    assert json.loads(shown(client, "GT"))["bornTime"] != 1795281386649


def test_what_a_damaged_entry_lacks_is_left_out_and_texts_are_quoted() -> None:
    text = FilterData(ConsumerFilter('G"', "T\u4ef7", born_time=7), 9).text()
    assert json.loads(text) == {
        "bornTime": 7, "clientVersion": 0, "consumerGroup": 'G"', "dead": True, "deadTime": 9, "topic": "T价"
    }  # fmt: skip
