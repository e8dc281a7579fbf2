"""Its place among brokers: the names it stands for, and the name servers that it registers with."""

from typing import Final

DOOR: Final = ("client", "registration", "several_stores")
