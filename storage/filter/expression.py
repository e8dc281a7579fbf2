"""SQL92 subscriptions as message filters: by the broker's bitmap where one speaks of the filter, then by properties.

The bitmap only ever spares the reading of a message: where it leaves any doubt the properties are read, and they
decide. Source: filters §2.7 and §3.3.
"""

from dataclasses import dataclass
from typing import Final

from storage.filter.bloom import FilterBits, registered_bits
from storage.filter.sql92 import Expression
from storage.kernels.pulls import BY_EXPRESSION, Choice
from storage.layout.store_config import ConsumerFilter
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit

SQL92_TYPE: Final = "SQL92"
"""The one type of expressions besides tags; written so, in upper case."""


@dataclass(slots=True)
class Evaluations:
    """How many messages an expression was evaluated for, and how many a bitmap spared it.

    Plain counters, which may miss a few when threads count at once.
    """

    done: int = 0
    skipped: int = 0


class ExpressionFilter:
    """The `MessageFilter` of a SQL92 subscription.

    `bits` are those of the same expression in the store's registry, see `bits_of_subscription`; without them every
    message's properties are asked for. `evaluations` count what it does, for this filter alone unless several are given
    the same; pulls that take the fast lane count nothing.
    """

    __slots__ = ("__weakref__", "bits", "choice", "evaluations", "expression")
    matches_everything = False
    needs_properties = True

    def __init__(
        self, expression: Expression, bits: FilterBits | None = None, evaluations: Evaluations | None = None
    ) -> None:
        self.expression = expression
        self.bits = bits
        self.evaluations = Evaluations() if evaluations is None else evaluations
        self.choice = Choice(BY_EXPRESSION, program=expression.program, has_bits=bits is not None)

    def matches_consume_queue_entry(self, tags_code: int | None, extension: ConsumeQueueExtUnit | None) -> bool:
        """Whether the message's bitmap does not rule it out; without one it may match."""
        if self.bits is None or extension is None or not self.bits.exclude(extension):
            return True
        self.evaluations.skipped += 1
        return False

    def matches_commit_log(self, properties: bytes | memoryview) -> bool:
        """Whether the expression is true; unknown is not, nor is what cannot be evaluated."""
        self.evaluations.done += 1
        return self.expression.delivers(properties)


def bits_of_subscription(
    expression: Expression, registered: ConsumerFilter | None, until_timestamp: int | None = None
) -> FilterBits | None:
    """The bits that stand for an expression, if `registered`, its group's filter on the topic, is the same one.

    A broker writes its registry every ten seconds. If it did not stop in good order, messages may be later than what
    is written, and their bitmaps may be those of another expression of the same group, which has the same bits:
    `until_timestamp` (ms) is then the time of the file.
    """
    if registered is None or registered.expression_type != SQL92_TYPE or registered.expression != expression.text:
        return None
    return registered_bits(registered) if until_timestamp is None else registered_bits(registered, until_timestamp)
