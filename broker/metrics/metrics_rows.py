"""The figures of all workers: a row of int64 for each store that each serves, in memory that they share.

The supervisor makes the memory before it forks, so that a row outlives the worker that writes to it: its successor
counts on, and no counter ever goes back. A place of a row has one writer, the worker's event loop, but for
HOLE_MESSAGES, which threads write under a lock, and STUCK; readers need none. A row is scalars, then how often which
request code ended with which result, then how long those of each code took that the fast lane did not answer; then the
same of calls by gRPC. The memory has a descriptor, by which a process that is no fork of the supervisor's finds it.

| from | places | content |
|---|---|---|
| 0 | SCALARS | the places named below |
| TURNS | DURATION_PLACES | turns of the event loop by duration, then the sum of the durations in ns |
| REQUESTS | CODES × RESULTS | requests by code and result |
| DURATIONS | CODES × DURATION_PLACES | of each code: requests by duration, then the sum of the durations in ns |
| CALLS | METHODS × CALL_RESULTS | calls by gRPC by method and result |
| CALL_DURATIONS | METHODS × DURATION_PLACES | of each method: calls by duration, then the sum of the durations in ns |
"""

import mmap
import os
import time
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.codes import RequestCode, ResponseCode

Row = memoryview
"""A row of native int64."""

# State of the worker.
HEARTBEAT: Final = 0
"""When the worker's event loop last turned: ns of the monotonic clock, which is the same in all processes."""
STATE: Final = 1
PROCESS: Final = 2
STARTS: Final = 3
CPU: Final = 4
"""ns of CPU, as last reported by each worker, those that died included."""

# What is so at present; nothing once the worker is gone.
CONNECTIONS: Final = 5
HELD_PULLS: Final = 6
POOL_WORK: Final = 7
IN_FLIGHT_BYTES: Final = 8
UNFINISHED_BYTES: Final = 9
UNSENT_BYTES: Final = 10
NAME_SERVERS: Final = 11
REGISTERED: Final = 12
REGISTRY_BYTES: Final = 13
HOLES: Final = 14
"""Runs of damaged queue units whose messages are being searched in the log."""
SEARCH_LEFT: Final = 15
"""Bytes of log that are still to be read for these messages, and where queues are derived from the log."""
PRESENT: Final = slice(CONNECTIONS, SEARCH_LEFT + 1)

STUCK: Final = 16
"""How often the worker was ended because its event loop stood still; written by the supervisor."""

# What is counted.
RECEIVED_BYTES: Final = 17
SENT_BYTES: Final = 18
ACCEPTED: Final = 19
DROPPED: Final = 20
HELD_TOTAL: Final = 21
LANE_REQUESTS: Final = 22
POOL_WAIT: Final = 23
"""ns that requests have waited for a thread."""
REGISTRY_REFUSED: Final = 24
SEARCH: Final = 25
"""What key queries cost: as many places as SEARCH_FIGURES."""
SEARCH_FIGURES: Final = ("queries", "steps", "refused", "bad_pointers", "strays")
HOLE_MESSAGES: Final = 30
"""Messages of damaged queue units that were found in the log, and those that were not; threads write here too."""
HOLE_OUTCOMES: Final = ("found", "lost")
WAITED: Final = 32
"""Requests that could not be answered at once, by REASONS."""
SLOW: Final = 39
"""Slow queries, by REASONS."""
SCALARS: Final = 46

COLD, LONG_CHAIN, SCAN, POOL_QUEUE, ASKED_ANOTHER, EVENT_LOOP, PARSING = range(7)
REASONS: Final = ("cold", "long_chain", "scan", "pool_queue", "asked_another", "event_loop", "parsing")
"""Why a request waits or is slow; docs/metrics.md says what each means."""

GONE, SERVING, STOPPING = range(3)
"""The values of STATE."""

OTHER: Final = "OTHER"
UNREADABLE: Final = "UNREADABLE"
"""The label of a frame that is no command."""

