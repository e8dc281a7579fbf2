"""Where a search goes on: an opaque text that fits the search it came from, and no other.

It is URL-safe base64 of the eight bytes of the criteria's digest, two varying integers and a text, in msgpack.
"""

import base64
import binascii
from dataclasses import dataclass

import msgspec

from protocol.errors import ConfigError
from storage.search.criteria import Criteria


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """The physical offset at which to go on, and how many matches of the record there were given already.

    Only a batch, one record of several messages, has more than one match. ``queue`` names a queue of a tier, in whose
    log the offset is; it is empty for the store's own log.
    """

    physical_offset: int
    given: int = 0
    queue: str = ""

    def encode(self, criteria: Criteria) -> str:
        """As a text for the search with these criteria."""
        packed = msgspec.msgpack.encode(_Packed(criteria.digest, self.physical_offset, self.given, self.queue))
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, criteria: Criteria) -> "Cursor":
        """Read a cursor from its text; raises ConfigError if it is not valid or belongs to other criteria."""
        try:
            packed = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
            found = msgspec.msgpack.decode(packed, type=_Packed)
        except (binascii.Error, msgspec.DecodeError, UnicodeEncodeError) as error:
            raise ConfigError(f"cursor {text[:80]!r} is not valid: copy the one that the last page printed") from error
        if found.digest != criteria.digest:
            raise ConfigError("the cursor belongs to a search for something else")
        if min(found.physical_offset, found.given) < 0:
            raise ConfigError(f"cursor {text[:80]!r} is not valid: copy the one that the last page printed")
        return cls(found.physical_offset, found.given, found.queue)


class _Packed(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The parts of a cursor's text."""

    digest: bytes
    physical_offset: int
    given: int
    queue: str = ""
