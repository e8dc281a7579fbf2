"""Which queues a rebuild makes, what old files say of their numbers, and what is carried over."""

import errno
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ConfigError, StoreError
from queue_runs import batch_unit, files_under, unit
from storage.build.existing_queue import OldQueue, ReadableLog, has_data_behind
from storage.build.queue_carry import CarrySummary, carry_queue
from storage.build.queue_plan import CarriedQueue, QueueKey, QueueOptions, QueuePlan, Verdict
from store_files import PRE_BLANK, write_file
from store_writer import StoreWriter


def options(**more: object) -> QueueOptions:
    return QueueOptions(**more)  # type: ignore[arg-type]


def plain(topic: str, queue_id: int = 0) -> QueueKey:
    return QueueKey("consumequeue", topic, queue_id)


def batch(topic: str, queue_id: int = 0) -> QueueKey:
    return QueueKey("batchconsumequeue", topic, queue_id)


@pytest.fixture
def store(tmp_path):
    writer = StoreWriter(tmp_path / "store", ext_bit_map=b"", ext_file_size=300)
    for number in range(30):
        writer.append("T", queue_id=number % 2)
    writer.append("Other")
    writer.append_inner_batch("B", [(b"a", {})])
    writer.close()
    return writer.root


def lose_topics(root) -> None:
    (root / "config" / "topics.json").unlink()


def test_sizes_topics_and_kinds_are_those_of_the_store(store) -> None:
    plan = QueuePlan.of(store)
    assert plan.file_sizes == {"consumequeue": 2000, "batchconsumequeue": 920, "consumequeue_ext": 300}
    assert plan.existing == {plain("T"), plain("T", 1), plain("Other"), batch("B")}
    assert (plan.batch_topics, plan.lmq, plan.ext) == ({"B"}, False, True)
    assert plan.known_topics is not None
    assert plan.known_topics >= {"T", "Other", "B"}
    assert (plan.misplaced, plan.problems) == (frozenset(), ())


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"consume_queue_file_size": 0}, r"files of 0 bytes in consumequeue/: expected 20 to 2147483647"),
        ({"consume_queue_file_size": 1 << 31}, "files of 2147483660 bytes"),
        ({"batch_file_size": 100}, "in batchconsumequeue/: expected 46 to 2147483647 and a multiple of 46"),
        ({"batch_file_size": -46}, "files of -46 bytes"),
        ({"ext_file_size": 23}, "in consumequeue_ext/: expected 24 to 2147483647"),
    ],
)
def test_sizes_that_no_file_can_have_are_refused(store, more, complaint) -> None:
    with pytest.raises(ConfigError, match=complaint):
        QueuePlan.of(store, options(**more))


def test_of_several_lengths_the_usual_one_counts_and_the_others_are_told(store) -> None:
    write_file(store / "consumequeue" / "T" / "0" / f"{2000:020d}", 4000, {})
    write_file(store / "consumequeue" / "T" / "0" / f"{6000:020d}", 0, {})
    write_file(store / "batchconsumequeue" / "B" / "0" / f"{920:020d}", 930, {})
    write_file(store / "batchconsumequeue" / "B" / "0" / f"{1850:020d}", 930, {})
    plan = QueuePlan.of(store)
    assert plan.file_sizes["consumequeue"] == 2000
    assert plan.file_sizes["batchconsumequeue"] == 920
    told = "\n".join(plan.problems)
    assert "consumequeue: 1 of 4 files are not 2000 bytes long" in told
    assert "batchconsumequeue: 2 of 3 files are not 920 bytes long" in told


def test_without_topics_the_directories_say_which_topics_hold_batches(store) -> None:
    lose_topics(store)
    plan = QueuePlan.of(store)
    assert (plan.known_topics, plan.batch_topics, plan.misplaced) == (None, {"B"}, frozenset())
    assert not plan.is_unknown("T")
    with pytest.raises(ConfigError, match=r"no config/topics\.json"):
        QueuePlan.of(store, options(drop_unknown_topics=True))


