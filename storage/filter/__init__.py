"""Message filters as brokers evaluate them: tag expressions, SQL92 and the Bloom filter of ConsumeQueueExt."""

from typing import Final

DOOR: Final = (
    "absent_properties",
    "base",
    "bloom",
    "consumption",
    "explanation",
    "expression",
    "hidden",
    "retry",
    "sql92",
    "tag",
)
