"""How a snapshot stays true while a broker writes: what came, what went, and what is still to be found out."""

from typing import Final

DOOR: Final = ("file_sizes", "message_store", "snapshot", "store_state")
