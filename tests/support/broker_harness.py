"""A server in the test's own event loop, and a client that speaks in raw frames."""

import asyncio
import concurrent.futures
import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from broker.app import build_server
from broker.config import ServeOptions
from broker.endpoint import Endpoint
from broker.net.listeners import bind_listeners, close_listeners
from broker.service.broker_service import BrokerService
from broker.service.consumers.registries import Registries
from broker.service.dispatcher import Dispatcher
from protocol.command import Response, decode_command, encode_request, encode_response
from protocol.frame import FrameDecoder
from storage.queue.queue_holes import QueueHoles

DEADLINE_SECONDS = 60.0
LOOPBACK = Endpoint("127.0.0.1", 0)


@dataclass
class FakeStore:
    """Stands in for a `MessageStore` where a test's processors never look at it."""

    identity: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(cluster="DefaultCluster", broker_name="broker-a")
    )
    config: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(subscription_groups={}))
    snapshot: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(
            commit_log=SimpleNamespace(segments=()),
            layout=SimpleNamespace(root=Path("/store"), commit_log_directories=()),
        )
    )
    problems: tuple[str, ...] = ()
    queue_holes: QueueHoles = field(default_factory=QueueHoles)
    refreshed: int = 0

    def queue_searches(self) -> tuple[list[str], int]:
        return self.queue_holes.searches()

    def _nothing(self, *_: object) -> None:
        """No file is ever cut, nothing in it is ever held, and nothing comes to it."""

    cut = after_refresh = poll = _nothing

    def refresh(self) -> None:
        self.refreshed += 1

    def follower(self) -> "FakeStore":
        return self

    def rest(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def watch(self) -> bool:
        return False

    def finish_scan(self, should_stop) -> None:
        assert not should_stop()


def service_of(store, make_clients=None, meter=None, **options):
    listen = options.pop("listen", (LOOPBACK,))
    checked = ServeOptions(Path("/store"), listen=listen, **options).check()
    return BrokerService.of(store, checked, Registries.of(store, checked, make_clients), meter=meter)


@contextlib.asynccontextmanager
async def serving(service, processors=None):
    listeners = bind_listeners(service.options.listen, vip=service.options.vip)
    body_limit = service.options.limits.body_bytes
    dispatcher = None if processors is None else Dispatcher(processors, body_limit=body_limit)
    server = build_server(service, listeners, dispatcher)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        close_listeners(listeners)


class RawClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._read = []
        self.pushed = []
        self._opaque = 0

    def send(self, code, fields=None, **options):
        self._opaque += 1
        self.writer.write(encode_request(code, fields, opaque=self._opaque, **options))
        return self._opaque

    async def ask(self, code, fields=None, **options):
        opaque = self.send(code, fields, **options)
        answer = await self.answer()
        assert answer.opaque == opaque
        return answer

    async def answer(self):
        """The next response, in the order of their arrival; `EOFError` when the server closed instead."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not self._read:
                await self._receive()
        return self._read.pop(0)

    async def push(self):
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not self.pushed:
                await self._receive()
        return self.pushed.pop(0)

    def reply(self, call, body=b"", **members) -> None:
        self.writer.write(encode_response(call, Response(body=body, **members)) + body)

    async def _receive(self) -> None:
        data = await self.reader.read(65536)
        if not data:
            raise EOFError
        for command in map(decode_command, self._decoder.feed(data)):
            (self._read if command.is_response else self.pushed).append(command)

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def is_closed_by_the_server(self) -> bool:
        """Whether the server closes the connection without a further answer, waiting for it."""
        try:
            await self.answer()
        except (EOFError, ConnectionResetError):
            return True
        return False


@contextlib.asynccontextmanager
async def connected(endpoint, tls=None):
    named = {} if tls is None else {"ssl": tls, "server_hostname": "localhost"}
    reader, writer = await asyncio.open_connection(*endpoint, **named)  # type: ignore[arg-type]
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def until(condition) -> None:
    """Let the loop run until a condition holds, at most `DEADLINE_SECONDS`."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110 - a state of another object, which has no event to wait for
            await asyncio.sleep(0.001)


@contextlib.contextmanager
def in_a_thread(opened):
    started = concurrent.futures.Future()
    stop = threading.Event()

    async def serve() -> None:
        try:
            async with opened() as found:
                started.set_result(found)
                await asyncio.to_thread(stop.wait)
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield started.result(DEADLINE_SECONDS)
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def serving_in_a_thread(service, processors=None):
    with in_a_thread(lambda: serving(service, processors)) as server:
        yield server.addresses[0]
