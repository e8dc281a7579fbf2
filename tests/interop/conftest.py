"""Fixtures of the interop tests: JVMs that are started when first asked for, and stores that these are to load."""

from collections.abc import Iterator

import pytest

from interop.jars import SERVER_VERSION
from interop.java_client import JavaClient
from interop.recovery_oracle import SHAPES_BY, RecoveryOracle, recovery_oracle
from trial_stores import SHAPES, GoodStore, old


class Java:
    """``java(version, form, *properties)``: the client of that version that writes headers in that form.

    One for all tests, and one more for those that give it the same system properties.
    """

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        """Starts nothing; JVMs get directories from ``factory``."""
        self._factory = factory
        self._started: dict[tuple[str, ...], JavaClient] = {}

    def __call__(self, version: str, form: str, *properties: str) -> JavaClient:
        key = (version, form, *properties)
        if key not in self._started:
            self._started[key] = JavaClient(version, form, self._factory.mktemp(f"java-{version}-{form}"), *properties)
        return self._started[key]

    def disconnect(self, name_server: str) -> None:
        """Ends what all clients have started with this name server."""
        for running in self._started.values():
            running.disconnect(name_server)

    def close(self) -> None:
        """Ends all JVMs."""
        for running in self._started.values():
            running.close()


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """The clients of all tests."""
    clients = Java(tmp_path_factory)
    yield clients
    clients.close()


@pytest.fixture(
    scope="session",
    params=[pytest.param(each, marks=[] if each == SERVER_VERSION else pytest.mark.soak) for each in SHAPES_BY],
)
def version(request: pytest.FixtureRequest) -> str:
    """Each version whose store classes judge; in each run one of them."""
    return str(request.param)


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory, version: str) -> Iterator[RecoveryOracle]:
    """The store classes of a version, for all tests."""
    with recovery_oracle(tmp_path_factory.mktemp("oracle"), version) as running:
        yield running


@pytest.fixture(scope="session")
def goods(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GoodStore]:
    """An undamaged store of each shape."""
    folder = tmp_path_factory.mktemp("good")
    shapes = SHAPES | {"old": old}
    return {name: shapes[name](folder / name) for names in SHAPES_BY.values() for name in names}
