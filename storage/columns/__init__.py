"""Messages as columns: arrays and blocks of bytes that Arrow, Parquet or NumPy take as they are."""

from typing import Final

DOOR: Final = ("body_content", "mask", "message_columns", "names", "properties", "rows", "texts", "wanted")
