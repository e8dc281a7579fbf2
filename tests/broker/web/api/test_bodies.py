"""Other clients while bodies are looked at that cost far more than their bytes."""

import threading
from pathlib import Path

import pytest

from broker.endpoint import Endpoint
from costly_messages import MASKS, ask_costly, costly_bodies, questions, write_costly
from measured_waits import p99, waits
from process import serving_process

MOST_SECONDS = 0.2
"""What another client may wait for one of a hundred answers."""


class Looking:
    """Asks every question about a message, again and again, until it is stopped."""

    def __init__(self, port: int, offset: int) -> None:
        self.statuses: list[tuple[int, str]] = []
        self._port, self._offset = port, offset
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while True:
            for path, parameters in questions(self._offset):
                if self._is_over.is_set():
                    return
                self.statuses.append((ask_costly(self._port, path, parameters), path))

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.mark.soak
@pytest.mark.parametrize("rules", MASKS.values(), ids=MASKS)
def test_other_clients_hardly_wait_while_any_message_is_looked_at(tmp_path: Path, rules: list[str]) -> None:
    written = write_costly(tmp_path / "store", costly_bodies())
    options = ["--http", "127.0.0.1:0", *(part for rule in rules for part in ("--mask", rule))]
    with serving_process(tmp_path / "store", tmp_path, *options) as server:
        endpoint: Endpoint = server.endpoints[0]
        quiet = waits(endpoint, 3)
        slow, statuses = {}, {}
        for name, one in written.items():
            looking = Looking(server.http_port, one.physical_offset)
            slow[name] = waits(endpoint, 4)
            looking.stop()
            statuses[name] = looking.statuses
        print(f"p99 quiet {p99(quiet) * 1000:.1f} ms, worst {quiet[-1] * 1000:.1f} ms")
        for name, measured in slow.items():
            print(f"p99 {p99(measured) * 1000:.1f} ms, worst {measured[-1] * 1000:.1f} ms: {name}")
        wrong = {name: {each for each in asked if each[0] != 200} for name, asked in statuses.items()}
        assert {name: each for name, each in wrong.items() if each} == {}
        assert {name: p99(measured) for name, measured in slow.items() if p99(measured) > MOST_SECONDS} == {}
        assert server.stop() == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()
