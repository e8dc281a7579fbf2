"""A bounded memory of the values used last, for readers of many threads at once.

There is no lock: each step is one operation of a C-implemented `OrderedDict` on keys whose hash runs no Python code,
which the interpreter does not interrupt. Two threads that miss the same key at once both load it, and one value wins.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")
Key = str | tuple[str, int]


class RecentlyUsed(Generic[Value]):
    """Up to `limit` values by key; the one not used for longest is forgotten first."""

    __slots__ = ("_values", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key, load: Callable[[], Value]) -> Value:
        """The value of `key`, from memory or from `load()`, whose errors pass through and are not remembered."""
        values = self._values
        try:
            value = values[key]
            values.move_to_end(key)
        except KeyError:
            return self._remember(key, load())
        return value

    def _remember(self, key: Key, value: Value) -> Value:
        self._values[key] = value
        self.forget_to(self.limit)
        return value

    def forget_to(self, count: int) -> None:
        """Forget values until at most `count` are left."""
        while len(self._values) > count:
            try:
                self._values.popitem(last=False)
            except KeyError:  # another thread took the last one
                return
