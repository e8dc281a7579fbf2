"""Text of unknown origin on its way to a terminal."""


def printable(text: str) -> str:
    """The text with everything escaped that a terminal would obey, but line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t" else character.encode("unicode_escape").decode()
        for character in text
    )


def one_line(text: str) -> str:
    """The text, printable, with single spaces for line ends and other blanks."""
    return " ".join(printable(text).split())
