"""Scans of whole stores: their units are those in a broker's queue files, their entries those of the oracle."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import oracles
from dispatch_oracle import Dispatched, dispatch
from dispatching import Scanned, gather, make_scan, scan_bytes, scan_store, segment
from examples import examples
from golden_store import GOLDEN, log_folders, unpack
from kernel_memory import Bytes
from storage.build.dispatch_scan import BATCH, LIGHT, PLAIN, Reason
from storage.kernels.dispatching import BATCH_BYTES, PLAIN_BYTES
from storage.queue.batch_consume_queue import UNIT as BATCH_UNIT
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_DTYPE
from storage.queue.consume_queue import UNIT, UNIT_DTYPE
from store_files import ConsumeQueueFiles
from store_writer import StoreWriter
from strategies import StorePlan, store_plans

G2 = ("g2-hosts", "g2-queues-5.5.1", "g2-ext", "g2-dledger-mixed")


def gathered(scans: list[Scanned]) -> Dispatched:
    return gather(block for scanned in scans for block in scanned.blocks)


def unit_files(root: Path, tree: str) -> dict[tuple[str, int], bytes]:
    """All bytes of the queues of a tree that have any, up to the last that is not zero."""
    contents = {
        (directory.parent.name, int(directory.name)): b"".join(
            path.read_bytes() for path in sorted(directory.iterdir())
        )
        for directory in sorted((root / tree).glob("*/*"))
    }
    return {name: content for name, content in contents.items() if any(content)}


def units_of(made: Dispatched, kinds: set[int]) -> dict[tuple[str, int], bytes]:
    """Units by queue, after a broker's append rules: some were there already (store-format §5.2)."""
    units = {}
    for (topic, queue_id, _), queue in made.queues.items():
        if queue.kind in kinds:
            files = ConsumeQueueFiles(Path(), 10**6)
            for unit, offset in zip(queue.units, queue.offsets, strict=True):
                files.put(*UNIT.unpack(unit[: UNIT.size]), queue_offset=offset)
            units[topic.decode(), queue_id] = b"".join(queue.units) if queue.kind == BATCH else bytes(files.files[0])
    return units


def assert_same_units(written: dict[tuple[str, int], bytes], made: dict[tuple[str, int], bytes]) -> None:
    """The files end with zeros, the units do not."""
    assert written.keys() == made.keys()
    for name, units in made.items():
        assert written[name][: len(units)] == units, name
        assert not any(written[name][len(units) :]), name


def batch_topics(root: Path) -> list[bytes]:
    table = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]
    return [name.encode() for name, topic in table.items() if topic["attributes"].get("queue.type") == "BatchCQ"]


class TestRecordedStores:
    def test_the_17_queues_of_g1(self, g1_store: Path) -> None:
        scans = scan_store([g1_store / "commitlog"], lmq=False, records=50)
        made = gathered(scans)
        written = unit_files(g1_store, "consumequeue")
        assert len(written) == 17
        assert_same_units(written, units_of(made, {PLAIN}))
        assert made == dispatch(oracles.read_log(g1_store / "commitlog"))
        assert [scanned.step.reason for scanned in scans] == [Reason.BLANK, Reason.ZERO]

    @pytest.mark.parametrize("name", G2)
    def test_hosts_versions_light_queues_and_batches(self, name: str, tmp_path: Path) -> None:
        root = unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
        logs = log_folders(root)
        topics = batch_topics(root)
        made = gathered(scan_store(logs, checksums=True, batch_topics=topics, delays=[1000] * 4))
        levels = json.loads((GOLDEN / "g2" / name / "store.json").read_text())["properties"]["messageDelayLevel"]
        assert made == dispatch(oracles.read_log(logs), levels=levels, lmq=True, batch_topics=topics)
        assert_same_units(unit_files(root, "batchconsumequeue"), units_of(made, {BATCH}))
        written = unit_files(root, "consumequeue")
        if name == "g2-ext":
            written, stamps = resolve_extensions(root, written)
            assert stamps == {
                (topic.decode(), queue_id): queue.timestamps for (topic, queue_id, _), queue in made.queues.items()
            }
        assert_same_units(written, units_of(made, {PLAIN, LIGHT}))
        assert any(queue.kind == LIGHT for queue in made.queues.values()) == name.startswith("g2-queues")
        assert any(queue.kind == BATCH for queue in made.queues.values()) == name.startswith("g2-queues")


