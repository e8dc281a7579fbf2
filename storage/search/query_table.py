"""What the kernel of a search is asked (:mod:`storage.kernels.select_records`): criteria as numbers and addresses."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from storage.kernels import select_records as kernel
from storage.kernels.memory import address_of
from storage.mapped_file import LARGEST_OFFSET
from storage.search.born_host import BornHost
from storage.search.criteria import Place
from storage.search.matcher import Matcher
from storage.search.needle import Needle

PLACES: Final = {
    Place.BODY: kernel.IN_BODY,
    Place.PROPERTIES: kernel.IN_PROPERTIES,
    Place.ANY: kernel.IN_BODY | kernel.IN_PROPERTIES,
}
ESCAPE: Final = b"\\u"
_REPLACEMENT: Final = "\ufffd"


class QueryTable:
    """The table and the memory that its addresses lead to. Nothing that matches is ruled out by it."""

    def __init__(self, matcher: Matcher) -> None:
        criteria = matcher.criteria
        self.numbers = np.zeros(kernel.QUERY_LENGTH, np.int64)
        self._kept: list[object] = [matcher]
        self._put(kernel.TOPIC, criteria.topic)
        self.numbers[kernel.BEGIN], self.numbers[kernel.END] = criteria.begin_timestamp, criteria.end_timestamp
        self.numbers[kernel.MINIMUM] = criteria.minimum_size
        self.numbers[kernel.MAXIMUM] = LARGEST_OFFSET if criteria.maximum_size is None else criteria.maximum_size
        self._put(kernel.TAG, criteria.tag)
        self._put(kernel.KEY, criteria.key or criteria.key_prefix)
        self.numbers[kernel.KEY_IS_START] = criteria.key is None
        if matcher.born_host is not None:
            self._put_host(matcher.born_host)
        if matcher.expression is not None and matcher.expression.choice is not None:
            self.numbers[kernel.CHOICE] = matcher.expression.choice.address
        place, needles = _chosen(matcher)
        self.numbers[kernel.PLACE] = place
        self.needles = self._put_needles(needles)
        self.is_selective = bool(needles)

    def _put(self, row: int, text: str | None) -> None:
        """A text's address and length; one that bytes may stand for in several ways is left to the decoded message."""
        self.numbers[row + 1] = -1
        if text is None or _REPLACEMENT in text:
            return
        data = text.encode("utf-8", "surrogatepass")
        self._kept.append(data)
        self.numbers[row], self.numbers[row + 1] = address_of(data), len(data)

    def _put_host(self, host: BornHost) -> None:
        length = host.network.max_prefixlen // 8
        shift = 128 - host.network.max_prefixlen
        network = (int(host.network.network_address) << shift).to_bytes(16)
        mask = (int(host.network.netmask) << shift).to_bytes(16)
        halves = [int.from_bytes(half, signed=True) for data in (network, mask) for half in (data[:8], data[8:])]
        self.numbers[kernel.HOST_BYTES] = length
        self.numbers[kernel.NETWORK_HIGH : kernel.MASK_LOW + 1] = halves
        self.numbers[kernel.PORT] = -1 if host.port is None else host.port

    def _put_needles(self, needles: Iterable[bytes]) -> np.ndarray:
        texts = b""
        for number, data in enumerate(needles):
            needle = Needle.of(data)
            row = kernel.NEEDLES + number * kernel.NEEDLE_ROW
            self.numbers[row : row + kernel.NEEDLE_ROW] = len(texts), len(data), needle.first, needle.second
            texts += data
        return np.frombuffer(texts + b"\0", np.uint8)


def _chosen(matcher: Matcher) -> tuple[int, list[bytes]]:
    """Where to look for which bytes, of which one must be there: for the longest that any condition asks for."""
    place = PLACES[matcher.criteria.place]
    chosen: list[tuple[int, int, list[bytes]]] = [(0, 0, [])]
    if matcher.criteria.contains is not None:
        chosen.append((2 * len(matcher.criteria.contains), place, [matcher.criteria.contains]))
    if matcher.regex_literal is not None:
        chosen.append((2 * len(matcher.regex_literal), place, [matcher.regex_literal]))
    if matcher.json is not None and matcher.json.literal is not None:
        chosen.append((len(matcher.json.literal), kernel.IN_BODY, [matcher.json.literal, ESCAPE]))
    _, place, needles = max(chosen, key=lambda each: each[0])
    return place, needles
