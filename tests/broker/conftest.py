"""Every asynchronous test of the broker runs on both event loops that `serve --loop` offers.

Where nothing of ours speaks to the loop itself, that is in `make soak` alone, and `make test` has uvloop's.
"""

import asyncio
from pathlib import Path

import pytest
import uvloop

from certificates import Authority
from still_clock import StillClock

HERE = Path(__file__).parent
NAMES = ("cluster", "metrics", "security", "service", "test_attack.py", "web/test_port.py")
WITHOUT_A_LOOP = [HERE / name for name in (*NAMES, "workers/test_several_workers.py")]
"""What reaches a loop through sessions, sockets and links alone, whose own tests have both."""


def pytest_asyncio_loop_factories():
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before items are chosen by their marks."""
    for item in items:
        if "[asyncio" in item.name and any(item.path.is_relative_to(place) for place in WITHOUT_A_LOOP):
            item.add_marker(pytest.mark.soak)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("tls"))
