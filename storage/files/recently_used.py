"""A bounded memory of the values used last, for readers of many threads at once.

There is no lock: each step is one operation of a C-implemented `OrderedDict` on keys whose hash runs no Python code,
which the interpreter does not interrupt. Two threads that miss the same key at once both load it, and one value wins.
"""

import contextlib
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

    def peek(self, key: Key) -> Value | None:
        """The value of `key` if it is remembered."""
        return self._values.get(key)

    def find(self, key: Key) -> Value | None:
        """The value of `key` if it is remembered; counts as a use of it."""
        values = self._values
        try:
            value = values[key]
            values.move_to_end(key)
        except KeyError:
            return None
        return value

    def put(self, key: Key, value: Value) -> None:
        """Remember a value in place of another one, as the one used last."""
        self._remember(key, value)
        with contextlib.suppress(KeyError):  # another thread made it be forgotten
            self._values.move_to_end(key)

    def remembered(self) -> list[tuple[Key, Value]]:
        """All keys and values as of now."""
        # In two steps: a list of pairs makes objects, which may let another thread in.
        return [(key, value) for key in list(self._values) if (value := self._values.get(key)) is not None]

    def forget(self, key: Key) -> None:
        """Forget one value, if it is there."""
        self._values.pop(key, None)

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
