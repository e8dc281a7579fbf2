"""`rocketlens serve A B C` as processes."""

import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.server_process import free_port
from blocking_client import BlockingClient, eventually
from broker.cluster.several_stores import folder_of
from broker.endpoint import Endpoint
from golden_frames import parse_java_json, value_of
from heartbeats import consumer, heartbeat, subscription
from metric_figures import Figures, figure, read_figures
from process import Serving, serving_process
from protocol.codes import RequestCode
from protocol.command import Command
from store_writer import StoreWriter


@pytest.fixture(scope="module")
def second_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of another broker, with a topic of its own and one that g1 has too."""
    root = tmp_path_factory.mktemp("second")
    writer = StoreWriter(root)
    for topic in ("TopicTest", "OtherTopic"):
        writer.append(topic, b"in the second store", keys="second")
    writer.close()
    return root


def ask(endpoint: Endpoint, code: int, fields: dict[str, str]) -> Command:
    with BlockingClient(endpoint) as client:
        return client.ask(code, fields)


def value(endpoint: Endpoint, code: int, **fields: str) -> Any:
    answer = ask(endpoint, code, fields)
    assert answer.code == 0, answer.remark
    return value_of(bytes(answer.body))


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.soak), "3"])
def test_three_stores_are_three_brokers_at_ports_ten_apart_in_one_cluster(
    workers: str, g1_store: Path, second_store: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(g1_store, tmp_path / "copy")
    port = free_port((10, 20))
    stores = (str(second_store), str(copy), "--listen", f"127.0.0.1:{port}", "--workers", workers, "--http", "0")
    with serving_process(g1_store, tmp_path, *stores, "--state-dir", str(tmp_path / "state")) as server:
        assert server.places == [
            (str(store), [Endpoint("127.0.0.1", port + 10 * number)])
            for number, store in enumerate((g1_store, second_store, copy))
        ]
        check_stores(server)
        assert server.stop() == 0
    log = server.errors.read_text()
    assert f"{copy} is broker broker-a-3 of cluster DefaultCluster (its own name is broker-a)" in log
    assert log.count(f"{second_store} is broker broker-a-2 of") == 1
    assert "Traceback" not in log
    folders = {path.parent.name for path in (tmp_path / "state").glob("*/serving.lock")}
    assert folders == {folder_of(store) for store in (g1_store, second_store, copy)}


def check_stores(server: Serving) -> None:
    endpoints = [addresses[0] for _, addresses in server.places]
    names = ["broker-a", "broker-a-2", "broker-a-3"]
    records = []
    for endpoint in endpoints:
        assert value(endpoint, RequestCode.GET_BROKER_CLUSTER_INFO)["clusterAddrTable"] == {"DefaultCluster": names}
        route = value(endpoint, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TopicTest")
        assert [each["brokerAddrs"]["0"] for each in route["brokerDatas"]] == [str(each) for each in endpoints]
        (only,) = value(endpoint, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="OtherTopic")["brokerDatas"]
        assert only["brokerName"] == "broker-a-2"
        records.append(bytes(ask(endpoint, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}).body))
    assert records[0] == records[2] != records[1]
    os.kill(server.process.pid, signal.SIGHUP)
    for number, name in enumerate(names):
        for _ in range(number):
            ask(endpoints[number], RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
        figures = eventually(partial(figures_after, server, name, number + 1))
        assert figure(figures, "commit_log_max_offset_bytes", broker=name) > 0
    assert 0 < figure(figures, "cpu_seconds_total") < 1000


def figures_after(server: Serving, broker: str, views: int) -> Figures | None:
    """The figures, once all workers have told of so many views."""
    figures = read_figures(server.http_port)
    told = figure(figures, "requests_total", broker=broker, code="VIEW_MESSAGE_BY_ID")
    assert told <= views, figures
    return figures if told == views else None


def test_each_stores_offsets_are_kept_apart(g1_store: Path, second_store: Path, tmp_path: Path) -> None:
    queue = {"consumerGroup": "G", "topic": "TopicTest", "queueId": "0"}
    with serving_process(g1_store, tmp_path, str(second_store), "--state-dir", str(tmp_path / "state")) as server:
        for number, (_, (endpoint, *_)) in enumerate(server.places, 5):
            with BlockingClient(endpoint) as client:
                body = heartbeat("c", consumer("G", subscription("TopicTest")))
                assert client.ask(RequestCode.HEART_BEAT, {}, body).code == 0
                assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, queue | {"commitOffset": str(number)}).code == 0
        assert server.stop() == 0
    for number, store in enumerate((g1_store, second_store), 5):
        kept = parse_java_json((tmp_path / "state" / folder_of(store) / "consumerOffset.json").read_text())
        assert kept["offsetTable"]["TopicTest@G"] == {"0": number}
