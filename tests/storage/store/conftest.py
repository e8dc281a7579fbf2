"""What the tests of following a store, and of keys that become files, begin with."""

import pytest

from growing_store import Followed, hurry
from kept_store import Kept, make_small


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for that only time brings."""
    hurry(monkeypatch)


@pytest.fixture
def followed(tmp_path, hurried):
    """A store that grows, and a follower of it."""
    return Followed(tmp_path / "store")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of our own of a hundred entries."""
    make_small(monkeypatch)


@pytest.fixture
def kept(tmp_path, small):
    """A store whose index is lost, and what is kept of its keys."""
    return Kept(tmp_path, 150)