CODES: Final = (UNREADABLE, *(code.name for code in RequestCode), OTHER)
RESULTS: Final = (*(code.name for code in ResponseCode), OTHER)
_CODE_SLOTS: Final = {0: 0} | {int(code): number for number, code in enumerate(RequestCode, 1)}
_RESULT_SLOTS: Final = {int(code): number for number, code in enumerate(ResponseCode)}

METHODS: Final = (
    "Admin/ChangeLogLevel",
    "Admin/DescribeTopicStatus",
    "Admin/ListSubscription",
    "Admin/DescribeSubscription",
    "Admin/DeleteSubscription",
    "Admin/DescribeGroupAccumulation",
    "Admin/ListConsumerConnection",
    "Admin/ResetGroupOffset",
    "Admin/QueryMessage",
    "Admin/PrintThreadStackTrace",
    "Admin/VerifyMessage",
    "Admin/AdminSendMessage",
    "Admin/GetConsumerRunningInfo",
    "Admin/GetTopicRoute",
    "Admin/QueryTimeSpan",
    "Admin/GetProxyRuntimeStats",
    "MessagingService/QueryRoute",
    "MessagingService/Heartbeat",
    "MessagingService/SendMessage",
    "MessagingService/QueryAssignment",
    "MessagingService/ReceiveMessage",
    "MessagingService/AckMessage",
    "MessagingService/ForwardMessageToDeadLetterQueue",
    "MessagingService/PullMessage",
    "MessagingService/UpdateOffset",
    "MessagingService/GetOffset",
    "MessagingService/QueryOffset",
    "MessagingService/EndTransaction",
    "MessagingService/Telemetry",
    "MessagingService/NotifyClientTermination",
    "MessagingService/ChangeInvisibleDuration",
    "MessagingService/RecallMessage",
    "MessagingService/SyncLiteSubscription",
    OTHER,
)
"""Methods of the gRPC services."""

CALL_RESULTS: Final = (
    "OK",
    "BAD_REQUEST",
    "ILLEGAL_TOPIC",
    "ILLEGAL_CONSUMER_GROUP",
    "ILLEGAL_MESSAGE_ID",
    "ILLEGAL_FILTER_EXPRESSION",
    "ILLEGAL_POLLING_TIME",
    "ILLEGAL_OFFSET",
    "ILLEGAL_LITE_TOPIC",
    "CLIENT_ID_REQUIRED",
    "UNAUTHORIZED",
    "FORBIDDEN",
    "NOT_FOUND",
    "MESSAGE_NOT_FOUND",
    "TOPIC_NOT_FOUND",
    "CONSUMER_GROUP_NOT_FOUND",
    "OFFSET_NOT_FOUND",
    "TOO_MANY_REQUESTS",
    "INTERNAL_SERVER_ERROR",
    "NOT_IMPLEMENTED",
    "PROXY_TIMEOUT",
    "UNSUPPORTED",
    "CANCELLED",
    OTHER,
)
"""How calls end: the codes of the answers' Status, and CANCELLED where nobody waits any more."""

_METHOD_SLOTS: Final = {name: number for number, name in enumerate(METHODS)}
_CALL_RESULT_SLOTS: Final = {name: number for number, name in enumerate(CALL_RESULTS)}

SHORTEST_BUCKET: Final = 14
BUCKETS: Final = 23
"""Bucket i holds what took less than 2**(i + SHORTEST_BUCKET) ns, the last one what took longer: from 16 µs to 34 s."""
DURATION_PLACES: Final = BUCKETS + 1
BUCKET_OF: Final = tuple(min(max(bits - SHORTEST_BUCKET, 0), BUCKETS - 1) for bits in range(65))
"""The bucket of a duration by the bits that its nanoseconds take."""

TURNS: Final = SCALARS
REQUESTS: Final = TURNS + DURATION_PLACES
DURATIONS: Final = REQUESTS + len(CODES) * len(RESULTS)
CALLS: Final = DURATIONS + len(CODES) * DURATION_PLACES
CALL_DURATIONS: Final = CALLS + len(METHODS) * len(CALL_RESULTS)
ROW_LENGTH: Final = CALL_DURATIONS + len(METHODS) * DURATION_PLACES

