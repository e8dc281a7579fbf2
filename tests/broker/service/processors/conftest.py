"""The recorded store g1, asked as by its clients."""

from pathlib import Path

import pytest

from asking import Asker


@pytest.fixture
def g1(g1_store: Path) -> Asker:
    return Asker(g1_store)
