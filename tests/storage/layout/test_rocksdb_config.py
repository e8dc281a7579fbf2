"""Topics, groups and offsets in RocksDB, as recorded brokers left them; what they answered is the truth."""

import json
import lzma
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from giant_files import make_giant
from golden_store import GOLDEN, unpack
from protocol.errors import StoreError
from read_only import as_user, reachable_directory
from storage.extras import install_line
from storage.layout.store_config import GROUPS, OFFSETS, TOPICS, StoreConfig

G2 = GOLDEN / "g2"
ANSWERS = {"g2-rocksdb": "frames.jsonl.xz", "g2-rocksdb-killed": "frames.jsonl.xz", "g2-rocksdb-v2": "answers.jsonl.xz"}
QUERY_CONSUMER_OFFSET = 14


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: unpack("store", tmp_path_factory.mktemp(name), archives=G2 / name) for name in ANSWERS}


def answered_offsets(name: str) -> dict[tuple[str, str, int], int]:
    """What the broker said of each group, topic and queue that it knew a committed offset of."""
    asked: dict[int, tuple[str, str, int]] = {}
    found = {}
    for line in lzma.decompress((G2 / name / ANSWERS[name]).read_bytes()).splitlines():
        header = json.loads(line)["header"]
        if header["flag"] & 1 == 0:
            if header["code"] == QUERY_CONSUMER_OFFSET:
                fields = header["extFields"]
                asked[header["opaque"]] = (fields["consumerGroup"], fields["topic"], int(fields["queueId"]))
        elif header["opaque"] in asked and header["code"] == 0:
            found[asked[header["opaque"]]] = int(header["extFields"]["offset"])
    return found


def files_of(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes())
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", ANSWERS)
def test_committed_offsets_are_what_the_broker_answered_and_nothing_is_written(
    name: str, stores: dict[str, Path]
) -> None:
    before = files_of(stores[name] / "config")
    config = StoreConfig.load(stores[name])
    assert files_of(stores[name] / "config") == before
    config.refuse_unknown_offsets()
    # Where a group has none, a broker answers 0 for a queue that begins with 0.
    known = {place: offset for place, offset in answered_offsets(name).items() if offset}
    assert len(known) >= 3
    for (group, topic, queue_id), offset in known.items():
        assert config.consumer_offsets[group, topic][queue_id] == offset
    assert "NoSuchGroup" not in {group for group, _ in config.consumer_offsets}


@pytest.mark.parametrize("name", ANSWERS)
def test_topics_and_groups_are_those_that_were_made(name: str, stores: dict[str, Path]) -> None:
    config = StoreConfig.load(stores[name])
    queues = {"LedgerTopic": 2, "LedgerDelay": 1, "LedgerFails": 1, "LedgerTransactions": 1, "LightParent": 2}
    assert {topic: config.topics[topic].read_queue_nums for topic in queues} == queues
    assert config.topics_version.counter > 0
    if name != "g2-rocksdb-v2":  # which writes only what administrators made
        assert {"CG_REPLAY", "TOOLS_CONSUMER"} < set(config.subscription_groups)
        assert config.subscription_groups["CG_REPLAY"].retry_max_times == 16
    assert not [problem for problem in config.problems if "RocksDB" in problem]


@pytest.mark.parametrize("name", ["g2-rocksdb", "g2-rocksdb-v2"])
def test_without_the_extra_offsets_are_unknown_topics_are_the_logs_and_it_is_said_once(
    name: str, stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    config = StoreConfig.load(stores[name])
    with pytest.raises(StoreError, match=re.escape(install_line("rocksdb"))):
        config.refuse_unknown_offsets()
    config.refuse_unknown(TOPICS)
    assert config.is_unknown(GROUPS)
    assert config.is_unknown(OFFSETS)
    (said,) = [problem for problem in config.problems if "RocksDB" in problem]
    assert "topics are those of the log, groups and how far they have come are not known" in said


@pytest.mark.parametrize(("cut", "size"), [("MANIFEST-000005", 0), ("000015.sst", 600)])
def test_a_file_of_a_database_that_was_cut_is_named_and_other_tables_are_known(
    cut: str, size: int, stores: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(stores["g2-rocksdb"] / "config", tmp_path / "config")
    os.truncate(tmp_path / "config" / "topics" / cut, size)
    config = StoreConfig.load(tmp_path)
    with pytest.raises(StoreError, match=rf"{tmp_path}/config/topics.*{cut}"):
        config.refuse_unknown(TOPICS)
    config.refuse_unknown_offsets()
    assert len(config.consumer_offsets) >= 5


@pytest.mark.parametrize("giant", ["CURRENT", "000015.sst"])
def test_a_file_of_a_database_that_is_a_giant_is_named_and_not_read(
    giant: str, stores: dict[str, Path], tmp_path: Path
) -> None:
    """The library would take its apparent size of memory, and end the process, or read for hours."""
    shutil.copytree(stores["g2-rocksdb"] / "config", tmp_path / "config")
    path = tmp_path / "config" / "topics" / giant
    path.touch()
    make_giant(path)
    config = StoreConfig.load(tmp_path)
    with pytest.raises(StoreError, match=rf"{path}: .*1,099,511,627,776 bytes long"):
        config.refuse_unknown(TOPICS)
    config.refuse_unknown_offsets()
    assert len(config.consumer_offsets) >= 5


@pytest.mark.parametrize("each", [29, pytest.param(5, marks=pytest.mark.soak)])
def test_wherever_a_manifest_is_cut_no_row_is_missed_in_silence(
    stores: dict[str, Path], tmp_path: Path, each: int
) -> None:
    """RocksDB takes what is cut for a crash, and opens an older state with fewer rows or none."""
    shutil.copytree(stores["g2-rocksdb"] / "config", tmp_path / "config")
    manifest = tmp_path / "config" / "topics" / "MANIFEST-000005"
    whole, named = manifest.read_bytes(), 0
    topics = StoreConfig.load(tmp_path).topics
    assert len(topics) > 10
    for cut in range(0, len(whole), each):
        manifest.write_bytes(whole[:cut])
        config = StoreConfig.load(tmp_path)
        if config.topics == topics:
            continue
        named += 1
        with pytest.raises(StoreError, match=f"{tmp_path}/config/topics"):
            config.refuse_unknown(TOPICS)
    assert named > 500 / each


def test_a_database_without_rights_is_named(stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with reachable_directory() as root:
        (root / "temporary").mkdir()
        (root / "temporary").chmod(0o777)
        monkeypatch.setattr(tempfile, "tempdir", str(root / "temporary"))
        shutil.copytree(stores["g2-rocksdb"] / "config", root / "config")
        database = root / "config" / "consumerOffsets"
        database.chmod(0)
        with as_user(), pytest.raises(StoreError, match=str(database)):
            StoreConfig.load(root).refuse_unknown_offsets()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", bytes(8)),
        (b"\0\x02CG\x01\0\x01T\x01\0\0\0\0", bytes(7)),
    ],
)
def test_a_cut_entry_of_a_database_of_all_tables_is_named(key: bytes, value: bytes, tmp_path: Path) -> None:
    database = Rdict(str(tmp_path / "config" / "rdb"), Options(raw_mode=True))
    database[b"\x01\0\x01\x02" + key] = value
    database.close()
    with pytest.raises(StoreError, match=r"config/rdb.*cut"):
        StoreConfig.load(tmp_path).refuse_unknown_offsets()
