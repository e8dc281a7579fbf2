"""Sockets bound before anything else happens."""

import socket

import pytest

from benchmarks.server_process import free_port
from broker.config import CannotListen
from broker.endpoint import Endpoint
from broker.net.listeners import bind_for_workers, bind_listeners, close_listeners, listen

LOOPBACK = Endpoint("127.0.0.1", 0)


def test_a_port_that_somebody_listens_on_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        endpoint = Endpoint.of_socket(other.getsockname())
        with pytest.raises(CannotListen) as caught:
            bind_listeners([endpoint])
    assert str(caught.value) == f"cannot listen on {endpoint}: another process listens there"


def test_a_port_on_which_another_server_shares_connections_is_refused_to_workers() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
        endpoint = Endpoint.of_socket(other.getsockname())
        with pytest.raises(CannotListen, match="another process listens"):
            bind_for_workers([endpoint], vip=False, count=2)


def test_the_port_of_a_server_that_closed_connections_is_had_again_at_once() -> None:
    (listener,) = bind_listeners([LOOPBACK])
    endpoint = listener.endpoint
    listen(listener)
    with socket.create_connection(endpoint) as client:
        accepted, _ = listener.socket.accept()
        accepted.close()
        close_listeners([listener])
        assert client.recv(1) == b""
    close_listeners(bind_listeners([endpoint]))


def test_port_0_takes_a_free_port_which_accepts_nothing_before_the_server_starts() -> None:
    listeners = bind_listeners([LOOPBACK, LOOPBACK])
    ports = {listener.endpoint.port for listener in listeners}
    assert (len(ports), 0 in ports) == (2, False)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(listeners[0].endpoint)
    close_listeners(listeners)


def test_a_vip_listener_lies_two_ports_below_each() -> None:
    listeners = bind_listeners([LOOPBACK, Endpoint("::1", 0)], vip=True)
    mains, vips = listeners[:2], listeners[2:]
    assert [listener.port_distance for listener in listeners] == [0, 0, 2, 2]
    assert [listener.endpoint.port + 2 for listener in vips] == [listener.endpoint.port for listener in mains]
    assert [listener.endpoint.host for listener in vips] == ["127.0.0.1", "::1"]
    close_listeners(listeners)


def test_a_taken_vip_port_is_refused_and_nothing_stays_bound() -> None:
    port = free_port((-2,))
    with socket.create_server(("127.0.0.1", port - 2)) as other:
        taken = Endpoint.of_socket(other.getsockname())
        main = taken._replace(port=port)
        with pytest.raises(CannotListen, match=f":{taken.port}: another process"):
            bind_listeners([main], vip=True)
    close_listeners(bind_listeners([main]))


def test_the_addresses_before_a_refused_one_are_given_back() -> None:
    endpoint = Endpoint("127.0.0.1", free_port())
    with pytest.raises(CannotListen, match="Cannot assign requested address"):
        bind_listeners([endpoint, Endpoint("192.0.2.1", 0)])
    close_listeners(bind_listeners([endpoint]))


def test_an_ipv6_listener_does_not_take_the_ipv4_port() -> None:
    port = free_port(host="0.0.0.0")
    (v6,) = bind_listeners([Endpoint("::", port)])
    (v4,) = bind_listeners([Endpoint("0.0.0.0", port)])
    close_listeners([v6, v4])
