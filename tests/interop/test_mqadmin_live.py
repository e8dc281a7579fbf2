"""mqadmin asks the official broker and a server of ours that follows its store, at the same time: both say the same.

Beyond what was recorded: traces of a message that a traced producer sent and a traced consumer took, what the export
commands write into files, and clients that are connected.
"""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from interop.conftest import Java
from interop.jars import SERVER_VERSION
from interop.java_client import JavaClient, Subscription
from interop.normalise import normalise
from interop.official_broker import G1_PROPERTIES, OfficialPair, official_pair
from interop.rocketlens_process import rocketlens_serving
from interop.stages import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.soak]  # in each run: test_mqadmin.py, and test_dashboard.py

FLUSH_MILLIS = 500
"""How often the broker writes consumer offsets, which we read; 5 seconds is usual."""

TRACED = "CG_TRACED"
ONLINE = (
    "consumerConnection -g CG_ONLINE",
    "consumerStatus -g CG_ONLINE -s",
    "producerConnection -g CLIENT_INNER_PRODUCER -t TopicTest",
    "producer -b {broker}",
)
"""What is asked about clients that are connected; every Java client is a producer of that group."""


@dataclass(frozen=True)
class Both:
    """One mqadmin for the official broker and for us."""

    client: JavaClient
    official: OfficialPair
    ours: str

    def at_official(self, command: str) -> str:
        """What a command prints against the broker; `{broker}` is its address."""
        text = command.format(broker=self.official.broker.text_address)
        return self.client.mqadmin(*text.split(), "-n", self.official.name_server.text_address)

    def at_ours(self, command: str) -> str:
        """The same against us."""
        return self.client.mqadmin(*command.format(broker=self.ours).split(), "-n", self.ours)

    def say_the_same(self, command: str) -> bool:
        """Whether both print the same now, but for their addresses."""
        told = self.at_official(command).replace(self.official.broker.text_address, self.ours)
        return normalise(command, without_rate(told)) == normalise(command, without_rate(self.at_ours(command)))


