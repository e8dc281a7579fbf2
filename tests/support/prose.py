"""Tables of prose: a row begins at the margin, its cells are parted by ‖, and the lines that go on are indented."""

import re


def rows(text: str) -> list[list[str]]:
    lines = (" ".join(row.split()) for row in re.split(r"\n(?! )", text.strip("\n")))
    return [[cell.strip() for cell in f" {line} ".split("‖")] for line in lines]
