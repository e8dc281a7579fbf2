"""A client that ends its side right after its last request is answered, whichever worker it came to."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.workers.member import OWNED_CODES
from heartbeats import consumer, heartbeat, subscription
from process import Serving, owner_of, serving_process
from protocol.codes import RequestCode
from protocol.command import Command, Response, decode_command, encode_request, encode_response
from protocol.frame import FrameDecoder

SECONDS = 30.0
GROUP = "Halves"
FIELDS = {
    "consumerGroup": GROUP,
    "producerGroup": GROUP,
    "group": GROUP,
    "clientID": "client",
    "clientId": "client",
    "topic": "TopicTest",
    "queueId": "0",
    "commitOffset": "1",
    "isOrder": "false",
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": "TopicTest",
}
BODIES = {
    RequestCode.HEART_BEAT: heartbeat("client", consumer(GROUP, subscription("TopicTest", "*"))),
    RequestCode.LOCK_BATCH_MQ: json.dumps({"consumerGroup": GROUP, "clientId": "client", "mqSet": []}).encode(),
    RequestCode.UNLOCK_BATCH_MQ: json.dumps({"consumerGroup": GROUP, "clientId": "client", "mqSet": []}).encode(),
    RequestCode.QUERY_ASSIGNMENT: json.dumps(
        {"consumerGroup": GROUP, "clientId": "client", "topic": "TopicTest", "strategyName": "AVG"}
    ).encode(),
}
HOT_0 = "7F00000100002A9F00000000000019B5"
"""A message of the store, as mqadmin names it."""

LOCAL = (RequestCode.GET_MAX_OFFSET, RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_ALL_TOPIC_CONFIG)
"""Codes that each worker answers by itself, between the others."""


@pytest.fixture(scope="module", params=["uvloop", pytest.param("asyncio", marks=pytest.mark.soak)])
def server(
    request: pytest.FixtureRequest, g1_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("halves")
    options = ["--workers", "2", "--loop", request.param, "--state-dir", str(folder / "state")]
    with serving_process(g1_store, folder, *options) as running:
        yield running


@pytest.fixture
def connect(server: Serving) -> Iterator[Callable[[], dict[int, socket.socket]]]:
    """Opens connections until each worker has one; by worker."""
    with ExitStack() as stack:

        def connect_to_all() -> dict[int, socket.socket]:
            found: dict[int, socket.socket] = {}
            while len(found) < 2:
                opened = stack.enter_context(closing(socket.create_connection(server.endpoints[0], SECONDS)))
                assert ask(opened, [(RequestCode.GET_MAX_OFFSET, FIELDS)], is_last=False)
                found.setdefault(owner_of(server.endpoints[0].port, opened.getsockname()[1]), opened)
            assert set(found) == set(server.workers)
            return found

        yield connect_to_all


def receive(connection: socket.socket, decoder: FrameDecoder) -> list[Command]:
    """What comes next; raises where nothing does."""
    data = connection.recv(1 << 20)
    assert data, "closed without an answer"
    return [decode_command(frame) for frame in decoder.feed(data)]


def ask(
    connection: socket.socket, requests: Sequence[tuple[int, Mapping[str, str]]], *, is_last: bool = True
) -> dict[int, int]:
    """Send requests, with `is_last` the end of the stream right behind them; the codes of the answers by opaque."""
    connection.sendall(
        b"".join(
            encode_request(code, fields, opaque=opaque, body=BODIES.get(RequestCode(code), b""))
            for opaque, (code, fields) in enumerate(requests)
        )
    )
    if is_last:
        connection.shutdown(socket.SHUT_WR)
    answers: dict[int, int] = {}
    decoder = FrameDecoder()
    while len(answers) < len(requests):
        answers |= {each.opaque: each.code for each in receive(connection, decoder) if each.is_response}
    if is_last:
        while connection.recv(1 << 16):
            pass
    return answers


@settings(max_examples=12, deadline=None)
@given(
    requests=st.lists(
        st.tuples(st.sampled_from([*sorted(OWNED_CODES), *LOCAL]), st.sampled_from([FIELDS, {}])),
        min_size=1,
        max_size=60,
    )
)
def test_requests_in_any_order_are_all_answered_though_the_client_has_ended(
    requests: list[tuple[int, dict[str, str]]], server: Serving
) -> None:
    with ExitStack() as stack:
        for _ in range(4):  # of which hardly all come to one worker
            opened = stack.enter_context(closing(socket.create_connection(server.endpoints[0], SECONDS)))
            assert set(ask(opened, requests)) == set(range(len(requests)))


@pytest.mark.parametrize("code", [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY])
def test_the_answer_of_another_client_still_comes(
    code: RequestCode, connect: Callable[[], dict[int, socket.socket]]
) -> None:
    for turn in (1, -1):
        (_, asking), (_, member) = sorted(connect().items())[::turn]
        decoder = FrameDecoder()
        member.sendall(encode_request(RequestCode.HEART_BEAT, {}, opaque=1, body=BODIES[RequestCode.HEART_BEAT]))
        wait_for(member, decoder, lambda each: each.is_response)
        asking.sendall(encode_request(code, {**FIELDS, "msgId": HOT_0}, opaque=7))
        asking.shutdown(socket.SHUT_WR)
        call = wait_for(member, decoder, lambda each: each.code == code)
        member.sendall(encode_response(call, Response(body=b"{}")) + b"{}")
        answer = wait_for(asking, FrameDecoder(), lambda each: each.is_response)
        assert (answer.opaque, answer.code, bytes(answer.body)) == (7, 0, b"{}")
        member.close()


def wait_for(connection: socket.socket, decoder: FrameDecoder, is_meant: Callable[[Command], bool]) -> Command:
    """The first frame of a kind that comes."""
    while True:
        for each in receive(connection, decoder):
            if is_meant(each):
                return each
