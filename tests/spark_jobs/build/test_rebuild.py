"""Queues and index rebuilt from the log, end to end: the bytes that a broker wrote, whatever kills the job."""

import json
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.make_store import make_store
from benchmarks.rebuild import differing_files, run_java
from benchmarks.store_plan import StoreParameters, StorePlan
from golden_store import GOLDEN, unpack
from interop.jars import SERVER_VERSION, jars
from job_runs import left_in
from killing import Renames, every_kill
from oracles import build_index, read_log
from protocol.errors import ConfigError, StoreError
from queue_runs import files_under
from spark_jobs.build._index_names import implied_zone, name_files
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.places.place_names import WORK
from spark_jobs.run.progress import Silence
from storage.layout.checkpoint import Checkpoint
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import StoreWriter


def rebuild(store, **options):
    paths = {name: str(value) for name, value in options.items() if isinstance(value, Path)}
    return run_rebuild(RebuildRequest(store=str(store), index=True, **{**options, **paths}), Silence())


def index_bytes(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "index").iterdir())]


ENTRY_70 = 40 + 97 * 4 + 20 * 70


@pytest.mark.parametrize("position", [39, ENTRY_70 + 2], ids=["count", "hash"])
def test_a_damaged_file_is_not_kept(tmp_path: Path, position: int) -> None:
    store = unpack("store", tmp_path)
    recorded, names = index_bytes(store), sorted(path.name for path in (store / "index").iterdir())
    damaged = bytearray(recorded[4])
    damaged[position] ^= 0x10
    (store / "index" / names[4]).write_bytes(damaged)
    report = rebuild(store, out=tmp_path / "out")
    assert report.details.index.kept == names[:4]
    assert index_bytes(tmp_path / "out") == recorded


KEYS = st.sampled_from(["a", "b", "Aa", "BB", "polygenelubricants", "ключ", "😀", "dup"])


@st.composite
def messages(draw):
    """Messages with any number of keys, some without, some rolled back, some with a clock that steps back."""
    count = draw(st.integers(1, 40))
    return [
        {
            "keys": " ".join(draw(st.lists(KEYS, max_size=5))) or None,
            "unique_key": draw(st.none() | st.sampled_from(["0A00002A1F90", "u2"])),
            "tags": draw(st.none() | st.sampled_from(["TagA", "Aa", "BB"])),
            "sys_flag": draw(st.sampled_from([0, 0, 0, 4, 8, 12])),
            "store_timestamp": 1_700_000_000_000 + draw(st.integers(-100_000, 5_000_000)),
            "body": b"x" * draw(st.integers(0, 300)),
        }
        for _ in range(count)
    ]


@settings(max_examples=settings.default.max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=messages(), profile=st.sampled_from(["5.5", "classic"]), entries=st.integers(2, 30))
def test_random_logs_give_what_putting_one_by_one_gives(tmp_path_factory, written, profile, entries) -> None:
    root = tmp_path_factory.mktemp("random")
    with StoreWriter(root / "store", segment_size=2048, index_slots=7, index_entries=entries) as writer:
        for message in written:
            body = message.pop("body")
            writer.append("TopicTest", body, **message)
    shutil.rmtree(root / "store" / "index", ignore_errors=True)
    rebuild(root / "store", out=root / "out", slots=7, entries=entries, profile=profile)
    expected = build_index(read_log(root / "store" / "commitlog"), 7, entries, "5.5" if profile == "5.5" else "5.3")
    assert index_bytes(root / "out") == expected


TREES = ("consumequeue", "batchconsumequeue")


def rebuild_queues(store, out=None, **options):
    request = RebuildRequest(store=str(store), out=str(out) if out else None, queues=True, **options)
    return run_rebuild(request, Silence())


def queue_files(store: Path) -> dict[str, bytes]:
    files = (path for tree in TREES for path in (store / tree).rglob("*") if path.is_file())
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


def recorded_store(name: str, directory: Path) -> tuple[Path, dict[str, str]]:
    recorded = GOLDEN / "g2" / name
    levels = json.loads((recorded / "store.json").read_text())["properties"]["messageDelayLevel"]
    return unpack("store", directory, archives=recorded), {"delay_levels": levels}


