"""Its place among brokers: the names it stands for, and the name servers that are told of them."""

from typing import Final

DOOR: Final = ("client", "registration", "several_stores")
