"""A consumer that is connected to a broker's port, and answers what it is asked."""

import contextlib
import socket
import threading

from protocol.codes import RequestCode
from protocol.command import Response, decode_command, encode_request, encode_response
from protocol.frame import FrameDecoder

RUNNING = b"""{"jstack":"main RUNNABLE","properties":{"PROP_THREADPOOL_CORE_SIZE":"20"},
"mqTable":{"no queue":{"commitOffset":1},"[1]":{"commitOffset":2},
{"brokerName":"broker-a","queueId":1,"topic":"orders"}:{"commitOffset":7,"cachedMsgCount":3,"droped":false,
"locked":true,"lastPullTimestamp":99}},"statusTable":{"orders":{"consumeFailedMsgs":2,"consumeRT":1.5,"pullTPS":3.0}},
"subscriptionSet":[{"topic":"orders","subString":"t0","expressionType":"TAG"}]}"""


class ConnectedConsumer:
    def __init__(self, address, body) -> None:
        self.socket = socket.create_connection(address, 60)
        self.decoder = FrameDecoder()
        self.asked = []
        self.answers = []
        self._got = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self.ask(RequestCode.HEART_BEAT, {}, body)

    def ask(self, code, fields, body=b""):
        with self._got:
            count = len(self.answers)
            self.socket.sendall(encode_request(code, fields, opaque=count + 1, body=body))
            assert self._got.wait_for(lambda: len(self.answers) > count, 60)
            return self.answers[-1]

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.socket.recv(1 << 16):
                for frame in self.decoder.feed(data):
                    command = decode_command(frame)
                    if command.is_response:
                        with self._got:
                            self.answers.append(command)
                            self._got.notify_all()
                    elif command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
                        self.asked.append(command)
                        self.socket.sendall(encode_response(command, Response(body=RUNNING)) + RUNNING)

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._thread.join(60)