def resolve_extensions(
    root: Path, written: dict[tuple[str, int], bytes]
) -> tuple[dict[tuple[str, int], bytes], dict[tuple[str, int], list[int]]]:
    """Queues with the tags codes of their extension units in place of the addresses, and the units' store times."""
    extensions, stamps = unit_files(root, "consumequeue_ext"), {}
    for name, content in written.items():
        units = np.frombuffer(content, UNIT_DTYPE).copy()
        places = [int(unit["tags_code"]) + 2**63 for unit in units if unit["size"]]
        units["tags_code"][: len(places)] = [oracles.signed(extensions[name], place + 2, 8) for place in places]
        stamps[name] = [oracles.signed(extensions[name], place + 10, 8) for place in places]
        written[name] = units.tobytes()
    return written, stamps


class TestWrittenStores:
    @settings(max_examples=examples(12))
    @given(store_plans(all_indexed=True))
    def test_any_store_has_the_entries_and_units_of_the_oracle(
        self, tmp_path_factory: pytest.TempPathFactory, plan: StorePlan
    ) -> None:
        writer = plan.write(tmp_path_factory.mktemp("store"))
        profile = plan.options["profile"]
        scans = scan_store(writer.log.directories, tags=profile == "5.5", records=5, window=700)
        assert gathered(scans) == dispatch(writer.records, profile=profile, lmq=True)

    def test_batches_light_queues_and_levels_beyond_the_table(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, delay_levels="1s 5s 10s")
        for inner in ({}, {"KEYS": "a"}):
            writer.append_inner_batch("Batches", [(b"one", inner), (b"two", {})])
            writer.append("Batches", b"alone")
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}
        writer.append("T", properties=light, tags="TagA")
        for level in ("2", "3", "4", "99", "0", "-1"):
            writer.append("SCHEDULE_TOPIC_XXXX", properties={"DELAY": level}, tags="TagA", store_timestamp=10**12)
        writer.close()
        made = gathered(
            scan_store(writer.log.directories, batch_topics=batch_topics(tmp_path), delays=(1000, 5000, 10000))
        )
        assert_same_units(unit_files(tmp_path, "batchconsumequeue"), units_of(made, {BATCH}))
        assert_same_units(unit_files(tmp_path, "consumequeue"), units_of(made, {PLAIN, LIGHT}))
        codes = [oracles.signed(unit, 12, 8) for unit in made.queues[b"SCHEDULE_TOPIC_XXXX", 0, False].units]
        tag = oracles.java_hash("TagA")
        assert codes == [10**12 + 5000, 10**12 + 10000, 10**12 + 10000, 10**12 + 10000, tag, tag]


class TestScale:
    def test_a_hundred_thousand_queues_in_one_block(self) -> None:
        count = 100_000
        head, _ = segment([{"topic_bytes": b"Topic-000000", "body": b""}])
        record = np.frombuffer(head, np.uint8)
        records = np.tile(record, (count, 1))
        place = head.index(b"Topic-000000") + 6
        digits = np.arange(count)[:, None] // 10 ** np.arange(5, -1, -1) % 10 + ord("0")
        records[:, place : place + 6] = digits
        offsets = (np.arange(count) * len(head)).astype(">i8")
        records[:, 28:36] = offsets[:, None].view(np.uint8)
        data = records.tobytes()
        held = Bytes(data)
        scan = make_scan(records=count)
        step = scan.run(held.region, 0, len(data), 0, len(data), len(data))
        assert (step.position, step.reason, step.code) == (len(data), Reason.LIMIT, 0)
        block = scan.take()
        assert block.queues == [(b"Topic-%06d" % number, 1) for number in range(count)]
        assert block.runs[:, 0].tolist() == list(range(count))
        assert np.frombuffer(block.units, UNIT_DTYPE)["physical_offset"].tolist() == offsets.tolist()

    def test_a_record_of_many_megabytes_is_asked_for_until_it_is_there(self) -> None:
        data, positions = segment([{"keys": "a"}, {"keys": "b", "body": bytes(3_000_000)}, {"keys": "c"}])
        scanned = scan_bytes(data, window=1 << 20)
        assert scanned.step == (len(data), Reason.LIMIT, 0)
        assert [entry[1] for entry in scanned.made.entries] == positions


@pytest.mark.parametrize(
    ("size", "unit", "dtype"), [(PLAIN_BYTES, UNIT, UNIT_DTYPE), (BATCH_BYTES, BATCH_UNIT, BATCH_DTYPE)]
)
def test_the_kernels_unit_sizes_are_those_of_the_layouts(size: int, unit: Any, dtype: Any) -> None:
    assert size == unit.size == np.dtype(dtype).itemsize
