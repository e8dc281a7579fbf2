"""Masks as everything applies them: patterns and paths in a process that can be killed.

Where these do not come to an end with a body or a text, it is hidden whole, and counted.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import filterfalse
from typing import Final

from protocol.mask import BODY, MASKED, Mask
from protocol.message import Message
from storage.amounts import counted
from storage.patterns._pattern_process import PATIENCE, SURROGATES, MaskAnswer, MaskQuestion
from storage.patterns.processes import PROCESSES, PatternLimit, Stop, in_groups

MOST_ENDLESS: Final = 3
"""Texts of one message, as the values of its properties, that are each run to their bound; it may have a thousand."""

MOST_OF_ANSWER: Final = 64
"""Bodies and texts of one answer that somebody waits for that are; behind them all is hidden that would be asked about.

An answer holds some hundred messages at most.
"""

Ask = Callable[[list[bytes]], list[bytes | None]]


class BoundedMask(Mask):
    """A mask that no message can hold up."""

    def __init__(self, rules: Iterable[str]) -> None:
        """Raises ConfigError for a rule that is none."""
        super().__init__(rules)
        self._should_stop: Stop = lambda: False
        self._hidden = self._of_run = _SharedCount(_ALL_HIDDEN)
        self._slow = _SharedCount()
        self._most: int | None = None

    @property
    def hidden_whole(self) -> int:
        """Number of bodies and texts so far that were hidden because a pattern or path did not come to an end.

        That of the one run where the mask is :meth:`for_one_run`, else of all of this process.
        """
        return self._hidden.value

    def for_one_run(self, should_stop: Stop = lambda: False, most: int | None = None) -> "BoundedMask":
        """Copy the mask for one run, with its whole patience (`PATIENCE`) and a count of its own.

        It raises PatternsStopped where ``should_stop``, also in the middle of a text. Behind ``most`` bodies and texts
        without end it asks about none, and hides them whole.
        """
        mask = self._counting()
        mask._of_run, mask._slow, mask._most, mask._should_stop = mask._hidden, _SharedCount(), most, should_stop
        return mask

    def _counting(self) -> "BoundedMask":
        """Copy the mask with a count of its own, which is added to the count here."""
        mask = object.__new__(type(self))  # not a copy, for which the rules would be read again
        mask.__dict__.update(self.__dict__)
        mask._hidden = _SharedCount(self._hidden)
        return mask

    @property
    def _is_done(self) -> bool:
        return self._most is not None and self._of_run.value >= self._most

    def messages(self, messages: Sequence[Message]) -> Iterator[Message]:
        """The messages of one record, as :meth:`Mask.message`.

        Raises PatternLimit behind more than `MOST_ENDLESS` bodies and texts without end: a batch holds thousands.
        """
        mask = self._counting()
        for message in messages:
            yield mask.message(message)
            if mask.hidden_whole > MOST_ENDLESS and len(messages) > 1:
                raise PatternLimit

    def body(self, body: bytes | memoryview) -> bytes | memoryview:
        """As :meth:`Mask.body`."""
        return self.bodies((body,))[0]

    def bodies(self, bodies: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
        """As :meth:`Mask.bodies`."""
        if BODY in self.fields or not self.changes_bodies:
            return [super(BoundedMask, self).body(body) for body in bodies]
        shown = list(bodies)
        places = [place for place, body in enumerate(bodies) if len(body)]
        found, _ = self._applied([bytes(bodies[place]) for place in places], self._mask_bodies)
        for place, left in zip(places, found, strict=True):
            if left is not None:
                shown[place] = left
        return shown

    def text(self, text: str) -> str:
        """As :meth:`Mask.text`."""
        return self.texts((text,))[0]

    def texts(self, texts: Sequence[str], owners: Sequence[int] | None = None) -> list[str]:
        """As :meth:`Mask.texts`; of a message with more than `MOST_ENDLESS` texts without end all are hidden."""
        if not self.property_patterns:
            return list(texts)
        owners = [0] * len(texts) if owners is None else owners
        places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            if text:
                places.setdefault(text, []).append(place)
        found, given_up = self._applied(
            [text.encode(errors=SURROGATES) for text in places],
            self._mask_texts,
            [{owners[place] for place in those} for those in places.values()],
        )
        shown = list(texts)
        for those, left in zip(places.values(), found, strict=True):
            for place in those:
                if owners[place] in given_up:
                    shown[place] = MASKED
                elif left is not None:
                    shown[place] = str(left, errors=SURROGATES)
        return shown

    def _applied(
        self, asked: Sequence[bytes], ask: Ask, owners: Sequence[Set[int]] | None = None
    ) -> tuple[list[bytes | None], Set[int]]:
        """Return each text masked, None if nothing is hidden in it; and the owners with too many texts without end.

        What only such owners have is hidden without being asked about.
        """
        left: dict[int, bytes | None] = {}
        endless, given_up = Counter[int](), set[int]()

        def is_given_up(number: int) -> bool:
            return self._is_done or (owners is not None and owners[number] <= given_up)

        def hide(number: int) -> None:
            self._hidden.add(1)
            if owners is not None:
                endless.update(owners[number])
                given_up.update(owner for owner in owners[number] if endless[owner] > MOST_ENDLESS)

        for numbers in in_groups(range(len(asked)), lambda number: len(asked[number])):
            group = list(filterfalse(is_given_up, numbers))
            self._hidden.add(len(numbers) - len(group))
            try:
                if group:
                    left.update(zip(group, ask([asked[number] for number in group]), strict=True))
            except PatternLimit:
                for number in group:
                    if len(group) == 1:
                        hide(number)
                    elif is_given_up(number):
                        self._hidden.add(1)
                    else:
                        try:
                            left[number] = ask([asked[number]])[0]
                        except PatternLimit:
                            hide(number)
        return [left.get(number, MASKED.encode()) for number in range(len(asked))], given_up

    def _mask_bodies(self, bodies: list[bytes]) -> list[bytes | None]:
        return self._ask(bodies, []).bodies

    def _mask_texts(self, texts: list[bytes]) -> list[bytes | None]:
        return self._ask([], texts).texts

    def _ask(self, bodies: list[bytes], texts: list[bytes]) -> MaskAnswer:
        question = MaskQuestion(self.rules, bodies, texts, is_brief=self._slow.value >= PATIENCE)
        try:
            answer = PROCESSES.ask(question, MaskAnswer, self._should_stop)
        except PatternLimit:
            self._slow.add(1)
            raise
        self._slow.add(answer.is_slow)
        return answer


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


class _SharedCount:
    """A number that several threads count up."""

    def __init__(self, more: "_SharedCount | None" = None) -> None:
        """Count from 0; what is added here is added to `more` as well."""
        self.value = 0
        self._more = more
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.value += count
        if self._more is not None:
            self._more.add(count)


_ALL_HIDDEN: Final = _SharedCount()
