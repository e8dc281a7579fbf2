"""The processes that the local engine's tasks run in: one that forks the others, and these.

The first is started with its socket as stdin, imports what tasks need, once, and has no thread, so that it can be
forked at any time. It is sent a descriptor for each process that it is to fork, and answers with its number; or a
number, and answers how that process ended. At the end of the socket, also where the other side was killed, it ends
them all.

A forked process gets tasks by the socket of that descriptor, one at a time, and answers each.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from multiprocessing.connection import Connection
from struct import Struct
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn

from protocol.errors import ConfigError, RocketLensError, is_out_of_room
from spark_jobs.run._spark_calls import sentence_of

NUMBER: Final = Struct(">i")
"""A process id, an exit code, or minus an error number where nothing could be forked."""

STOP_SECONDS: Final = 2.0
"""How long a task that is to stop may take to remove what it has written; then it is killed."""

STOPPED: Final = 128 + signal.SIGTERM
_LOOK_AGAIN_SECONDS: Final = 0.002
_PR_SET_PDEATHSIG: Final = 1

SHARED: Final[dict[int, Any]] = {}
"""Values that this process was sent, by their numbers."""


class Order(NamedTuple):
    """A task for a process: pickled with its function. `shared` is what it does not have yet, `kept` what it needs."""

    task: bytes
    shared: dict[int, bytes]
    kept: frozenset[int]


class TaskOutcome(NamedTuple):
    """The outcome of a task: its pickled result, the sentence of an expected error, or a traceback.

    `is_usage`: the error is a ConfigError.
    """

    result: bytes | None = None
    sentence: str = ""
    is_out_of_room: bool = False
    is_usage: bool = False
    crash: str = ""


def main() -> None:
    """Fork processes as the other end of stdin asks; arguments are modules to import before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the one who holds it
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    for name in sys.argv[1:]:
        with contextlib.suppress(ImportError):  # a task that needs it says so
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that a collection in a forked process copies no pages: 1.1 MB of its own, 11.6 without this
    running: set[int] = set()
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, NUMBER.size, 1)
        if not data:
            break
        if descriptors:
            number = _fork(control, descriptors[0])
            running.update({number} if number > 0 else ())
        else:
            (asked,) = NUMBER.unpack(data)
            number = os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1])
            running.discard(asked)
        try:
            control.send(NUMBER.pack(number))
        except OSError:
            break
    _end(running)


def _fork(control: socket.socket, descriptor: int) -> int:
    """Fork a process that does tasks; its number, or minus an error number."""
    try:
        number = os.fork()
    except OSError as error:
        number = -(error.errno or 1)
    if number == 0:
        control.close()
        _work(Connection(descriptor))
    os.close(descriptor)
    return number


def _end(running: set[int]) -> None:
    """Have tasks stop and remove what they have written; kill those that do not."""
    for number in running:
        os.kill(number, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while running:
        for number in list(running):
            if os.waitpid(number, os.WNOHANG)[0]:
                running.discard(number)
        if time.monotonic() > deadline:
            for number in running:
                os.kill(number, signal.SIGKILL)
        elif running:
            time.sleep(_LOOK_AGAIN_SECONDS)


def _work(orders: Connection) -> NoReturn:
    """Do tasks until there are no more."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody else would end it
    signal.signal(signal.SIGTERM, _stop)
    code = 0
    try:
        while True:
            orders.send(_answer(orders.recv()))
    except (EOFError, OSError):  # there are no more, or nobody waits for the answer
        pass
    except SystemExit:
        code = STOPPED
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    """Break the task off, which removes what it has written."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(STOPPED)


def _answer(order: Order) -> TaskOutcome:
    for number in SHARED.keys() - order.kept:
        del SHARED[number]
    try:
        SHARED.update({number: pickle.loads(value) for number, value in order.shared.items()})
        function, task = pickle.loads(order.task)
        return TaskOutcome(result=pickle.dumps(function(task), pickle.HIGHEST_PROTOCOL))
    except ConfigError as error:
        return TaskOutcome(sentence=str(error), is_usage=True)
    except (RocketLensError, OSError) as error:
        return TaskOutcome(sentence=sentence_of(error), is_out_of_room=is_out_of_room(error))
    except MemoryError:
        return TaskOutcome(sentence="the machine has too little memory for the task")
    except Exception:
        return TaskOutcome(crash=traceback.format_exc())


def find_shared(number: int) -> "Found":
    """What a shared value is for a task."""
    return Found(number)


class Found(NamedTuple):
    """A value that this process was sent."""

    number: int

    @property
    def value(self) -> Any:
        """The value."""
        return SHARED[self.number]
