"""Hostile URLs of the page's API by a seed: every path and parameter, with values that are long, odd or costly."""

import random
from urllib.parse import quote_plus

VALUES = [
    lambda rng: "=" * rng.randrange(1, 10_000),
    lambda rng: "(" * rng.randrange(1, 3_000) + ")" * rng.randrange(1, 3_000),
    lambda rng: "(a*)*" * rng.randrange(1, 1_000) + "b",
    lambda rng: "[\\w-\\d]" * rng.randrange(1, 1_000),
    lambda rng: "|".join(f"x{number}{{1,{rng.randrange(1, 1000)}}}" for number in range(rng.randrange(1, 300))),
    lambda rng: "$" + "..a[?(@.b=='c')]" * rng.randrange(1, 500),
    lambda rng: "$." + "a=1 " * rng.randrange(1, 1_500),
    lambda rng: " AND ".join(f"a{number} > {number}" for number in range(rng.randrange(1, 800))),
    lambda rng: "NOT " * rng.randrange(1, 2_000) + "a",
    lambda rng: "||".join(f"Tag{number}" for number in range(rng.randrange(1, 1_500))),
    lambda rng: rng.choice(("-1", "0", "1", str(2**31), str(2**63 - 1), str(2**63), "1" + "0" * 30, "1" + "0" * 4400)),
    lambda rng: "".join(chr(rng.randrange(1, 0xD800)) for _ in range(rng.randrange(1, 500))),
    lambda rng: rng.choice(("\x00", "\r\nX: y", "../../etc/passwd", "%", "%zz", "\ufeff", "\u202e", "")),
    lambda rng: rng.choice(("TopicTest", "*", "TagA", "a = 1", ".*", "body", "0", "1", "6581", "-1h", "true")),
]


PLAIN = {"topic": "TopicTest", "queueId": "0", "queueOffset": "0", "offset": "6581", "text": "hotkey"}
"""Parameters without which there is no answer."""


class UrlGarbage:
    """Makes targets for a request line; `paths` has the names of the parameters of each path."""

    def __init__(self, seed, paths) -> None:
        self._rng = random.Random(seed)
        self._paths = paths

    def target(self) -> str:
        """A path and a query, of at most the bytes that a request may have."""
        rng = self._rng
        path, names = rng.choice(self._paths)
        # What is wrong at once costs nothing: most parameters are what somebody would ask for.
        hostile = set(rng.sample(list(names), k=min(len(names), rng.choice((0, 1, 1, 1, 2, 5)))))
        parts = []
        for name in names:
            value = rng.choice(VALUES)(rng) if name in hostile else PLAIN.get(name, "")
            if value or name in hostile:
                parts.append(f"{name}={quote_plus(value, errors='replace')}")
        rng.shuffle(parts)
        return f"{path}?{'&'.join(parts)}"[:15_000]
