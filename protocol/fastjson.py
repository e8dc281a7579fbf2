"""JSON as Java's fastjson writes it: beside JSON proper, integers and flat objects stand as keys without quotes.

`{0:"127.0.0.1:10911"}` comes from name servers and from a broker's `config/*.json`;
`{{"brokerName":"a","queueId":0,"topic":"T"}:{…}}` is any map whose keys are MessageQueues. One pass over the tokens
puts such keys into quotes, and Python's own parser does the rest. Source: remoting-protocol §4.0, store-format §9.
"""

import json
import re
from collections import deque
from typing import Any, Final

from protocol.errors import ProtocolError
from protocol.header_fields import well_formed
from protocol.java_hash import decode_java

# Possessive, and closed by the end of the text too: hostile input must not make the pass go back.
_STRING: Final = r'"(?:[^"\\]|\\.)*+(?:"|\Z)'
_TOKEN: Final = re.compile(
    rf"""(?P<string>{_STRING})
    |    (?P<integer>-?[0-9]++)(?P<colon>\s*+:)?
    |    (?P<object>\{{(?:{_STRING}|[^"{{}}])*+\}})\s*+:
    """,
    re.VERBOSE | re.DOTALL,
)
_BRACKET: Final = re.compile(rf"{_STRING}|[][{{}},]", re.DOTALL)
_MOST_ENDS: Final = 64
"""Ends of members that are tried, from the last one back: of damage in front of all of them nothing is left."""
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_BYTE_ORDER_MARK: Final = "\ufeff"


def parse_fastjson(text: bytes | str) -> Any:
    """Parse what fastjson wrote into dicts, lists, texts, numbers, booleans and None.

    An integer key becomes its digits, an object key its compact JSON with sorted members; of members with one name the
    last counts. Bytes that are no UTF-8 become U+FFFD, lone surrogates `?`. Raises `ProtocolError` for all else.
    """
    if not isinstance(text, str):
        text = decode_java(text)
    text = text.removeprefix(_BYTE_ORDER_MARK)
    try:
        if not _SURROGATE.search(text):
            try:
                return _parse(text)
            except json.JSONDecodeError:
                pass
        return _parse(_TOKEN.sub(_quote_key, text))
    except json.JSONDecodeError as error:
        raise ProtocolError(f"no JSON at character {error.pos}: {error.msg}") from error
    except ValueError as error:
        raise ProtocolError(f"no JSON: {error}") from error
    except RecursionError as error:
        raise ProtocolError("JSON nested too deeply") from error


def _quote_key(token: re.Match[str]) -> str:
    """A token in JSON proper."""
    if token["integer"] is not None:
        return f'"{token["integer"]}":' if token["colon"] else token["integer"]
    if token["object"] is not None:
        key = _parse(_TOKEN.sub(_quote_key, token["object"]))
        return json.dumps(json.dumps(key, ensure_ascii=False, separators=(",", ":"), sort_keys=True)) + ":"
    string = token["string"]
    return json.dumps(well_formed(_parse(string))) if _SURROGATE.search(string) else string


def _parse(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def leading_part(text: bytes | str) -> Any:
    """Parse as much of a text that was cut or damaged as is complete in front; None without one whole member.

    What is left of objects and lists that were not closed is closed behind the last member that is whole.
    """
    if not isinstance(text, str):
        text = decode_java(text)
    text = text.removeprefix(_BYTE_ORDER_MARK).replace("\0", " ")
    for position, closing in reversed(_ends_of_members(text)):
        try:
            return parse_fastjson(text[:position] + closing)
        except ProtocolError:
            continue
    return None


def _ends_of_members(text: str) -> list[tuple[int, str]]:
    """Positions behind members, the last ones there are, each with the brackets that would close what is open there."""
    found: deque[tuple[int, str]] = deque(maxlen=_MOST_ENDS)
    opened: list[str] = []
    for piece in _BRACKET.finditer(text):
        sign = piece[0]
        if sign in "{[":
            opened.append("}" if sign == "{" else "]")
        elif sign == "," and opened:
            found.append((piece.start(), "".join(reversed(opened))))
        elif sign in "}]":
            if not opened or opened.pop() != sign:
                break
            found.append((piece.end(), "".join(reversed(opened))))
    return list(found)
