"""Commands: one request or response of the remoting protocol, its header decoded, its own fields still raw.

The decoding of a JSON header is one msgspec pass that leaves `extFields` unparsed; `decode_header` is a second pass
that turns them into the typed header of one request code, once the dispatcher knows which. A header in the binary form
has its fields turned into the same JSON, so that all after it is one way. Source: remoting-protocol §1.2–1.4, §7.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import msgspec

from protocol.binary_header import decode_binary_header, encode_binary_header
from protocol.codes import VERSION_5_3_3, LanguageCode, SerializeType
from protocol.errors import BadCommand, FrameTooLarge
from protocol.frame import HEADER_LENGTH_MASK, LENGTH_SIZE, PREFIX, Frame, encode_frame_prefix
from protocol.header_fields import I32, header_from_texts, parse_ext_fields, well_formed
from protocol.java_hash import decode_java

Header = TypeVar("Header", bound=msgspec.Struct)

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

_NO_FIELDS: Final = msgspec.Raw(b"{}")


class Command(msgspec.Struct, rename="camel", gc=False):
    """A decoded command. `ext_fields` is a JSON object (or `null`) not looked at yet: see `decode_header`.

    `language` is what the peer calls itself: a name, an ordinal, or None. `serialize_type` is the form the header came
    in, which is the form of the answer; `body` is empty when there is none.
    """

    code: I32
    flag: I32 = 0
    opaque: I32 = 0
    version: I32 = 0
    language: str | I32 | None = None
    remark: str | None = None
    ext_fields: msgspec.Raw = _NO_FIELDS
    # No peer writes members of these names; the decoder sets both whatever it says.
    serialize_type: int = msgspec.field(default=0, name="(serializeType)")
    body: bytes = msgspec.field(default=b"", name="(body)")

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


_decode_json: Final = msgspec.json.Decoder(Command, strict=False).decode
_pack_prefix: Final = PREFIX.pack
_encode_json: Final = msgspec.json.Encoder().encode
_decode_texts: Final = msgspec.json.Decoder(dict[str, str]).decode

# What msgspec raises for bytes that are not what it is asked for.
_REFUSED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_command(frame: Frame) -> Command:
    """Decode a frame's header, in either form; raises `BadCommand` when it is none."""
    serialize_type, header, body = frame
    # Compared as plain ints: to look up an enum's member costs a tenth of all this.
    if serialize_type == 0:
        try:
            command = _decode_json(header)
        except msgspec.ValidationError as error:
            raise BadCommand(f"the header is no command: {error}") from error
        except _REFUSED as error:
            command = _decode_ill_formed(header, error)
        command.serialize_type = 0
    elif serialize_type == 1:
        command = _decode_binary(header)
    else:
        raise BadCommand(f"serialize type {serialize_type}, expected 0 (JSON) or 1 (ROCKETMQ)")
    command.body = body
    return command


decode_response = decode_command
"""The same for a client: whether a command is a request or a response is a bit of its flag."""


