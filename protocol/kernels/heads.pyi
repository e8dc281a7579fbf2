"""Headers of commands read where they lie: see heads.pyx. For other kernels."""

from typing import Final

NAMES_OF_MEMBERS: Final[list[str]]
"""The members of a header by their numbers."""

NUMBER_OF_FIELD: Final[dict[str, int]]
"""The numbers of the fields of requests that the fast lane answers, by their names."""

WHAT_OF_KIND: Final[dict[str, int]]
"""What stands behind a name, by the kinds that :class:`protocol.kernels.commands.HeaderPlan` takes."""