BEAT_SECONDS: Final = 0.25
"""How often an event loop says that it turns."""

FRESH_SECONDS: Final = 3.0
"""A worker that was not heard of for longer is gone, or its event loop stands still."""


def places_of(code: int, result: int) -> tuple[int, int]:
    """Where requests of a code with a result are counted, and where the durations of the code's requests begin."""
    code_slot = _CODE_SLOTS.get(code, len(CODES) - 1)
    result_slot = _RESULT_SLOTS.get(result, len(RESULTS) - 1)
    return REQUESTS + code_slot * len(RESULTS) + result_slot, DURATIONS + code_slot * DURATION_PLACES


def call_places_of(method: str, result: str) -> tuple[int, int]:
    """Where calls of a gRPC method with a result are counted, and where the durations of the method's calls begin."""
    slot = _METHOD_SLOTS.get(method, len(METHODS) - 1)
    result_slot = _CALL_RESULT_SLOTS.get(result, len(CALL_RESULTS) - 1)
    return CALLS + slot * len(CALL_RESULTS) + result_slot, CALL_DURATIONS + slot * DURATION_PLACES


def bucket_bounds() -> list[float]:
    """Below how many seconds the durations of each bucket but the last one are."""
    return [2.0 ** (number + SHORTEST_BUCKET) / 1e9 for number in range(BUCKETS - 1)]


class MetricsRows:
    """The memory of all rows; made before workers are started."""

    def __init__(self, workers: int = 1, stores: int = 1, descriptor: int | None = None) -> None:
        """A row of zeros for each store of each of `workers`; pages that are never written to take no memory.

        With a `descriptor`, which is taken over, the rows are those that another process has made.
        """
        self.stores = stores
        size = workers * stores * ROW_LENGTH * 8
        if descriptor is None:
            descriptor = os.memfd_create("rocketlens-metrics")
            os.ftruncate(descriptor, size)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, size)
        self._rows: npt.NDArray[np.int64] = np.frombuffer(self._memory, np.int64).reshape(workers, stores, ROW_LENGTH)

    def __len__(self) -> int:
        """How many workers there are."""
        return len(self._rows)

    def begin(self, number: int, store: int = 0) -> Row:
        """The row of a worker that starts: what its predecessor counted is kept, what was so at the time is not."""
        first = (number * self.stores + store) * ROW_LENGTH
        row = memoryview(self._memory).cast("q")[first : first + ROW_LENGTH]
        for place in range(PRESENT.start, PRESENT.stop):
            row[place] = 0
        row[STATE], row[HEARTBEAT], row[PROCESS] = GONE, 0, os.getpid()
        row[STARTS] += 1
        return row

    def beat(self, number: int) -> None:
        """Note that a worker's event loop turns."""
        self._rows[number, 0, HEARTBEAT] = time.monotonic_ns()

    def add(self, number: int, place: int) -> None:
        """Count one more at a place of a worker's first row."""
        self._rows[number, 0, place] += 1

    def totals(self, store: int = 0) -> npt.NDArray[np.int64]:
        """The sum of all rows of a store; of what is so at present, only that of workers that are there."""
        rows = self._rows[:, store].copy()
        rows[[not is_there for is_there in self.are_there()], PRESENT] = 0
        totals: npt.NDArray[np.int64] = rows.sum(axis=0)
        return totals

    def column(self, place: int) -> list[int]:
        """One place of each worker, of what is the worker's as a whole."""
        numbers: list[int] = self._rows[:, 0, place].tolist()
        return numbers

    def are_there(self) -> list[bool]:
        """Of each worker, whether it was heard of just now."""
        oldest = time.monotonic_ns() - FRESH_SECONDS * 1e9
        return [heard >= oldest for heard in self.column(HEARTBEAT)]

    def are_serving(self) -> list[bool]:
        """Of each worker, whether clients can connect to it, for all its stores."""
        states = (self._rows[:, :, STATE] == SERVING).all(axis=1).tolist()
        return [is_there and is_serving for is_there, is_serving in zip(self.are_there(), states, strict=True)]
