"""The requests of each workload: made beforehand, as whole frames, with what their answers must weigh.

| workload   | request                                                         | messages in an answer              |
| ---------- | --------------------------------------------------------------- | ---------------------------------- |
| view       | VIEW_MESSAGE_BY_ID of a random message                          | 1                                  |
| key        | QUERY_MESSAGE by one of the two business keys of a random one   | 1 (order), about 5 (customer)      |
| unique key | QUERY_MESSAGE by the unique key of a random message             | 1                                  |
| hot key    | QUERY_MESSAGE by a key of exactly 32 messages                   | 32                                 |
| unlucky    | QUERY_MESSAGE by a key of an early message in a hot tag's slot  | 1, at the end of a chain of 143,000 |
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.remoting import encode_request, query_fields, view_fields
from benchmarks.store_plan import (
    FIRST_STORE_TIMESTAMP,
    Numbers,
    StorePlan,
    hot_key,
    order_key,
    unique_key,
)

WORKLOADS = ("view", "key", "unique", "hot", "unlucky")
_VIEW_MESSAGE_BY_ID = 33
_QUERY_MESSAGE = 12
_FOREVER = 2**63 - 1
_THREE_DAYS = 3 * 24 * 3600 * 1000  # the window a Java client puts before a unique key's query
_KEY_MAXIMUM, _UNIQUE_KEY_MAXIMUM = 64, 32  # what mqadmin asks for


@dataclass(frozen=True)
class Requests:
    """Frame i is ``frames[bounds[i]:bounds[i + 1]]`` and has opaque i; exact answers weigh ``body_bytes``."""

    frames: bytes
    bounds: Numbers
    body_bytes: int

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def frame(self, number: int) -> bytes:
        """One request."""
        return self.frames[self.bounds[number] : self.bounds[number + 1]]


def build_requests(plan: StorePlan, workload: str, count: int, seed: int) -> Requests:
    """``count`` random requests of a workload; the same ones for the same seed."""
    random = np.random.default_rng((seed, WORKLOADS.index(workload)))
    frames, body_bytes = _BUILDERS[workload](plan, count, random)
    bounds = np.zeros(count + 1, dtype=np.int64)
    np.cumsum([len(frame) for frame in frames], out=bounds[1:])
    return Requests(b"".join(frames), bounds, body_bytes)


_Built = tuple[list[bytes], int]


def _views(plan: StorePlan, count: int, random: np.random.Generator) -> _Built:
    numbers = random.integers(0, plan.parameters.count, count)
    offsets = plan.physical_offsets[numbers].tolist()
    frames = [encode_request(_VIEW_MESSAGE_BY_ID, view_fields(offset), opaque) for opaque, offset in enumerate(offsets)]
    return frames, int(plan.sizes[numbers].sum())


def _unique_keys(plan: StorePlan, count: int, random: np.random.Generator) -> _Built:
    numbers = random.integers(0, plan.parameters.count, count)
    keys = [unique_key(number) for number in numbers.tolist()]
    return _queries(keys, "U"), int(plan.sizes[numbers].sum())


def _keys(plan: StorePlan, count: int, random: np.random.Generator) -> _Built:
    """Order and customer keys half and half; not of the first messages: their second keys are unlucky."""
    numbers = random.integers(len(plan.unlucky_keys), plan.parameters.count, count)
    is_order = random.integers(0, 2, count) == 0
    keys = [
        order_key(number) if order else plan.second_key(number)
        for number, order in zip(numbers.tolist(), is_order.tolist(), strict=True)
    ]
    weights = np.where(is_order, plan.sizes[numbers], plan.second_key_sizes[numbers])
    return _queries(keys, "K"), int(weights.sum())


def _hot_keys(plan: StorePlan, count: int, random: np.random.Generator) -> _Built:
    hot_numbers = random.integers(0, plan.parameters.hot_keys, count)
    is_hot = plan.hot_numbers >= 0
    sizes = np.bincount(plan.hot_numbers[is_hot], plan.sizes[is_hot], plan.parameters.hot_keys)
    return _queries([hot_key(number) for number in hot_numbers.tolist()], "K"), int(sizes[hot_numbers].sum())


def _unlucky_keys(plan: StorePlan, count: int, random: np.random.Generator) -> _Built:
    numbers = random.integers(0, len(plan.unlucky_keys), count)
    return _queries([plan.unlucky_keys[number] for number in numbers.tolist()], "K"), int(plan.sizes[numbers].sum())


def _queries(keys: list[str], index_type: str) -> list[bytes]:
    is_unique = index_type == "U"
    maximum = _UNIQUE_KEY_MAXIMUM if is_unique else _KEY_MAXIMUM
    begin_timestamp = FIRST_STORE_TIMESTAMP - _THREE_DAYS if is_unique else 0
    return [
        encode_request(_QUERY_MESSAGE, query_fields(key, index_type, maximum, begin_timestamp, _FOREVER), opaque)
        for opaque, key in enumerate(keys)
    ]


_BUILDERS: dict[str, Callable[[StorePlan, int, np.random.Generator], _Built]] = {
    "view": _views,
    "key": _keys,
    "unique": _unique_keys,
    "hot": _hot_keys,
    "unlucky": _unlucky_keys,
}
