"""Asks the request families of a served store directly: through the dispatcher, without a socket or an event loop."""

from dataclasses import dataclass, field

from broker.endpoint import Endpoint
from broker.service.dispatcher import Dispatcher
from broker.service.request_families import build_processors
from broker_harness import service_of
from golden_frames import value_of
from protocol.command import Command, Response, decode_command, encode_request
from protocol.frame import FrameDecoder
from storage.files.waiting import Unfinished
from storage.store.message_store import MessageStore

BROKER = Endpoint("127.0.0.1", 10911)
CLIENT = Endpoint("127.0.0.1", 40001)


@dataclass(eq=False)
class FakeConnection:
    local_address: Endpoint = BROKER
    peer_address: Endpoint = CLIENT
    is_open: bool = True
    pushed: list[bytes] = field(default_factory=list)

    def push(self, frame: bytes) -> None:
        self.pushed.append(frame)


class Asker:
    def __init__(self, root, **options) -> None:
        self.store = MessageStore.open(root)
        self.service = service_of(self.store, **options)
        self.connection = FakeConnection()
        self.serve_with()

    def serve_with(self, brokers=None, learn=None) -> None:
        """Answer from now on beside other brokers of the process, or have somebody take notice of pulls."""
        self._dispatcher = Dispatcher(build_processors(self.service, brokers, learn))

    def ask(self, code, fields=None, body=b"", connection=None, *, oneway=False):
        step = self.step(code, fields, body, connection, oneway=oneway)
        try:
            answer = step.finish() if isinstance(step, Unfinished) else step
        except Exception as error:
            answer = self._dispatcher.failure(Command(code=code), error)
        assert isinstance(answer, Response)
        return answer

    def step(self, code, fields=None, body=b"", connection=None, *, oneway=False):
        (frame,) = FrameDecoder().feed(encode_request(code, fields or {}, opaque=1, body=body, oneway=oneway))
        return self._dispatcher.dispatch(decode_command(frame), connection or self.connection)

    def value(self, code, fields=None, body=b""):
        answer = self.ask(code, fields, body)
        assert answer.code == 0, answer.remark
        assert answer.body, "no client survives a success without a body where one is expected"
        return value_of(bytes(answer.body))


def queue_key(topic: str, queue_id: int, broker_name: str = "broker-a") -> str:
    return f'{{"brokerName": "{broker_name}", "queueId": {queue_id}, "topic": "{topic}"}}'
