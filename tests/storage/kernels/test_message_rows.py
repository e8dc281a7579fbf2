"""Why choosing records of a stretch ends, and how far it has come; what is chosen is shown with the rows."""

import numpy as np
import pytest

from kernel_memory import Bytes, record_at
from storage.columns.wanted import KernelChoice, Wanted
from storage.kernels import message_rows as kernel
from storage.kernels import record as codes

BASE = 1 << 32
BLANK_SIZE = 100
BLANK = BLANK_SIZE.to_bytes(4, "big") + b"\xcb\xd4\x31\x94"


def choose(
    data: bytes, wanted: Wanted | None = None, *, limit: int | None = None, room: int = 9, checksums: bool = True
) -> tuple[int, list[int], list[int]]:
    """Where it ended, the result, and the positions chosen."""
    held = Bytes(data)
    choice = KernelChoice(wanted or Wanted(), places=True, checksums=checksums)
    table, result = np.zeros((kernel.FIELDS, room), np.int64), np.zeros(kernel.RESULT, np.int64)
    ended = kernel.choose_records(
        held.address, 0, len(data), BASE, BASE + len(TWO) + BLANK_SIZE, len(data) if limit is None else limit,
        choice.numbers, choice.topics, choice.queues, choice.tags, table, result,
    )  # fmt: skip
    return int(ended), result.tolist(), table[kernel.POSITION, : result[kernel.COUNT]].tolist()


FIRST = record_at(BASE, tags="A", keys="k l", unique_key="u")
TWO = FIRST + record_at(BASE + len(FIRST), sys_flag=0x30, tags="B")
AT = [0, len(FIRST)]


@pytest.mark.parametrize(
    ("behind", "reason", "code"),
    [
        (b"", kernel.LIMIT, 0),
        (b"\0\0\0\1", kernel.NEED_MORE, 0),
        (BLANK, kernel.BLANK, 0),
        (bytes(8), kernel.ZERO, 0),
        (bytes(7) + b"\1", kernel.DAMAGE, codes.BAD_MAGIC),
        (record_at(BASE + len(TWO))[:-1], kernel.NEED_MORE, 0),
        (record_at(0), kernel.DAMAGE, codes.BAD_OFFSET),
        (record_at(BASE + len(TWO), crc=5), kernel.DAMAGE, codes.BAD_BODY_CRC),
    ],
)
def test_a_run_says_why_it_ended(behind: bytes, reason: int, code: int) -> None:
    assert choose(TWO + behind) == (len(TWO), [reason, 2, code, 2, AT[1]], AT)


def test_checksums_are_looked_at_only_where_they_are_wanted() -> None:
    wrong = record_at(BASE + len(TWO), crc=5, topic_bytes=b"other")
    assert choose(TWO + wrong, checksums=False)[2] == [*AT, len(TWO)]
    # Of a record that nobody asks for, nothing is claimed.
    assert choose(TWO + wrong, Wanted(topics=frozenset({b"TopicTest"})))[2] == AT


def test_a_full_table_ends_a_run_before_the_next_record() -> None:
    ended, result, chosen = choose(TWO, room=1)
    assert (ended, result[kernel.REASON], chosen) == (AT[1], kernel.FULL, [0])


def test_a_record_that_starts_at_the_limit_is_left() -> None:
    ended, result, chosen = choose(TWO, limit=AT[1])
    assert (ended, result[kernel.REASON], chosen) == (AT[1], kernel.LIMIT, [0])


def test_nothing_chosen_is_still_seen() -> None:
    ended, result, chosen = choose(TWO, Wanted(tags=frozenset({b"C"})))
    assert (ended, chosen, result[kernel.SEEN], result[kernel.LAST]) == (len(TWO), [], 2, AT[1])
