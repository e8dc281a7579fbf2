"""Counts by name, as people and programs read them."""

import pytest

from storage.space.breakdown import COUNTED_BY, NAME_FIELDS, NameCount, inexact_counts, name_counts
from storage.space.tally import HOUR_MS, Counts, Tally


@pytest.fixture
def tally() -> Tally:
    tally = Tally()
    tally.topics.add("Ünï".encode(), 3, 300)
    tally.topics.add(b"T", 5, 900)
    tally.queues.add((b"T", 7), 5, 900)
    tally.tags.add((b"T", None), 1, 100)
    tally.tags.add((b"T", b"A"), 4, 800)
    tally.hosts.add(bytes([10, 0, 0, 1]), 5, 900)
    tally.hosts.add(bytes.fromhex("20010db8") + bytes(11) + b"\x05", 3, 300)
    tally.hours.add(100, 5, 900)
    tally.hours.add(101, 3, 300)
    return tally


def test_names_are_texts_addresses_and_times(tally: Tally) -> None:
    assert {kind: [row.names for row in name_counts(tally, kind)] for kind in COUNTED_BY} == {
        "topic": [("T",), ("Ünï",)],
        "queue": [("T", 7)],
        "tag": [("T", "A"), ("T", None)],
        "host": [("10.0.0.1",), ("2001:db8::5",)],
        "hour": [(101 * HOUR_MS,), (100 * HOUR_MS,)],
    }
    assert all(len(row.names) == len(NAME_FIELDS[kind]) for kind in COUNTED_BY for row in name_counts(tally, kind))


def test_at_most_so_many_come_the_most_bytes_first(tally: Tally) -> None:
    assert name_counts(tally, "topic", 1) == [NameCount(("T",), 5, 900, 900)]
    assert name_counts(tally, "hour", 1) == [NameCount((101 * HOUR_MS,), 3, 300, 300)]


def test_what_is_not_exact_is_said_and_how_much_it_may_be(tally: Tally) -> None:
    assert inexact_counts(tally) == []
    tally.topics = Counts(limit=1)
    for name, size in ((b"A", 500), (b"B", 40), (b"C", 30)):
        tally.topics.add(name, 1, size)
    assert name_counts(tally, "topic") == [NameCount(("A",), 1, 500, 540)]
    (sentence,) = inexact_counts(tally)
    assert sentence.startswith("there are more topics than are counted exactly: each may have up to 40 bytes more")
    assert sentence.endswith("70 bytes are of others")
