"""Senders: addresses, networks and names of hosts, as records and as proxies name them."""

import pytest

from message_encoding import encode_message
from protocol.born_host import BornHost, sender_behind_proxy
from protocol.errors import ConfigError
from protocol.host_address import HostAddress
from protocol.message import decode_message


def test_a_born_host_is_an_address_one_with_a_port_or_a_network() -> None:
    for text, inside, outside in [
        ("10.1.2.3", ("10.1.2.3", 5), ("10.1.2.4", 5)),
        ("10.1.2.3:5", ("10.1.2.3", 5), ("10.1.2.3", 6)),
        ("10.1.0.0/16", ("10.1.9.9", 5), ("10.2.0.0", 5)),
        ("10.1.2.3/16", ("10.1.9.9", 5), ("::1", 5)),
        ("::1", ("::1", 5), ("::2", 5)),
        ("[::1]:5", ("::1", 5), ("::1", 6)),
        ("[::1]", ("::1", 6), ("::2", 6)),
        ("2001:db8::/32", ("2001:db8::9", 1), ("2001:db9::", 1)),
    ]:
        host = BornHost.parse(text)
        assert host.holds_address(HostAddress(*inside))
        assert not host.holds_address(HostAddress(*outside))


def test_other_texts_are_no_born_host() -> None:
    names = ("", "[host]", "host:", "host:x", "-host", "a b", "ho/st")
    for text in (*names, "10.0.0.1/33", "1.2.3.4.5", "10.1.2.3:", "10.1.2.3:70000", "10.1.2.3:x", "[::1]:", "10.1.2"):
        with pytest.raises(ConfigError):
            BornHost.parse(text)


# As a proxy 5.5.0 writes it: what the client says, which official Java clients make their host name, else its address.
def test_a_message_from_behind_a_proxy_is_from_the_host_that_the_proxy_names() -> None:
    for named, inside, outside in [
        (
            "10.1.1.1:5000",
            ["10.1.1.1", "10.1.0.0/16", "10.1.1.1:5000", "0.0.0.0/0"],
            ["10.1.1.1:5", "10.1.1.2", "::/0"],
        ),
        ("10.1.1.1", ["10.1.1.1"], ["10.1.1.1:5000"]),
        ("[2001:db8::1]:5000", ["2001:db8::1", "2001:db8::/32", "[2001:db8::1]:5000"], ["2001:db8::2", "0.0.0.0/0"]),
        ("2001:db8::1", ["2001:db8:0::1"], ["[2001:db8::1]:1"]),
        ("App-host-7", ["app-host-7", "APP-HOST-7"], ["app-host-70", "app-host", "app-host-7:1"]),
        ("app-host-7:1", ["app-host-7:1", "app-host-7"], ["app-host-7:2"]),
        ("10.1.0.0/16", [], ["10.1.0.0/16", "10.1.0.0"]),
        ("***", [], ["0.0.0.0/0"]),
    ]:
        record = encode_message(topic="T", properties={"__BORNHOST": named}, born_host=HostAddress("10.0.0.9", 8081))
        message = decode_message(record)
        for text in inside:
            assert BornHost.parse(text).holds(message), text
            assert BornHost.parse(text).holds_sender(message), text
        for text in outside:
            assert not BornHost.parse(text).holds_sender(message), text
        proxy = BornHost.parse("10.0.0.9")
        assert proxy.holds(message)
        assert proxy.is_proxy_of(message) is (sender_behind_proxy(named) is not None)
