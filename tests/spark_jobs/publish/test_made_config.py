"""What comes beside queues and index: configuration as files, timers that are delivered, and no fewer sound records."""

import contextlib
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_frames import parse_java_json
from golden_store import GOLDEN, unpack
from protocol.errors import ConfigError, StoreError
from queue_runs import files_under
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.publish._publish_checks import Staged
from spark_jobs.publish.fewer_records import LeftOut, refuse_fewer
from spark_jobs.publish.mended_timers import mend_timers
from spark_jobs.run.progress import Silence
from spark_jobs.scan.log_end import unreadable
from spark_jobs.scan.source import find_source
from storage.extras import install_line
from storage.kernels.records import BAD_BLANK
from storage.layout.store_config import StoreConfig
from store_writer import StoreWriter

G2 = GOLDEN / "g2"
FILES = {"consumerOffset.json", "lmqConsumerOffset.json", "subscriptionGroup.json", "topics.json"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    names = ("g2-rocksdb", "g2-rocksdb-v2", "g2-queues", "g2-filters")
    return {name: unpack("store", tmp_path_factory.mktemp(name), archives=G2 / name) for name in names}


def rebuild(store, out, **options):
    return run_rebuild(RebuildRequest(store=str(store), out=str(out), queues=True, **options), Silence())


def content(directory, name):
    found = parse_java_json((directory / "config" / name).read_text())
    return found


@pytest.mark.parametrize("name", ["g2-rocksdb", "g2-rocksdb-v2"])
def test_files_say_what_the_databases_say_with_the_members_that_a_broker_writes(name, recorded, tmp_path) -> None:
    before = StoreConfig.load(recorded[name])
    rebuild(recorded[name], tmp_path)
    assert {path.name for path in (tmp_path / "config").iterdir()} == FILES
    by_broker = {each: "g2-filters" if each == "consumerOffset.json" else "g2-queues" for each in FILES}
    for file, store in by_broker.items():
        made, written = content(tmp_path, file), content(recorded[store], file)
        assert set(made) == set(written) | ({"pullOffsetTable"} & set(made))
        assert set(made["dataVersion"]) == set(written["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
        for table, member in (("topicConfigTable", "TBW102"), ("subscriptionGroupTable", "TOOLS_CONSUMER")):
            if member in made.get(table, {}):
                assert set(made[table][member]) == set(written[table][member])

    after = StoreConfig.load(tmp_path)
    assert len(before.consumer_offsets) >= 5
    assert after.consumer_offsets == before.consumer_offsets
    assert after.pull_offsets == before.pull_offsets
    assert (after.topics, after.topics_version) == (before.topics, before.topics_version)
    assert after.subscription_groups == before.subscription_groups
    groups = content(tmp_path, "consumerOffset.json")["groupTopicMap"]
    assert {(group, topic) for group, topics in groups.items() for topic in topics} == set(before.consumer_offsets)


def test_a_newer_file_is_not_made_anew_and_one_in_the_way_is_named(recorded: dict[str, Path], tmp_path: Path) -> None:
    store = shutil.copytree(recorded["g2-rocksdb"], tmp_path / "store")
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    rebuild(store, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out" / "config").iterdir()} == FILES - {"topics.json"}
    shutil.rmtree(tmp_path / "out" / "consumequeue")
    with pytest.raises(ConfigError, match="config exists already; remove it or choose another directory"):
        rebuild(recorded["g2-rocksdb"], tmp_path / "out")


def test_without_the_extra_it_refuses_unless_it_is_to_go_without(recorded, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(ConfigError) as refused:
        rebuild(recorded["g2-rocksdb"], tmp_path / "out")
    said = str(refused.value)
    assert said.startswith(f"{recorded['g2-rocksdb']}/config/topics: is a RocksDB, which is read where a library is")
    assert f"{install_line('rocksdb')}; with --without-config queues are made without" in said
    assert "\n" not in said
    assert not (tmp_path / "out").exists()
    report = rebuild(recorded["g2-rocksdb"], tmp_path / "out", without_config=True)
    assert report.details.published == ["consumequeue"]
    assert "topics, groups and offsets that are in RocksDB were not made files: they stay there" in report.notes


WHEEL = 38_707_200
UNIT = 52
FILE = UNIT * 8 + 20
NOW = 1_700_000_000_000
TIMERS = 20
WAITING = set(range(9, TIMERS))


def unit(number: int) -> bytes:
    """The unit of a timer that is due `number` seconds from now on, less ten, and whose record says its number."""
    return struct.pack(">iqiqiqiiq", UNIT, -1, 1, NOW, (number - 9) * 1000, number, 100, 7, 0)


def make_store(root: Path) -> None:
    """20 timers in three files, of which 9 are delivered; all are in the wheel."""
    (root / "timerlog").mkdir()
    (root / "config").mkdir()
    for number in range(3):
        data = b"".join(map(unit, range(number * 8, min(number * 8 + 8, TIMERS))))
        blank = struct.pack(">iqi", FILE - len(data), 0, 0x1234567) if number < 2 else b""
        (root / "timerlog" / f"{number * FILE:020d}").write_bytes((data + blank).ljust(FILE, b"\0"))
    with (root / "timerwheel").open("wb") as file:
        file.truncate(WHEEL)
    check = struct.pack(">qqqqqqq", NOW, 2 * FILE + 4 * UNIT, TIMERS, TIMERS, 0, NOW, 1)
    (root / "config" / "timercheck").write_bytes(check.ljust(4096, b"\0"))


def delivered(root: Path) -> set[int]:
    """The timers that a broker delivers which starts on a store; raises where it does not start."""
    wheel, check = root / "timerwheel", root / "config" / "timercheck"
    assert not wheel.exists() or (wheel.is_file() and wheel.stat().st_size in (0, WHEEL))
    files = sorted((root / "timerlog").iterdir()) if (root / "timerlog").exists() else []
    assert {path.stat().st_size for path in files} <= {FILE}
    fields = struct.unpack_from(">qqqq", check.read_bytes().ljust(4096, b"\0")) if check.exists() else (0, 0, 0, 0)
    read, position, own, master = fields
    assert read <= NOW + 10**9
    starts = [int(path.name) for path in files]
    first = max((start for start in starts if start <= max(position - FILE, 0)), default=starts[0] if starts else 0)
    walked, log, last = set[int](), list[int](), -1
    for path in files:
        is_whole = True
        for at in range(0, FILE, UNIT):
            piece = path.read_bytes()[at : at + UNIT].ljust(UNIT, b"\0")
            size, _, magic, written, delay, number, *_ = struct.unpack(">iqiqiqiiq", piece)
            if magic == 0x1234567:
                break
            if size != UNIT or magic | 15 != 15:
                is_whole = False
                break
            log.append(number)
            last = number
            if int(path.name) >= first and written + delay >= read:
                walked.add(number)
        if not is_whole:
            break
    had_wheel = wheel.exists() and wheel.stat().st_size == WHEEL
    by_wheel = {number for number in log if number in WAITING} if had_wheel else walked
    queue = min(last + 1 if last >= 0 else own, master)
    return by_wheel | set(range(queue, TIMERS))


def put_a_directory(path: Path, _: int) -> None:
    path.unlink()
    path.mkdir()


KINDS = {
    "kept": lambda path, amount: None,
    "cut": lambda path, amount: os.truncate(path, amount % path.stat().st_size),
    "junk": lambda path, amount: path.write_bytes(b"\x9c" * (1 + amount % 5000)),
    "directory": put_a_directory,
    "longer": lambda path, amount: os.truncate(path, path.stat().st_size + 1 + amount),
    "gone": lambda path, amount: path.unlink(),
}
TIMER_FILES = tuple(f"timerlog/{number * FILE:020d}" for number in range(3))


ANY_DAMAGE = st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 10_000))


@given(ANY_DAMAGE, st.sampled_from(TIMER_FILES), ANY_DAMAGE.filter(lambda damage: damage[0] != "directory"), ANY_DAMAGE)
def test_all_that_waits_is_delivered_whatever_is_damaged(wheel, file, log, check) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        make_store(root)
        for name, (kind, amount) in (("timerwheel", wheel), (file, log), ("config/timercheck", check)):
            KINDS[kind](root / name, amount)
        mend_timers(root)
        assert delivered(root) >= WAITING


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_damaged_wheel_nothing_is_delivered_twice(tmp_path: Path, kind: str) -> None:
    make_store(tmp_path)
    KINDS[kind](tmp_path / "timerwheel", 1000)
    before = files_under(tmp_path)
    notes = mend_timers(tmp_path)
    if kind == "kept":
        assert files_under(tmp_path) == before
    assert delivered(tmp_path) == WAITING
    assert len(notes) == (kind != "kept")
    assert (tmp_path / "timerlog" / ("0" * 20)).exists()
    assert (tmp_path / "timerwheel").exists() == (kind == "kept")


SEGMENT, SLOTS = 4096, 97
NOTHING = LeftOut()


def make(root: Path, count: int = 60, *, without: tuple[int, ...] = ()) -> StoreWriter:
    with StoreWriter(root, segment_size=SEGMENT, index_slots=SLOTS) as writer:
        for number in range(count):
            is_known = number not in without
            writer.append("T", b"x" * 40, keys=f"k{number}", tags="A", index=is_known, queue=is_known)
        writer.append_inner_batch("B", [(b"1", {}), (b"2", {})])
    return writer


def damage_in(writer, number):
    """As a scan tells of it that could not read one message."""
    victim = writer.written[number]
    base = victim.physical_offset // SEGMENT * SEGMENT
    return unreadable(str(writer.log.segments[base]), victim.physical_offset, victim.size, BAD_BLANK)


def compare(store, new, damages, *names, left_out=NOTHING) -> None:
    names = names or ("index", "consumequeue", "batchconsumequeue")
    staged = [Staged(name, new / name) for name in names]
    refuse_fewer(find_source(store, ()), staged, damages, SLOTS, left_out)


FINE, LOSS = contextlib.nullcontext(), pytest.raises(StoreError, match="sound records")


@pytest.mark.parametrize(
    ("before", "after", "damaged", "left_out", "said"),
    [
        pytest.param((), (), (3,), "", FINE, id="as many"),
        pytest.param((), (5, 6, 7), (40,), "", FINE, id="damage in another segment"),
        pytest.param((), (5, 6, 7), (), "", FINE, id="no damage"),
        pytest.param((8,), (5,), (3,), "", FINE, id="as many others make good for it"),
        pytest.param((), (5,), (3,), "T", FINE, id="asked to be left out"),
        pytest.param((), (5,), (3,), "B", LOSS, id="another one was asked to be left out"),
    ],
)
def test_only_fewer_in_a_segment_with_damage_are_a_loss(tmp_path, before, after, damaged, left_out, said) -> None:
    """`before` and `after` are the messages that the store's own index and queues lack, and the new ones."""
    writer = make(tmp_path / "store", without=before)
    make(tmp_path / "new", without=after)
    damages = [damage_in(writer, number) for number in damaged]
    with said:
        compare(tmp_path / "store", tmp_path / "new", damages, left_out=LeftOut({left_out}.__contains__))
