"""The query of a search's kernel (:mod:`storage.kernels.select_records`), which rules out no message that matches."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from protocol.body_content import DECODERS
from protocol.properties import BORN_HOST
from protocol.system_topics import LIGHT_PREFIX
from storage.files.mapped_file import LARGEST_OFFSET
from storage.kernels import select_records as kernel
from storage.search.criteria import SearchPlace
from storage.search.matcher import Matcher

PLACES: Final = {
    SearchPlace.BODY: kernel.IN_BODY,
    SearchPlace.PROPERTIES: kernel.IN_PROPERTIES,
    SearchPlace.ANY: kernel.IN_BODY | kernel.IN_PROPERTIES,
}
ONE_SPELLING: Final = frozenset({"ascii", "iso8859-1", "cp1252", "gb2312", "gbk"})
"""Charsets in which each character is written by the same bytes always: so a text can be looked for by its bytes."""
ESCAPE: Final = b"\\u"
_REPLACEMENT: Final = "\ufffd"
_SELDOM: Final = b"zqjxkvZQJXKVYUWHGF~`^\\|#@$%&*?!<>;+=()/'ywbpgfmucdlhrsnioateEATOINSRLDCMPB9876543_-. 210[]{},:\""
"""ASCII by falling rarity in bodies that are JSON, text or ids; a rough order is enough."""
_RANK: Final = {byte: rank for rank, byte in enumerate(_SELDOM)}


@dataclass(frozen=True, slots=True)
class Needle:
    """Bytes, and the positions of two of them that are seldom, in ascending order (equal for a single byte)."""

    data: bytes
    first: int
    second: int

    @classmethod
    def of(cls, data: bytes) -> "Needle":
        """Choose the two rarest bytes, unlike ones if there are any; ``data`` must not be empty."""
        order = sorted(range(len(data)), key=lambda position: _RANK.get(data[position], -1))
        first = order[0]
        second = next((position for position in order if data[position] != data[first]), order[-1])
        return cls(data, min(first, second), max(first, second))


def query_of(matcher: Matcher) -> kernel.SearchQuery:
    """Convert the conditions of a matcher into a query of the kernels."""
    criteria, host = matcher.criteria, matcher.born_host
    place, needles = _chosen(matcher)
    # What is hidden must not rule a message out: that would say what it is.
    if (place & kernel.IN_BODY and matcher.mask.changes_bodies) or (
        place & kernel.IN_PROPERTIES and matcher.mask.changes
    ):
        place, needles = 0, []
    expression = None if matcher.mask.changes else matcher.expression
    return kernel.SearchQuery(
        # The messages of a light queue bear other topics.
        topic=None if criteria.topic is None or criteria.topic.startswith(LIGHT_PREFIX) else _text(criteria.topic),
        tag=_tag(matcher),
        key=_text(criteria.key or criteria.key_prefix),
        key_is_start=criteria.key is None,
        times=(criteria.begin_timestamp, criteria.end_timestamp),
        body_sizes=(
            criteria.minimum_size,
            LARGEST_OFFSET if criteria.maximum_size is None else criteria.maximum_size,
        ),
        sender=None if host is None else f"{BORN_HOST}\x01".encode(),
        network=None if host is None or host.network is None else _network(host.network),
        port=None if host is None else host.port,
        program=None if expression is None else expression.expression.program,
        place=place,
        needles=[(needle.data, needle.first, needle.second) for needle in map(Needle.of, needles)],
        packings=[decoder.magic for decoder in DECODERS],
    )


def _tag(matcher: Matcher) -> bytes | None:
    """The one tag that messages must have, as they have it; None where there are several."""
    tags = matcher.tags
    return None if tags is None or tags.matches_everything or len(tags.tags) != 1 else _text(next(iter(tags.tags)))


def _text(text: str | None) -> bytes | None:
    """A text's bytes; None for a text that other bytes may be decoded to, which is compared after decoding."""
    return None if text is None or _REPLACEMENT in text else text.encode("utf-8", "surrogatepass")


def _network(network: IPv4Network | IPv6Network) -> tuple[bytes, bytes]:
    return network.network_address.packed, network.netmask.packed


def _chosen(matcher: Matcher) -> tuple[int, list[bytes]]:
    """Where to look for which bytes, of which one must be there: for the longest that any condition asks for."""
    place = PLACES[matcher.criteria.place]
    chosen: list[tuple[int, int, list[bytes]]] = [(0, 0, [])]
    for text in (matcher.criteria.contains, None if matcher.regex is None else matcher.regex.literal):
        needles = None if text is None else _needles(text, matcher)
        if text is not None and needles is not None:
            chosen.append((2 * len(text), place, needles))
    if matcher.json is not None and matcher.json.literal is not None and matcher.charset in (None, *ONE_SPELLING):
        chosen.append((len(matcher.json.literal), kernel.IN_BODY, [matcher.json.literal, ESCAPE]))
    _, place, found = max(chosen, key=lambda each: each[0])
    return place, found


def _needles(text: bytes, matcher: Matcher) -> list[bytes] | None:
    """A text as it is written in bodies of the matcher's charset, and in properties; None: in ways that are unknown."""
    place = matcher.criteria.place
    if matcher.charset is None or place is SearchPlace.PROPERTIES:
        return [text]
    try:
        in_body = text.decode().encode(matcher.charset) if matcher.charset in ONE_SPELLING else None
    except UnicodeError:  # no body of this charset says it
        return None
    if in_body is None or _REPLACEMENT in text.decode():
        return None
    return [in_body] if place is SearchPlace.BODY or in_body == text else [in_body, text]
