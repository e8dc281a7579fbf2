"""Very many texts looked up at once: what they name, one message after the other, and how far that is."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from protocol.errors import ConfigError
from protocol.question import READINGS, KeyKind, parts_of
from rocketlens.hidden_whole import Hiding
from rocketlens.searching import FoundByPieces
from storage.search.lookup import LookupStep, Match
from storage.search.progress import ProgressReport

OF_KEYS = frozenset((KeyKind.KEY.words, KeyKind.UNIQUE.words))
LOOKED_UP = tuple(reading for reading in READINGS if reading != KeyKind.TAG.words)
"""What texts may be taken for: tags are in no part of the index that is gone over."""


class LookUp(FoundByPieces[Match]):
    """Each text with a message that it names, in the order of the log, found while they are asked for.

    >>> found = store.look_up(["hotkey", "nowhere"], topic="TopicTest")
    >>> [match.message.body for match in found][:2], found.missing
    ([b'hot 0', b'hot 1'], ['nowhere'])
    """

    def __init__(
        self,
        texts: Iterable[str],
        kind: str | None,
        ask: Callable[[list[str]], Iterable[LookupStep]],
        hiding: Hiding | None = None,
    ) -> None:
        """Use :meth:`Source.look_up`; `ask` looks the texts up, each once.

        Raises ConfigError for an unknown kind, and for texts by which nothing may be found.
        """
        if kind is not None and kind not in LOOKED_UP:
            raise ConfigError(f"{kind!r}: many texts are looked up as {', '.join(LOOKED_UP)}; find a tag by itself")
        self._missing = dict.fromkeys(texts)
        self._hiding = hiding
        if hiding is not None and hiding.mask and parts_of(kind):
            for text in self._missing:
                for field in ("keys", "unique_key"):
                    hiding.mask.refuse_value(field, text)
        self._steps = iter(ask(list(self._missing)))
        self.progress = ProgressReport(0, 0, 0, 0.0)
        """How much of the index is gone over so far, and how much there is."""
        self.notes: tuple[str, ...] = ()
        """At the end: what may be missing."""

    @property
    def missing(self) -> list[str]:
        """The texts that have named nothing so far; at the end, those that name nothing."""
        return list(self._missing)

    def pieces(self) -> Iterator[list[Match]]:
        """The pieces, some without any match."""
        for step in self._steps:
            self.progress, self.notes = step.progress, tuple(dict.fromkeys((*self.notes, *step.notes)))
            piece = [shown for match in step.matches if (shown := self._shown(match)) is not None]
            for match in piece:
                self._missing.pop(match.text, None)
            yield piece
        if self._hiding is not None:
            self._hiding.warn()

    def _shown(self, match: Match) -> Match | None:
        """A match without what is hidden of its message; None where the text is hidden with what stands beside it."""
        message = match.message.detached()
        if self._hiding is None or not self._hiding.mask:
            return replace(match, message=message)
        message = self._hiding.mask.message(message)
        if match.kind in OF_KEYS and match.text not in (*message.keys, message.unique_key):
            return None
        return replace(match, message=message)
