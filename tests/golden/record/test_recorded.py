"""The recorded stores of g2 hold what they were made for, and the recorded answers are what lies in them."""

import base64
import hashlib
import json
import lzma
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from golden.record.questions import VIEW_MESSAGE_BY_ID
from golden.record.records import Record, host_text, walk
from golden_store import GOLDEN, unpack

G2 = GOLDEN / "g2"
NO_PERMISSION = 16
LEDGERS = ("g2-dledger", "g2-dledger-mixed")
"""Stores whose logs are DLedger's, the second one from a place on; its broker was killed."""
ROCKSDB = ("g2-rocksdb", "g2-rocksdb-killed", "g2-rocksdb-double", "g2-rocksdb-selective")
"""Stores whose queues are in RocksDB, those of the last two in files besides."""
NAMES = ("g2-hosts", "g2-queues", "g2-queues-5.5.1", "g2-ext", *LEDGERS, *ROCKSDB)
"""Stores of which every record was viewed."""
STORES = (*NAMES, "g2-filters")
TIERS = ("g2-tier", "g2-tier-killed")
"""Stores of which older messages are in tiered files alone."""
QUEUES = ("g2-queues", "g2-queues-5.5.1")
"""One scenario, of brokers of both versions."""
MESSAGE_V2 = 0xDAA320AB
IS_INNER_BATCH = 0xC0
MOST_BYTES = 1_500_000

