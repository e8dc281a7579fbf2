"""Holes of a log are filled from copies of the store where all about them fits, and refused with the place elsewhere.

The judges are the undamaged store, byte for byte, and drawn copies that are wrong in one point each.
"""

import dataclasses
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import rocketlens
from oracles import read_record
from protocol.errors import ConfigError, NotAStore
from read_only import state_of
from spark_jobs.commands.run import run_rescue
from spark_jobs.convert._fillings import Fillings
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.run.progress import Silence
from storage.doctor.examine import examine
from store_files import pack_record
from store_kinds import Ledger
from store_writer import StoreWriter

SEGMENT = 8192
SEGMENTS = 6


def make(root: Path, word: str = "body") -> StoreWriter:
    """Five segments and a half of a topic with two queues, half messages, and a topic of few messages."""
    with StoreWriter(root, segment_size=SEGMENT, queue_file_size=20 * 50, index_entries=500) as writer:
        writer.consumer_offsets = {"T@g": {0: 3, 1: 2}}
        number = 0
        while writer.log.end < 5.5 * SEGMENT:
            body = f"{word} {number} ".encode() * 20
            if number % 10 == 9:
                writer.append("RMQ_SYS_TRANS_HALF_TOPIC", body, sys_flag=4, unique_key=f"h{number}")
            else:
                writer.append("T", body, keys=f"k{number}", unique_key=f"u{number}", queue_id=number % 2)
            number += 1
    return writer


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    return make(tmp_path_factory.mktemp("good") / "store")


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SEGMENT:020d}"


