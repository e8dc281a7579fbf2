"""Text of unknown origin on its way to a terminal, or into JSON."""

from protocol.redaction import redacted


def printable(text: str) -> str:
    """Escape everything in a text that a terminal would obey, except line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t" else character.encode("unicode_escape").decode()
        for character in text
    )


def one_line(text: str) -> str:
    """The text, printable and without secrets, with single spaces for line ends and other blanks."""
    return " ".join(printable(redacted(text)).split())


def as_text(text: str) -> str:
    r"""The text as UTF-8 can hold it: bytes of a file's or topic's name that are none stand as ``\xff``."""
    if text.isascii():
        return text
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character, as only JSON can spell it
        data = text.encode("utf-8", "surrogatepass")
    return data.decode("utf-8", "backslashreplace")
