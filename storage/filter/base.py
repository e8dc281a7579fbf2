"""The interface of filters, which decide which messages of a queue a consumer gets.

A pull calls a filter twice, as the broker does: first with what the queue unit holds, before the message is read; then,
only if the filter says that it needs them, with the message's properties. Source: filters §1.4, §3.3.
"""

from typing import Final, Protocol

from storage.kernels.pulls import EVERYTHING, Choice
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit

CHOICE_OF_EVERYTHING: Final = Choice(EVERYTHING)


class MessageFilter(Protocol):
    """One consumer's choice of messages; filters keep nothing but counters, and are shared between threads."""

    @property
    def matches_everything(self) -> bool:
        """Whether both stages always say yes, so that they need not be called."""
        ...

    @property
    def needs_properties(self) -> bool:
        """Whether the second stage looks at the properties; if not, they are never parsed."""
        ...

    @property
    def choice(self) -> Choice | None:
        """The filter as the kernel of a pull takes it; None for one that only its two stages can decide."""
        ...

    def matches_consume_queue_entry(self, tags_code: int | None, extension: ConsumeQueueExtUnit | None) -> bool:
        """Whether the message behind a queue unit may match.

        `tags_code` is None where the unit points to an extension unit that is lost: nothing is known, so it may match.
        """
        ...

    def matches_commit_log(self, properties: bytes | memoryview) -> bool:
        """Whether a message with this block of properties matches."""
        ...
