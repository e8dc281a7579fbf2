"""Bodies as a reader of an export wants them: as consumers get them, or what applications packed into them, as text."""

from dataclasses import dataclass

from protocol.body_content import UTF_8, charset_of, text_in, unpack
from protocol.compression import Budget


@dataclass(frozen=True, slots=True)
class BodyContent:
    """What becomes of a body that consumers get: unpacked, and a text of a `charset` as UTF-8; None is UTF-8."""

    charset: str | None = None

    @classmethod
    def asked(cls, charset: str | None, *, unpack: bool) -> "BodyContent | None":
        """What becomes of bodies by the options of an export; raises ConfigError for a charset that is none."""
        if charset is None:
            return cls() if unpack else None
        return cls(charset_of(charset))

    def of(self, body: bytes, budget: Budget) -> tuple[bytes, bool]:
        """The content of a body, and whether it could be unpacked.

        What cannot be, or is no text of the charset, stays as it is.
        """
        content = unpack(body, budget=budget)
        data = bytes(content.data)  # the same object where nothing was packed
        text = None if self.charset in (None, UTF_8) else text_in(data, self.charset)
        return data if text is None else text.encode(), content.error is None
