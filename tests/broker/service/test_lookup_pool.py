"""The threads of look-ups are shared fairly."""

import asyncio
import threading

import pytest

from broker.service.lookup_pool import LookupPool
from broker_harness import until

pytestmark = pytest.mark.asyncio


async def test_one_owner_never_has_all_threads() -> None:
    pool, release = LookupPool(3), threading.Event()
    running: list[int] = []

    def block() -> None:
        running.append(1)
        assert release.wait(60)

    blocked = [pool.run("greedy", block) for _ in range(10)]
    await until(lambda: len(running) == 2)
    assert await pool.run("other", lambda: "quick") == "quick"
    assert len(running) == 2
    release.set()
    await asyncio.gather(*blocked)
    pool.close()


async def test_lines_take_turns() -> None:
    pool, release = LookupPool(1), threading.Event()
    order: list[str] = []
    first = pool.run("a", lambda: release.wait(60))
    others = [pool.run(owner, lambda owner=owner: order.append(owner)) for owner in "aaabbc"]  # type: ignore[misc]
    release.set()
    await asyncio.gather(first, *others)
    assert order == ["a", "b", "c", "a", "b", "a"]
    pool.close()


async def test_what_is_given_up_before_its_turn_is_never_begun() -> None:
    pool, release = LookupPool(1), threading.Event()
    begun: list[str] = []
    first = pool.run("a", lambda: release.wait(60))
    given_up = pool.run("a", lambda: begun.append("given up"))
    last = pool.run("a", lambda: begun.append("last"))
    given_up.cancel()
    release.set()
    await asyncio.gather(first, last)
    assert begun == ["last"]
    assert len(pool) == 0
    pool.close()


async def test_a_closed_pool_gives_up_what_waits() -> None:
    pool, release = LookupPool(1), threading.Event()
    first, second = pool.run("a", lambda: release.wait(60)), pool.run("b", lambda: 1)
    pool.close()
    assert second.cancelled()
    assert pool.run("c", lambda: 1).cancelled()
    release.set()
    assert await first
    await until(lambda: len(pool) == 0)
