"""What many tests of commands ask."""

import pytest


@pytest.fixture(scope="module", params=["store", "server"])
def where(request, g1_store, server) -> tuple[object, ...]:
    return (g1_store,) if request.param == "store" else ("--server", server)