@pytest.mark.parametrize("name", ["g2-queues", "g2-queues-5.5.1"])
def test_batch_light_and_delay_queues_of_an_official_broker_come_out_byte_for_byte(name: str, tmp_path: Path) -> None:
    store, options = recorded_store(name, tmp_path)
    rebuild_queues(store, tmp_path / "out", **options)
    assert queue_files(tmp_path / "out") == queue_files(store)
    assert list((store / "batchconsumequeue").iterdir())


@pytest.mark.parametrize("name", ["g2-dledger", "g2-dledger-mixed"])
def test_queues_and_index_of_a_ledger_come_out_as_the_broker_wrote_them(name: str, tmp_path: Path) -> None:
    store, options = recorded_store(name, tmp_path)
    report = rebuild_queues(store, tmp_path / "out", index=True, from_offset=0, **options)
    assert report.exit_code == 0
    assert queue_files(tmp_path / "out") == queue_files(store)
    built, written = index_bytes(tmp_path / "out"), index_bytes(store)
    assert len(built) == len(written) > 2
    assert built[:-1] == written[:-1]
    assert built[-1][40:] == written[-1][40:]  # a broker that was killed had not yet written its last header


def test_the_queues_of_a_rocksdb_come_out_as_the_broker_writes_them_besides(tmp_path: Path) -> None:
    store, options = recorded_store("g2-rocksdb-double", tmp_path)
    report = rebuild_queues(store, tmp_path / "out", **options)
    made = queue_files(tmp_path / "out")
    light = {name: content for name, content in made.items() if "%LMQ%" in name}
    written = {name: content for name, content in queue_files(store).items() if name.count("/") == 3}
    assert len(written) > 10
    assert {name: content for name, content in made.items() if name not in light} == written
    assert sorted(name.split("/")[1] for name in light) == ["%LMQ%alpha", "%LMQ%beta", "%LMQ%gamma"]
    assert not (tmp_path / "out" / "config").exists()  # that is in files already, and stays
    assert report.notes == []


