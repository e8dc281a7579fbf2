"""A topic as it grows: what comes after a cursor, the wait for it, what is too much, and who may see it."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker_harness import until
from store_writer import StoreWriter
from web_questions import PLACE, ApiOf


class Growing:
    """A topic of two queues that grows, and the API over it, whose store is followed by `follow`."""

    def __init__(self, root: Path) -> None:
        self.writer = StoreWriter(root)
        self.count = 0
        self.add(4)
        self.api = ApiOf(root)
        self.follower = self.api.store.follower()

    def add(self, count: int) -> list[int]:
        """Store messages; their physical offsets."""
        written = []
        for number in range(self.count, self.count + count):
            tag = f"T{number % 3}"
            message = self.writer.append("orders", b"%d" % number, tags=tag, queue_id=number % 2)
            written.append(message.physical_offset)
        self.count += count
        self.writer.flush()
        return written

    def follow(self) -> None:
        """Read what was stored meanwhile."""
        for _ in range(3):
            arrivals = self.follower.poll()
            if arrivals is not None:
                self.api.service.polls.wake(arrivals.queues)


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    grown = Growing(tmp_path / "store")
    yield grown
    grown.writer.close()


def offsets(answer: dict[str, Any]) -> list[int]:
    return [line["physicalOffset"] for line in answer["messages"]]


def test_a_tail_begins_now_and_goes_on_behind_what_it_gave(growing: Growing) -> None:
    first = growing.api.get("/tail", topic="orders")
    assert (first["messages"], first["lookedAt"], first["skipped"]) == ([], 0, 0)
    written = growing.add(5)
    growing.follow()
    answer = growing.api.get("/tail", topic="orders", cursor=first["cursor"], limit=3)
    assert offsets(answer) == written[:3]
    rest = growing.api.get("/tail", topic="orders", cursor=answer["cursor"])
    assert offsets(rest) == written[3:]
    assert growing.api.get("/tail", topic="orders", cursor=rest["cursor"])["messages"] == []


def test_a_tail_follows_one_queue_and_passes_a_filter(growing: Growing) -> None:
    one = growing.api.get("/tail", topic="orders", queueId=1)["cursor"]
    tagged = growing.api.get("/tail", topic="orders", tag="T1")["cursor"]
    written = growing.add(6)  # numbers 4 to 9
    growing.follow()
    answer = growing.api.get("/tail", topic="orders", queueId=1, cursor=one)
    assert offsets(answer) == written[1::2]
    answer = growing.api.get("/tail", topic="orders", tag="T1", cursor=tagged)
    assert offsets(answer) == [written[0], written[3]]
    assert answer["lookedAt"] == 6
    answer = growing.api.get("/tail", topic="orders", sql="TAGS = 'T2'", cursor=tagged)
    assert offsets(answer) == [written[1], written[4]]


def test_who_is_too_far_behind_goes_on_with_the_newest(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.web.api.tail.MOST_BEHIND", 10)
    cursor = growing.api.get("/tail", topic="orders")["cursor"]
    written = growing.add(20)
    growing.follow()
    answer = growing.api.get("/tail", topic="orders", cursor=cursor, limit=3)
    assert answer["skipped"] == 14
    assert offsets(answer) == written[-6:-3]
    last = growing.api.get("/tail", topic="orders", cursor=answer["cursor"], limit=3)
    assert (offsets(last), last["skipped"]) == (written[-3:], 0)


async def _held(growing: Growing, cursor: str, *, arrives: bool) -> tuple[dict[str, Any], float]:
    """The answer to a question that waits, and after how many seconds it came; with or without a message meanwhile."""
    growing.api.service.polls.start(lambda work: asyncio.get_running_loop().run_in_executor(None, work))
    transport = httpx.ASGITransport(growing.api.application)
    async with httpx.AsyncClient(transport=transport, base_url=PLACE) as client:
        started = time.monotonic()
        wait = 10_000 if arrives else 300
        asked = asyncio.create_task(
            client.get("/tail", params={"topic": "orders", "cursor": cursor, "wait": wait}, timeout=60)
        )
        await until(lambda: len(growing.api.service.polls) > 0 or asked.done())
        assert len(growing.api.service.polls) == 2
        if arrives:
            growing.add(1)
            await asyncio.to_thread(growing.follow)
        answer = await asked
    assert len(growing.api.service.polls) == 0
    assert answer.status_code == 200
    return answer.json(), time.monotonic() - started


def test_an_answer_waits_until_a_message_is_stored(growing: Growing) -> None:
    cursor = growing.api.get("/tail", topic="orders")["cursor"]
    answer, _ = asyncio.run(_held(growing, cursor, arrives=True))
    assert [line["preview"] for line in answer["messages"]] == ["4"]


def test_no_more_wait_than_there_is_room_for(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.web.api.application.MOST_HELD", 0)
    cursor = growing.api.get("/tail", topic="orders")["cursor"]
    refused = growing.api.ask("/tail", topic="orders", cursor=cursor, wait=1000)
    assert (refused.status, refused.error["code"]) == (503, "busy")


def test_a_topic_with_too_many_queues_is_followed_by_the_queue(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for queue_id in range(257):
        writer.append("wide", b"x", queue_id=queue_id)
    writer.close()
    api = ApiOf(tmp_path / "store")
    refused = api.ask("/tail", topic="wide")
    assert (refused.status, refused.error["parameter"]) == (400, "queueId")
    assert api.get("/tail", topic="wide", queueId=256)["messages"] == []


@pytest.mark.parametrize("cursor", ["x", "eyJhIjoxfQ", "W1sxXV0"])
def test_what_is_no_cursor_of_a_tail_is_refused(growing: Growing, cursor: str) -> None:
    refused = growing.api.ask("/tail", topic="orders", cursor=cursor)
    assert (refused.status, refused.error["parameter"]) == (400, "cursor")
