"""The log of a new store, as a conversion or a rescue has made it, for what is built and staged beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from spark_jobs.build.chosen_names import zone_of_names
from spark_jobs.build.index_profiles import CLASSIC_PROFILE, TAGGED_PROFILE
from spark_jobs.build.kept_index import choose_shape
from spark_jobs.build.moved_log import MovedLog
from spark_jobs.convert._fillings import Fillings
from spark_jobs.convert._losses import Losses
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.scan.log_end import LogEnd
from spark_jobs.scan.scan_log import Probed
from spark_jobs.scan.segment_walk import WalkSummary
from spark_jobs.scan.source import StoreSource

Request = TypeVar("Request", bound=ConvertRequest)


class ConvertDetails(msgspec.Struct, kw_only=True, rename="camel"):
    """The new log: its segments, their size, bytes of records, and the physical offset at which it ends.

    `half_messages` are commits of transactions that point to another segment, `timers` units of `timerlog/`; of both
    those are `lost` whose messages the log has no more. `losses` are what queues have in its damaged ranges.
    """

    segments: int
    segment_size: int
    bytes: int
    end: int
    half_messages: int
    timers: int
    lost: int
    losses: Losses


class MendDetails(msgspec.Struct, kw_only=True, rename="camel"):
    """The new log: its segments, how many of them are links, its end, where fillers are, and what is lost by it.

    `fillings` say what was taken from copies. `unfilled` are physical offsets of damage in which no message fits: it
    stays. `timers` are units of `timerlog/`,
    `lost_timers` those whose messages are lost.
    """

    segments: int
    segment_size: int
    linked: int
    end: int
    filled_bytes: int
    filled_places: int
    unfilled: list[int]
    losses: Losses
    fillings: Fillings
    timers: int
    lost_timers: int


@dataclass(frozen=True)
class NewLog:
    """The summaries of the old segments, in order, where the old log ended, and the new log as a source.

    `rebuild` is the request by which its index and queues are made, `moved` says what became of the old records, and
    `checkpoint` has the values of the checkpoint's fields that change.
    """

    segments: Sequence[WalkSummary]
    log_end: LogEnd
    source: StoreSource
    rebuild: ConvertRequest
    moved: MovedLog
    details: ConvertDetails | MendDetails
    checkpoint: dict[str, int]
    notes: list[str]


def settled_request(request: Request, probed: Probed) -> Request:
    """The request with the shape of the index files that there are, none of which stays."""
    shape = choose_shape(probed.index_files, profile=request.profile, slots=request.slots, capacity=request.entries)
    profile = TAGGED_PROFILE if shape.tags else CLASSIC_PROFILE
    zone = zone_of_names(request.zone, probed.index_files)
    return replace(
        request, profile=profile, slots=shape.slots, entries=shape.capacity, zone=request.zone or _zone_text(zone)
    )


def _zone_text(zone: tzinfo | None) -> str | None:
    """A zone as --tz takes it: as an offset."""
    return None if zone is None else datetime.now(zone).isoformat()[-len("+00:00") :]
