"""What the tests of following a store begin with."""

from pathlib import Path

import pytest

from followed_store import Followed, hurry


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for that only time brings."""
    hurry(monkeypatch)


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    """A store that grows, and a follower of it."""
    return Followed(tmp_path / "store")
