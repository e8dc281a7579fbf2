"""The index hashes of many keys in many topics at once.

A Java hash goes on where another ends: that of `topic#key` is that of `topic#`, times 31 to the power of the key's
length in UTF-16 units, plus that of the key. So each key is hashed once, whatever number of topics there are.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from protocol.java_hash import java_hash
from storage.index.tail_index import Hashes
from storage.search.ascending import ascending

_UNITS = "utf-16-le"


class KeyHashes:
    """Keys made ready to be hashed with a topic."""

    def __init__(self, keys: Sequence[str]) -> None:
        lengths = np.array([_length(key) for key in keys], np.uint32)
        powers = np.full(int(lengths.max(initial=0)) + 1, 31, np.uint32)
        powers[0] = 1
        self._powers: npt.NDArray[np.uint32] = np.cumprod(powers, dtype=np.uint32)[lengths]
        self._hashes = np.array([java_hash(key) & 0xFFFFFFFF for key in keys], np.uint32)

    def within(self, topic: str) -> Hashes:
        """The index hashes of all keys in a topic."""
        prefix = np.uint32(java_hash(f"{topic}#") & 0xFFFFFFFF)
        # As in Java, the smallest int has no absolute value; a broker stores 0 for it.
        signed = (self._powers * prefix + self._hashes).view(np.int32)
        return np.where(signed == -(1 << 31), 0, np.abs(signed)).astype(np.int32)

    def within_any(self, topics: Iterable[str]) -> Hashes:
        """Those of all topics, ascending, each once."""
        return ascending(np.concatenate([np.empty(0, np.int32), *map(self.within, topics)]))


def _length(key: str) -> int:
    return len(key) if key.isascii() else len(key.encode(_UNITS, "surrogatepass")) // 2