@pytest.fixture(scope="module")
def both(java: Java, g1_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    work = tmp_path_factory.mktemp("live")
    copy = work / "g1"
    shutil.copytree(g1_store, copy)
    properties = {**G1_PROPERTIES, "flushConsumerOffsetInterval": str(FLUSH_MILLIS)}
    with official_pair(copy, work, properties=properties) as pair, rocketlens_serving(copy, work) as server:
        yield Both(java(SERVER_VERSION, "JSON"), pair, f"{server[0]}:{server[1]}")


@pytest.fixture(scope="module")
def traced(both: Both) -> str:
    """The id of a message that a traced producer sent and a traced consumer took."""
    sent = both.at_official("sendMessage -t TopicTest -p traced -k tracekey -c TagTraced -m true")
    (message_id,) = re.findall(r"SEND_OK +(\w+)", sent)
    name_server = both.official.name_server.text_address
    both.client.consume(name_server, {"traced": Subscription("push", TRACED, "TopicTest", "TagTraced", traced=True)})
    wait_until(lambda: len(both.client.look("traced").messages) == 1, "the traced message is consumed")
    both.client.end("traced")
    trace = f"queryMsgTraceById -i {message_id}"
    wait_until(lambda: re.search(r"(?s)Pub .*Sub ", both.at_official(trace)) is not None, "both traces are stored")
    return str(message_id)


def test_a_trace_of_a_message_is_shown_as_the_broker_shows_it(both: Both, traced: str) -> None:
    command = f"queryMsgTraceById -i {traced}"
    printed = both.at_ours(command)
    assert re.search(rf"(?s)Pub .*success.*#ConsumerGroup.*Sub +{TRACED} .*success", printed), printed
    assert printed == both.at_official(command)


@pytest.mark.parametrize(
    "command",
    [
        f"consumerProgress -g {TRACED}",
        "consumerProgress",
        "brokerConsumeStats -b {broker}",
        "topicStatus -t TopicTest",
        "getConsumerConfig -g CG_TRACED",
        "queryMsgByKey -t TopicTest -k tracekey",
        "haStatus -b {broker}",
        "topicStatus -t RMQ_SYS_TRACE_TOPIC",
    ],
)
def test_what_changes_while_the_broker_runs_is_soon_the_same(both: Both, traced: str, command: str) -> None:
    wait_until(lambda: both.say_the_same(command), f"{command}: the broker writes its offsets again and again", 30)


def exported(both: Both, tmp_path: Path, command: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command writes into a file at the broker's, and at ours."""
    written = []
    for folder, ask in (("official", both.at_official), ("ours", both.at_ours)):
        assert ask(f"{command} -c DefaultCluster -f {tmp_path / folder}").strip().endswith("success")
        written.append(json.loads((tmp_path / folder / name).read_text()))
    return written[0], written[1]


def test_exported_metadata_are_those_of_the_broker(both: Both, traced: str, tmp_path: Path) -> None:
    def is_same() -> bool:
        theirs, ours = exported(both, tmp_path, "exportMetadata", "metadata.json")
        theirs["exportTime"] = ours["exportTime"] = None
        return theirs == ours

    wait_until(is_same, "the configuration on the disk is the broker's", 30)


def test_exported_configurations_have_the_same_members(both: Both, tmp_path: Path) -> None:
    theirs, ours = exported(both, tmp_path, "exportConfigs", "configs.json")
    assert ours["clusterScale"] == theirs["clusterScale"]
    (their_broker,), (our_broker,) = theirs["brokerConfigs"].values(), ours["brokerConfigs"].values()
    assert our_broker.keys() >= their_broker.keys()
    for name in ("brokerClusterName", "brokerId", "brokerName", "brokerRole", "messageDelayLevel", "traceTopicEnable"):
        assert our_broker[name] == their_broker[name]


def test_exported_metrics_have_the_same_members_and_sizes(both: Both, traced: str, tmp_path: Path) -> None:
    theirs, ours = exported(both, tmp_path, "exportMetrics", "metrics.json")
    assert members_of(ours) == members_of(theirs)
    (their_report,), (our_report,) = theirs["evaluateReport"].values(), ours["evaluateReport"].values()
    for name in ("topicSize", "groupSize"):
        assert our_report["runtimeQuota"][name] == their_report["runtimeQuota"][name]


def members_of(value: Any) -> Any:
    """The names of all members, without their values."""
    return {name: members_of(inner) for name, inner in value.items()} if isinstance(value, dict) else None


def test_clients_that_are_connected_are_shown_as_the_broker_shows_them(both: Both) -> None:
    subscriptions = Subscription("push", "CG_ONLINE", "TopicTest", "TagA || TagB")
    both.client.consume(both.official.name_server.text_address, {"official": subscriptions})
    both.client.consume(both.ours, {"ours": subscriptions})
    places = ((both.at_official, "official"), (both.at_ours, "ours"))
    wait_until(
        lambda: all({("TopicTest", 0), ("TopicTest", 3)} <= both.client.look(name).queues for _, name in places),
        "the queues are shared out",
    )
    for command in ONLINE:
        theirs, ours = (without_ids(ask(command)) for ask, _ in places)
        assert "Exception" not in ours
        assert theirs == ours
    both.client.end("official", "ours")


def test_a_group_that_consumes_here_alone_is_listed_with_its_progress(both: Both) -> None:
    both.client.consume(both.ours, {"here": Subscription("push", "CG_HERE", "TopicTest", "TagA")})
    wait_until(lambda: ("TopicTest", 3) in both.client.look("here").queues, "the queues are given to the consumer")
    assert re.search(r"(?m)^CG_HERE +1 ", both.at_ours("consumerProgress"))
    assert "CG_HERE" not in both.at_official("consumerProgress")
    wait_until(
        lambda: re.search(r"(?m)^TopicTest +CG_HERE ", both.at_ours("brokerConsumeStats -b {broker}")) is not None,
        "the group has committed how far it is",
    )
    both.client.end("here")


def without_rate(printed: str) -> str:
    """The text without how fast a group consumed lately, from the one or the other."""
    return re.sub(r"Consume TPS: \d+\.\d+", "Consume TPS", printed)


def without_ids(printed: str) -> str:
    """The text without what names one client or one moment."""
    text = re.sub(r"\d{13}/\S+", "FILE", printed)
    text = re.sub(r"[\d.]+@\d+#\d+", "CLIENT", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    return re.sub(r"lastUpdateTimestamp=\d+", "lastUpdateTimestamp=NOW", text)
