"""How many examples a drawn test has."""

from hypothesis import settings


def examples(number: int) -> int:
    """So many in `make test`; in `make soak` as many as its profile has, if these are more."""
    return max(number, settings.default.max_examples if settings.default else 0)
