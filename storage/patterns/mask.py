"""Masks as everything applies them: patterns and paths in a process that can be killed.

Where these do not come to an end with a body or a text, it is hidden whole, and counted.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from protocol.mask import BODY, MASKED, Mask
from storage.amounts import counted
from storage.patterns.pattern_process import SURROGATES, MaskAnswer, MaskQuestion
from storage.patterns.processes import PROCESSES, PatternLimit, Stop, in_groups

Ask = Callable[[list[bytes]], list[bytes | None]]


class BoundedMask(Mask):
    """A mask that no message can hold up."""

    def __init__(self, rules: Iterable[str]) -> None:
        """Raises ConfigError for a rule that is none."""
        super().__init__(rules)
        self._should_stop: Stop = lambda: False
        self._hidden = _HiddenCount()

    @property
    def hidden_whole(self) -> int:
        """Number of bodies and texts so far that were hidden because a pattern or path did not come to an end."""
        return self._hidden.value

    def while_waited_for(self, should_stop: Stop) -> "BoundedMask":
        """The same mask, which raises PatternsStopped where ``should_stop``, also in the middle of a text."""
        mask = object.__new__(type(self))  # not a copy, for which the rules would be read again
        mask.__dict__.update(self.__dict__)
        mask._should_stop = should_stop
        return mask

    def body(self, body: bytes | memoryview) -> bytes | memoryview:
        """As :meth:`Mask.body`."""
        return self.bodies((body,))[0]

    def bodies(self, bodies: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
        """As :meth:`Mask.bodies`."""
        if BODY in self.fields or not self.changes_bodies:
            return [super(BoundedMask, self).body(body) for body in bodies]
        shown = list(bodies)
        asked = [(place, bytes(body)) for place, body in enumerate(bodies) if len(body)]
        for place, found in self._applied(asked, self._mask_bodies):
            shown[place] = found
        return shown

    def text(self, text: str) -> str:
        """As :meth:`Mask.text`."""
        return self.texts((text,))[0]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """As :meth:`Mask.texts`."""
        if not self.property_patterns:
            return list(texts)
        places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            if text:
                places.setdefault(text, []).append(place)
        shown, asked = list(texts), list(places)
        for number, found in self._applied(
            [(number, text.encode(errors=SURROGATES)) for number, text in enumerate(asked)], self._mask_texts
        ):
            for place in places[asked[number]]:
                shown[place] = str(found, errors=SURROGATES)
        return shown

    def _applied(self, asked: Sequence[tuple[int, bytes]], ask: Ask) -> Iterator[tuple[int, bytes]]:
        """What is left of those of which something is hidden, by their numbers."""
        for group in in_groups(asked, lambda each: len(each[1])):
            try:
                found = ask([data for _, data in group])
            except PatternLimit:
                found = [self._alone(data, ask, is_known=len(group) == 1) for _, data in group]
            yield from ((number, left) for (number, _), left in zip(group, found, strict=True) if left is not None)

    def _alone(self, data: bytes, ask: Ask, *, is_known: bool) -> bytes | None:
        try:
            if not is_known:
                return ask([data])[0]
        except PatternLimit:
            pass
        self._hidden.add()
        _ALL_HIDDEN.add()
        return MASKED.encode()

    def _mask_bodies(self, bodies: list[bytes]) -> list[bytes | None]:
        return PROCESSES.ask(MaskQuestion(self.rules, bodies, []), MaskAnswer, self._should_stop).bodies

    def _mask_texts(self, texts: list[bytes]) -> list[bytes | None]:
        return PROCESSES.ask(MaskQuestion(self.rules, [], texts), MaskAnswer, self._should_stop).texts


def hidden_whole() -> int:
    """Number of bodies and texts that masks of this process have hidden whole so far."""
    return _ALL_HIDDEN.value


def hidden_notes(count: int) -> list[str]:
    """The sentence that says how many were; none for 0."""
    return [hidden_sentence(count)] if count else []


def hidden_sentence(count: int) -> str:
    """Say how many were."""
    what = counted(count, "body or property value was", "bodies or property values were")
    return f"{what} hidden whole: a pattern or path of the mask did not come to an end there"


@lru_cache(maxsize=16)
def mask_of(rules: tuple[str, ...]) -> BoundedMask:
    """The mask of some rules, made once; raises ConfigError."""
    return BoundedMask(rules)


class _HiddenCount:
    """A number that several threads count up."""

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.value += 1


_ALL_HIDDEN: Final = _HiddenCount()
