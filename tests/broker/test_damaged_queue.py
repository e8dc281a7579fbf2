"""A queue whose end is searched in a large log: its maximum is busy meanwhile, and nobody else waits.

The small version holds the search up, so that what is answered meanwhile does not depend on the machine; the long one
measures what others wait.
"""

import json
import shutil
import socket
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import rocketlens
from broker.metrics.metrics_meter import Meter
from broker_harness import connected, service_of, serving, until
from doctoring import put
from draining import pull_of, records_of
from measured_waits import p99, waits
from process import Serving, serving_process
from protocol.codes import RequestCode
from protocol.command import Command, decode_command, encode_request, ext_fields_of
from protocol.frame import FrameDecoder
from storage.files.waiting import Lookup
from storage.queue import _shared_pass as shared_pass
from storage.queue import queue_holes
from storage.queue._queue_end import find_end
from storage.queue.queue_holes import QueueHoles
from storage.queue.unit_standing import JudgedUnits
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

BUSY = 2
DAMAGED = {"topic": "T", "queueId": "0"}
TIME_SEARCH = (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**DAMAGED, "timestamp": "1"})
OTHERS = (
    (RequestCode.GET_MAX_OFFSET, {"topic": "Other", "queueId": "0"}),
    (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}),
)


@pytest.mark.asyncio
async def test_while_its_end_is_searched_a_maximum_is_busy_and_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = StoreWriter(tmp_path / "store", queue_file_size=20_000)
    for number in range(60):
        writer.append(("T", "Other")[number % 2], b"body")
    writer.flush()
    # The last unit is one that no broker writes, and the one before it leads elsewhere.
    put(
        writer.root / "consumequeue" / "T" / "0" / f"{0:020d}", 20 * 28, bytes(7) + b"\x01" + b"\x7f" * 4 + b"\xff" * 28
    )
    opened, step = threading.Event(), QueueHoles.step
    monkeypatch.setattr(QueueHoles, "step", lambda holes: opened.wait(60) and step(holes))
    monkeypatch.setattr(queue_holes, "SEARCHED_AT_ONCE", 1)
    monkeypatch.setattr(shared_pass, "PIECE", 100)
    measured: list[int] = []

    def find(units: JudgedUnits, floor: int, written: int) -> Lookup[int]:
        measured.append(written)
        return find_end(units, floor, written)

    monkeypatch.setattr("storage.queue.consume_queue.find_end", find)
    service = service_of(MessageStore.open(writer.root), meter=Meter())
    async with serving(service) as server, connected(server.addresses[0]) as client:
        try:
            for _ in range(3):
                answer = await client.ask(RequestCode.GET_MAX_OFFSET, DAMAGED)
                assert answer.code == BUSY
                assert "is full or lost, or its last units are damaged: the log is being searched" in answer.remark
                assert "% of which is done; ask again in a moment" in answer.remark
                for code, fields in OTHERS:
                    assert (await client.ask(code, fields)).code == 0
            at, known = 0, len(measured)
            while at < 28:  # what lies before the end that is searched is read meanwhile
                answer = await client.ask(RequestCode.PULL_MESSAGE, pull_of("T", 0, at, "*", "TAG", 2))
                assert [each.queue_offset for each in records_of(bytes(answer.body))][:1] == [at]
                at = int(ext_fields_of(answer)["nextBeginOffset"])
                assert int(ext_fields_of(answer)["maxOffset"]) > at  # there may be more
            assert len(measured) <= known + 2  # of 14 pulls: for a new snapshot, not for each pull
            async with rocketlens.connect_async(str(server.addresses[0])) as remote:
                with pytest.raises(rocketlens.ResponseError, match="the log is being searched"):
                    [each async for each in remote.search(topic="T", contains="body")]  # not fewer messages
            for code, fields in ((RequestCode.PULL_MESSAGE, pull_of("T", 0, at, "*", "TAG")), TIME_SEARCH):
                assert (await client.ask(code, fields)).code == BUSY
        finally:
            opened.set()
        await until(lambda: not service.store.queue_holes.searching)
        assert ext_fields_of(await client.ask(RequestCode.GET_MAX_OFFSET, DAMAGED))["offset"] == "30"


# --- a large log ------------------------------------------------------------------------------------------------------

SEGMENT = 1 << 30
LARGE = 8
"""Segments of the large log: some seconds of searching."""


def write_large_log(root: Path) -> None:
    """Messages of one topic and no other in segments of their full size, behind one message of the damaged queue."""
    writer = StoreWriter(root, segment_size=SEGMENT)
    writer.append("T", b"first")
    large = writer.append("Other", bytes(600))
    writer.append("T", b"last")
    writer.close()
    size = large.size
    record = np.frombuffer(large.record, np.uint8)
    copies = np.tile(record, (SEGMENT // 16 // size, 1))
    for number in range(1, LARGE):
        with (root / "commitlog" / f"{number * SEGMENT:020d}").open("wb") as file:
            for piece in range(15):
                start = number * SEGMENT + piece * copies.nbytes
                places = (start + size * np.arange(len(copies))).astype(">i8")
                copies[:, 28:36] = places.view(np.uint8).reshape(-1, 8)
                file.write(copies.data)
            file.truncate(SEGMENT)


def ask(server: Serving, code: int, fields: dict[str, str]) -> Command:
    decoder = FrameDecoder()
    with socket.create_connection(server.endpoints[0], 60) as connection:
        connection.sendall(encode_request(code, fields, opaque=1))
        while True:
            for command in map(decode_command, decoder.feed(connection.recv(65536))):
                return command


def page(server: Serving, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{path}", timeout=60) as answer:
        return str(answer.read(), "utf-8")


@pytest.mark.soak
def test_a_damaged_queue_in_a_large_log_keeps_no_other_waiting(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write_large_log(root)
    put(root / "consumequeue" / "T" / "0" / f"{0:020d}", 20, b"\xff" * 20)
    view = encode_request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}, opaque=1)
    with serving_process(root, tmp_path, "--state-dir", str(tmp_path / "state"), "--http", "127.0.0.1:0") as server:
        quiet = waits(server.endpoints[0], 3, view)
        found: list[str] = []
        started = time.monotonic()

        def watch() -> None:
            while (answer := ask(server, RequestCode.GET_MAX_OFFSET, DAMAGED)).code == BUSY:
                details = json.loads(page(server, "/readyz"))
                problems = json.loads(page(server, "/api/v1/store"))["problems"]
                metric = "rocketlens_queue_search_left_bytes"
                left = next(line for line in page(server, "/metrics").splitlines() if line.startswith(metric))
                told = next((each for each in problems if "%" in each), "")
                found.append(f"{details.get('queue_search_left_bytes')}, {left}, {told}")
            found.append(ext_fields_of(answer)["offset"])
            found.append(f"{time.monotonic() - started:.1f} s")

        watching = threading.Thread(target=watch)
        watching.start()
        loaded: list[float] = []
        while watching.is_alive():
            loaded += waits(server.endpoints[0], 0.5, view)
        watching.join()
    loaded.sort()
    print(f"p99 {p99(quiet) * 1e3:.1f} ms quiet, {p99(loaded) * 1e3:.1f} ms beside ({len(loaded)}): {found}")
    shutil.rmtree(root)  # eight gigabytes
    assert found[-2] == "2"
    shown = [each for each in found[:-2] if not each.startswith("None") and "last units are damaged" in each]
    assert shown
    assert p99(loaded) < 0.2
