"""The audit log: a line of JSON for each look at messages, which says who looked, at which messages, and from where.

A look is a request for messages on the broker's port or at the HTTP port, whether it found any or was refused; a pull
that waits in vain is none. The line is written before the answer leaves. Where it cannot be written, on a full disk for
example, the request is refused: an audit log must be complete.

Lines are appended in one piece each, so that several processes may write to one file. A file that was renamed or
removed, as log rotation does, is made anew within a second.
"""

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from broker.metrics.slow_queries import code_name, result_name
from broker.security.answer_rights import RECORD_CODES
from broker.service.dispatcher import ClientConnection
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, ext_fields_of
from protocol.errors import ConfigError, PlantedFile, ProtocolError, RocketLensError
from protocol.message_layout import PHYSICAL_OFFSET_POSITION
from storage.files.own_directories import open_to_append

logger = logging.getLogger(__name__)

LONGEST_TEXT: Final = 1024
"""Characters of one text in a line; longer ones are cut."""

PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)

ASKED: Final[Mapping[int, Sequence[str]]] = {
    RequestCode.VIEW_MESSAGE_BY_ID: ("topic", "offset"),
    RequestCode.QUERY_MESSAGE: ("topic", "key", "indexType", "maxNum", "beginTimestamp", "endTimestamp", "lastKey"),
    **dict.fromkeys(PULLS, ("topic", "consumerGroup", "queueId", "queueOffset", "subscription")),
    RequestCode.QUERY_CONSUME_QUEUE: ("topic", "consumerGroup", "queueId", "index", "count"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ("topic", "consumerGroup", "clientId", "msgId"),
}
"""The requests that look at messages, and the fields of theirs that a line holds."""

Who = Callable[[Command, ClientConnection], str | None]
"""Returns the access key of the account that makes a request, None where no account is needed."""


class AuditError(RocketLensError):
    """A look at messages could not be written down."""


class Look(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One line. `offsets` are the physical offsets of the messages that were shown; `remark` is why none were."""

    time: str
    broker: str
    account: str | None
    client: str
    request: str
    result: str
    asked: Mapping[str, object]
    messages: int
    offsets: Sequence[int] = ()
    remark: str | None = None


class AuditLog:
    """Appends to one file. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it for its owner alone. Raises `ConfigError`."""
        self._path = path
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder().encode
        self._is_failing = False
        try:
            self._descriptor = self._open()
        except OSError as error:
            raise ConfigError(f"--audit-log {path}: {error.strerror}") from error
        except PlantedFile as error:
            raise ConfigError(f"--audit-log {error}") from error

    def write(self, look: Look) -> None:
        """Append one line. Raises `AuditError` where that is not possible."""
        line = self._encode(look) + b"\n"
        try:
            with self._lock:
                written = os.write(self._descriptor, line)
                if written < len(line):  # the disk has become full within the line: remove the part that was written
                    os.write(self._descriptor, b"\n")
                    raise OSError(0, "No space left on device")
        except OSError as error:
            self._failed(error)
            raise AuditError(
                f"the audit log cannot be written ({error.strerror}), and messages are shown only with a line in it"
            ) from error
        if self._is_failing:
            self._is_failing = False
            logger.info("the audit log %s can be written again", self._path)

    def refresh(self) -> None:
        """Go on in a new file where the old one was renamed or removed."""
        with contextlib.suppress(OSError):
            ours, there = os.fstat(self._descriptor), os.stat(self._path)
            if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino):
                return
        try:
            descriptor = self._open()
        except OSError as error:
            self._failed(error)
            return
        except PlantedFile as error:
            self._failed(PermissionError(errno.EPERM, error.what))
            return
        with self._lock:
            old, self._descriptor = self._descriptor, descriptor
        os.close(old)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _open(self) -> int:
        return open_to_append(self._path, 0o600)

    def _failed(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            logger.error("the audit log %s cannot be written: %s; requests for messages are refused", self._path, error)


class AuditedPort:
    """Writes down the looks at messages on one broker's port; `who` gives the account of an admitted request."""

    def __init__(self, audit_log: AuditLog, broker: str, who: Who) -> None:
        self._log, self._broker, self._who = audit_log, broker, who

    def check(self, command: Command, connection: ClientConnection, response: Response) -> Response:
        """The answer itself, once it is written down; a refusal where that fails."""
        names = ASKED.get(command.code)
        if names is None or (command.code in PULLS and not response.body and response.code in WITHOUT_MESSAGES):
            return response
        try:
            fields = ext_fields_of(command)
        except ProtocolError:
            return response  # refused, since its header cannot be read
        has_records = command.code in RECORD_CODES and response.code == ResponseCode.SUCCESS
        offsets = physical_offsets(response.body) if has_records else []
        look = Look(
            now(),
            self._broker,
            None if response.code == ResponseCode.NO_PERMISSION else self._who(command, connection),
            str(connection.peer_address),
            code_name(command.code),
            result_name(response.code),
            {name: cut(fields[name]) for name in names if name in fields},
            len(offsets),
            offsets,
            None if response.remark is None or offsets else cut(response.remark),
        )
        try:
            self._log.write(look)
        except AuditError as error:
            return Response(ResponseCode.SYSTEM_BUSY, str(error))
        return response


WITHOUT_MESSAGES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.SYSTEM_BUSY,
    }
)
"""How pulls end that show no message; they are made again and again."""


def physical_offsets(body: bytes | memoryview) -> list[int]:
    """Where the records of an answer start in the log; as many as follow one another."""
    found, position = [], 0
    while position + PHYSICAL_OFFSET_POSITION + 8 <= len(body):
        size = int.from_bytes(body[position : position + 4])
        at = position + PHYSICAL_OFFSET_POSITION
        if size < PHYSICAL_OFFSET_POSITION + 8:
            break
        found.append(int.from_bytes(body[at : at + 8], signed=True))
        position += size
    return found


def now() -> str:
    """The time in UTC as a line has it, to the millisecond."""
    seconds, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{milliseconds:03}Z"


def cut(text: str) -> str:
    """A text as a line has it."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
