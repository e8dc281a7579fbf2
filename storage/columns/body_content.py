"""Bodies as a reader of an export wants them: as consumers get them, or what applications packed into them, as text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from protocol.body_content import UTF_8, Content, charset_of, text_in, unpack
from protocol.compression import Budget
from storage.amounts import counted


class BodyCounts(NamedTuple):
    """How many bodies could not be decompressed or unpacked, are not what their sysFlag says, and were unpacked."""

    unreadable: int = 0
    mislabelled: int = 0
    unpacked: int = 0

    @classmethod
    def total(cls, counts: Iterable[Iterable[int]]) -> "BodyCounts":
        """All of several ones, each as a sequence of its numbers."""
        whole = cls()
        for each in counts:
            whole = whole.plus(cls(*each))
        return whole

    def plus(self, other: "BodyCounts") -> "BodyCounts":
        """Both together."""
        return BodyCounts(*map(sum, zip(self, other, strict=True)))

    def sentences(self) -> Iterator[str]:
        """Describe the bodies that were written."""
        if self.unreadable:
            bodies = counted(self.unreadable, "body is", "bodies are")
            yield f"{bodies} left out or as sent: what is in them cannot be decompressed or unpacked, or is too much"
        if self.mislabelled:
            bodies = counted(self.mislabelled, "body is", "bodies are")
            yield f"{bodies} not compressed as the sysFlag says, and written as what they are"
        if self.unpacked:
            bodies = counted(self.unpacked, "body was", "bodies were")
            yield f"{bodies} packed when sent, and written unpacked, as without --no-unpack"


@dataclass(frozen=True, slots=True)
class BodyContent:
    """What becomes of a body that consumers get: unpacked, and a text of a `charset` as UTF-8; None is UTF-8."""

    charset: str | None = None

    @classmethod
    def asked(cls, charset: str | None, *, unpack: bool) -> "BodyContent | None":
        """What becomes of bodies by the options of an export; raises ConfigError for an unknown charset."""
        if charset is None:
            return cls() if unpack else None
        return cls(charset_of(charset))

    @property
    def changes_texts(self) -> bool:
        """Whether bodies become others in which nothing is packed."""
        return self.charset not in (None, UTF_8)

    def of(self, body: bytes, budget: Budget) -> Content:
        """The content of a body; what cannot be unpacked, or is no text of the charset, stays as it is."""
        content = unpack(body, budget=budget)
        data = bytes(content.data)  # the same object where nothing was packed
        text = text_in(data, self.charset) if self.changes_texts else None
        return content._replace(data=data if text is None else text.encode())
