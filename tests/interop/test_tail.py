"""`rocketlens tail --follow` beside an official broker: every message is printed, once, in order and soon."""

import json
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from interop.official_broker import official_pair
from interop.producing import producing
from interop.stages import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.soak]

TOPIC = "TailTopic"
MESSAGES_A_SECOND = 20
MESSAGES = 600
MOST_MILLISECONDS = 100


class Tail:
    """A running command; `printed` are its messages, each with the time (ms) at which its line came."""

    def __init__(self, *where: object) -> None:
        command = [sys.executable, "-m", "rocketlens", "tail", *map(str, where), "--topic", TOPIC, "-n", "1", "-f"]
        self.where = list(map(str, where))
        self.printed: list[tuple[float, dict[str, Any]]] = []
        self.process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.append((time.time() * 1000, json.loads(line)))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait()
        self.reader.join()
        return code

    def delays(self) -> list[float]:
        """How long (ms) after the broker stored it each message was printed, but for the one from before."""
        return [at - message["storeTimestamp"] for at, message in self.printed[1:]]


def test_messages_are_printed_within_a_tenth_of_a_second(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with (
        official_pair(store, tmp_path) as pair,
        producing(pair.name_server.text_address, tmp_path, MESSAGES_A_SECOND) as producer,
    ):
        producer.send_to(TOPIC)
        wait_until(lambda: len(producer.sent) > 20, "the first messages")
        tails = [
            Tail(store),
            Tail("--server", pair.broker.text_address),
            Tail("--server", pair.name_server.text_address),
        ]
        try:
            for tail in tails:
                wait_until(lambda tail=tail: tail.printed, "the newest message")
            first = len(producer.sent)
            wait_until(lambda: len(producer.sent) > first + MESSAGES, "the messages", seconds=120)
            producer.stop()
            last = producer.sent[-1].physical_offset
            for tail in tails:
                wait_until(lambda tail=tail: tail.printed[-1][1]["physicalOffset"] == last, "the last message")
        finally:
            codes = [tail.stop() for tail in tails]
        sent = [each.physical_offset for each in producer.sent]
        for tail in tails:
            printed = [message["physicalOffset"] for _, message in tail.printed]
            assert sorted(printed) == sent[sent.index(printed[0]) :]
            delays = tail.delays()
            assert len(delays) > MESSAGES
            figures = statistics.median(delays), statistics.quantiles(delays, n=20)[-1]
            print(f"{' '.join(tail.where)}: median {figures[0]:.0f} ms, 95 % {figures[1]:.0f} ms")
        assert codes == [130, 130, 130]
        assert max(statistics.median(tail.delays()) for tail in tails) <= MOST_MILLISECONDS
