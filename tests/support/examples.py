"""How many examples a drawn test has."""

from hypothesis import settings

USUAL = 25
"""How many a test draws in `make test` that does not say (tests/conftest.py)."""


def examples(number: int) -> int:
    """So many in `make test`, be it fewer than others draw; in `make soak` as many as its profile has, if more."""
    profile = settings.default.max_examples if settings.default else 0
    return number if profile <= USUAL else max(number, profile)
