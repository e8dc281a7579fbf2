"""Addresses, options and bounds of the server."""

from pathlib import Path

import pytest

from broker.config import ServeOptions
from broker.endpoint import Endpoint
from broker.limits import Limits
from protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected HOST:PORT"),
        ("10911", "expected HOST:PORT"),
        ("localhost", "expected HOST:PORT"),
        ("localhost:-1", "port '-1'"),
        ("localhost:65536", "port '65536'"),
        ("localhost:１", "port"),
        ("::1:10911", "in brackets"),
        ("[::g]:1", "not an IPv6 address"),
        ("a b:1", "not a host"),
        ("a/b:1", "not a host"),
    ],
)
def test_what_is_no_address_is_refused_with_its_reason(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Endpoint.parse(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (("10.0.0.1", 1), ("10.0.0.1", 1)),
        (("::1", 1, 0, 0), ("::1", 1)),
        (("::ffff:10.0.0.1", 1, 0, 0), ("10.0.0.1", 1)),
        (("fe80::1%eth0", 1, 0, 2), ("fe80::1", 1)),
        ("", ("0.0.0.0", 0)),
        (None, ("0.0.0.0", 0)),
    ],
)
def test_a_socket_name_of_any_family_is_an_address(name: object, expected: tuple[str, int]) -> None:
    assert Endpoint.of_socket(name) == expected


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"listen": ()}, "no address"),
        ({"index_slots": 5}, "give both or neither"),
        ({"index_entries": 5}, "give both or neither"),
        ({"index_slots": 0, "index_entries": 5}, "--index-slots 0"),
        ({"index_slots": 5, "index_entries": 2**31}, "--index-entries"),
        ({"frame_limit": 100}, "--frame-limit 100"),
        ({"worker_timeout_seconds": 0.5}, "--worker-timeout 0.5: expected 0, or 1 to 86400 seconds"),
        ({"worker_timeout_seconds": float("nan")}, "--worker-timeout nan"),
        ({"worker_timeout_seconds": float("inf")}, "--worker-timeout inf"),
        ({"advertise": Endpoint("a", 0)}, "port 0"),
        ({"vip": True, "listen": (Endpoint("127.0.0.1", 2),)}, "no port 2 below"),
        ({"state_directory": Path("store/state")}, "inside the store"),
        ({"state_directory": Path("store")}, "inside the store"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServeOptions(Path("store"), **options).check()
    assert says in str(caught.value)


def test_a_host_name_is_resolved_to_an_ip_or_refused() -> None:
    assert Endpoint("localhost", 5).resolved() in {("127.0.0.1", 5), ("::1", 5)}
    with pytest.raises(ConfigError, match="has no IP address"):
        Endpoint("no-such-host.invalid", 5).resolved()


def test_limits_are_changed_by_name() -> None:
    changed = Limits().changed(("connections=5", "header_bytes=4096"))
    assert (changed.connections, changed.header_bytes, changed.ext_fields) == (5, 4096, Limits().ext_fields)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("connections", "expected connections=NUMBER"),
        ("connections=", "expected connections=NUMBER"),
        ("connections=-1", "expected connections=NUMBER"),
        ("connections=1e3", "expected connections=NUMBER"),
        ("connections=0", "expected 1 or more"),
        ("unsent_bytes=5", "expected 1048576 or more"),
        ("received_bytes=999999999999999999999", "expected received_bytes=NUMBER"),
        ("speed=1", "no limit 'speed', only header_bytes"),
        ("", "no limit ''"),
    ],
)
def test_a_limit_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Limits().changed((text,))
    assert says in str(caught.value)
