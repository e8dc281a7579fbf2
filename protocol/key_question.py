"""A question for the messages of a key, as it is asked of a store or, in a QUERY_MESSAGE, of a broker."""

from dataclasses import dataclass
from typing import Final

PAGE: Final = 64
"""Matches asked for at once; a broker gives no more."""


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """What QUERY_MESSAGE asks. `index_type` is K (key), U (unique key) or T (tag); times in milliseconds.

    `cursor` is the `rocketlensCursor` of the page before. `copies`: also find the copies of the topic's messages that a
    broker keeps under topics of its own. Brokers other than ours ignore both.
    """

    topic: str
    key: str
    index_type: str
    maximum: int = 64
    begin_timestamp: int = 0
    end_timestamp: int = 2**63 - 1
    cursor: int | None = None
    copies: bool = False

    def ext_fields(self) -> dict[str, str]:
        """The request's header fields; index type and unique flag as clients of any version send them."""
        fields = {
            "topic": self.topic,
            "key": self.key,
            "maxNum": str(self.maximum),
            "beginTimestamp": str(self.begin_timestamp),
            "endTimestamp": str(self.end_timestamp),
            "indexType": self.index_type,
            "_UNIQUE_KEY_QUERY": "true" if self.index_type == "U" else "false",
        }
        if self.cursor is not None:
            fields["lastKey"] = str(self.cursor)
        return fields | {"rocketlensCopies": "true"} if self.copies else fields
