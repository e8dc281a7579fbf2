"""What the tests of following a store, and of keys that become files, begin with."""

import pytest

from growing_store import Followed, hurry
from kept_store import make_small


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def followed(tmp_path, hurried):
    return Followed(tmp_path / "store")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
