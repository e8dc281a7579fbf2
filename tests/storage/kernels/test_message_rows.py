"""Why choosing records of a stretch ends, and how far it has come; what is chosen is shown with the rows."""

import numpy as np

from kernel_memory import Bytes, record_at
from storage.columns.rows import ROW
from storage.columns.wanted import Wanted
from storage.kernels import message_rows as kernel
from storage.kernels import records as codes
from storage.kernels.texts import bytes_at

BASE = 1 << 32
BLANK_SIZE = 100
BLANK = BLANK_SIZE.to_bytes(4, "big") + b"\xcb\xd4\x31\x94"


def choose(
    data: bytes, wanted: Wanted | None = None, *, limit: int | None = None, room: int = 9, checksums: bool = True
) -> tuple[tuple[int, int, int, int, int], list[int]]:
    """Where it ended, why, the code of damage, the records passed and the last of them; and the positions chosen."""
    table = np.zeros(room, ROW)
    chosen = kernel.choose_records(
        Bytes(data).region, 0, len(data) if limit is None else limit, len(data), BASE, BASE + len(TWO) + BLANK_SIZE,
        (wanted or Wanted()).query(names=True, checksums=checksums), table.view(np.int64),
    )  # fmt: skip
    told = chosen.position, chosen.reason, chosen.code, chosen.records, chosen.last
    return told, table["position"][: chosen.rows].tolist()


FIRST = record_at(BASE, tags="A", keys="k l", unique_key="u")
TWO = FIRST + record_at(BASE + len(FIRST), sys_flag=0x30, tags="B")
AT = [0, len(FIRST)]


def test_a_run_says_why_it_ended() -> None:
    for behind, reason, code in [
        (b"", codes.AT_LIMIT, 0),
        (b"\0\0\0\1", kernel.NEED_MORE, 0),
        (BLANK, codes.AT_BLANK, 0),
        (BLANK[3:4] * 4 + BLANK[4:], codes.AT_DAMAGE, codes.BAD_BLANK),
        (bytes(8), codes.AT_NOTHING, 0),
        (bytes(7) + b"\1", codes.AT_DAMAGE, codes.BAD_MAGIC),
        (b"\0\0\0\1" + FIRST[4:], codes.AT_DAMAGE, codes.BAD_SIZE),
        (record_at(BASE + len(TWO))[:-1], kernel.NEED_MORE, 0),
        (record_at(0), codes.AT_DAMAGE, codes.BAD_OFFSET),
        (record_at(BASE + len(TWO), crc=5), codes.AT_DAMAGE, codes.BAD_BODY_CRC),
    ]:
        assert choose(TWO + behind) == ((len(TWO), reason, code, 2, AT[1]), AT)


def test_checksums_are_looked_at_only_where_they_are_wanted() -> None:
    wrong = record_at(BASE + len(TWO), crc=5, topic_bytes=b"other")
    assert choose(TWO + wrong, checksums=False)[1] == [*AT, len(TWO)]
    # Of a record that nobody asks for, nothing is claimed.
    assert choose(TWO + wrong, Wanted(topics=frozenset({b"TopicTest"})))[1] == AT


def test_a_full_table_ends_a_run_before_the_next_record() -> None:
    assert choose(TWO, room=1) == ((AT[1], codes.OUTPUT_FULL, 0, 1, 0), [0])


def test_a_record_that_starts_at_the_limit_is_left() -> None:
    assert choose(TWO, limit=AT[1]) == ((AT[1], codes.AT_LIMIT, 0, 1, 0), [0])


def test_a_row_says_where_the_parts_of_a_record_lie() -> None:
    table = np.zeros(2, ROW)
    wanted = Wanted().query(names=True, checksums=True)
    region = Bytes(TWO).region
    kernel.choose_records(region, 0, len(TWO), len(TWO), BASE, BASE, wanted, table.view(np.int64))
    parts = ("body", "topic", "keys", "tags", "unique_key")
    found = [{part: bytes_at(region, row[part], row[f"{part}_length"]) for part in parts} for row in table]
    assert found[0] == {"body": b"hello", "topic": b"TopicTest", "keys": b"k l", "tags": b"A", "unique_key": b"u"}
    assert found[1] == {"body": b"hello", "topic": b"TopicTest", "keys": b"", "tags": b"B", "unique_key": b""}
    assert table["keys_length"].tolist() == [3, -1]
    assert table["size"].tolist() == [len(FIRST), len(TWO) - len(FIRST)]
    assert (table["store_host"] - table["born_host"]).tolist() == [16, 28]


class TestNumbers:
    def test_they_are_read_behind_their_positions(self) -> None:
        region, numbers = Bytes(bytes(range(100, 112))).region, np.empty(2, np.int64)
        kernel.load_numbers(region, np.array([1, 9]), -1, 32, numbers)
        assert numbers.tolist() == [0x64656667, 0x6C6D6E6F]
        kernel.load_numbers(region, np.array([1, 5]), -1, 64, numbers)
        assert numbers.tolist() == [0x6465666768696A6B, 0x68696A6B6C6D6E6F]
