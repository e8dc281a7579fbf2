"""Fixtures of the interop tests: a JVM for each client version and header form, started when first asked for."""

from collections.abc import Callable, Iterator

import pytest

from interop.java_client import JavaClient

Java = Callable[..., JavaClient]


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """``java(version, form, *properties)``: the client of that version that writes headers in that form.

    One for all tests, and one more for those that give it the same system properties.
    """
    started: dict[tuple[str, ...], JavaClient] = {}

    def client(version: str, form: str, *properties: str) -> JavaClient:
        key = (version, form, *properties)
        if key not in started:
            started[key] = JavaClient(version, form, tmp_path_factory.mktemp(f"java-{version}-{form}"), *properties)
        return started[key]

    yield client
    for running in started.values():
        running.close()