def test_a_rocksdb_is_not_exchanged_for_files(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-rocksdb")
    before = sorted(path.name for path in (store / "consumequeue").iterdir())
    with pytest.raises(ConfigError, match="is a RocksDB, which is not exchanged for files: give a directory to --out"):
        rebuild_queues(store)
    assert sorted(path.name for path in (store / "consumequeue").iterdir()) == before


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """The recorded crashed store after what a broker does to it first: without its last index file."""
    store = unpack("store-crashed", tmp_path)
    sorted((store / "index").iterdir())[-1].unlink()
    return store


def test_the_missing_file_comes_back_and_nothing_else_changes_but_the_checkpoint(crashed: Path) -> None:
    before, files = files_under(crashed), {path.name: path.stat().st_ino for path in (crashed / "index").iterdir()}
    old = Checkpoint.read(crashed / "checkpoint")
    report = rebuild(crashed)
    after = files_under(crashed)
    assert report.details.index.kept == sorted(files)
    found = {path.name: path.stat().st_ino for path in (crashed / "index").iterdir()}
    assert {name: found[name] for name in files} == files, "they are the same files"
    whole = files_under(unpack("store-crashed", crashed.parent / "whole") / "index")
    assert [data[40:] for data in files_under(crashed / "index").values()] == [data[40:] for data in whole.values()]
    (index_backup, checkpoint_backup) = sorted(report.details.backups, key=lambda path: "checkpoint" in path)
    was = {Path(name).name: data for name, data in before.items() if name.startswith("index/")}
    assert files_under(Path(index_backup)) == was
    assert Path(checkpoint_backup).read_bytes() == before["checkpoint"]
    untouched = {name for name in before if not name.startswith("index/") and name not in ("checkpoint", "lock")}
    assert {name: after[name] for name in untouched} == {name: before[name] for name in untouched}
    assert not (crashed / WORK).exists()
    new = Checkpoint.read(crashed / "checkpoint")
    newest = max((crashed / "index").iterdir()).read_bytes()
    assert new.index_msg_timestamp == int.from_bytes(newest[8:16], "big") > old.index_msg_timestamp
    fields = [name for name in Checkpoint.__dataclass_fields__ if name != "index_msg_timestamp"]
    assert [getattr(new, name) for name in fields] == [getattr(old, name) for name in fields]
    rebuild(crashed, keep_checkpoint=True, drop_backup=True)
    assert (crashed / "checkpoint").read_bytes() == after["checkpoint"]


def test_places_that_cannot_be_are_refused(crashed: Path, tmp_path: Path) -> None:
    before = files_under(crashed)
    for inside in ("", "index", "new/place"):
        with pytest.raises(ConfigError, match="is in the store"):
            rebuild(crashed, out=str(crashed / inside))
    assert files_under(crashed) == before
    (tmp_path / "out" / "index").mkdir(parents=True)
    with pytest.raises(ConfigError, match="index exists already"):
        rebuild(crashed, out=str(tmp_path / "out"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="empty"):
        rebuild(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) in ([], [tmp_path / "empty" / "lock"])


def test_in_place_damage_where_a_recovery_looks_ends_the_log(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", segment_size=4096, index_slots=7, index_entries=50) as writer:
        for number in range(20):
            writer.append("TopicTest", b"body", keys=f"k{number}")
    victim = writer.written[12]
    writer.overwrite(victim.physical_offset + 4, b"\0\0\0\0")
    before = files_under(tmp_path / "store")
    options = {"slots": 7, "entries": 50, "from_offset": 0}
    for queues in (True, False):
        with pytest.raises(StoreError) as refused:
            rebuild(tmp_path / "store", **options, queues=queues)
        assert str(refused.value).count("to 19 sound records of ") == 1 + queues
        assert str(refused.value).count("those that were built to 12") == 1 + queues
        assert "--allow-fewer" in str(refused.value)
    after = files_under(tmp_path / "store")
    assert {name: after[name] for name in before} == before
    inside = rebuild(tmp_path / "store", **options, allow_fewer=True)
    assert (inside.exit_code, inside.resumed) == (4, True)
    assert inside.details.log_end == victim.physical_offset
    assert inside.entries == 12
    beside = rebuild(tmp_path / "store", **options, out=str(tmp_path / "out"))
    assert beside.exit_code == 4
    assert beside.entries == 19
    assert [damage.physical_offset for damage in beside.damages] == [victim.physical_offset]
    assert beside.damages[0].path == str(tmp_path / "store" / "commitlog" / "00000000000000000000")


PUBLISHED = ("index", "consumequeue")
PHASES = {"scan", "build", "fsync", "exchange"}


def rebuild_all(store: Path) -> None:
    run_rebuild(RebuildRequest(store=str(store), index=True, queues=True, from_offset=0, zone="UTC"), Silence())


def contents(store: Path) -> dict[str, dict[str, bytes]]:
    return {name: files_under(store / name) for name in PUBLISHED if (store / name).exists()}


def phase_of(store: Path) -> str:
    left = left_in(store / WORK)
    manifest = left.manifest() if left else None
    return manifest.phase if manifest else ""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of some segments, whose queues and index are not what a rebuild makes: so old and new differ."""
    store = tmp_path_factory.mktemp("killed") / "store"
    with StoreWriter(store, segment_size=4096) as writer:
        for number in range(100):
            writer.append("TopicTest", b"x" * 100, keys=f"k{number} hot", tags=f"Tag{number % 3}", queue_id=number % 4)
    assert len(list((store / "commitlog").iterdir())) > 4
    assert len(list((store / "index").iterdir())) > 2
    max((store / "index").iterdir()).unlink()
    for queue in sorted((store / "consumequeue" / "TopicTest").iterdir())[:2]:
        last = max(queue.iterdir())
        last.write_bytes(bytes(last.stat().st_size))
    return store


@pytest.mark.parametrize("each", [17, pytest.param(1, marks=pytest.mark.soak)])
def test_a_rebuild_that_is_killed_goes_on(source: Path, tmp_path: Path, each: int) -> None:
    undisturbed, store = (Path(shutil.copytree(source, tmp_path / name)) for name in ("undisturbed", "store"))
    old = contents(source)
    rebuild_all(undisturbed)
    expected = contents(undisturbed)
    assert old != expected
    hit = Counter[str]()
    for number in every_kill(rebuild_all, (store,), Renames.ALL, each=each):
        hit[phase_of(store)] += 1
        now = contents(store)
        assert all(now[name] in (old[name], expected[name]) for name in PUBLISHED), number
        rebuild_all(store)
        assert contents(store) == expected, number
        assert not (store / WORK).exists(), number
        shutil.rmtree(store)
        shutil.copytree(source, store)
    assert hit.keys() >= PHASES, hit


NOON = datetime(2026, 3, 4, 12, 0, 0, 123000, tzinfo=UTC)
NOON_MS = 1772625600123
LATER = NOON + timedelta(days=9)


@pytest.mark.parametrize(
    ("times", "zone", "above", "now", "names"),
    [
        ([NOON_MS], "UTC", "", LATER, ["20260304120000123"]),
        ([NOON_MS], "America/Los_Angeles", "", LATER, ["20260304040000123"]),
        # Equal times, and a clock that stepped back: different names in the order of the files.
        ([NOON_MS] * 3, "UTC", "", LATER, ["20260304120000121", "20260304120000122", "20260304120000123"]),
        ([NOON_MS, NOON_MS - 60_000], "UTC", "", LATER, ["20260304115900122", "20260304115900123"]),
        # Above the last file that is kept, be it at the end of a minute, or no time.
        ([NOON_MS], "UTC", "20260304130000000", LATER, ["20260304130000001"]),
        ([NOON_MS], "UTC", "20260304235959999", LATER, ["20260305000000000"]),
        ([0], "UTC", "19999999999999998", NOON, ["19999999999999999"]),
        # Below the present.
        ([NOON_MS + 10_000, NOON_MS + 20_000], "UTC", "", NOON, ["20260304120000121", "20260304120000122"]),
    ],
)
def test_names_are_store_times_in_the_zone_and_rise(times, zone, above, now, names) -> None:
    assert name_files(times, ZoneInfo(zone), above=above, now=now) == names


def test_where_no_name_lies_between_the_kept_one_and_now_that_is_told() -> None:
    with pytest.raises(ConfigError, match=r"20260304120000122 has a name in the future.*20260304120000123"):
        name_files([NOON_MS], UTC, above="20260304120000122", now=NOON)


@given(st.lists(st.integers(1_600_000_000_000, 1_780_000_000_000), min_size=1, max_size=9), st.integers(-11, 13))
def test_the_zone_is_read_off_names_that_were_given_when_the_first_entry_came(begins: list[int], hours: int) -> None:
    zone = timezone(timedelta(hours=hours, minutes=45))
    times = ((begin, datetime.fromtimestamp(begin // 1000, zone)) for begin in begins)
    implied = implied_zone([(f"{time:%Y%m%d%H%M%S}{begin % 1000:03d}", begin - 40) for begin, time in times])
    assert implied.utcoffset(None) == timedelta(hours=hours, minutes=45)


def test_names_that_are_no_times_imply_no_zone() -> None:
    assert implied_zone([("00000000000000001", 1_700_000_000_000), ("20260304120000123", 0)]) is None


SLOTS, ENTRIES, BYTES = 5_000_000, 20_000_000, 420_000_040
MESSAGES = 5_100_000


@pytest.mark.soak
@pytest.mark.interop
def test_a_full_file_of_default_size_and_the_one_behind_it_are_the_brokers_bytes(tmp_path) -> None:
    store = make_store(tmp_path, StoreParameters(count=MESSAGES, segment_size=1 << 29), None)
    out = tmp_path / "ours"
    run_rebuild(RebuildRequest(store=str(store), out=str(out), index=True, queues=True), Silence())
    files = sorted((out / "index").iterdir())
    assert [file.stat().st_size for file in files] == [BYTES, BYTES]
    end_of_log = StorePlan.load(store).end_of_log
    run_java(store, tmp_path / "java", jars(SERVER_VERSION), end_of_log, 4 * MESSAGES, segment_size=1 << 29)
    assert differing_files(out, tmp_path / "java") == []
    (out / "commitlog").symlink_to(store / "commitlog")
    (out / "config").symlink_to(store / "config")
    shapes = [file.index.shape for file in MessageStore.open(out, StoreOptions()).snapshot.index.files]
    assert [(each.slots, each.entries) for each in shapes] == [
        (SLOTS, ENTRIES - 1),
        (SLOTS, 4 * MESSAGES - ENTRIES + 1),
    ]
