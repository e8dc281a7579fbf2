"""Scans of whole stores: units and index files are those of a broker, entries those of the oracle."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from dispatch_oracle import dispatch
from dispatching import gather, scan_store
from examples import examples
from golden_store import GOLDEN, log_folders, unpack
from kept_store import written
from storage.build.dispatch_scan import BATCH, LIGHT, PLAIN, Reason
from storage.build.index_builder import IndexFileBuilder
from storage.build.spill import choose_ranges, write_index_file
from storage.index.tail_index import empty_tail, extend_tail
from storage.queue.consume_queue import UNIT, UNIT_DTYPE
from storage.ranges import intersect, total_length
from storage.store.message_store import MessageStore
from store_files import ConsumeQueueFiles
from strategies import store_plans


def build_files(blocks, slots, entries):
    files: list[bytes] = []
    builder, last_entry, last_record = None, -1, -1
    for block in blocks:
        last_record = max(last_record, block.last_record)
        put, total = 0, block.hashes.size
        while put < total:
            if builder is None or not builder.room:
                builder = IndexFileBuilder(slots, entries, _close(builder, files))
            count = min(builder.room, total - put)
            builder.put(block.entries, put, count)
            put += count
        if total:
            last_entry = block.first_offset + int(block.record_offsets[-1])
    if last_record > last_entry and (builder is None or not builder.room):
        builder = IndexFileBuilder(slots, entries, _close(builder, files))
    _close(builder, files)
    return files


def _close(builder, files):
    if builder is None:
        return None
    header = builder.finish()
    assert not any(builder.memory[builder.used :])
    files.append(builder.memory[: builder.size])
    return header


def gathered(scans):
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


def units_of(made, kinds):
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
    assert written.keys() == made.keys()
    for name, units in made.items():
        assert written[name][: len(units)] == units, name
        assert not any(written[name][len(units) :]), name


def batch_topics(root: Path) -> list[bytes]:
    table = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]
    return [name.encode() for name, topic in table.items() if topic["attributes"].get("queue.type") == "BatchCQ"]


def test_the_17_queues_of_g1(g1_store: Path) -> None:
    scans = scan_store([g1_store / "commitlog"], lmq=False, records=50)
    made = gathered(scans)
    written = unit_files(g1_store, "consumequeue")
    assert len(written) == 17
    assert_same_units(written, units_of(made, {PLAIN}))
    assert made == dispatch(oracles.read_log(g1_store / "commitlog"))
    assert [scanned.step.reason for scanned in scans] == [Reason.BLANK, Reason.ZERO]


@pytest.mark.parametrize("name", ["g2-hosts", "g2-queues-5.5.1", "g2-ext", "g2-dledger-mixed"])
def test_hosts_versions_light_queues_and_batches(name: str, tmp_path: Path) -> None:
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
        assert stamps == {(topic.decode(), each): queue.timestamps for (topic, each, _), queue in made.queues.items()}
    assert_same_units(written, units_of(made, {PLAIN, LIGHT}))
    assert any(queue.kind == LIGHT for queue in made.queues.values()) == name.startswith("g2-queues")
    assert any(queue.kind == BATCH for queue in made.queues.values()) == name.startswith("g2-queues")


def resolve_extensions(root, written):
    """Queues with the tags codes of their extension units in place of the addresses, and the units' store times."""
    extensions, stamps = unit_files(root, "consumequeue_ext"), {}
    for name, content in written.items():
        units = np.frombuffer(content, UNIT_DTYPE).copy()
        places = [int(unit["tags_code"]) + 2**63 for unit in units if unit["size"]]
        units["tags_code"][: len(places)] = [oracles.signed(extensions[name], place + 2, 8) for place in places]
        stamps[name] = [oracles.signed(extensions[name], place + 10, 8) for place in places]
        written[name] = units.tobytes()
    return written, stamps


COUNTS = {"g1": (97, 150), "g2/g2-hosts": (50, 60), "g2/g2-queues-5.5.1": (97, 150), "g2/g2-ext": (31, 400),
          "g2/g2-dledger": (97, 150)}  # fmt: skip


