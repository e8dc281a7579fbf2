"""The filters of a server's clients. Each is made once from its text; where that takes long, off the event loop.

A filter takes up to 250 times the memory of its text, and its estimated memory is counted in the budget. A filter in
use is never made a second time, and is counted until its last user drops it. The filters that were used last are kept
too, as far as the budget allows. Texts that do not compile are also remembered, since consumers send them again and
again.
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from broker.service.long_work import Parsing
from broker.service.registry_budget import BudgetSpent, Room, room_apart, size_of
from protocol.errors import BadCommand, FilterSyntaxError
from storage.files.waiting import Lookup, plainly
from storage.filter.base import MessageFilter
from storage.filter.expression import SQL92_TYPE, ExpressionFilter
from storage.filter.sql92 import LONGEST, parse
from storage.filter.tag import TagFilter, is_tag_type, parse_tag_expression

Key: TypeAlias = tuple[str | None, str | None]
"""Text and type of a subscription."""

LONGEST_EXPRESSIONS: Final = LONGEST
"""Characters of all new expressions in one request; a request with more is refused."""

FILTER_BYTES: Final = 2048
"""Bytes that any filter is counted with besides its text."""

PART_BYTES: Final = 600
"""Bytes that each part of an expression is counted with; a comparison has three parts."""

EXPRESSION_COST: Final = 20
TAG_COST: Final = 48
"""Bytes that a character of an expression, and of a list of tags, is counted with."""

EXPRESSION_UNITS: Final = 6
"""Units of parsing that a character of an expression takes at worst, see `broker.service.long_work`."""

KEPT_PART: Final = 4
"""Filters that are not in use take at most 1/`KEPT_PART` of the registry's room."""


def compile_filter(text: str | None, expression_type: str | None) -> MessageFilter:
    """Make the filter of a subscription from its text and type.

    Raises `FilterSyntaxError` for a text that does not compile, and for an unknown type.
    """
    if is_tag_type(expression_type):
        return TagFilter(parse_tag_expression(text, expression_type))
    if expression_type != SQL92_TYPE:
        kind = expression_type or ""
        raise FilterSyntaxError(kind, (0, len(kind)), f"filters are of the type TAG or {SQL92_TYPE}")
    if not text:
        raise FilterSyntaxError("", (0, 0), "the expression is empty")
    return ExpressionFilter(parse(text))


@dataclass(frozen=True)
class Failed:
    """The reason why a text does not compile: the parts of its `FilterSyntaxError`."""

    source: str
    span: tuple[int, int]
    reason: str


Made: TypeAlias = MessageFilter | Failed | BudgetSpent


class KeptFilters:
    """All filters of a server that are in use, and those that were used last. Safe to use from several threads."""

    def __init__(self, room: Room | None = None) -> None:
        self._room = room_apart("filters") if room is None else room
        self._lock = threading.RLock()
        self._used: weakref.WeakValueDictionary[Key, MessageFilter] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[Key, MessageFilter | Failed] = OrderedDict()
        self._costs: dict[Key, int] = {}
        self._kept_bytes = 0

    def known(self, text: str | None, expression_type: str | None) -> MessageFilter | None:
        """The filter of a subscription if it is kept; None where it is not, and for a text that does not compile."""
        found = self._find((text, expression_type))
        return None if isinstance(found, Failed) else found

    def make_lookup(self, text: str | None, expression_type: str | None) -> Lookup[MessageFilter]:
        """Return the filter of a subscription, made if it is not kept; equal texts and types get the same object.

        Raises `FilterSyntaxError` for a text that does not compile, and `BudgetSpent` where the budget is spent.
        """
        key = text, expression_type
        found = self._find(key)
        if found is None:
            size = len(text or "")
            if text is not None and size > LONGEST_EXPRESSIONS:
                raise FilterSyntaxError(text, (0, 1), f"{size} characters, more than {LONGEST_EXPRESSIONS}")
            yield Parsing(f"a subscription of {size} characters", _units(key), partial(self._warm, key))
            found = self._find(key) or self._make(key)
        if isinstance(found, Failed):
            raise FilterSyntaxError(found.source, found.span, found.reason)
        return found

    make = plainly(make_lookup)

    def make_all(self, keys: Iterable[Key], *, is_trusted: bool = False) -> Lookup[dict[Key, Made]]:
        """Return the filters of a request by text and type, with an error in the place of each that cannot be made.

        Raises `BadCommand` for too many new characters altogether, unless `is_trusted` says that another worker has
        made them already.
        """
        found = {key: self._find(key) for key in keys}
        missing = [key for key, made in found.items() if made is None]
        size = sum(len(text or "") for text, _ in missing)
        if size > LONGEST_EXPRESSIONS and not is_trusted:
            raise BadCommand(f"subString: {size} characters of new expressions, more than {LONGEST_EXPRESSIONS}")
        if missing:
            yield Parsing(f"{len(missing)} subscriptions of {size} characters", sum(map(_units, missing)))
        made_now = {key: self._made_or_why_not(key) for key in missing}
        return {key: made_now[key] if made is None else made for key, made in found.items()}

    def _made_or_why_not(self, key: Key) -> Made:
        try:
            return self._make(key)
        except BudgetSpent as spent:
            return spent

    def _warm(self, key: Key) -> None:
        self._make(key)

    def _find(self, key: Key) -> MessageFilter | Failed | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept
            return self._used.get(key)

    def _make(self, key: Key) -> MessageFilter | Failed:
        made: MessageFilter | Failed
        try:
            made = compile_filter(*key)
        except FilterSyntaxError as error:
            made = Failed(error.source, error.span, error.reason)
        with self._lock:
            # Another thread may have made it meanwhile.
            found = self._find(key)
            if found is None:
                self._take_in(key, made)
                found = made
        return found

    def _take_in(self, key: Key, made: MessageFilter | Failed) -> None:
        cost = _cost(key, made)
        while self._kept and not self._room.fits(cost) and self._room.fits(cost - self._kept_bytes):
            self._drop_oldest()
        if not self._room.take(cost):
            if isinstance(made, Failed):
                return
            raise self._room.spent
        weakref.finalize(made, self._room.give_back, cost).atexit = False
        if not isinstance(made, Failed):
            self._used[key] = made
        self._kept[key] = made
        self._costs[key] = cost
        self._kept_bytes += cost
        # The newest one is always kept: a request that had it made off the event loop is about to ask for it there.
        while self._kept_bytes > self._room.limit // KEPT_PART and len(self._kept) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        key, _ = self._kept.popitem(last=False)
        self._kept_bytes -= self._costs.pop(key)


def _units(key: Key) -> int:
    """The most units of parsing that making a filter takes."""
    text, expression_type = key
    size = len(text or "")
    return 1 + (size if is_tag_type(expression_type) else EXPRESSION_UNITS * size)


def _cost(key: Key, made: MessageFilter | Failed) -> int:
    """The number of bytes that a filter is counted with."""
    texts = size_of(*(text for text in key if text is not None))
    if isinstance(made, Failed):
        return FILTER_BYTES + texts
    if isinstance(made, ExpressionFilter):
        return FILTER_BYTES + texts + EXPRESSION_COST * len(made.expression.text) + PART_BYTES * _parts(made)
    return FILTER_BYTES + texts + TAG_COST * len(key[0] or "")


def _parts(made: ExpressionFilter) -> int:
    """The number of parts of an expression."""
    waiting, count = [made.expression.root], 0
    while waiting:
        count += 1
        waiting += waiting.pop().operands
    return count
