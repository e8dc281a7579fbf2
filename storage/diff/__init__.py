"""What two stores have in common, and what not."""

from typing import Final

DOOR: Final = ("compare",)
