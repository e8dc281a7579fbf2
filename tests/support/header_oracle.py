"""Headers of commands read and written with other people's JSON, for comparing; remoting-protocol §1.3 in binary."""

import json
import re
import struct
from typing import Annotated

import msgspec

from oracles import decode_java

I32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class Members(msgspec.Struct):
    """The members of a header; numbers may come as texts, as msgspec takes them."""

    code: I32
    flag: I32 = 0
    opaque: I32 = 0
    version: I32 = 0
    language: str | I32 | None = None
    remark: str | None = None
    fields: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="extFields")


_MARKED = re.compile(r'"\\u0001\\u0002([^"]*)"')


def _marked(digits: str) -> str:
    return f"\x01\x02{digits}"


_decode = msgspec.json.Decoder(Members, strict=False).decode


def read_header(header):
    """Code, flag, opaque, version, language, remark and fields (None for no object) of a JSON header; None for none."""
    try:
        try:
            members = _decode(header)
        except msgspec.ValidationError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            values = json.loads(decode_java(header), parse_float=_marked, parse_int=_marked)
            text = json.dumps(values, ensure_ascii=False)
            members = _decode(_MARKED.sub(r"\1", text).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return (*(getattr(members, name) for name in Members.__struct_fields__[:-1]), _fields(bytes(members.fields)))


def _fields(raw: bytes) -> dict[str, str] | None:
    try:
        members = json.loads(decode_java(raw), parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    if members is None:
        return {}
    if not isinstance(members, dict):
        return None
    return {_replaced(name): _text(value) for name, value in members.items() if value is not None}


def _text(value: object) -> str:
    return _replaced(value) if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _replaced(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


FIXED = struct.Struct(">hbhiii")
"""How a binary header begins: code, language, version, opaque, flag, length of the remark."""


def written_header(serialize_type, code, flag, opaque, remark, fields):
    """The header that a Java peer of version 479 writes."""
    remark = None if remark is None else _replaced(remark)
    fields = None if fields is None else {_replaced(name): _replaced(text) for name, text in fields.items()}
    if serialize_type == 0:
        members = {"code": code, "extFields": fields, "flag": flag, "language": "JAVA", "opaque": opaque}
        members |= {"remark": remark, "serializeTypeCurrentRPC": "JSON", "version": 479}
        return msgspec.json.encode({name: value for name, value in members.items() if value is not None})
    texts = (remark or "").encode()
    pairs = b"".join(
        struct.pack(">h", len(name.encode())) + name.encode() + struct.pack(">i", len(text.encode())) + text.encode()
        for name, text in (fields or {}).items()
    )
    fixed = FIXED.pack(code, 0, 479, opaque, flag, len(texts))
    return fixed + texts + struct.pack(">i", len(pairs)) + pairs
