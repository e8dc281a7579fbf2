"""Fixtures of the interop tests: a JVM for each client version and header form, started when first asked for."""

from collections.abc import Iterator

import pytest

from interop.java_client import JavaClient


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
