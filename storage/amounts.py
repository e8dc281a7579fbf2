"""Bytes, counts, rates and durations as a person reads them."""

from typing import Final

_BYTES: Final = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_COUNTS: Final = (("billion", 10**9), ("million", 10**6))


def count_text(count: int) -> str:
    """A number with a comma for every thousand."""
    return f"{count:,}"


def counted(count: int, one: str, many: str = "") -> str:
    """A number and the things that it counts: `1 file`, `2 files`, `1,000 entries`.

    `many` is the form for other numbers than 1, where it is not the regular plural of `one`.
    """
    return f"{count_text(count)} {one if count == 1 else many or _plural(one)}"


def bytes_text(count: float) -> str:
    """Bytes in powers of ten, with three digits, as for disks and rates."""
    name, size = _scale(count)
    return f"{_digits(count / size)} {name}"


def amount_text(count: int, unit: str) -> str:
    """An amount of a unit, which is given in the plural."""
    return bytes_text(count) if unit == "bytes" else counted(count, _singular(unit), unit)


def share_text(done: int, total: int, unit: str) -> str:
    """A part of a total, as in `2.7 of 4.3 GB`; of bytes, both in the scale of the total."""
    if unit != "bytes":
        return f"{count_text(done)} of {count_text(total)} {unit}"
    name, size = _scale(total)
    return f"{_digits(done / size)} of {_digits(total / size)} {name}"


def rate_text(rate: float, unit: str) -> str:
    """A rate: an amount of a unit each second."""
    if unit == "bytes":
        return f"{bytes_text(rate)}/s"
    for name, size in _COUNTS:
        if rate >= size:
            return f"{_digits(rate / size)} {name} {unit}/s"
    return f"{rate:,.0f} {unit}/s"


def clock_text(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = round(min(max(seconds, 0.0), 3_599_999.0))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def duration_text(seconds: float) -> str:
    """Seconds below a minute, else a clock."""
    return f"{seconds:.1f} s" if seconds < 60 else clock_text(seconds)


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def _singular(nouns: str) -> str:
    return f"{nouns[:-3]}y" if nouns.endswith("ies") else nouns.removesuffix("s")


def _scale(count: float) -> tuple[str, int]:
    return next(((name, size) for name, size in _BYTES if count >= size), ("bytes", 1))


def _digits(value: float) -> str:
    """A number with three significant digits, and none behind the point of a whole number."""
    if value >= 99.95 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
