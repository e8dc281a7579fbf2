"""A verification beside the official broker while producers send to it: nothing that it is writing is a finding."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from golden_store import unpack
from interop.official_broker import G1_PROPERTIES, OfficialProcess, official_broker, official_name_server
from interop.stages import wait_until
from interop.wire import ask
from oracles import read_log
from verifying import assert_clean, verify_here

pytestmark = pytest.mark.interop

SEND_MESSAGE = 10
SENDERS = 3
AT_ONCE = 500
"""Messages that are sent while a store is verified once, at most."""


class Producers:
    """Send messages with keys and tags to several queues until the body is over.

    They are sent as fast as the broker takes them up to `most` in all, so that a store does not outgrow the machine
    on which it is verified again and again; who raises `most` has them go on.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]
        self.sent = [0] * SENDERS
        self.most = 0
        self.failed: list[str] = []

    def __enter__(self) -> "Producers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self, sender: int) -> None:
        while not self._over.is_set():
            number = self.sent[sender]
            if sum(self.sent) >= self.most:
                self._over.wait(0.01)
                continue
            fields = {
                "producerGroup": "live", "topic": "TopicTest", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
                "queueId": str(number % 4), "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0",
                "reconsumeTimes": "0", "unitMode": "false", "batch": "false", "maxReconsumeTimes": "0",
                "properties": f"KEYS\x01k{sender} n{number}\x02UNIQ_KEY\x01u{sender}N{number}\x02TAGS\x01t\x02",
            }  # fmt: skip
            answer = ask(self._address, SEND_MESSAGE, fields, body=bytes(1 + number % 700))
            if answer.code:
                self.failed.append(str(answer.header))
                return
            self.sent[sender] += 1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("store", tmp_path_factory.mktemp("verified"))


@pytest.fixture(scope="module")
def broker(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfficialProcess]:
    work = tmp_path_factory.mktemp("broker")
    with (
        official_name_server(work) as name_server,
        official_broker(store, work, properties=G1_PROPERTIES, name_server=name_server) as running,
    ):
        yield running


@pytest.mark.soak  # in each run: test_deep_live.py, with a broker that writes as this one
def test_what_a_broker_writes_while_it_runs_is_no_finding(broker: OfficialProcess, store: Path, tmp_path: Path) -> None:
    before = len(read_log(store / "commitlog"))
    with Producers(broker.address) as producers:
        producers.most = AT_ONCE
        wait_until(lambda: min(producers.sent) > 20 or bool(producers.failed), "messages")
        for number in range(4):
            seen = sum(producers.sent)
            producers.most = seen + AT_ONCE
            report = verify_here(store, tmp_path / str(number))
            assert report.details.log.live
            assert_clean(report)
            assert report.messages >= before + seen - SENDERS
    assert producers.failed == []
    assert sum(producers.sent) > 300
    assert len(list((store / "index").iterdir())) > 12  # it rolled over meanwhile
