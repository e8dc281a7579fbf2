"""Our own client, against our server and against servers that misbehave."""

import asyncio

import pytest

from broker.cluster.client import Client, ClientError
from broker.endpoint import Endpoint
from broker.service.dispatcher import handles
from broker_harness import FakeStore, service_of, serving
from frame_garbage import encode_frame_prefix
from protocol.codes import RequestCode
from protocol.command import Response
from protocol.headers import GetRouteInfoRequestHeader


class Routed:
    def __init__(self, route: bytes) -> None:
        self._route = route

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader)
    def route_info(self, header: GetRouteInfoRequestHeader) -> Response:
        return Response(body=self._route)


async def test_a_route_that_is_none_is_an_error_that_names_the_server() -> None:
    wrong = b'{"brokerDatas":[{"brokerAddrs":{"0":"x"},"brokerName":"a","cluster":"c"}]}'
    for route in (b"", b"[]", b"{", b'{"brokerDatas":5}', wrong):
        async with serving(service_of(FakeStore()), [Routed(route)]) as server, Client() as client:
            with pytest.raises(ClientError, match=f"{server.addresses[0]} answered "):
                await client.brokers_of(server.addresses[0], "T")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (None, r"did not answer within 0\.5 s"),
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the remoting protocol: an answer by HTTP"),
        (encode_frame_prefix(0, 2, 0) + b"[]", "does not speak the remoting protocol"),
        (b"\x7f\xff\xff\xff" + bytes(60), "does not speak the remoting protocol"),
        (b"\0\0\0\x01" + bytes(4), "does not speak the remoting protocol"),
        (
            encode_frame_prefix(0, 64, 0) + b'{"code":0,"flag":1,"opaque":0,"language":1180591620717411303424}',
            "does not speak the remoting protocol",
        ),
    ],
)
async def test_a_server_that_says_nothing_or_something_else_is_an_error_that_says_so(said, reason) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        if said is None:
            await reader.read()
        else:
            writer.write(said)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    endpoint = Endpoint.of_socket(server.sockets[0].getsockname())
    async with server, Client(timeout_seconds=0.5 if said is None else 60) as client:
        with pytest.raises(ClientError, match=f"{endpoint} {reason}"):
            await client.view(endpoint, 0)
