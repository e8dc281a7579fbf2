"""`epochFileCheckpoint`, by the example in RocketMQ's own CheckpointFile.java, and what of it a broker refuses."""

import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from storage.layout.epochs import EPOCHS, Epoch, parse_epochs, read_epochs

EXAMPLE = b"2\n773307083\n7-7000\n8-8000\n"


def test_a_backup_stands_for_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / EPOCHS).write_bytes(EXAMPLE[:-3])
    assert read_epochs(tmp_path) == []
    (tmp_path / f"{EPOCHS}.bak").write_bytes(EXAMPLE)
    assert len(read_epochs(tmp_path)) == 2


def test_what_is_not_whole_or_does_not_ascend_is_no_list_of_epochs() -> None:
    for data in [
        b"",
        b"2\n",
        b"3\n773307083\n7-7000\n8-8000\n",
        b"2\n773307084\n7-7000\n8-8000\n",
        b"2\n0\n7-7000\n8-x\n",
        b"2\n0\n8-7000\n7-8000\n",
        b"2\n0\n7-8000\n8-8000\n",
    ]:
        assert parse_epochs(data) == []


@given(st.sets(st.integers(0, 2**31 - 1)), st.sets(st.integers(0, 2**63 - 1)), st.sampled_from(["\n", "\r\n"]))
def test_what_a_broker_writes_is_read(numbers: set[int], starts: set[int], separator: str) -> None:
    entries = list(map(Epoch, sorted(numbers), sorted(starts)))
    body = "".join(f"{number}-{start}{separator}" for number, start in entries).encode()
    head = f"{len(entries)}{separator}{zlib.crc32(body) & 0x7FFFFFFF}{separator}".encode()
    assert parse_epochs(head + body) == entries
