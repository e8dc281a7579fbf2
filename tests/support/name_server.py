"""A name server for tests, which notes its requests; the official one is in tests/interop."""

import asyncio
import contextlib
import threading

from broker.endpoint import Endpoint
from broker.service.dispatcher import handles
from protocol.bodies import BrokerData, ClusterInfo, TopicList, TopicRouteData, encode_json
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, decode_command, encode_response, ext_fields_of
from protocol.frame import FrameDecoder
from protocol.headers import EmptyRequestHeader, GetRouteInfoRequestHeader

NOBODY = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


class NameServer:
    def __init__(self) -> None:
        self.cluster = NOBODY
        self.register_code = ResponseCode.SUCCESS
        self.heard: list[tuple[int, dict[str, str], bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> Endpoint:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return Endpoint.of_socket(self._server.sockets[0].getsockname())

    def close(self) -> None:
        self._server.close()
        for writer in self.writers:
            writer.transport.abort()

    def received(self, code: int) -> list[tuple[dict[str, str], bytes]]:
        return [(fields, body) for heard, fields, body in self.heard if heard == code]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        self.writers.append(writer)
        while data := await reader.read(65536):
            for frame in decoder.feed(data):
                command = decode_command(frame)
                self.heard.append((command.code, ext_fields_of(command), bytes(command.body)))
                answer = self._answer(command)
                writer.write(encode_response(command, answer) + bytes(answer.body))

    def _answer(self, command):
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return Response(body=self.cluster)
        if command.code == RequestCode.REGISTER_BROKER:
            return Response(self.register_code, "register broker failed")
        return Response()


@contextlib.contextmanager
def name_server_in_a_thread():
    """One that goes on while the test waits for a process."""
    loop, name_server = asyncio.new_event_loop(), NameServer()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield name_server, asyncio.run_coroutine_threadsafe(name_server.start(), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(_end(name_server), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(name_server: NameServer) -> None:
    name_server.close()
    conversations = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*conversations, return_exceptions=True)


class NamedBrokers:
    def __init__(self, topics=(), **brokers) -> None:
        data = {name: BrokerData("c", name, {"0": str(endpoint)}) for name, endpoint in brokers.items()}
        self._route = encode_json(TopicRouteData(broker_datas=list(data.values())))
        self._cluster = encode_json(ClusterInfo(broker_addr_table=data, cluster_addr_table={"c": list(data)}))
        self._topics = encode_json(TopicList(list(topics)))

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader)
    def route(self, _header: GetRouteInfoRequestHeader) -> Response:
        return Response(body=self._route)

    @handles(RequestCode.GET_BROKER_CLUSTER_INFO, EmptyRequestHeader)
    def brokers(self, _header: EmptyRequestHeader) -> Response:
        return Response(body=self._cluster)

    @handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, EmptyRequestHeader)
    def topics(self, _header: EmptyRequestHeader) -> Response:
        return Response(body=self._topics)
