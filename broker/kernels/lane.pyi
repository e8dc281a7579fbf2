"""The fast lane: answers plain requests without Python; see lane.pyx."""

from typing import Final, final

from _typeshed import ReadableBuffer

from protocol.kernels.responses import ResponseTemplate
from storage.kernels.pulls import Choice
from storage.kernels.store_view import FileView, StoreView

LEFT_OVER: Final = 0
"""Nothing is left, or a frame whose lengths are wrong."""
NOT_TAKEN: Final = 1
"""A whole frame follows that is to be answered on the ordinary way."""
TURN_OVER: Final = 2
"""Enough for once; other connections come first."""
WANTS_MORE: Final = 3
"""Part of a frame follows."""

LONGEST_BODY: Final = 262144
"""Bytes of the longest body that the lane writes."""

STEPS_A_CALL: Final = 8192
STEPS_A_QUERY: Final = 512
"""Entries walked in one call, and for one query."""

MAXIMUM_BY_KEY: Final = 64
MAXIMUM_BY_UNIQUE_KEY: Final = 32
"""Messages of one answer."""

RUN_SHIFT: Final = 16
"""A known pull is for a run of so many units at most, as a power of two."""

@final
class PullKind:
    """What pulls say alike that are answered alike but for their offsets; texts in UTF-8."""

    def __new__(
        cls,
        code: int,
        topic: bytes,
        group: bytes,
        subscription: bytes | None,
        expression_type: bytes | None,
        queue_id: int,
        max_messages: int,
        max_bytes: int | None,
        sys_flag: int,
        sub_version: int,
    ) -> PullKind: ...

@final
class KnownPull:
    """What the ordinary way found out for pulls of a kind; it keeps the file mapped."""

    def __new__(
        cls,
        kind: PullKind,
        file: FileView,
        position: int,
        file_first: int,
        file_stop: int,
        first: int,
        stop: int,
        scan: int,
        messages: int,
        record_bytes: int,
        choice: Choice,
        cost: int,
        template: ResponseTemplate,
    ) -> KnownPull:
        """Make a pull that begins at a queue offset from `first` up to `stop`.

        The file has units `file_first` to `file_stop`, the first at a position. Up to `scan` units are scanned; `cost`
        is that of one unit, in sixteenths of a step along an index's chain. Up to `messages` and `record_bytes` are
        returned. The numbers of the header are the next offset and the opaque. Raises ValueError where these do not fit
        together.
        """

@final
class KnownPulls:
    """Known pulls, found by what a request says."""

    def __new__(cls, most: int, slots: int) -> KnownPulls:
        """As many at most, in a table of `slots`, a power of two and more than that."""
    def __len__(self) -> int: ...
    @property
    def is_full(self) -> bool:
        """Whether there are as many as there may be."""
    def add(self, pull: KnownPull, queue_offset: int) -> bool:
        """Know a pull, in the run of units of this offset, unless one like it is known there; whether it was new."""
    def clear(self) -> None:
        """Know none any more."""
    def release(self) -> None:
        """Answer like none of them any more, and let their files go; where their last pulls go on is still known."""
    def pulled(self) -> list[tuple[int, int]]:
        """Of each where its last pull goes on, and the tick at which that was answered; zeros before the first."""

@final
class Lane:
    """What answers the requests of one thread."""

    def __new__(cls, known: KnownPulls, frame_limit: int, body_limit: int, turn_frames: int, turn_bytes: int) -> Lane:
        """A frame longer than its limit is refused, and no answer has a longer body, in bytes.

        A call answers so many frames, and goes on until it has written so many bytes.
        """
    def follow(
        self,
        view: ResponseTemplate,
        query: ResponseTemplate,
        cut: ResponseTemplate,
        takes_queries: bool,
        takes_tags: bool,
    ) -> None:
        """Answer views and key queries with these headers from now on.

        The number in the first two is the opaque; those of an answer that leaves out older matches are the cursor, the
        opaque and the cursor again. Key queries are taken where nothing is to be said of what answers may lack, those
        for tags where the index alone answers them.
        """
    def answer(
        self, store: StoreView, data: ReadableBuffer, start: int, stop: int, tick: int
    ) -> tuple[bytes, int, int]:
        """Answer the frames from one position of `data` to another, as long as all are for the lane.

        Returns the answers, up to where all is answered, and why it stopped there. Raises ValueError for positions
        outside of `data`, and before there are headers.
        """
    @property
    def counts(self) -> tuple[int, ...]:
        """What was answered so far: views, key queries, pulls, lite pulls.

        Then what those queries cost: entries walked, hits refused, wrong pointers, entries that led to no record.
        """
    @property
    def commit_count(self) -> int:
        """How many pulls of the last call have committed an offset."""
    def take_commits(self) -> list[tuple[int, int]]:
        """The number of the known pull of each of them, and the offset."""
