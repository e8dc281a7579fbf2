"""Header fields as Java converts them: the lenient, slower way, and the errors that name a field and its value.

Compiled code takes fields as Java's clients write them, by a plan. What it leaves comes here: texts that Java converts
otherwise, fields of odd names, and what is wrong. Source: remoting-protocol §1.2, §7 and Java's RemotingCommand.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec

from protocol.errors import BadHeader
from protocol.kernels.commands import HeaderPlan

I32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""Java's int."""
I64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's long."""

Header = TypeVar("Header", bound=msgspec.Struct)

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LONGEST_INTEGER: Final = 40  # characters: leading zeros are fine, a megabyte of digits is not


class FieldPlan(NamedTuple):
    """How to convert one field: its names, the conversion from (wire name, text), whether it may be absent or empty."""

    name: str
    wire_name: str
    convert: Callable[[str, str], Any]
    is_required: bool
    skips_empty: bool


def well_formed(text: str) -> str:
    """Return a text with `?` for each lone surrogate (JSON can escape one), as Java writes it to bytes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def header_from_texts(header_type: type[Header], texts: Mapping[str, str]) -> Header:
    """Build a header from the texts of its fields; raises `BadHeader` naming a field that is missing or malformed.

    An empty text stands for an absent number or boolean, as C++ clients send it.
    """
    values = {}
    for field in field_plans(header_type):
        text = texts.get(field.wire_name)
        if text is None or (not text and field.skips_empty and not field.is_required):
            if field.is_required:
                raise BadHeader(field.wire_name)
            continue
        values[field.name] = field.convert(field.wire_name, text)
    return header_type(**values)


@cache
def plan_of(header_type: type[msgspec.Struct]) -> HeaderPlan:
    """How compiled code makes a header of fields that are as Java's clients write them."""
    kinds: dict[object, str] = {_i32: "i32", _i64: "i64", _text: "", _boolean: "boolean"}
    return HeaderPlan(
        header_type,
        [
            (plan.wire_name, kinds.get(plan.convert, "other"), plan.is_required, field.default)
            for plan, field in zip(field_plans(header_type), msgspec.structs.fields(header_type), strict=True)
        ],
    )


@cache
def field_plans(header_type: type[msgspec.Struct]) -> tuple[FieldPlan, ...]:
    """The conversions of all fields of a header type."""
    plans = []
    for field in msgspec.structs.fields(header_type):
        convert = _conversion(_without_none(field.type))
        is_required = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
        plans.append(FieldPlan(field.name, field.encode_name, convert, is_required, convert is not _text))
    return tuple(plans)


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (member for member in get_args(annotation) if member is not NoneType)
    return annotation


def _conversion(annotation: Any) -> Callable[[str, str], Any]:
    if annotation == I32:
        return _i32
    if annotation == I64:
        return _i64
    if annotation is bool:
        return _boolean
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return _enumeration(annotation)
    if annotation is str:
        return _text
    raise TypeError(f"no conversion to {annotation}")


def _text(_name: str, text: str) -> str:
    return text


def _i32(name: str, text: str) -> int:
    return _integer(name, text, 32)


def _i64(name: str, text: str) -> int:
    return _integer(name, text, 64)


def _integer(name: str, text: str, bits: int) -> int:
    """As Integer.parseInt and Long.parseLong do: a sign, digits, no blanks, within range."""
    if _INTEGER.fullmatch(text) and len(text) <= _LONGEST_INTEGER:
        value = int(text)
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return value
    raise BadHeader(name, text, f"is no {bits}-bit integer")


def _boolean(_name: str, text: str) -> bool:
    """As Boolean.parseBoolean does: only `true`, in any case, is true."""
    return text.lower() == "true"


def _enumeration(members: type[StrEnum]) -> Callable[[str, str], StrEnum]:
    """By name in any case; an unknown name is the first member, as for BoundaryType in Java."""

    def convert(_name: str, text: str) -> StrEnum:
        return members.__members__.get(text.upper(), next(iter(members)))

    return convert
