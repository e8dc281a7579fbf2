"""The names that `--engine` takes, and which one a command runs on; apart because commands need them at once."""

import os
from collections.abc import Iterator, Mapping
from typing import Final

from protocol.errors import ConfigError

AUTO: Final = "auto"
LOCAL: Final = "local"
SPARK: Final = "spark"
ENGINES: Final = (AUTO, LOCAL, SPARK)
"""auto is Spark where the options name anything of Spark's, or where spark-submit started this process; else local."""

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit started this process and has the JVM already."""


def uses_spark(
    engine: str = AUTO, master: str = "", settings: Mapping[str, str] | None = None, *, shuffles: bool = False
) -> bool:
    """Whether a command with these options runs on Spark; raises ConfigError where they contradict each other."""
    named = next(_named(master, settings or {}, shuffles=shuffles), None)
    if engine == LOCAL and named is not None:
        raise ConfigError(f"{named} is for --engine {SPARK}, and --engine {LOCAL} was given")
    return engine == SPARK or (engine == AUTO and (named is not None or SUBMITTED in os.environ))


def _named(master: str, settings: Mapping[str, str], *, shuffles: bool) -> Iterator[str]:
    """Options that only Spark has, of those that were given."""
    if master:
        yield f"--master {master}"
    if settings:
        yield "--conf"
    if shuffles:
        yield "--exchange shuffle"
