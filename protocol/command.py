"""Commands: one request or response of the remoting protocol, its header decoded, its own fields still raw.

A header of either form is read by compiled code, which leaves the fields of `extFields` where they lie; `decode_header`
makes the typed header of one request code of them, once the dispatcher knows which. Source: remoting-protocol §1.2–1.4,
§7.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from protocol.codes import VERSION_5_3_3, LanguageCode, SerializeType
from protocol.errors import BadCommand, BadHeader
from protocol.frame import Frame
from protocol.header_fields import header_from_texts, plan_of
from protocol.java_hash import decode_java
from protocol.kernels.commands import Fields, read_header
from protocol.kernels.responses import encode_head

Header = TypeVar("Header", bound=msgspec.Struct)

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2


class Command(msgspec.Struct, gc=False):
    """A decoded command; `ext_fields` are for `ext_fields_of`, `ext_field_of` and `decode_header`.

    `language` is what the peer calls itself: a name, an ordinal, or None. `serialize_type` is the form the header came
    in, which is the form of the answer; `body` is empty when there is none. Fields that are no JSON object are kept as
    they came.
    """

    code: int
    flag: int = 0
    opaque: int = 0
    version: int = 0
    language: str | int | None = None
    remark: str | None = None
    ext_fields: Fields | dict[str, str] | bytes = msgspec.field(default_factory=dict)
    serialize_type: int = 0
    body: bytes = b""

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for an answer."""
        return bool(self.flag & ONEWAY_FLAG)

    @property
    def language_code(self) -> LanguageCode:
        """The peer's language, OTHER when it names none that we know."""
        if isinstance(self.language, str):
            return LanguageCode.__members__.get(self.language, LanguageCode.OTHER)
        if self.language is None or not LanguageCode.JAVA <= self.language <= LanguageCode.NODE_JS:
            return LanguageCode.OTHER
        return LanguageCode(self.language)


class Response(msgspec.Struct, gc=False):
    """An answer on its way to `encode_response`; every value of `ext_fields` is a text, the body is not copied."""

    code: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes | memoryview = b""


def decode_command(frame: Frame) -> Command:
    """Decode a frame's header, in either form; raises `BadCommand` when it is none."""
    serialize_type, header, body = frame
    # Compared as plain ints: to look up an enum's member costs a tenth of all this.
    if serialize_type == 0:
        return read_header(header, False, body, Command)
    if serialize_type == 1:
        return read_header(header, True, body, Command)
    raise BadCommand(f"serialize type {serialize_type}, expected 0 (JSON) or 1 (ROCKETMQ)", _opaque_of(header))


def _opaque_of(header: bytes) -> int:
    """The opaque of a header that should be JSON, as far as it can be read; else 0."""
    try:
        return read_header(header, False, b"", Command).opaque
    except BadCommand as error:
        return error.opaque


decode_response = decode_command
"""Decode the header of a response; a bit of the flag says whether a command is a request or a response."""


def decode_header(command: Command, header_type: type[Header]) -> Header:
    """Convert a command's own fields to `header_type`; fields it does not know are ignored.

    Every text that Java converts is converted to the same value. Raises `BadHeader` naming a field that is missing, or
    one that is malformed, with its value.
    """
    fields = command.ext_fields
    header: Header | None = fields.header(plan_of(header_type)) if isinstance(fields, Fields) else None
    return header_from_texts(header_type, ext_fields_of(command)) if header is None else header


def ext_fields_of(command: Command) -> dict[str, str]:
    """All of a command's own fields as texts; raises `BadHeader` when they are no JSON object."""
    fields = sent_fields_of(command)
    if isinstance(fields, dict):
        return fields
    raise BadHeader("extFields", decode_java(fields[:200]), "is no JSON object")


def sent_fields_of(command: Command) -> dict[str, str] | bytes:
    """All of a command's own fields as texts, or the bytes that came in their place and are no JSON object."""
    fields = command.ext_fields
    return fields.texts() if isinstance(fields, Fields) else fields


def ext_field_of(command: Command, name: str) -> str | None:
    """One of a command's own fields as a text, None where it has none; raises `BadHeader` as `ext_fields_of`."""
    fields = command.ext_fields
    return fields.text(name) if isinstance(fields, Fields) else ext_fields_of(command).get(name)


def encode_response(command: Command, response: Response) -> bytes:
    """Encode prefix and header of the answer to `command`, in the form its request came in.

    The body is not part of it, only its length: write it right behind. Raises `BadCommand` for what the binary form
    cannot hold.
    """
    return encode_head(
        command.serialize_type,
        response.code,
        RESPONSE_FLAG,
        command.opaque,
        response.remark,
        response.ext_fields,
        VERSION_5_3_3,
        len(response.body),
    )


def encode_request(
    code: int,
    ext_fields: Mapping[str, str] | None = None,
    *,
    opaque: int,
    body: bytes = b"",
    oneway: bool = False,
    serialize_type: int = SerializeType.JSON,
    version: int = VERSION_5_3_3,
) -> bytes:
    """Encode a request as a whole frame, body included; raises `BadCommand` for what the binary form cannot hold."""
    flag = ONEWAY_FLAG if oneway else 0
    return encode_head(serialize_type, code, flag, opaque, None, ext_fields, version, len(body)) + body
