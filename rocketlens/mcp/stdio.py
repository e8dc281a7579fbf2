"""MCP over stdin and stdout, as an assistant starts it: one message a line, and nothing else on stdout.

The thread that reads answers what needs no store; calls of tools run on threads of their own, and write their answers
in whatever order they come. What an assistant cancels is stopped, and not answered.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import BinaryIO, Final, NamedTuple, TypeVar

import msgspec

from broker.service.kept_work import KeptWorks
from protocol.errors import ConfigError, RocketLensError
from rocketlens.mcp.rpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    LONGEST_REQUEST,
    JsonObject,
    RpcError,
    RpcId,
    RpcMessage,
    parse_message,
    result_of,
)
from rocketlens.mcp.server import CANCELLED, McpServer, ToolCall
from rocketlens.mcp.tool_context import StillRunning, ToolContext
from rocketlens.source import Source

logger = logging.getLogger(__name__)

Kept = TypeVar("Kept")

AT_ONCE: Final = 4
"""Calls that are worked on; others wait for these."""

MOST_WAITING: Final = 32
"""Calls that run or wait; further ones are refused."""

LINGER_SECONDS: Final = 12.0
"""How long, once stdin is closed, calls that run may take to end."""

LOOK_SECONDS: Final = 0.1
"""Between two looks at whether work that is kept is done, or is waited for any more."""

KEPT_SECONDS: Final = 120.0
"""How long after its end a work is there for the call that goes on with it."""


class OpenedSources(NamedTuple):
    """What was named on the command line: the whole, and each store of it by name."""

    whole: Source
    named: Mapping[str, Source]


class StdioContext(ToolContext):
    """A call that came in by stdin."""

    def __init__(
        self, sources: OpenedSources, works: KeptWorks[object], send: Callable[[JsonObject], None], token: RpcId | None
    ) -> None:
        super().__init__(token, send)
        self.cancelled = threading.Event()
        self._sources, self._works = sources, works

    @property
    def is_cancelled(self) -> bool:
        """Whether the assistant has cancelled the call, or is gone."""
        return self.cancelled.is_set()

    def source(self, store: str | None) -> Source:
        """What is asked, as it is now."""
        whole, named = self._sources
        if store is None:
            found = whole
        elif store in named:
            found = named[store]
        else:
            raise ConfigError(f"store {store[:200]}: there is none of this name, there are {', '.join(named)}")
        found.refresh()
        return found

    def stores(self) -> list[str]:
        """The names of all stores."""
        return list(self._sources.named)

    def kept(self, key: str, work: Callable[[], Kept], *, goes_on: bool) -> Kept:
        """What some work brings, on a thread that goes on when the time of this call is over."""
        age, started = KEPT_SECONDS if goes_on else 0.0, time.monotonic()
        while True:
            state = self._works.ask(key, lambda _report: work(), age, LOOK_SECONDS)
            if state.problem is not None:
                raise RocketLensError(state.problem)
            if not state.is_running and state.outcome is not None:
                return state.outcome  # type: ignore[return-value]  # the key is that of this work
            age = KEPT_SECONDS
            seconds = time.monotonic() - started
            if self.should_stop():
                raise StillRunning(f"not done after {state.seconds:.0f} s: it goes on, call again with the cursor")
            self.report(seconds, None, f"working for {seconds:.1f} s")


class StdioServer:
    """Serves one assistant until it closes stdin."""

    def __init__(self, server: McpServer, sources: OpenedSources, reading: BinaryIO, writing: BinaryIO) -> None:
        self._server, self._sources, self._reading, self._writing = server, sources, reading, writing
        self._works: KeptWorks[object] = KeptWorks("asked", "the work")
        self._lock = threading.Lock()
        self._running: dict[RpcId, StdioContext] = {}
        self._turn = threading.Semaphore(AT_ONCE)
        self._is_idle = threading.Condition(self._lock)
        self._is_gone = False

    def run(self) -> None:
        """Answer until there is nothing more to read."""
        try:
            while line := self._reading.readline(LONGEST_REQUEST + 1):
                if len(line) > LONGEST_REQUEST and not line.endswith(b"\n"):
                    while (rest := self._reading.readline(LONGEST_REQUEST)) and not rest.endswith(b"\n"):
                        pass
                if line.strip():
                    self._take(line)
        finally:
            self._stop()

    def _stop(self) -> None:
        """Stop what does not end now. A look-up that cannot be interrupted is left to the end of the process."""
        with self._is_idle:
            self._is_idle.wait_for(lambda: not self._running, LINGER_SECONDS)
            for each in self._running.values():
                each.cancelled.set()
        self._works.close()

    def _take(self, line: bytes) -> None:
        message: RpcMessage | None = None
        try:
            message = parse_message(line)
            if message is None:
                return
            if message.id is None:
                self._note(message)
                return
            answer = self._server.answer(message)
            if isinstance(answer, ToolCall):
                self._begin(message, message.id, answer)
            else:
                self._send(result_of(message.id, answer))
        except RpcError as error:
            self._send(error.answer(None if message is None else message.id))

    def _note(self, message: RpcMessage) -> None:
        """Take a notification; those that are unknown, or too late, are nothing."""
        wanted = message.params.get("requestId")
        if message.method == CANCELLED and isinstance(wanted, int | str):
            with self._lock:
                context = self._running.get(wanted)
            if context is not None:
                context.cancelled.set()

    def _begin(self, message: RpcMessage, request_id: RpcId, call: ToolCall) -> None:
        context = StdioContext(self._sources, self._works, self._send, message.progress_token)
        with self._lock:
            if request_id in self._running:
                raise RpcError(INVALID_REQUEST, "a request with this id is not answered yet")
            if len(self._running) >= MOST_WAITING:
                raise RpcError(INTERNAL_ERROR, f"{MOST_WAITING} calls are under way already: ask again in a moment")
            self._running[request_id] = context
        threading.Thread(target=self._work, args=(message, request_id, call, context), name="tool", daemon=True).start()

    def _work(self, message: RpcMessage, request_id: RpcId, call: ToolCall, context: StdioContext) -> None:
        try:
            with self._turn:
                answer = result_of(request_id, self._server.complete(message, call.run(context)))
        except RpcError as error:
            answer = error.answer(request_id)
        except Exception:
            logger.exception("%s failed", call.name)
            answer = RpcError(INTERNAL_ERROR, "this failed; stderr has the reason").answer(request_id)
        if not context.is_cancelled:
            self._send(answer)
        with self._is_idle:
            del self._running[request_id]
            self._is_idle.notify_all()

    def _send(self, message: JsonObject) -> None:
        """Write one message; nothing any more where nobody reads."""
        line = msgspec.json.encode(message) + b"\n"
        with self._lock:
            if self._is_gone:
                return
            try:
                self._writing.write(line)
                self._writing.flush()
            except (BrokenPipeError, ValueError):
                self._is_gone = True