def overwrite(root: Path, physical_offset: int, data: bytes) -> None:
    with segment(root, physical_offset // SEGMENT).open("r+b") as file:
        file.seek(physical_offset % SEGMENT)
        file.write(data)


def lose(root, *lost) -> None:
    for each in lost:
        overwrite(root, each.physical_offset, bytes(each.size))


def rescue(store, out, *copies, **options):
    read_only = copies if options.get("link") else (store, *copies)
    before = [state_of(root) for root in read_only]
    request = RescueRequest(store=str(store), out=str(out), fill_from=tuple(map(str, copies)), **options)
    report = run_rescue(request, Silence())
    assert [state_of(root) for root in read_only] == before
    assert [each for each in examine(out).findings if each.severity != "info"] == []
    return report


def fillings(report):
    found = report.details.mended.fillings
    assert isinstance(found, Fillings)
    return found


def assert_same(good: Path, new: Path) -> None:
    names = ("commitlog/*", "consumequeue/*/*/*")
    files = {path.relative_to(root) for root in (good, new) for name in names for path in root.glob(name)}
    for path in files:
        assert (new / path).read_bytes() == (good / path).read_bytes(), path


def damage_missing(good: StoreWriter, root: Path) -> None:
    segment(root, 2).unlink()
    segment(root, 3).unlink()


def damage_cut(good: StoreWriter, root: Path) -> None:
    os.truncate(segment(root, 3), 3000)


def damage_boundary(good: StoreWriter, root: Path) -> None:
    overwrite(root, 3 * SEGMENT - 1000, os.urandom(1000))
    overwrite(root, 3 * SEGMENT, os.urandom(2000))


def damage_properties(good: StoreWriter, root: Path) -> None:
    """Zeros that begin in the properties of one record, which is sound but for them, and of one that stands alone."""
    for number in (4, 8):
        first, second = good.written[number : number + 2]
        overwrite(root, first.physical_offset + first.size - 9, bytes(9 + second.size))
    lose(root, good.written[6])


@pytest.mark.parametrize("damage", [damage_missing, damage_cut, damage_boundary, damage_properties])
def test_a_store_and_its_undamaged_copy_become_the_undamaged_store(good, tmp_path, damage) -> None:
    shutil.copytree(good.root, tmp_path / "store")
    damage(good, tmp_path / "store")
    report = rescue(tmp_path / "store", tmp_path / "new", good.root, link=damage is damage_boundary)
    assert_same(good.root, tmp_path / "new")
    assert report.exit_code == 0
    assert report.messages == len(good.written)
    found = fillings(report)
    assert found.filled
    assert not found.open
    assert report.details.mended.losses.messages == 0
    assert not (tmp_path / "new.rocketlens-work").exists()


@settings(max_examples=settings.default.max_examples // 6)
@given(data=st.data())
def test_zeros_anywhere_are_filled_wherever_they_begin_and_end(good: StoreWriter, data: st.DataObject) -> None:
    first, last = good.written[2].physical_offset, good.written[-2].physical_offset
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory, "store")
        shutil.copytree(good.root, store)
        start = data.draw(st.integers(first, last - 300))
        stop = min(start + data.draw(st.integers(300, 20_000)), last)
        while start < stop:
            end = min(stop, start - start % SEGMENT + SEGMENT)
            overwrite(store, start, bytes(end - start))
            start = end
        report = rescue(store, Path(directory, "new"), good.root)
        assert_same(good.root, Path(directory, "new"))
        assert report.exit_code == 0
        assert report.details.mended.losses.messages == 0


def test_a_hole_at_an_end_of_the_log_is_not_filled(good: StoreWriter, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(good.root, store)
    overwrite(store, 0, bytes(good.written[0].size))
    lose(store, good.written[-1])
    report = rescue(store, tmp_path / "new", good.root)
    (left,) = fillings(report).open
    assert left.reasons == (f"{good.root} cannot be compared: no sound record stands in front of the hole",)


def another_store(good, copy, first, stop, draw) -> None:
    shutil.rmtree(copy)
    make(copy, "bodi")


def shifted(good, copy, first, stop, draw) -> None:
    by = draw(st.integers(1, 200))
    for number in range(SEGMENTS):
        data = segment(good.root, number).read_bytes()
        segment(copy, number).write_bytes(data[-by:] + data[:-by])


def a_byte_at_a_side(good, copy, first, stop, draw) -> None:
    side = good.written[draw(st.sampled_from([first - 1, stop]))]
    at = side.physical_offset + draw(st.integers(0, side.size - 1))
    overwrite(copy, at, bytes([side.record[at - side.physical_offset] ^ draw(st.integers(1, 255))]))


def a_damaged_record(good, copy, first, stop, draw) -> None:
    record = good.written[draw(st.integers(first, stop - 1))]
    overwrite(copy, record.physical_offset + draw(st.integers(0, record.size - 40)), bytes(40))


def shorter(good, copy, first, stop, draw) -> None:
    record = good.written[draw(st.integers(first - 1, stop))]
    at = record.physical_offset + draw(st.integers(0, record.size - 1))
    os.truncate(segment(copy, at // SEGMENT), at % SEGMENT)
    for number in range(at // SEGMENT + 1, SEGMENTS):
        segment(copy, number).unlink()


def changed(copy, each, **fields) -> None:
    record = read_record(each.record, 0)
    record = dataclasses.replace(record, **fields)
    names = "topic_bytes body properties_bytes queue_id flag queue_offset sys_flag born_timestamp store_timestamp"
    values = {name: getattr(record, name) for name in names.split()}
    hosts = {"born_host": ("127.0.0.1", 54321), "store_host": ("127.0.0.1", 10911)}
    data = pack_record(
        **values, **hosts, reconsume_times=0, prepared_transaction_offset=0, magic=None, crc=None, property_crc=False,
        physical_offset=each.physical_offset,
    )  # fmt: skip
    assert len(data) == each.size
    overwrite(copy, each.physical_offset, data)


def renumbered(good, copy, first, stop, draw) -> None:
    by = draw(st.integers(1, 1000)) * draw(st.sampled_from([-1, 1]))
    for each in good.written[first:stop]:
        if each.topic == "T":
            changed(copy, each, queue_offset=max(each.queue_offset + by, 0) if each.queue_offset + by != 0 else 5000)


def stored_at_another_time(good, copy, first, stop, draw) -> None:
    each = good.written[draw(st.integers(first, stop - 1))]
    by = draw(st.integers(3000, 10**9)) * draw(st.sampled_from([-1, 1]))
    changed(copy, each, store_timestamp=each.store_timestamp + by)


def at_another_place(good, copy, first, stop, draw) -> None:
    each = good.written[draw(st.integers(first, stop - 1))]
    overwrite(copy, each.physical_offset + 28, (each.physical_offset + draw(st.integers(1, 10**6))).to_bytes(8, "big"))


WRONG = [another_store, shifted, a_byte_at_a_side, a_damaged_record, shorter, renumbered, stored_at_another_time]


@pytest.mark.parametrize("spoil", [*WRONG, at_another_place])
@settings(max_examples=settings.default.max_examples // 20)
@given(data=st.data())
def test_a_wrong_copy_is_refused_with_the_place(good, spoil, data) -> None:
    first = data.draw(st.integers(3, len(good.written) - 12))
    stop = first + data.draw(st.integers(1, 6))
    if spoil is renumbered and all(each.topic != "T" for each in good.written[first:stop]):
        stop += 1
    with tempfile.TemporaryDirectory() as directory:
        store, copy, new = (Path(directory, name) for name in ("store", "copy", "new"))
        shutil.copytree(good.root, store)
        shutil.copytree(good.root, copy)
        lose(store, *good.written[first:stop])
        spoil(good, copy, first, stop, data.draw)
        report = rescue(store, new, copy)
        found = fillings(report)
        assert found.filled == ()
        assert found.open
        for hole in found.open:
            (reason,) = hole.reasons
            assert reason.startswith(f"{copy} ")
            assert " physical offset " in reason
        assert report.exit_code == 4
        lost = sum(each.topic == "T" for each in good.written[first:stop])
        assert report.details.mended.losses.messages >= lost


def test_what_is_no_store_with_a_plain_log_is_no_copy(good: StoreWriter, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(NotAStore):
        rescue(good.root, tmp_path / "new", tmp_path / "nothing")
    ledger = Ledger(tmp_path / "ledger")
    ledger.fill(3)
    ledger.writer.close()
    with pytest.raises(ConfigError, match=r"ledger is a store of DLedger's"):
        rescue(good.root, tmp_path / "new", tmp_path / "ledger")
    with pytest.raises(ConfigError, match="do without --fill-from"):
        rescue(tmp_path / "ledger", tmp_path / "new", good.root)
    with pytest.raises(ConfigError, match="is STORE itself"):
        rescue(good.root, tmp_path / "new", good.root)
    with pytest.raises(ConfigError, match="is a URL"):
        RescueRequest(store=str(good.root), out=str(tmp_path / "new"), fill_from=("s3://bucket/store",))
    assert not (tmp_path / "new").exists()


def test_nothing_is_written_into_a_copy(good: StoreWriter, tmp_path: Path) -> None:
    shutil.copytree(good.root, tmp_path / "store")
    out = good.root / "new"
    outcome = rocketlens("rescue", tmp_path / "store", "--out", out, "--fill-from", good.root)
    assert outcome.code == 2
    assert f"lies inside {good.root}" in outcome.errors
    assert not out.exists()
