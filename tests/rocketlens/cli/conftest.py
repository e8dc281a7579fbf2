"""What many tests of commands ask."""

from pathlib import Path

import pytest

from broker.endpoint import Endpoint


@pytest.fixture(scope="module", params=["store", "server"])
def where(request: pytest.FixtureRequest, g1_store: Path, server: Endpoint) -> tuple[object, ...]:
    """The arguments that name the recorded store g1 in two ways."""
    return (g1_store,) if request.param == "store" else ("--server", server)
