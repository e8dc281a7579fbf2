"""The recorded store g1, asked as by its clients."""

import pytest

from asking import Asker


@pytest.fixture
def g1(g1_store) -> Asker:
    return Asker(g1_store)
