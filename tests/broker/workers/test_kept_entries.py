"""Keys of a log without index become files under the state directory; all workers answer from them, now and later."""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import oracles
import process
from broker_harness import DEADLINE_SECONDS, RawClient, connected, until
from kept_store import written
from process import Serving, owner_of, serving_process
from protocol.codes import RequestCode
from protocol.command import Command, ext_fields_of
from protocol.message import decode_messages

WORKERS = 2

SMALL = """
from rocketlens.cli import serving
from storage.store import _upkeep as upkeep
serving.SCAN_BUDGET = 1000
upkeep.SLOTS, upkeep.ENTRIES, upkeep.SCAN_STEP = 31, 101, 2000
upkeep.MOST_IN_MEMORY, upkeep.MOST_WAITING = 12 * 200, 12 * 700
upkeep.STAYS_IN_MEMORY, upkeep.WORTH_KEEPING, upkeep.SPARE_BYTES = 1000, 500, 0
from rocketlens.cli.main import main
main(prog_name="rocketlens")
"""
"""A server whose bounds are those of :func:`kept_store.make_small`."""


@asynccontextmanager
async def one_client_a_worker(server: Serving) -> AsyncIterator[list[RawClient]]:
    async with AsyncExitStack() as stack:
        by_worker: dict[int, RawClient] = {}
        while len(by_worker) < WORKERS:
            client = await stack.enter_async_context(connected(server.endpoints[0]))
            await client.ask(
                RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}
            )  # answered: a worker has taken it
            by_worker[owner_of(server.endpoints[0].port, client.writer.get_extra_info("sockname")[1])] = client
        yield list(by_worker.values())


async def ask(client: RawClient, key: str) -> Command:
    fields = {"topic": "T", "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    return await client.ask(RequestCode.QUERY_MESSAGE, fields)


def entries_in(directory: Path) -> int:
    """How many entries the files of a directory have: 4 bytes at 36 of each, which count from one."""
    return sum(int.from_bytes(path.read_bytes()[36:40], "big") - 1 for path in directory.glob("*[0-9]"))


async def complete_answer(client: RawClient, key: str) -> list[int]:
    """Physical offsets of what is found once the answer lacks nothing; until then it says so, and errs in nothing."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            answer = await ask(client, key)
            told = ext_fields_of(answer).get("rocketlensIncomplete")
            if told is None:
                return [message.physical_offset for message in decode_messages(answer.body)]
            assert "still to be scanned" in told
            assert answer.code == 0 or "may be missing" in answer.remark
            await asyncio.sleep(0.02)


@pytest.mark.asyncio
async def test_every_worker_answers_completely_and_so_does_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", SMALL))
    writer = written(tmp_path, 400)
    shutil.rmtree(writer.root / "index")
    store_before = sorted(writer.root.rglob("*"))
    entries = tmp_path / "state" / "entries"
    options = ["--workers", str(WORKERS), "--state-dir", str(tmp_path / "state")]
    keys = ["all0", *(f"k{number}" for number in range(0, 400, 13))]
    right = {key: oracles.query(writer.records, "T", key, kind="ANY", maximum=64) for key in keys}
    kept: list[dict[str, int]] = []
    for _ in range(2):
        with serving_process(writer.root, tmp_path, *options) as server:
            async with one_client_a_worker(server) as clients:
                for client in clients:
                    assert {key: await complete_answer(client, key) for key in keys} == right
                # Two hundred may stay in memory; then no further file is made before the server ends.
                await until(lambda: entries_in(entries) >= 4 * 400 - 200)
                for client in clients:
                    assert {key: await complete_answer(client, key) for key in keys} == right
            assert server.stop() == 0
        kept.append({path.name: path.stat().st_ino for path in entries.glob("*[0-9]")})
    assert kept[0].items() <= kept[1].items(), "the second start had them, and made no others of the same"
    assert len(kept[1]) <= len(kept[0]) + 1
    assert sorted(writer.root.rglob("*")) == store_before
    assert "Traceback" not in (tmp_path / "stderr").read_text()
