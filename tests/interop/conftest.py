"""Fixtures of the interop tests: a JVM for each client version and header form, started when first asked for."""

from collections.abc import Callable, Iterator

import pytest

from interop.java_client import JavaClient

Java = Callable[[str, str], JavaClient]


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """``java(version, form)``: the client of that version that writes headers in that form, one for all tests."""
    started: dict[tuple[str, str], JavaClient] = {}

    def client(version: str, form: str) -> JavaClient:
        if (version, form) not in started:
            work = tmp_path_factory.mktemp(f"java-{version}-{form}")
            started[version, form] = JavaClient(version, form, work)
        return started[version, form]

    yield client
    for running in started.values():
        running.close()
