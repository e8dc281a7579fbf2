"""A queue whose end is searched in the log: its maximum is busy meanwhile, and nobody else waits."""

import threading
from pathlib import Path

import pytest

import rocketlens
from broker.metrics.metrics_meter import Meter
from broker_harness import connected, service_of, serving, until
from doctoring import put
from draining import pull_of, records_of
from protocol.codes import RequestCode
from protocol.command import ext_fields_of
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
                answer = await client.ask(RequestCode.PULL_MESSAGE, pull_of("T", 0, at, maxMsgNums=2))
                assert [each.queue_offset for each in records_of(bytes(answer.body))][:1] == [at]
                at = int(ext_fields_of(answer)["nextBeginOffset"])
                assert int(ext_fields_of(answer)["maxOffset"]) > at  # there may be more
            assert len(measured) <= known + 2  # of 14 pulls: for a new snapshot, not for each pull
            async with rocketlens.connect_async(str(server.addresses[0])) as remote:
                with pytest.raises(rocketlens.ResponseError, match="the log is being searched"):
                    [each async for each in remote.search(topic="T", contains="body")]  # not fewer messages
            for code, fields in ((RequestCode.PULL_MESSAGE, pull_of("T", 0, at)), TIME_SEARCH):
                assert (await client.ask(code, fields)).code == BUSY
        finally:
            opened.set()
        await until(lambda: not service.store.queue_holes.searching)
        assert ext_fields_of(await client.ask(RequestCode.GET_MAX_OFFSET, DAMAGED))["offset"] == "30"


# --- a large log ------------------------------------------------------------------------------------------------------
