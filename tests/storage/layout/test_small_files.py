"""Small files of a store: checkpoints, delay levels, DLedger's index, epochs, timers."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_store import GOLDEN, unpack
from oracles import DEFAULT_DELAY_LEVELS as RECORDED_LEVELS
from oracles import delay_milliseconds
from protocol.errors import ConfigError, StoreError, TruncatedFile
from storage.layout.checkpoint import Checkpoint
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from storage.layout.dledger import uncommitted_from, uncommitted_problem
from storage.layout.epochs import Epoch, parse_epochs
from storage.layout.timer_check import TimerCheck
from storage.layout.timer_log import TIMER_UNIT, TIMER_UNIT_DTYPE, are_units
from storage.store.message_store import MessageStore


def test_the_recorded_checkpoint_speaks_of_the_recorded_log(g1_store) -> None:
    checkpoint = Checkpoint.read(g1_store / "checkpoint")
    assert checkpoint == Checkpoint(
        physic_msg_timestamp=0x01A1FCDA9506,
        logics_msg_timestamp=0x01A1FCDA9506,
        index_msg_timestamp=0x01A1FCDA0D20,
        master_flushed_offset=0,
        confirm_physical_offset=0,
        logics_physical_offset=0x02601E,
    )
    assert checkpoint.min_timestamp == 0x01A1FCDA9506 - 3000


@pytest.mark.parametrize("size", [0, 1, 40, 47])
def test_a_short_checkpoint_is_refused_with_its_length(size, tmp_path) -> None:
    (tmp_path / "checkpoint").write_bytes(bytes(size))
    with pytest.raises(TruncatedFile, match=f"needs 48 bytes, but only {size} are there"):
        Checkpoint.read(tmp_path / "checkpoint")


def test_the_default_levels_are_rocketmqs() -> None:
    assert DEFAULT_DELAY_LEVELS == RECORDED_LEVELS
    levels = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    assert levels == tuple(delay_milliseconds(level) for level in range(1, 19))
    assert (levels[0], levels[4], levels[17]) == (1000, 60_000, 7_200_000)


def test_junk_is_refused_with_its_level() -> None:
    for text, complaint in [
        ("", "level 1 is ''"),
        (" 1s", "level 1 is ''"),
        ("1s  5s", "level 2 is ''"),
        ("1s 5", "level 2 is '5'"),
        ("1s\t5s", r"level 1 is '1s\\t5s'"),
        ("1S", "level 1 is '1S'"),
        ("s", "level 1 is 's'"),
        ("1.5s", "level 1 is '1.5s'"),
        ("-1s", "level 1 is '-1s'"),
        ("1ms", "level 1 is '1ms'"),
        ("١s", "level 1 is '١s'"),
        ("9223372036854775s 9223372036854776s", "level 2 is '9223372036854776s'"),
        ("1" * 100 + "s", "level 1 is '1111"),
    ]:
        with pytest.raises(ConfigError, match=complaint):
            parse_delay_levels(text)


@pytest.fixture
def ledger(tmp_path):
    return unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-dledger") / "dledger-n0" / "data"


def checkpoint(ledger, text) -> None:
    (ledger.parent / "checkpoint").write_text(text)


def units(ledger):
    with (ledger.parent / "index" / ("0" * 20)).open("rb") as file:
        return file.read(1 << 16)


def position_of(ledger, number):
    return int.from_bytes(units(ledger)[number * 32 + 4 : number * 32 + 12], "big")


@pytest.mark.parametrize(
    ("number", "form"), [(-1, "#a comment\n committedIndex : {} \n"), (17, "endIndex=81\ncommittedIndex={}\n")]
)
def test_what_lies_behind_the_committed_index_is_served_with_a_word(ledger, number, form) -> None:
    checkpoint(ledger, form.format(number))
    place = position_of(ledger, number + 1)
    assert uncommitted_from(ledger) == place
    store = MessageStore.open(ledger.parents[1])
    (problem,) = store.problems
    assert f"the entries from physical offset {place} on lie behind the committedIndex" in problem
    assert store.record_at(place + 48) is not None
    assert uncommitted_problem([ledger], place) is None


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


def test_a_recorded_broker_has_read_its_whole_timer_topic(tmp_path) -> None:
    store = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-queues")
    check = TimerCheck.read(store / "config" / "timercheck")
    # Seven timer messages were sent; the last one that was delivered was due at 1795253924000.
    assert check is not None
    assert check.last_queue_offset == 7
    assert 1795253924000 < check.last_read_timestamp < 1795253924000 + 60_000


def test_a_file_that_is_cut_or_negative_is_refused_by_name(tmp_path) -> None:
    path = tmp_path / "timercheck"
    path.write_bytes(bytes(20))
    with pytest.raises(TruncatedFile, match="timercheck"):
        TimerCheck.read(path)
    path.write_bytes(struct.pack(">7q", -5, 0, 3, 3, 0, 0, 0))
    with pytest.raises(StoreError, match=r"timercheck.*a time and a queue offset"):
        TimerCheck.read(path)


def test_blanks_and_what_was_never_written_are_no_units() -> None:
    rows = [
        (52, -1, 1, 1, 1, 0, 9, 0, 0),
        (52, -1, 7, 1, 1, 99, 9, 0, 0),
        (104, 0, -875286124, 0, 0, 0, 0, 0, 0),
        (0, 0, 0, 0, 0, 0, 0, 0, 0),
        (52, -1, 8, 1, 1, 0, 9, 0, 0),
        (52, -1, 1, 1, 1, -1, 9, 0, 0),
    ]
    units = np.frombuffer(b"".join(TIMER_UNIT.pack(*row) for row in rows), TIMER_UNIT_DTYPE)
    assert are_units(units).tolist() == [True, True, False, False, False, False]