def _decode_ill_formed(header: bytes, error: Exception) -> Command:
    """Decode a header with texts that UTF-8 cannot hold, or that are none, as Java does: with replacements."""
    try:
        members = json.loads(decode_java(header))
        return _decode_json(json.dumps(members, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise BadCommand(f"the header is no command: {error}") from error


def _decode_binary(data: bytes) -> Command:
    header = decode_binary_header(data)
    return Command(
        code=header.code,
        flag=header.flag,
        opaque=header.opaque,
        version=header.version,
        language=header.language,
        remark=header.remark,
        ext_fields=msgspec.Raw(_encode_json(header.ext_fields)),
        serialize_type=int(SerializeType.ROCKETMQ),
    )


class _HeaderDecoder(NamedTuple):
    """The fast pass for one header type.

    msgspec takes "1" for true as well, Java does not: where one of the attributes `booleans` came out true,
    `check_booleans` passes only if all of them read `"true"` or `"false"`.
    """

    decode: Callable[[msgspec.Raw], Any]
    booleans: tuple[str, ...]
    check_booleans: Callable[[msgspec.Raw], Any]


_header_decoders: dict[type[msgspec.Struct], _HeaderDecoder] = {}


def decode_header(command: Command, header_type: type[Header]) -> Header:
    """Decode a command's own fields as `header_type`; fields it does not know are ignored.

    What Java converts converts to the same; besides, integers may be written `1.0` or `1e3`. Raises `BadHeader` naming
    a field that is missing, or malformed with its value.
    """
    decode, booleans, check_booleans = _header_decoders.get(header_type) or _header_decoder(header_type)
    raw = command.ext_fields
    try:
        header: Header = decode(raw)
        for attribute in booleans:
            if getattr(header, attribute):
                check_booleans(raw)
                break
    except _REFUSED:
        return header_from_texts(header_type, parse_ext_fields(bytes(raw)))
    return header


def _header_decoder(header_type: type[msgspec.Struct]) -> _HeaderDecoder:
    """Build the fast pass for a header type, once."""
    booleans = [field for field in msgspec.structs.fields(header_type) if bool in (field.type, *get_args(field.type))]
    members = [
        (field.name, Literal["true", "false"], msgspec.field(default="true", name=field.encode_name))
        for field in booleans
    ]
    check = msgspec.json.Decoder(msgspec.defstruct("Booleans", members, gc=False)).decode
    decode = msgspec.json.Decoder(header_type, strict=False).decode
    decoder = _HeaderDecoder(decode, tuple(field.name for field in booleans), check)
    _header_decoders[header_type] = decoder
    return decoder


def ext_fields_of(command: Command) -> dict[str, str]:
    """All of a command's own fields as texts; raises `BadHeader` when they are no JSON object."""
    try:
        return _decode_texts(command.ext_fields)
    except _REFUSED:
        return parse_ext_fields(bytes(command.ext_fields))


def encode_response(command: Command, response: Response) -> bytes:
    """Encode prefix and header of the answer to `command`, in the form its request came in.

    The body is not part of it, only its length: write it right behind. Raises `BadCommand` for what the binary form
    cannot hold.
    """
    ext_fields = response.ext_fields
    if response.code or response.remark is not None or command.serialize_type:
        return _encode_any_response(command, response)
    try:
        if ext_fields is None:
            header = _SUCCESS % command.opaque
        else:
            header = _SUCCESS_WITH_FIELDS % (_encode_json(ext_fields), command.opaque)
    except UnicodeEncodeError:
        return _encode_any_response(command, response)
    header_length = len(header)
    if header_length > HEADER_LENGTH_MASK:
        raise FrameTooLarge(header_length, HEADER_LENGTH_MASK)
    return _pack_prefix(LENGTH_SIZE + header_length + len(response.body), header_length) + header


def _encode_any_response(command: Command, response: Response) -> bytes:
    """Encode prefix and header of what `encode_response` has no template for."""
    if command.serialize_type:
        header = encode_binary_header(
            response.code, VERSION_5_3_3, command.opaque, RESPONSE_FLAG, response.remark, response.ext_fields
        )
    else:
        header = _json_header(response.code, RESPONSE_FLAG, command.opaque, response.remark, response.ext_fields)
    return encode_frame_prefix(command.serialize_type, len(header), len(response.body)) + header


def _json_header(
    code: int,
    flag: int,
    opaque: int,
    remark: str | None,
    ext_fields: Mapping[str, str] | None,
    version: int = VERSION_5_3_3,
) -> bytes:
    """A header as a Java peer writes it: compact, members in the order of their names, none that is null."""
    fields = b'"extFields":%b,' % _encode_well_formed(ext_fields) if ext_fields is not None else b""
    text = b'"remark":%b,' % _encode_well_formed(remark) if remark is not None else b""
    return b'{"code":%d,%b"flag":%d,"language":"JAVA","opaque":%d,%b"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        code,
        fields,
        flag,
        opaque,
        text,
        version,
    )


# What most answers are; members in the order a Java peer writes them.
_SUCCESS: Final = (
    b'{"code":0,"flag":1,"language":"JAVA","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION_5_3_3
)
_SUCCESS_WITH_FIELDS: Final = _SUCCESS.replace(b'"flag"', b'"extFields":%b,"flag"')


def _encode_well_formed(value: str | Mapping[str, str]) -> bytes:
    """JSON of a text or of fields; a lone surrogate (of a file's name, perhaps) becomes `?`."""
    try:
        return _encode_json(value)
    except UnicodeEncodeError:
        if isinstance(value, str):
            return _encode_json(well_formed(value))
        return _encode_json({well_formed(name): well_formed(text) for name, text in value.items()})


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
    if serialize_type == SerializeType.ROCKETMQ:
        header = encode_binary_header(code, version, opaque, flag, None, ext_fields)
    else:
        header = _json_header(code, flag, opaque, None, ext_fields, version)
    return encode_frame_prefix(serialize_type, len(header), len(body)) + header + body
