"""Topics, groups and offsets of RocksDB as files; the form is that of files that official brokers wrote."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from golden_frames import parse_java_json
from golden_store import GOLDEN, unpack
from protocol.errors import ConfigError
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_convert, run_rebuild
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.run.progress import Silence
from spark_jobs.run.report import Report
from storage.extras import install_line
from storage.layout.store_config import StoreConfig
from store_kinds import with_rocksdb_queues

G2 = GOLDEN / "g2"
FILES = {"consumerOffset.json", "lmqConsumerOffset.json", "subscriptionGroup.json", "topics.json"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    names = ("g2-rocksdb", "g2-rocksdb-v2", "g2-queues", "g2-filters")
    return {name: unpack("store", tmp_path_factory.mktemp(name), archives=G2 / name) for name in names}


def rebuild(store: Path, out: Path, **options: Any) -> Report:
    return run_rebuild(RebuildRequest(store=str(store), out=str(out), queues=True, **options), Silence())


def content(directory: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = parse_java_json((directory / "config" / name).read_text())
    return found


@pytest.mark.parametrize("name", ["g2-rocksdb", "g2-rocksdb-v2"])
def test_files_say_what_the_databases_say_with_the_members_that_a_broker_writes(
    name: str, recorded: dict[str, Path], tmp_path: Path
) -> None:
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


def test_a_table_without_a_version_is_as_old_as_its_database(recorded: dict[str, Path], tmp_path: Path) -> None:
    database = recorded["g2-rocksdb"] / "config" / "consumerOffsets"
    names = [path for path in database.iterdir() if not path.name.startswith(("LOCK", "LOG"))]
    rebuild(recorded["g2-rocksdb"], tmp_path)
    newest = max(path.stat().st_mtime_ns for path in names) // 1_000_000
    assert content(tmp_path, "consumerOffset.json")["dataVersion"] == {
        "counter": 0, "stateVersion": 0, "timestamp": newest,
    }  # fmt: skip


def test_without_the_extra_it_refuses_unless_it_is_to_go_without(
    recorded: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_damaged_database_is_named_and_nothing_is_made(recorded: dict[str, Path], tmp_path: Path) -> None:
    store = shutil.copytree(recorded["g2-rocksdb"], tmp_path / "store")
    (damaged,) = (store / "config" / "subscriptionGroups").glob("MANIFEST-*")
    os.truncate(damaged, damaged.stat().st_size // 2)
    (store / "config" / "subscriptionGroups" / "CURRENT").write_bytes(b"")
    with pytest.raises(ConfigError, match=f"{store}/config/subscriptionGroups.*--without-config"):
        rebuild(store, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_groups_of_light_queues_have_their_offsets_where_a_broker_with_light_queues_looks(
    recorded: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a broker keeps them as numbers (store-format §9.1)."""
    store = recorded["g2-rocksdb"]
    held = {"%LMQ%a@%LMQ%g": {"0": 7}, "Plain@CG": {"0": 5, "1": 6}}
    monkeypatch.setitem(
        sys.modules["storage.layout.store_config"]._DATABASES,
        "consumerOffset.json",
        ("consumerOffsets", lambda _: {"offsetTable": held}),
    )
    rebuild(store, tmp_path)
    assert content(tmp_path, "consumerOffset.json")["offsetTable"] == held
    light = content(tmp_path, "lmqConsumerOffset.json")
    assert light["lmqOffsetTable"] == {"%LMQ%a@%LMQ%g": 7}
    assert light["offsetTable"] == {"Plain@CG": {"0": 5, "1": 6}}


def test_a_converted_store_has_them_as_files(recorded: dict[str, Path], tmp_path: Path) -> None:
    ledger = with_rocksdb_queues(unpack("store", tmp_path, archives=G2 / "g2-dledger"))
    for path in (ledger / "config").glob("topics.json*"):
        path.unlink()
    shutil.copytree(recorded["g2-rocksdb"] / "config" / "topics", ledger / "config" / "topics")
    offsets = (ledger / "config" / "consumerOffset.json").read_bytes()
    run_convert(ConvertRequest(store=str(ledger), out=str(tmp_path / "plain")), Silence())
    assert "LedgerTopic" in content(tmp_path / "plain", "topics.json")["topicConfigTable"]
    assert (tmp_path / "plain" / "config" / "consumerOffset.json").read_bytes() == offsets
    assert not (ledger / "config" / "topics.json").exists()
