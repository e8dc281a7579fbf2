"""Endpoints: a path, a question made of its query parameters, a function that answers it on a thread."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Meta

from broker.service.long_polling import PullQuestion
from broker.web.api.errors import bad_parameter
from broker.web.api.request_context import RequestContext
from protocol.errors import ConfigError
from protocol.question import LARGEST
from storage.times import parse_time, parse_zone

Offset: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST)]
PhysicalOffset: TypeAlias = Annotated[
    int, Meta(ge=0, le=LARGEST, description="Physical offset at which the record starts in the log.")
]
QueueOffset: TypeAlias = Annotated[
    int, Meta(ge=0, le=LARGEST, description="Number of the message in its queue, from 0 on.")
]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=200, description="Maximum number of entries in this answer.")]
Milliseconds: TypeAlias = Annotated[
    int, Meta(ge=1, le=10_000, description="After this time the server answers with what is done by then.")
]
Topic: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=255, description="Name of the topic that messages are stored under.")
]
QueueId: TypeAlias = Annotated[
    int, Meta(ge=0, le=2**31 - 1, description="Id of one queue of the topic; by default all of them.")
]
MaximumAge: TypeAlias = Annotated[
    int, Meta(ge=0, le=3600, description="Seconds: an outcome that is older is not answered, but made anew.")
]
Time: TypeAlias = Annotated[
    int,
    Meta(
        ge=0,
        le=LARGEST,
        description="Milliseconds since 1970, an ISO 8601 time, digits like 20240531083000, a time from now like "
        "-1h, or one like yesterday 14:00.",
        extra_json_schema={"type": ["integer", "string"]},
    ),
]
Zone: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        description="The zone of times that name none: Asia/Shanghai, +08:00; by default the server's own.",
    ),
]
Cursor: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=8192, description="Continues the answer from which this cursor comes.")
]


Broker: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=255, description="Name of the broker; by default the first one.")
]


class Parameters(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The parameters of an endpoint; a subclass is its fields, and `broker` chooses among several stores."""

    broker: Broker | None = None


class TimedParameters(Parameters, kw_only=True):
    """Parameters of which some are times, as people write them."""

    timezone: Zone | None = None


@dataclass(frozen=True, slots=True)
class Awaited:
    """Held pulls that a request waits for: it is answered once one of them has an answer, or after some seconds."""

    questions: Sequence[PullQuestion] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """One path below `/api/v1`. `answer` bytes: the body as it is, to be downloaded.

    `shows` gives the physical offsets of the messages that an answer shows; None if it shows no message. `awaits`
    gives the pulls that the request waits for; None if it is answered at once.
    """

    path: str
    question: type[Parameters]
    answer: type[Any]
    work: Callable[[RequestContext, Any], Any]
    shows: Callable[[Any, Any], list[int]] | None = None
    awaits: Callable[[RequestContext, Any], Awaited] | None = None

    @property
    def request(self) -> str:
        """What an audit log says was asked."""
        return f"GET /api/v1{self.path}"

    @property
    def name(self) -> str:
        """Its name in the OpenAPI description."""
        return self.work.__name__

    @property
    def summary(self) -> str:
        """The first line of its function's docstring."""
        return (self.work.__doc__ or "").strip().partition("\n")[0]

    def read(self, parameters: Iterable[tuple[str, str]]) -> Parameters:
        """The question of some query parameters. Raises `ApiError` naming the one that is wrong."""
        fields: dict[str, str] = {}
        for name, value in parameters:
            if name in fields:
                raise bad_parameter(name, f"parameter {name} is given twice")
            fields[name] = value
        known = self.question.__struct_encode_fields__
        for name in fields:
            if name not in known:
                raise bad_parameter(name[:100], f"unknown parameter {name[:100]!r}, expected {', '.join(known)}")
        given = dict(fields)
        _read_times(self.question, fields)
        try:
            question = msgspec.convert(fields, self.question, strict=False)
        except msgspec.ValidationError as error:
            raise _explained(str(error), known) from None
        _check_times(question, given)
        return question


@functools.cache
def _time_names(question: type[Parameters]) -> tuple[str, ...]:
    """The parameters of a question that are times."""
    hints = get_type_hints(question, include_extras=True)
    return tuple(
        spelled
        for name, spelled in zip(question.__struct_fields__, question.__struct_encode_fields__, strict=True)
        if Time in (hints[name], *get_args(hints[name]))
    )


def _read_times(question: type[Parameters], fields: dict[str, str]) -> None:
    """Replace times as people write them by milliseconds; raises `ApiError` for one that cannot be read."""
    names = _time_names(question)
    if not names:
        return
    try:
        name = "timezone"
        zone = parse_zone(fields[name]) if name in fields else None
        for name in names:
            if name in fields:
                fields[name] = str(parse_time(fields[name], zone))
    except ConfigError as error:
        raise bad_parameter(name, f"parameter {name}: {error}") from None


_PAIRS: Final = (("begin", "end"), ("due_after", "due_before"))
"""Pairs of parameters that are the begin and the end of a time."""


def _check_times(question: Parameters, given: Mapping[str, str]) -> None:
    """Raise `ApiError` for an end before its begin, with both as they were given."""
    spelled = dict(zip(question.__struct_fields__, question.__struct_encode_fields__, strict=True))
    for first, last in _PAIRS:
        begin, end = getattr(question, first, None), getattr(question, last, None)
        if begin is not None and end is not None and begin > end:
            typed = (given.get(spelled[last], end), given.get(spelled[first], begin))
            raise bad_parameter("end", "the end, {}, is before the begin, {}".format(*typed))


def _explained(text: str, known: tuple[str, ...]) -> Exception:
    """Say an error of msgspec in our words; its text ends with the place, as in ``- at `$.limit```."""
    reason, _, place = text.partition(" - at `$.")
    name = place.rstrip("`")
    if not name:
        name = next((each for each in known if f"`{each}`" in text), "")
        return bad_parameter(name, f"parameter {name} is missing" if "missing" in text else reason)
    return bad_parameter(name, f"parameter {name}: {reason[:1].lower()}{reason[1:]}")
