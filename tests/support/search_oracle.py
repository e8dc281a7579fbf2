"""Search by content as a plain loop: every record of the log is read, taken apart and held against the criteria."""

import gzip
import json
import re
import struct
import zlib
from ipaddress import ip_address, ip_network

import jsonpath_ng
import lz4.frame
import zstandard

from oracles import decode_java, parse_properties, split_keys
from storage.search.criteria import SearchPlace


def hits(records, criteria):
    return [
        (record.physical_offset, record.queue_offset + number)
        for record in records
        if _has_header(record, criteria)
        for number, (body, properties) in enumerate(_messages(record))
        if _is_sent_from(record, properties, criteria.born_host) and _matches(body, properties, criteria)
    ]


def _has_header(record, criteria):
    if criteria.topic is not None and record.topic != criteria.topic:
        return False
    return criteria.begin_timestamp <= record.store_timestamp <= criteria.end_timestamp


def _is_sent_from(record, properties, wanted):
    """Whether a message's record, or the proxy that it came through, names a host as its sender."""
    if wanted is None:
        return True
    address, number = _host_and_port(wanted)
    hosts = [(str(ip_address(record.born_host[0])), str(record.born_host[1]))]
    if "__BORNHOST" in properties:
        hosts.append(_host_and_port(properties["__BORNHOST"]))
    return any(_is_at(host, address) and number in ("", port) for host, port in hosts)


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        text = text[1:]
    elif text.count(":") != 1:
        return text, ""
    address, _, number = text.rpartition(":")
    return address.removesuffix("]"), number


def _is_at(host: str, wanted: str) -> bool:
    try:
        return ip_address(host) in ip_network(wanted, strict=False)
    except ValueError:
        return host.lower() == wanted.lower()


def _messages(record):
    """Bodies and properties: of the record itself, or of the messages in it if it is a batch."""
    body = decompressed(record)
    if record.sys_flag & 0xC0 != 0xC0:
        return [(body, record.properties)]
    found: list[tuple[bytes | None, dict[str, str]]] = []
    while body:
        (length,) = struct.unpack_from(">i", body, 16)
        (block,) = struct.unpack_from(">h", body, 20 + length)
        behind = 22 + length + block
        found.append((body[20 : 20 + length], parse_properties(decode_java(body[22 + length : behind]))))
        body = body[behind:]
    return found


def decompressed(record):
    if not record.sys_flag & 1 or not record.body:
        return record.body
    try:
        return {0: _inflate, 1: lz4.frame.decompress, 2: _unpack, 3: _inflate}[record.sys_flag >> 8 & 7](record.body)
    except (KeyError, zlib.error, RuntimeError, zstandard.ZstdError, EOFError):
        return None


def _inflate(data: bytes) -> bytes:
    decoder = zlib.decompressobj()
    body = decoder.decompress(data)
    if not decoder.eof:
        raise EOFError
    return body


def _unpack(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def _matches(body, properties, criteria):
    if body is None:  # then it must not matter
        in_body = (criteria.contains or criteria.regex) is not None and criteria.place is not SearchPlace.PROPERTIES
        if in_body or criteria.json_path is not None or criteria.minimum_size or criteria.maximum_size is not None:
            return False
        body = b""
    keys = [*split_keys(properties.get("KEYS", "")), properties.get("UNIQ_KEY", "")]
    largest = len(body) if criteria.maximum_size is None else criteria.maximum_size
    return (
        (criteria.tag is None or properties.get("TAGS") == criteria.tag)
        and (criteria.key is None or criteria.key in keys)
        and (criteria.key_prefix is None or any(key.startswith(criteria.key_prefix) for key in keys))
        and criteria.minimum_size <= len(body) <= largest
        and any(
            _says(form, properties, criteria)
            and (criteria.json_path is None or _has_value(form, criteria.json_path, criteria.charset))
            for form in _forms(body)
        )
        and (criteria.where is None or WHERE[criteria.where](properties))
    )


def _forms(body: bytes) -> list[bytes]:
    """A body as it is, and what an application packed into it, and into that, if it did."""
    forms = [body]
    for _ in range(3):
        try:
            if forms[-1].startswith(b"\x1f\x8b\x08"):
                forms.append(gzip.decompress(forms[-1]))
            elif forms[-1].startswith(b"\x28\xb5\x2f\xfd"):
                forms.append(_unpack(forms[-1]))
            elif forms[-1].startswith(b"\x04\x22\x4d\x18"):
                forms.append(lz4.frame.decompress(forms[-1]))
            elif forms[-1][:1] == b"x" and int.from_bytes(forms[-1][:2]) % 31 == 0:
                forms.append(_inflate(forms[-1]))
        except (OSError, EOFError, RuntimeError, zlib.error, zstandard.ZstdError):
            break
    return [forms[0], forms[-1]]


def _says(body, properties, criteria):
    in_body, in_properties = criteria.place is not SearchPlace.PROPERTIES, criteria.place is not SearchPlace.BODY
    values = list(properties.values()) if in_properties else []
    texts = ([body.decode(criteria.charset or "utf-8", "replace")] if in_body else []) + values
    parts = [body if criteria.charset is None else texts[0].encode()] if in_body else []
    parts += [value.encode("utf-8", "surrogatepass") for value in values]
    if criteria.contains is not None and not any(criteria.contains in part for part in parts):
        return False
    return criteria.regex is None or any(re.search(criteria.regex, text) for text in texts)


def _has_value(body: bytes, condition: str, charset: str | None) -> bool:
    """Whether a JSON body has the value where the path says; a text equals the value as it is written."""
    path, _, wanted = condition.partition("=")
    try:
        document = json.loads(body if charset is None else body.decode(charset, "replace"))
    except ValueError:
        return False
    return any(_equals(found.value, wanted) for found in jsonpath_ng.parse(path).find(document))


def _equals(value: object, wanted: str) -> bool:
    if isinstance(value, str):
        return value == wanted
    try:
        other = json.loads(wanted)
    except ValueError:
        return False
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[+-]?[0-9]+", text) else None


WHERE = {
    "n > 4": lambda own: (number := _integer(own.get("n"))) is not None and number > 4,
    "n BETWEEN 3 AND 5": lambda own: _integer(own.get("n")) in (3, 4, 5),
    "n IS NULL": lambda own: "n" not in own,
    "n = 'abc' OR TAGS = 'A'": lambda own: own.get("n") == "abc" or own.get("TAGS") == "A",
    "TAGS = 'TagA' OR TAGS IS NULL": lambda own: own.get("TAGS") in (None, "TagA"),
}
"""What each expression that tests of the search use says of a message's properties (filters §2.3 to §2.5)."""