def blocks_of(directories, *, tags=True, records=1 << 10):
    scans = scan_store(directories, tags=tags, records=records)
    return [block for scanned in scans for block in scanned.blocks]


@pytest.mark.parametrize("name", COUNTS)
def test_all_index_files_come_out_byte_for_byte(name: str, tmp_path: Path) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / name)
    recorded = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert len(recorded) == 10 or name != "g1"
    assert build_files(blocks_of(log_folders(root)), *COUNTS[name]) == recorded


@settings(max_examples=examples(12))
@given(store_plans(all_indexed=True))
def test_any_store_has_the_entries_units_and_index_files_that_its_log_says(tmp_path_factory, plan) -> None:
    writer = plan.write(tmp_path_factory.mktemp("store"))
    profile = plan.options["profile"]
    scans = scan_store(writer.log.directories, tags=profile == "5.5", records=5, window=700)
    assert gathered(scans) == dispatch(writer.records, profile=profile, lmq=True)
    blocks = blocks_of(writer.log.directories, tags=profile == "5.5", records=3)
    built = build_files(blocks, plan.options["index_slots"], plan.options["index_entries"])
    assert built == [path.read_bytes() for path in writer.index_paths()]


SLOTS = 13


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    return written(tmp_path_factory.mktemp("spill"), 60)


@pytest.fixture(scope="module")
def log(writer):
    return MessageStore.open(writer.root).commit_log


def scanned(log, ranges, steps=1):
    """A tail of some ranges, scanned in so many steps."""
    tail = empty_tail(ranges)
    for _ in range(steps):
        tail = extend_tail(tail, log, total_length(ranges) // steps + 1)
    return extend_tail(tail, log, 1 << 40)


def entries_of(path: Path) -> list[tuple[int, int]]:
    data = path.read_bytes()
    count = oracles.signed(data, 36, 4) - 1
    assert oracles.first_bad_entry(data, SLOTS, count) == 0
    places = [40 + 4 * SLOTS + 20 * number for number in range(1, count + 1)]
    return [(oracles.signed(data, at, 4), oracles.signed(data, at + 4, 8)) for at in places]


def right_entries(writer, ranges):
    """What the oracle puts into an index for the records that start in some ranges."""
    records = [record for record in writer.records if any(a <= record.physical_offset < b for a, b in ranges)]
    builder = oracles.IndexBuilder(SLOTS, 10_000, "5.5")
    for record in records:
        builder.dispatch(record)
    return [(entry[0], entry[1]) for image in builder.files for entry in image.entries]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_holds_what_its_ranges_have_in_the_order_of_the_log(data, writer, log, tmp_path) -> None:
    bounds = sorted(data.draw(st.sets(st.integers(0, log.end), min_size=2, max_size=6)))
    ranges = tuple(zip(bounds[::2], bounds[1::2], strict=False))
    tail = scanned(log, ranges, data.draw(st.integers(1, 5)))
    entries = data.draw(st.integers(2, 300))
    stop = data.draw(st.integers(0, log.end))
    chosen = choose_ranges(tail, log, stop, entries)
    right = right_entries(writer, chosen)
    assert len(right) < entries
    assert intersect(chosen, ranges) == chosen
    possible = right_entries(writer, intersect(ranges, [(0, stop)]))
    assert possible[: len(right)] == right
    following = [offset for _, offset in possible[len(right) :]]  # all keys of a record go together
    assert not following or len(right) + following.count(following[0]) >= entries
    if not chosen:
        return
    assert chosen[-1][1] - 1 == right[-1][1]
    path = tmp_path / "file"
    path.unlink(missing_ok=True)
    write_index_file(path, tail, chosen, SLOTS, 400)
    assert sorted(entries_of(path)) == sorted(right)
    assert [offset for _, offset in entries_of(path)] == [offset for _, offset in right]
    assert path.stat().st_size == 40 + 4 * SLOTS + 20 * 400