Stores = dict[str, tuple[Path, list[Record]]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    unpacked = {}
    for name in (*STORES, *TIERS):
        root = unpack("store", tmp_path_factory.mktemp(name), archives=G2 / name)
        commit_logs = json.loads((G2 / name / "store.json").read_text())["commit_logs"]
        unpacked[name] = root, list(walk(root / folder for folder in commit_logs))
    return unpacked


def frames(name: str, file: str = "frames.jsonl.xz") -> list[tuple[dict[str, Any], dict[str, Any], bytes]]:
    """Request header, response header and response body of each recorded exchange."""
    lines = [json.loads(line) for line in lzma.decompress((G2 / name / file).read_bytes()).splitlines()]
    assert lines
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [(asked["header"], answer["header"], base64.b64decode(answer["body"])) for asked, answer in pairs]


def magic_of(root: Path, record: Record, size: int) -> int:
    base = record.physical_offset // size * size
    data = (root / "commitlog" / f"{base:020}").read_bytes()
    magic: int = struct.unpack_from(">I", data, record.physical_offset - base + 4)[0]
    return magic


@pytest.mark.parametrize("name", STORES)
def test_every_produced_id_names_a_record_with_its_unique_key(stores: Stores, name: str) -> None:
    records = {record.offset_message_id: record for record in stores[name][1]}
    lines = (G2 / name / "produced.tsv").read_text().splitlines()
    assert lines
    for line in lines:
        _, status, unique_keys, offset_ids, *_ = line.split("\t")
        assert status == "SEND_OK"
        for unique_key, offset_id in zip(unique_keys.split(","), offset_ids.split(","), strict=True):
            assert records[offset_id].properties["UNIQ_KEY"] == unique_key


@pytest.mark.parametrize("name", NAMES)
def test_every_record_was_viewed_and_is_what_the_broker_answered(stores: Stores, name: str) -> None:
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


@pytest.mark.parametrize("name", LEDGERS)
def test_a_ledger_has_heads_in_front_of_its_records_blanks_of_its_own_and_units_for_them(
    stores: Stores, name: str
) -> None:
    root, records = stores[name]
    offsets = {record.physical_offset for record in records}
    units = (root / "dledger-n0" / "index" / ("0" * 20)).read_bytes()[: 32 * 1000]
    number, blanks = 0, 0
    for segment in sorted((root / "dledger-n0" / "data").iterdir()):
        data, base, position = segment.read_bytes(), int(segment.name), 0
        while position + 8 <= len(data) and (kind := struct.unpack_from(">i", data, position)[0]):
            if kind == -1:
                assert struct.unpack_from(">i", data, position + 4) == (len(data) - position,)
                blanks += 1
                break
            _, size, index, term, place, *rest, body = struct.unpack_from(">iiqqqiiii", data, position)
            assert (kind, index, term, place, rest) == (1, number, 0, base + position, [0, 0, 0])
            assert place + 48 in offsets
            assert body == size - 48 == struct.unpack_from(">i", data, position + 48)[0]
            assert struct.unpack_from(">iqiqq", units, number * 32) == (1, place, size, index, term)
            number, position = number + 1, position + size
    assert number > 80
    assert blanks >= 2
    assert not units[number * 32 :].strip(b"\0")


def test_a_store_that_became_a_ledger_has_plain_records_below_it(stores: Stores) -> None:
    root, records = stores["g2-dledger-mixed"]
    first = min(int(path.name) for path in (root / "dledger-n0" / "data").iterdir())
    last = max((root / "commitlog").iterdir(), key=lambda path: int(path.name))
    assert int(last.name) + last.stat().st_size == first
    stages = [
        one.properties["KEYS"].split()[-1] for one in records if one.topic == "LedgerTopic" and one.properties.get("a")
    ]
    assert stages == ["plain"] * 60 + ["ledger"] * 60
    assert {one.physical_offset < first for one in records if one.properties.get("KEYS") == "plain-level"} == {True}
    assert (root / "abort").exists()
    assert not (stores["g2-dledger"][0] / "abort").exists()


@pytest.mark.parametrize("name", LEDGERS)
def test_ledgers_hold_delayed_transactional_and_failed_messages(stores: Stores, name: str) -> None:
    topics = {one.topic for one in stores[name][1]}
    assert {"SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "LedgerDelay"} <= topics
    assert any(topic.startswith("%RETRY%CG_FAILS_") for topic in topics)
    flags = {
        one.sys_flag & 0xC for one in stores[name][1] if one.topic in ("LedgerTransactions", "RMQ_SYS_TRANS_HALF_TOPIC")
    }
    assert {0x4, 0x8} & flags


@pytest.mark.parametrize("name", TIERS)
def test_a_tier_has_a_log_and_units_for_each_queue_in_files_named_by_hash_and_offset(stores: Stores, name: str) -> None:
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


def test_hosts_are_of_both_families_in_three_of_the_four_ways(stores: Stores) -> None:
    ways = {(host_text(one.born_host), host_text(one.store_host)) for one in stores["g2-hosts"][1]}
    assert ways == {("::1", "::1"), ("::1", "127.0.0.1"), ("127.0.0.1", "::1")}


@pytest.mark.parametrize("name", ["g2-hosts", *QUEUES])
def test_topics_longer_than_127_bytes_are_in_v2_records_and_no_others(stores: Stores, name: str) -> None:
    root, records = stores[name]
    size = (next((root / "commitlog").iterdir())).stat().st_size
    lengths = {len(record.topic): magic_of(root, record, size) == MESSAGE_V2 for record in records}
    assert {128, 255} <= set(lengths)
    assert 127 in lengths
    assert all(is_v2 == (length > 127) for length, is_v2 in lengths.items())


@pytest.mark.parametrize("name", QUEUES)
def test_inner_batches_light_queues_and_timers_are_there(stores: Stores, name: str) -> None:
    root, records = stores[name]
    batches = [one for one in records if one.sys_flag & IS_INNER_BATCH == IS_INNER_BATCH]
    assert [int(one.properties["INNER_NUM"]) for one in batches] == [3, 1, 5, 10, 2, 4]
    assert sorted(path.name for path in (root / "batchconsumequeue" / "BatchCqTopic").iterdir()) == ["0", "1"]
    light = {name for one in records for name in one.properties.get("INNER_MULTI_DISPATCH", "").split(",") if name}
    assert light == {"%LMQ%alpha", "%LMQ%beta", "%LMQ%gamma"}
    assert all((root / "consumequeue" / name / "0").is_dir() for name in light)
    assert len([one for one in records if one.topic == "rmq_sys_wheel_timer"]) >= 7
    assert len([one for one in records if one.topic == "TimerTopic"]) == 5


def test_a_broker_5_5_1_writes_light_queues_as_one_of_5_5_0_does(stores: Stores) -> None:
    """The same properties in the same order, and the same offsets in the light queues."""
    told = ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "WAIT", "TAGS", "KEYS")
    written = [
        [
            (list(one.properties), [one.properties[name] for name in told])
            for one in stores[store][1]
            if one.topic == "LightParent" and "INNER_MULTI_DISPATCH" in one.properties
        ]
        for store in QUEUES
    ]
    assert written[0] == written[1]
    assert len(written[0]) == 12


def test_a_broker_5_5_1_shows_a_record_to_who_names_its_topic_or_none(stores: Stores) -> None:
    records = {one.physical_offset: one for one in stores["g2-queues-5.5.1"][1]}
    seen = set()
    for asked, answer, _ in frames("g2-queues-5.5.1", "views.jsonl.xz"):
        record, topic = records[int(asked["extFields"]["offset"])], asked["extFields"].get("topic", "")
        waits = record.topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
        names = [record.properties["REAL_TOPIC"] if waits else record.topic]
        if record.topic == "LightParent":
            names += record.properties.get("INNER_MULTI_DISPATCH", "").split(",")
        is_shown = not topic.strip() or topic in names
        assert answer["code"] == (0 if is_shown else NO_PERMISSION), (record.topic, topic)
        assert is_shown or answer["remark"] == "The topic does not match the message"
        seen.add((record.topic, is_shown))
    assert seen == {(one.topic, is_shown) for one in records.values() for is_shown in (True, False)}


def test_extensions_have_bitmaps_and_two_folders_have_segments(stores: Stores) -> None:
    root, _ = stores["g2-ext"]
    extension = (root / "consumequeue_ext" / "ExtTopic" / "0" / ("0" * 20)).read_bytes()
    (bitmap_length,) = struct.unpack_from(">h", extension, 18)
    assert bitmap_length == 14
    assert any(extension[20 : 20 + bitmap_length])
    assert all(len([*(root / folder).iterdir()]) >= 1 for folder in ("commitlog-a", "commitlog-b"))


def test_filters_let_few_and_many_through_and_one_of_them_has_changed(stores: Stores) -> None:
    root, records = stores["g2-filters"]
    numbers = [int(one.properties["a"]) for one in records if one.topic == "FilterTopic"]
    assert sorted(numbers) == sorted([*range(100)] * 10)
    registry = json.loads((root / "config" / "consumerFilter.json").read_text())["filterDataByTopic"]["FilterTopic"]
    known = registry["groupFilterData"]
    assert known["CG_ONE_PERCENT"]["expression"] == "a = 7 AND region IN ('hz', 'bj')"
    times = sorted(one.store_timestamp for one in records if one.topic == "FilterTopic")
    early = {"CG_ONE_PERCENT", "CG_TENTH", "CG_HALF", "CG_NONE", "CG_FAILS"}
    assert {group for group, told in known.items() if told["bornTime"] < times[0]} == early
    assert {group for group, told in known.items() if times[499] <= told["bornTime"] < times[550]} == (
        {"CG_CHANGES", "CG_LATE"}
    )


def test_retry_topics_were_pulled_with_and_without_the_filters_of_the_topics_before(stores: Stores) -> None:
    _, records = stores["g2-filters"]
    again = {one.queue_offset: one for one in records if one.topic == "%RETRY%CG_FAILS"}
    assert [again[number].properties.get("RETRY_TOPIC") for number in (*range(10), 10, 11, 12)] == (
        [*["FilterTopic"] * 11, "NoSuchTopic", None]
    )
    assert [again[number].properties["a"] for number in range(13)] == [*["7"] * 10, "8", "8", "8"]
    answers = [
        [(asked["extFields"], answer["code"], body) for asked, answer, body in frames("g2-filters", file)]
        for file in ("pulls.jsonl.xz", "pulls-retry.jsonl.xz")
    ]
    tags = [[one for one in each if one[0]["expressionType"] == "TAG"] for each in answers]
    assert tags[0] == tags[1]
    assert answers[0] != answers[1]
    assert [{code for _, code, _ in each} for each in answers] == [{0, 19, 20}, {0, 1, 19, 20}]


def test_every_property_crc_is_that_of_its_record(stores: Stores) -> None:
    viewed = [
        body for asked, answer, body in frames("g2-ext") if asked["code"] == VIEW_MESSAGE_BY_ID and answer["code"] == 0
    ]
    assert len(viewed) == len(stores["g2-ext"][1]) > 0
    for body in viewed:
        digits = body[-11:-1].decode()
        assert body[-20:-11] == b"__CRC32#\x01"
        assert int(digits[::-1]) == zlib.crc32(body[:-20]) & 0x7FFFFFFF


def test_it_is_small_and_names_no_folder_of_the_machine_it_was_made_on(stores: Stores) -> None:
    assert sum(path.stat().st_size for path in G2.rglob("*") if path.is_file()) < MOST_BYTES
    for root, _ in stores.values():
        paths = [path for path in (root / "config").rglob("*") if path.is_file()]
        paths = [path for path in paths if not path.name.startswith("OPTIONS-")]  # they have the temporary folder
        assert paths
        for path in paths:
            assert b"/tmp/" not in path.read_bytes()
