"""Queues rebuilt from the log, end to end, beside the index or alone: the bytes that a broker wrote."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from golden_store import GOLDEN, unpack
from protocol.errors import ConfigError
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.run.progress import Silence
from spark_jobs.run.report import Report

TREES = ("consumequeue", "batchconsumequeue")


def rebuild(store: Path, out: Path | None = None, **options: Any) -> Report:
    request = RebuildRequest(store=str(store), out=str(out) if out else None, queues=True, **options)
    return run_rebuild(request, Silence())


def files(store: Path, trees: tuple[str, ...] = TREES) -> dict[str, bytes]:
    return {
        str(path.relative_to(store)): path.read_bytes()
        for tree in trees
        for path in (store / tree).rglob("*")
        if path.is_file()
    }


def test_queues_alone_leave_the_index_where_it_is(tmp_path: Path) -> None:
    store = unpack("store", tmp_path)
    index, queues = files(store, ("index",)), files(store)
    shutil.rmtree(store / "consumequeue")
    report = rebuild(store, queue_file_size=2000)
    assert files(store) == queues
    assert files(store, ("index",)) == index
    assert report.details.published == ["consumequeue"]


@pytest.mark.parametrize("name", ["g2-queues", "g2-queues-5.5.1"])
def test_batch_light_and_delay_queues_of_an_official_broker_come_out_byte_for_byte(name: str, tmp_path: Path) -> None:
    recorded = GOLDEN / "g2" / name
    levels = json.loads((recorded / "store.json").read_text())["properties"]["messageDelayLevel"]
    store = unpack("store", tmp_path, archives=recorded)
    rebuild(store, tmp_path / "out", delay_levels=levels)
    assert files(tmp_path / "out") == files(store)
    assert list((store / "batchconsumequeue").iterdir())


@pytest.mark.parametrize("name", ["g2-dledger", "g2-dledger-mixed"])
def test_queues_and_index_of_a_ledger_come_out_as_the_broker_wrote_them(name: str, tmp_path: Path) -> None:
    recorded = GOLDEN / "g2" / name
    levels = json.loads((recorded / "store.json").read_text())["properties"]["messageDelayLevel"]
    store = unpack("store", tmp_path, archives=recorded)
    report = rebuild(store, tmp_path / "out", index=True, from_offset=0, delay_levels=levels)
    assert report.exit_code == 0
    assert files(tmp_path / "out") == files(store)
    built, written = (
        [path.read_bytes() for path in sorted((root / "index").iterdir())] for root in (tmp_path / "out", store)
    )
    assert len(built) == len(written) > 2
    assert built[:-1] == written[:-1]
    assert built[-1][40:] == written[-1][40:]  # a broker that was killed had not yet written its last header


def test_the_queues_of_a_rocksdb_come_out_as_the_broker_writes_them_besides(tmp_path: Path) -> None:
    recorded = GOLDEN / "g2" / "g2-rocksdb-double"
    levels = json.loads((recorded / "store.json").read_text())["properties"]["messageDelayLevel"]
    store = unpack("store", tmp_path, archives=recorded)
    report = rebuild(store, tmp_path / "out", delay_levels=levels)
    made = files(tmp_path / "out")
    light = {name: content for name, content in made.items() if "%LMQ%" in name}
    written = {name: content for name, content in files(store).items() if name.count("/") == 3}
    assert len(written) > 10
    assert {name: content for name, content in made.items() if name not in light} == written
    assert sorted(name.split("/")[1] for name in light) == ["%LMQ%alpha", "%LMQ%beta", "%LMQ%gamma"]
    assert not (tmp_path / "out" / "config").exists()  # that is in files already, and stays
    assert report.notes == []


def test_a_rocksdb_is_not_exchanged_for_files(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-rocksdb")
    before = sorted(path.name for path in (store / "consumequeue").iterdir())
    with pytest.raises(ConfigError, match="is a RocksDB, which is not exchanged for files: give a directory to --out"):
        rebuild(store)
    assert sorted(path.name for path in (store / "consumequeue").iterdir()) == before