def test_a_queue_in_the_tree_of_the_other_kind_is_left_out_and_told(store) -> None:
    for key in (plain("B", 3), batch("T", 4), batch("deleted")):
        write_file(store / key.path / f"{0:020d}", 920, {})
    plan = QueuePlan.of(store)
    assert plan.misplaced == {plain("B", 3), batch("T", 4), batch("deleted")}
    assert sum("a broker refuses to start" in problem for problem in plan.problems) == 3
    assert [queue.key for queue in plan.carried([plain("T"), plain("T", 1)], in_place=True)] == [
        batch("B"), plain("Other"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "topic", [b"", b".", b"..", b"a/b", b"../../etc", b"a\0", b"\xff", b"\xed\xa0\x80", b"a" * 256]
)
def test_names_that_no_directory_can_have_are_not_followed(topic, store) -> None:
    plan = QueuePlan.of(store)
    assert plan.key(topic, 0) is None
    assert plan.verdict(topic, 0) is Verdict.UNUSABLE
    assert plan.verdict(b"T", -1) is Verdict.UNUSABLE
    assert plan.verdict(b"T", 1 << 31) is Verdict.UNUSABLE


def test_what_the_log_has_nothing_of_is_carried_over(store) -> None:
    plan = QueuePlan.of(store)
    for in_place in (True, False):
        assert plan.carried([plain("T"), plain("T", 1)], in_place=in_place) == [
            CarriedQueue(batch("B"), untouched=False),
            CarriedQueue(plain("Other"), untouched=False),
        ]
    assert plan.carried(plan.existing, in_place=True) == []


def test_topics_that_were_not_asked_for_stay_as_they_are_in_place_alone(store) -> None:
    write_file(store / "batchconsumequeue" / "T" / "9" / f"{0:020d}", 920, {})
    plan = QueuePlan.of(store, options(topics=frozenset({"T"})))
    assert plan.verdict(b"T", 0) is Verdict.BUILD
    assert plan.verdict(b"Other", 0) is Verdict.OTHER_TOPIC
    built = [plain("T")]
    silent = CarriedQueue(plain("T", 1), untouched=False)
    assert plan.carried(built, in_place=False) == [silent]
    assert plan.carried(built, in_place=True) == [
        CarriedQueue(batch("B"), untouched=True),
        CarriedQueue(plain("Other"), untouched=True),
        silent,
    ]


GONE = ReadableLog(minimum=10_000, end=20_000)
"""A log whose records before 10,000 have expired."""


def write(directory, *units, start=0, per_file=10):
    """Files of ten units each from a byte offset on."""
    size = len(units[0]) if units else 20
    for first in range(0, max(len(units), 1), per_file):
        content = b"".join(units[first : first + per_file])
        write_file(directory / f"{start + first * size:020d}", per_file * size, {0: content} if content else {})
    return OldQueue(directory, batch=size == 46)


@given(
    ranges=st.lists(st.integers(0, 100), min_size=2, max_size=10, unique=True).map(sorted),
    offsets=st.lists(st.integers(-5, 110), max_size=20),
)
def test_lost_offsets_are_those_in_a_lost_range(ranges: list[int], offsets: list[int]) -> None:
    lost = list(zip(ranges[::2], ranges[1::2], strict=False))
    log = ReadableLog(0, 100, lost)
    expected = [any(start <= offset < end for start, end in lost) for offset in offsets]
    assert log.are_lost(np.array(offsets, ">i8")).tolist() == expected
    for offset in offsets:
        assert log.loses_behind(offset) == any(end > offset for _, end in lost)


@pytest.mark.parametrize(
    ("bad", "first", "count"),
    [
        (bytes(20), 0, 699),
        (unit(-1), 0, 1),
        (unit(15_000), 3, 690),
        (unit(20_000), 100, 1),
        (unit(90, size=-4), 100, 500),
    ],
)
def test_damaged_units_of_any_number_do_not_end_the_queue(bad, first, count, tmp_path) -> None:
    units = [unit(n) for n in range(700)]
    units[first : first + count] = [bad] * count
    for per_file in (800, 50):
        assert write(tmp_path / str(per_file), *units, per_file=per_file).end(GONE) == 700 * 20


def test_the_number_behind_a_batch_stands_in_its_unit(tmp_path) -> None:
    queue = write(tmp_path, *(batch_unit(100 * n, 4 * n, 4) for n in range(23)))
    assert queue.end(GONE) == 23 * 46
    assert queue.next_offset(23 * 46) == 92
    assert queue.next_offset(0) == 0
    spoilt = write(tmp_path / "spoilt", batch_unit(0, 0, 4), batch_unit(100, 4, 0), batch_unit(200, 4, 4))
    assert spoilt.end(GONE) == 3 * 46
    assert write(tmp_path / "last", batch_unit(0, 0, 4), batch_unit(100, 4, 0)).end(GONE) == 46


def test_the_first_unit_tells_where_the_queue_was_born(tmp_path) -> None:
    assert write(tmp_path / "a", unit(700), unit(800)).born_at() == 700
    assert write(tmp_path / "b", batch_unit(900, 0, 1)).born_at() == 900
    for name, units, start in (
        ("late", [unit(700)], 200),
        ("filler", [PRE_BLANK, unit(700)], 0),
        ("blank", [], 0),
        ("spoilt", [unit(-4)], 0),
    ):
        assert write(tmp_path / name, *units, start=start).born_at() is None, name
    assert OldQueue(tmp_path / "nothing").born_at() is None


def test_a_queue_went_on_as_far_as_its_units_point_to_what_is_lost(tmp_path) -> None:
    log = ReadableLog(0, 20_000, [(1000, 1500), (2000, 9000)])
    units = [unit(900), unit(1000), unit(1500), unit(2000), unit(3000), unit(8999)]
    assert write(tmp_path / "a", *units).offset_behind_lost(1500, 3, log) == 6
    assert write(tmp_path / "b", *units, unit(9000), unit(2500)).offset_behind_lost(1500, 3, log) == 6
    assert write(tmp_path / "c", *units).offset_behind_lost(9500, 3, log) == 3
    assert write(tmp_path / "d", *units[:3], unit(1200), unit(3000)).offset_behind_lost(1500, 3, log) == 3
    assert write(tmp_path / "e", *units, start=400).offset_behind_lost(1500, 3, log) == 3
    assert write(tmp_path / "f").offset_behind_lost(1500, 3, log) == 3
    assert write(tmp_path / "g", *units).offset_behind_lost(1500, 3, ReadableLog(0, 2500, log.lost)) == 4
    far = ReadableLog(0, 1 << 40, [(1000, 1 << 39)])
    spoilt = [unit(100), *(unit(1000 + n) for n in range(900))]
    spoilt[5:400] = [bytes(20)] * 200 + [unit(5000, size=-1)] * 195
    assert write(tmp_path / "spoilt", *spoilt, per_file=2000).offset_behind_lost(100, 1, far) == 901
    places = [(100, 0, 4), (1000, 4, 4), (1100, 8, 0), (1200, 16, 4)]
    batches = [batch_unit(*each) for each in places]
    assert write(tmp_path / "batches", *batches).offset_behind_lost(100, 4, far) == 20


def test_data_behind_a_position_is_found_past_holes(tmp_path) -> None:
    path = tmp_path / "file"
    write_file(path, 1 << 24, {100: b"x"})
    assert has_data_behind(path, 0)
    assert has_data_behind(path, 100)
    assert not has_data_behind(path, 101)
    write_file(path, 1 << 24, {(1 << 24) - 1: b"x"})
    assert has_data_behind(path, 101)
    assert not has_data_behind(path, 1 << 24)
    with pytest.raises(StoreError, match="cannot be opened"):
        has_data_behind(tmp_path / "none", 0)


PLAIN = QueueKey("consumequeue", "T", 3)


def write_queue(root, *units, key=PLAIN, per_file=4) -> None:
    size = len(units[0])
    for first in range(0, len(units), per_file):
        path = root / key.path / f"{first * size:020d}"
        write_file(path, per_file * size, {0: b"".join(units[first : first + per_file])})


def carry(root, *, untouched=False, link=True, key=PLAIN):
    return carry_queue(root / "store", CarriedQueue(key, untouched), GONE, root / "staged", link=link)


def is_linked(root, name):
    return (root / "store" / name).samefile(root / "staged" / name)


def test_stale_units_behind_the_end_are_zeroed_in_a_copy(tmp_path) -> None:
    kept = [unit(100 * n) for n in range(6)]
    write_queue(tmp_path / "store", *kept, unit(25_000), unit(12_000), unit(25_100))
    before = files_under(tmp_path / "store")
    assert carry(tmp_path) == CarrySummary(next_offset=6, linked=1, copied=1, left_out=1)
    assert list(files_under(tmp_path / "staged").values()) == [b"".join(kept[:4]), b"".join(kept[4:]).ljust(80, b"\0")]
    assert files_under(tmp_path / "store") == before


def test_without_links_files_are_copied_with_their_holes(tmp_path) -> None:
    write_queue(tmp_path / "store", *(unit(100 * n) for n in range(3)), per_file=300_000)
    assert carry(tmp_path, link=False) == CarrySummary(next_offset=3, linked=0, copied=1, left_out=0)
    (name,) = files_under(tmp_path / "staged")
    assert not is_linked(tmp_path, name)
    assert files_under(tmp_path / "staged") == files_under(tmp_path / "store")
    assert (tmp_path / "staged" / name).stat().st_blocks * 512 < 100_000


@pytest.mark.parametrize("link", [True, False])
def test_a_queue_of_another_topic_stays_as_it_is(link, tmp_path) -> None:
    write_queue(tmp_path / "store", unit(100), unit(-7), unit(25_000), unit(3), unit(4))
    assert carry(tmp_path, untouched=True, link=link).next_offset == -1
    assert files_under(tmp_path / "staged") == files_under(tmp_path / "store")


def test_where_links_are_not_possible_files_are_copied(tmp_path, monkeypatch) -> None:
    write_queue(tmp_path / "store", unit(100))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    assert carry(tmp_path).copied == 1
    assert files_under(tmp_path / "staged") == files_under(tmp_path / "store")


def test_other_failures_name_the_file(tmp_path, monkeypatch) -> None:
    write_queue(tmp_path / "store", unit(100))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError, match=r"00000000000000000000: cannot be linked to .*: No space left on device"):
        carry(tmp_path)
    monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(StoreError, match=r"00000000000000000000: cannot be copied to .*: No space left on device"):
        carry(tmp_path, link=False)
