"""The recorded stores of g2 hold what they were made for, and the recorded answers are what lies in them."""

import base64
import hashlib
import json
import lzma
import struct

import pytest

from golden.record.questions import VIEW_MESSAGE_BY_ID
from golden.record.records import walk
from golden_store import GOLDEN, unpack

G2 = GOLDEN / "g2"
LEDGERS = ("g2-dledger", "g2-dledger-mixed")
"""Stores whose logs are DLedger's, the second one from a place on; its broker was killed."""
ROCKSDB = ("g2-rocksdb", "g2-rocksdb-killed", "g2-rocksdb-double", "g2-rocksdb-selective")
NAMES = ("g2-hosts", "g2-queues", "g2-queues-5.5.1", "g2-ext", *LEDGERS, *ROCKSDB)
STORES = (*NAMES, "g2-filters")
TIERS = ("g2-tier", "g2-tier-killed")
MOST_BYTES = 1_500_000


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    unpacked = {}
    for name in (*STORES, *TIERS):
        root = unpack("store", tmp_path_factory.mktemp(name), archives=G2 / name)
        commit_logs = json.loads((G2 / name / "store.json").read_text())["commit_logs"]
        unpacked[name] = root, list(walk(root / folder for folder in commit_logs))
    return unpacked


def frames(name, file="frames.jsonl.xz"):
    lines = [json.loads(line) for line in lzma.decompress((G2 / name / file).read_bytes()).splitlines()]
    assert lines
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [(asked["header"], answer["header"], base64.b64decode(answer["body"])) for asked, answer in pairs]


@pytest.mark.parametrize("name", STORES)
def test_every_produced_id_names_a_record_with_its_unique_key(stores, name) -> None:
    records = {record.offset_message_id: record for record in stores[name][1]}
    lines = (G2 / name / "produced.tsv").read_text().splitlines()
    assert lines
    for line in lines:
        _, status, unique_keys, offset_ids, *_ = line.split("\t")
        assert status == "SEND_OK"
        for unique_key, offset_id in zip(unique_keys.split(","), offset_ids.split(","), strict=True):
            assert records[offset_id].properties["UNIQ_KEY"] == unique_key


@pytest.mark.parametrize("name", NAMES)
def test_every_record_was_viewed_and_is_what_the_broker_answered(stores, name) -> None:
    root, records = stores[name]
    folders = [root / folder for folder in json.loads((G2 / name / "store.json").read_text())["commit_logs"]]
    segments = {int(path.name): path.read_bytes() for folder in folders for path in folder.iterdir()}
    size = len(next(iter(segments.values())))
    viewed = {}
    for asked, answer, body in frames(name):
        assert asked["opaque"] == answer["opaque"]
        if asked["code"] == VIEW_MESSAGE_BY_ID and answer["code"] == 0:
            offset = int(asked["extFields"]["offset"])
            viewed[offset] = body
            assert segments[offset // size * size][offset % size :].startswith(body)
    assert sorted(viewed) == [record.physical_offset for record in records]


@pytest.mark.parametrize("name", TIERS)
def test_a_tier_has_a_log_and_units_for_each_queue_in_files_named_by_hash_and_offset(stores, name) -> None:
    root, _ = stores[name]
    (broker,) = (root / "tiered").glob("212d6b50_DefaultCluster/broker-a")
    counts = {}
    for directory in sorted(broker.glob("Tier*/*")):
        pieces = {}
        for kind in ("COMMIT_LOG", "CONSUME_QUEUE"):
            end, content = 0, b""
            for path in sorted((directory / kind).iterdir(), key=lambda path: path.name[8:]):
                assert path.name == hashlib.md5(str(end).encode()).hexdigest()[:8] + f"{end:020d}"
                content += path.read_bytes()
                end = len(content)
            pieces[kind] = content
        log, units = pieces["COMMIT_LOG"], pieces["CONSUME_QUEUE"]
        position = 0
        for number, (place, size, _) in enumerate(struct.iter_unpack(">qiq", units)):
            assert place == position
            record_size, queue_offset, physical_offset = struct.unpack_from(">i16xqq", log, place)
            assert (record_size, queue_offset, physical_offset) == (size, number, place)
            position += size
        assert position == len(log)
        counts[f"{directory.parent.name}/{directory.name}"] = len(units) // 20
    assert counts == {"Tier-new/0": 3, "Tier-old/0": 3, "TierDelay/0": 1, "TierTopic/0": 87, "TierTopic/1": 95}
    assert min(int(path.name) for path in (root / "commitlog").iterdir()) > 0
    assert (root / "abort").exists() == (name == "g2-tier-killed")


def test_it_is_small_and_names_no_folder_of_the_machine_it_was_made_on(stores) -> None:
    assert sum(path.stat().st_size for path in G2.rglob("*") if path.is_file()) < MOST_BYTES
    for root, _ in stores.values():
        paths = [path for path in (root / "config").rglob("*") if path.is_file()]
        paths = [path for path in paths if not path.name.startswith("OPTIONS-")]  # they have the temporary folder
        assert paths
        for path in paths:
            assert b"/tmp/" not in path.read_bytes()
