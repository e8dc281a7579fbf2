"""What dispatch makes of records and of DLedger's entries, against the oracle that decodes and parses each."""

import itertools
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oracles
from dispatch_oracle import dispatch, is_dispatched, light_units
from dispatching import (
    BATCH_TOPIC,
    DELAYS,
    light_names,
    light_offsets,
    make_scan,
    named_blocks,
    numbers,
    record_changes,
    scan_bytes,
    segment,
)
from examples import examples
from kernel_memory import Bytes, record_at
from storage.build.dispatch_scan import Reason
from storage.columns.rows import ROW
from storage.columns.wanted import Wanted
from storage.kernels import message_rows
from storage.kernels import records as codes
from storage.kernels.dispatching import LIMIT, DispatchMemory
from storage.queue import consume_queue
from store_files import pack_entry, property_bytes
from strategies import property_blocks

BASE = 1 << 32


class TestAgainstTheOracle:
    @settings(max_examples=examples(12))
    @given(st.lists(record_changes(), max_size=6), st.booleans(), st.booleans())
    def test_entries_and_units_are_those_of_the_oracle(self, changes, tags, lmq) -> None:
        data, _ = segment(changes, BASE)
        scanned = scan_bytes(data, BASE, tags=tags, lmq=lmq, batch_topics=[BATCH_TOPIC])
        records = list(oracles.scan_segment(data, BASE))
        valid = [record for record in records if is_dispatched(record)]
        assert scanned.step == (len(data), Reason.LIMIT, 0)
        assert scanned.passed_over == [record.physical_offset for record in records if not is_dispatched(record)]
        profile = "5.5" if tags else "5.3"
        assert scanned.made == dispatch(valid, profile=profile, lmq=lmq, batch_topics=[BATCH_TOPIC])
        assert sum(block.records for block in scanned.blocks) == len(valid)
        last = valid[-1] if valid else None
        block = scanned.blocks[0]
        assert block.last_record == (last.physical_offset if last else -1)
        assert block.last_timestamp == (last.store_timestamp if last else 0)

    @settings(max_examples=examples(12))
    @given(st.lists(record_changes(), min_size=1, max_size=6), st.integers(1, 400), st.integers(1, 3))
    def test_it_does_not_matter_how_a_segment_is_read_and_taken(self, changes, window, records) -> None:
        data, _ = segment(changes, BASE)
        whole = scan_bytes(data, BASE, batch_topics=[BATCH_TOPIC])
        cut = scan_bytes(data, BASE, batch_topics=[BATCH_TOPIC], window=window, records=records)
        assert (cut.made, cut.passed_over) == (whole.made, whole.passed_over)
        assert all(block.records <= records for block in cut.blocks)

    @settings(max_examples=examples(12))
    @given(st.lists(record_changes(), min_size=1, max_size=4), st.data())
    def test_damage_ends_a_scan_where_the_oracle_ends(self, changes, data) -> None:
        whole, _ = segment(changes, BASE)
        place = data.draw(st.integers(0, len(whole) - 1))
        damaged = whole[:place] + data.draw(st.binary(min_size=1, max_size=9)) + whole[place + 9 :]
        scanned = scan_bytes(damaged, BASE, checksums=True, batch_topics=[BATCH_TOPIC])
        records = list(oracles.scan_segment(damaged, BASE))
        raw = [damaged[record.physical_offset - BASE :][: record.total_size] for record in records]
        if not all(map(oracles.property_crc_holds, raw)):
            return  # a property that looks like a checksum: see below
        assert scanned.step.position == sum(record.total_size for record in records)
        assert scanned.made == dispatch(filter(is_dispatched, records), lmq=True, batch_topics=[BATCH_TOPIC])


def test_what_is_no_record_says_what_it_is() -> None:
    for tail, reason, code in [
        ((40).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big") + bytes(32), Reason.BLANK, 0),
        (bytes(8), Reason.ZERO, 0), (bytes(300), Reason.ZERO, 0), (bytes(7), Reason.NEED_MORE, 0),
        (bytes(3) + b"\1" + bytes(96), Reason.DAMAGE, codes.BAD_MAGIC),
        (b"garbage" * 20, Reason.DAMAGE, codes.BAD_MAGIC),
        ((90).to_bytes(4, "big") + record_at(0)[4:], Reason.DAMAGE, codes.BAD_SIZE),
        ((-5).to_bytes(4, "big", signed=True) + record_at(0)[4:], Reason.DAMAGE, codes.BAD_SIZE),
        (record_at(BASE), Reason.DAMAGE, codes.BAD_OFFSET),
    ]:  # fmt: skip
        data, _ = segment([{"keys": "a"}], BASE)
        scanned = scan_bytes(data + tail, BASE)
        assert (scanned.step, scanned.blocks[0].records) == ((len(data), reason, code), 1)


def test_a_block_is_full_before_it_has_no_room() -> None:
    # A block is full when there may be no room for the keys of one record more.
    many = property_bytes({"KEYS": " ".join(["k"] * 16_000)})
    data, _ = segment([{"properties_bytes": many}] * 4, BASE)
    scanned = scan_bytes(data, BASE, records=4)
    assert len(scanned.blocks) > 1
    assert max(block.record_entries.max() for block in scanned.blocks) == 16_000
    assert scanned.made == dispatch(oracles.scan_segment(data, BASE))
    # A block is full when there may be no room for the light queues of one record more.
    count = 3_200
    names = ",".join(f"%LMQ%{i}" for i in range(count))[:24_000].rpartition(",")[0]
    lists = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": ",".join(["7"] * (names.count(",") + 1))}
    data, _ = segment([{"properties_bytes": property_bytes(lists)}] * 12, BASE)
    scanned = scan_bytes(data, BASE, records=12)
    assert len(scanned.blocks) > 1
    assert scanned.made == dispatch(oracles.scan_segment(data, BASE), lmq=True)
    # Offsets that 32 bits cannot tell from each other are in different blocks.
    blocks = scan_two_far_records(BASE + (1 << 32))
    assert [block.record_offsets.tolist() for block in blocks] == [[0], [0]]
    assert [block.first_offset for block in blocks] == [BASE, BASE + (1 << 32)]
    assert [block.record_offsets.tolist() for block in scan_two_far_records(BASE + 0xFFFFFFFF)] == [[0, 0xFFFFFFFF]]


def scan_two_far_records(far):
    scan, blocks = make_scan(), []
    for base in (BASE, far):
        held = Bytes(record_at(base, keys="a"))
        step = scan.run(held.region, 0, held.length, base, base + held.length, held.length)
        if step.reason == Reason.FULL:
            blocks.append(scan.take())
            step = scan.run(held.region, 0, held.length, base, base + held.length, held.length)
        assert step.reason == Reason.LIMIT
    return [*blocks, scan.take()]


def make_memory(**options):
    defaults = {"tags": True, "checksums": True, "delays": DELAYS, "lmq": True, "batch_topics": [BATCH_TOPIC],
                "units": True, "entries": True, "timestamps": True, "records": 10}  # fmt: skip
    return DispatchMemory(**{**defaults, **options})


def names_of_one_hash(pairs: int) -> list[bytes]:
    """Topics that share a hash which multiplies word by word and adds the upper half of the product to the lower.

    The highest bit of a word changes one bit of a product with an odd number, and then one more: two bits of the next
    word undo both, whatever the factor and the beginning are.
    """
    words = [(b"firstone", b"theother"), (b"firston\xe5", b"the\xefthe\xf2")]
    assert [int.from_bytes(a, "little") ^ int.from_bytes(b, "little") for a, b in zip(*words, strict=True)] == [
        1 << 63, 1 << 63 | 1 << 31,
    ]  # fmt: skip
    return [b"".join(b"".join(words[number >> bit & 1]) for bit in range(pairs)) for number in range(1 << pairs)]


def test_names_that_were_made_to_share_a_hash_do_not() -> None:
    topics = names_of_one_hash(11)
    data, _ = segment([{"topic_bytes": topic} for topic in topics], BASE)
    memory = make_memory(records=8 * len(topics))
    memory.run(Bytes(data).region, 0, len(data), BASE, BASE + len(data), len(data))
    assert len(memory.take().queues) == len(set(topics)) == 2048
    assert memory.collisions < 200, "by chance some 20 of two million pairs"


names = st.one_of(
    st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "A", "KEY", "TAGSS", "UNIQ_KEZ"]), st.text("KEYSTAG", max_size=5)
)
any_blocks = st.one_of(
    property_blocks,
    named_blocks,
    st.lists(
        st.tuples(names.map(str.encode), st.binary(max_size=70)).map(lambda pair: b"%b\x01%b\x02" % pair), max_size=6
    ).map(b"".join),
    st.lists(
        st.sampled_from([b"\0", b"\1", b"\2", b"\3", b"TAGS", b"KEYS\1", b"\x81", b"\x82", b"x" * 61]), max_size=20
    ).map(b"".join),
)


@settings(max_examples=examples(100))
@given(any_blocks)
def test_a_record_looked_at_alone_has_the_entries_of_a_scan_each_once(block: bytes) -> None:
    held = Bytes(record_at(BASE, properties_bytes=block))
    entries = dispatch(oracles.scan_segment(bytes(held), BASE)).entries
    assert codes.entry_hashes(held.region, 0, held.length) == list(dict.fromkeys(hashed for hashed, _, _ in entries))


@settings(max_examples=examples(100))
@given(numbers | st.text("+-0123456789", max_size=22), numbers | st.text("+-0123456789", max_size=22))
@example("32767", "-9223372036854775808")
@example("-32768", "9223372036854775807")
@example("1", "9223372036854775808")
def test_numbers_are_parsed_as_java_parses_them(size: str, first: str) -> None:
    block = property_bytes({"INNER_NUM": size, "INNER_BASE": first})
    data, _ = segment([{"topic_bytes": BATCH_TOPIC, "properties_bytes": block}], BASE)
    valid = filter(is_dispatched, oracles.scan_segment(data, BASE))
    assert scan_bytes(data, BASE, batch_topics=[BATCH_TOPIC]).made == dispatch(valid, batch_topics=[BATCH_TOPIC])


lists = st.one_of(st.text("a%LMQ/, 1", max_size=12), light_names.map(",".join), light_offsets.map(",".join))


def units(names: str, offsets: str, topic: bytes = b"TopicTest") -> list[tuple[bytes, int, int]]:
    block = property_bytes({"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets})
    data = record_at(0, topic_bytes=topic, properties_bytes=block)
    made = scan_bytes(data).made
    found = [(*key[:2], offset) for key, queue in made.queues.items() if key[2] for offset in queue.offsets]
    records = list(oracles.scan_segment(data, 0))
    assert sorted(found) == sorted(light_units(records[0]))
    return found


@settings(max_examples=examples(60))
@given(lists, lists)
def test_any_lists_lead_to_the_units_of_the_oracle(names: str, offsets: str) -> None:
    units(names, offsets)


@pytest.mark.parametrize("topic", [b"%RETRY%g", b"rmq_sys_wheel_timer", b"SCHEDULE_TOPIC_XXXX"])
def test_messages_of_retry_and_system_topics_are_in_no_light_queue(topic: bytes) -> None:
    assert units("%LMQ%a", "7", topic) == []


PIECES = [*(b"a", b"\x7f", b"\xc2\xa9", b"\xe4\xbb\xb7", b"\xf0\x9f\x98\x80"),
          *(b"\xc0", b"\xe0\x80\x80", b"\xf0\x80", b"\xf4\x90\x80\x80", b"\xf5", b"\xf8", b"\xff", b"\x80"),
          *(b"\xed\xa0\x80", b"\xed\xa0", b"\xe1\x80", b"\xf0\x9f\x98")]  # fmt: skip
"""Whole sequences; ones that no encoder writes; encoded surrogates and sequences cut short."""

any_bytes = st.one_of(st.binary(min_size=1, max_size=40), st.lists(st.sampled_from(PIECES), min_size=1).map(b"".join))
values = any_bytes.map(lambda data: data.replace(b"\1", b"?").replace(b"\2", b"?"))


def tags_code(tags: bytes) -> int:
    (queue,) = scan_bytes(record_at(0, properties_bytes=b"TAGS\x01" + tags + b"\x02")).made.queues.values()
    (unit,) = queue.units
    return consume_queue.UNIT.unpack(unit)[2]


@given(values)
@example(b"\xed\xa0A")
@example(b"\xf0\x9f")
def test_any_bytes_hash_as_java_decodes_and_hashes_them(data: bytes) -> None:
    assert tags_code(data) % 2**32 == oracles.java_hash(oracles.decode_java(data)) % 2**32


@given(values, values)
def test_a_topic_and_a_key_fold_to_the_hash_that_an_index_keeps(topic: bytes, key: bytes) -> None:
    held = Bytes(record_at(0, topic_bytes=topic, properties_bytes=b"UNIQ_KEY\x01" + key + b"\x02"))
    # The topic's hash is gone on with: an encoded character that is cut at its end is no part of the key's first.
    text = f"{oracles.decode_java(topic)}#{oracles.decode_java(key)}"
    assert codes.entry_hashes(held.region, 0, held.length) == [oracles.index_hash(text)]


def test_names_of_light_queues_are_told_apart_by_their_bytes() -> None:
    lists = b"INNER_MULTI_DISPATCH\x01%LMQ%\xa7,%LMQ%\xff,%LMQ%\xef\xbf\xbd\x02INNER_MULTI_QUEUE_OFFSET\x013,4,5\x02"
    whole, _ = segment([{"properties_bytes": lists}], BASE)
    made = scan_bytes(whole, BASE).made
    names = [name for name, _, is_light in made.queues if is_light]
    assert names == [b"%LMQ%\xa7", b"%LMQ%\xff", "%LMQ%\ufffd".encode()]
    assert made == dispatch(oracles.scan_segment(whole, BASE), lmq=True)


def test_a_scan_reads_to_its_limit_and_makes_what_is_wanted() -> None:
    # A record that starts below the limit is read to its end.
    data, positions = segment([{"keys": "a"}, {"keys": "b"}, {"keys": "c"}], BASE)
    scanned = scan_bytes(data, BASE, limit=positions[1] + 1)
    assert scanned.step == (positions[2], Reason.LIMIT, 0)
    assert scan_bytes(data, BASE, limit=positions[1]).step == (positions[1], Reason.LIMIT, 0)
    assert scan_bytes(data, BASE, limit=0).step == (0, Reason.LIMIT, 0)
    # Entries or units are left out when not wanted.
    data, _ = segment([{"keys": "a"}], BASE)
    whole = scan_bytes(data, BASE).made
    entries, units = scan_bytes(data, BASE, units=False).made, scan_bytes(data, BASE, entries=False).made
    assert (entries.entries, entries.queues) == (whole.entries, {})
    assert (units.entries, units.queues) == ([], whole.queues)
    assert whole.entries
    assert whole.queues
    # What a scan was given may change behind it.
    topics, delays = [bytearray(b"Batches")], [1, 2]
    memory = make_memory(batch_topics=topics, delays=delays)
    topics[0][:] = b"Nothing"
    delays.clear()
    data, _ = segment([{"topic_bytes": b"Batches", "queue_offset": 3}], BASE)
    memory.run(Bytes(data).region, 0, len(data), BASE, BASE + len(data), len(data))
    assert len(memory.take().units) == 46


@pytest.mark.parametrize("text", ["abc", "2147483648", "-2147483649", "1.5", "-", "１"])
def test_a_delay_that_is_no_number_is_damage_in_the_schedule_topic_alone(text: str) -> None:
    block = property_bytes({"DELAY": text, "KEYS": "a"})
    data, _ = segment([{"topic_bytes": b"SCHEDULE_TOPIC_XXXX", "properties_bytes": block}], BASE)
    scanned = scan_bytes(data, BASE)
    assert (scanned.passed_over, scanned.made) == ([BASE], dispatch([]))
    other, _ = segment([{"topic_bytes": b"SCHEDULE_TOPIC_XXXY", "properties_bytes": block}], BASE)
    assert scan_bytes(other, BASE).blocks[0].records == 1


def test_a_memory_that_another_thread_is_using_is_refused() -> None:
    data, _ = segment([{"body": bytes(1 << 26)}], BASE)
    held, memory, begins = Bytes(data), make_memory(), threading.Event()

    def run() -> None:
        begins.set()
        memory.run(held.region, 0, len(data), BASE, BASE + len(data), len(data))

    refused = 0
    for _ in range(20):
        begins.clear()
        thread = threading.Thread(target=run)
        thread.start()
        begins.wait()
        while thread.is_alive():
            try:
                memory.take()
            except RuntimeError:
                refused += 1
        if refused:
            break
        memory.take()
    assert refused


def test_a_run_that_does_not_go_forward_is_refused_until_what_is_behind_it_is_taken() -> None:
    data, positions = segment([{"keys": "a"}, {"keys": "b"}], BASE)
    held, memory = Bytes(data), make_memory()
    arguments = held.region, 0, len(data), BASE, BASE + len(data), positions[1]
    assert memory.run(*arguments).reason == LIMIT
    with pytest.raises(ValueError, match="does not go forward"):
        memory.run(*arguments)
    first = memory.take()
    assert (memory.run(*arguments).reason, memory.take().hashes) == (LIMIT, first.hashes)


def test_a_separator_is_found_anywhere_and_lists_are_read_as_a_broker_reads_them() -> None:
    # A separator is found at every place.
    text = b"KEYS\x01" + b"\x83\x7f\x80\xff\x03a" * 24
    for byte, place in itertools.product((0, 1, 2), range(5, len(text))):
        block = text[:place] + bytes([byte]) + text[place + 1 :]
        data, _ = segment([{"properties_bytes": block}], BASE)
        assert scan_bytes(data, BASE).made == dispatch(oracles.scan_segment(data, BASE)), place
    # Lists are read as a broker reads them.
    for names, offsets, expected in [
        ("%LMQ%a,%LMQ%b", "7,0", [(b"%LMQ%a", 0, 7), (b"%LMQ%b", 0, 0)]),
        ("%LMQ%a,other", "7,8", [(b"%LMQ%a", 0, 7), (b"other", 1, 8)]),
        ("other,%LMQ%a", ",8", [(b"%LMQ%a", 0, 8)]),
        ("%LMQ%a,other", "7,", []),  # Java drops the empty item at the end: the lists differ in length
        ("%LMQ%a,,", "7", [(b"%LMQ%a", 0, 7)]),
        ("%LMQ%a,%LMQ%b", "7", []),
        ("%LMQ%a/b,%LMQ%c", "1,2", [(b"%LMQ%c", 0, 2)]),
        ("%LMQ%a", "9223372036854775808", []),
        (",", "1", []),
        (" ", "1", []),
    ]:
        assert units(names, offsets) == expected


@dataclass
class Ledger:
    """A segment as it grows; `starts` are the positions of its records."""

    data: bytes = b""
    starts: list[int] = field(default_factory=list)
    entries: int = 0

    def add(self, kind, **changes) -> None:
        """Append a record in an entry, one without a head, or an entry that has none."""
        head = codes.ENTRY_HEAD if kind == "entry" else 0
        if kind in ("entry", "plain"):
            self.starts.append(len(self.data) + head)
            record = record_at(BASE + self.starts[-1], **changes)
            self.data += record if kind == "plain" else self._entry(record, 1)
        else:
            self.data += self._entry(b"", 2) if kind == "noop" else self._entry(b"n0-127.0.0.1:40911", 3)

    def _entry(self, body: bytes, kind: int) -> bytes:
        self.entries += 1
        return pack_entry(body, BASE + len(self.data), index=self.entries - 1, kind=kind)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    ledger = Ledger()
    kinds = st.sampled_from(["entry", "entry", "entry", "plain", "noop", "change"])
    for number, kind in enumerate(draw(st.lists(kinds, max_size=8))):
        if kind in ("entry", "plain"):
            changes = {
                "keys": draw(st.sampled_from([None, "a", "a a b", "ключ 🔑"])),
                "unique_key": draw(st.sampled_from([None, f"U{number}"])),
                "tags": draw(st.sampled_from([None, "TagA"])), "sys_flag": draw(st.sampled_from([0, 4, 8, 12, 0x30])),
                "body": draw(st.binary(max_size=10)), "queue_offset": number, "property_crc": draw(st.booleans()),
            }  # fmt: skip
            ledger.add(kind, **changes)
        else:
            ledger.add(kind)
    return ledger


def keys_of(data: bytes, position: int, stop: int) -> tuple[int, set[tuple[int, int]]]:
    hashes, offsets = np.zeros(100 + codes.MAXIMUM_PIECES, np.int32), np.zeros(100 + codes.MAXIMUM_PIECES, np.int64)
    found = codes.scan_keys(Bytes(data).region, position, stop, len(data), BASE, BASE + len(data), hashes, offsets)
    return found.position, set(zip(hashes[: found.entries].tolist(), offsets[: found.entries].tolist(), strict=True))


def rows_of(data: bytes, position: int, limit: int, stop: int) -> tuple[int, int, int, list[int]]:
    table = np.zeros(20, ROW)
    chosen = message_rows.choose_records(Bytes(data).region, position, limit, stop, BASE, BASE + len(data),
                                         Wanted().query(names=True, checksums=True), table.view(np.int64))  # fmt: skip
    return chosen.position, chosen.reason, chosen.last, table["position"][: chosen.rows].tolist()


@settings(max_examples=examples(12))
@given(ledgers(), st.sampled_from([b"", bytes(8), bytes(200)]))
def test_every_walk_meets_the_records_of_the_oracle_and_ends_behind_the_last(ledger, behind) -> None:
    data, starts = ledger.data + behind, ledger.starts
    records = list(oracles.scan_segment(data, BASE))
    assert [record.physical_offset - BASE for record in records] == starts
    end = len(ledger.data)
    region = Bytes(data).region
    walk = codes.walk_records(region, 0, len(data), BASE, BASE + len(data), True)
    assert (walk.position, walk.records, walk.last) == (end, len(starts), starts[-1] if starts else -1)
    appended = codes.walk_appended(region, 0, len(data), len(data), BASE, BASE + len(data))
    assert (appended.position, appended.records, appended.last) == (end, len(starts), walk.last)
    expected = {
        (oracles.index_hash(key), record.physical_offset)
        for record in records
        if record.sys_flag & 0xC != 0xC
        for key in oracles.index_keys(record)
    }
    assert keys_of(data, 0, len(data)) == (end, expected)
    assert rows_of(data, 0, len(data), len(data))[2:] == (walk.last, starts)


@settings(max_examples=examples(30))
@given(ledgers(), st.integers(20, 400), st.integers(1, 3))
def test_a_dispatch_makes_of_them_what_the_oracle_makes_however_they_are_read(ledger, window, records) -> None:
    expected = dispatch(oracles.scan_segment(ledger.data, BASE), lmq=True)
    assert scan_bytes(ledger.data, BASE).made == expected
    assert scan_bytes(ledger.data, BASE, window=window, records=records).made == expected


@settings(max_examples=examples(12))
@given(ledgers(), st.data())
def test_a_walk_ends_where_the_oracle_ends(ledger: Ledger, draw: st.DataObject) -> None:
    if not ledger.data:
        return
    place = draw.draw(st.integers(0, len(ledger.data) - 1))
    data = ledger.data[:place] + draw.draw(st.binary(min_size=1, max_size=9)) + ledger.data[place + 9 :]
    records = list(oracles.scan_segment(data, BASE))
    raw = {record: data[record.physical_offset - BASE :][: record.total_size] for record in records}
    if not all(map(oracles.property_crc_holds, raw.values())):
        return  # the oracle of a walk knows no property CRC
    region = Bytes(data).region
    end = BASE + len(data)
    assert codes.walk_records(region, 0, len(data), BASE, end, True).records == len(records)
    assert codes.walk_appended(region, 0, len(data), len(data), BASE, end).records == len(records)
    assert rows_of(data, 0, len(data), len(data))[3] == [each.physical_offset - BASE for each in records]
    made = scan_bytes(data, BASE, checksums=True).made
    assert made == dispatch(records, lmq=True)


@pytest.mark.parametrize("left", [8, 40, 100])
def test_a_blank_of_dledgers_closes_a_segment_by_its_size(left: int) -> None:
    ledger = Ledger()
    ledger.add("entry")
    end = len(ledger.data)
    data = ledger.data + oracles.packed(-1, 4) + oracles.packed(left, 4) + bytes(left - 8)
    region = Bytes(data).region
    assert codes.closes_segment(region, end, left)
    assert not codes.closes_segment(region, end, left + 1)
    assert codes.check_step(region, end, len(data), BASE + end, BASE + len(data)) == 0
    walk = codes.walk_records(region, 0, len(data), BASE, BASE + len(data), True)
    assert (walk.position, walk.reason) == (end, codes.AT_BLANK)
    appended = codes.walk_appended(region, 0, len(data), len(data), BASE, BASE + len(data))
    assert (appended.position, appended.reason) == (end, codes.AT_BLANK)
    assert rows_of(data, 0, len(data), len(data))[:2] == (end, codes.AT_BLANK)
    step = scan_bytes(data, BASE).step
    assert (step.position, step.reason) == (end, Reason.BLANK)


def test_a_damaged_head_hides_no_record_from_a_search() -> None:
    ledger = Ledger()
    for number in range(3):
        ledger.add("entry", keys=f"k{number}")
    head = ledger.starts[1] - codes.ENTRY_HEAD
    for place in (0, 4, 24, 31, 44, 47):
        data = bytearray(ledger.data)
        data[head + place] ^= 0x40
        walk = codes.walk_records(Bytes(bytes(data)).region, 0, len(data), BASE, BASE + len(data), True)
        assert (walk.position, walk.reason) == (head, codes.AT_DAMAGE)
        assert codes.find_record(Bytes(bytes(data)).region, head + 1, len(data), BASE) == ledger.starts[1]


def test_an_entry_of_which_only_the_head_was_written_ends_the_log_in_front_of_it() -> None:
    ledger = Ledger()
    ledger.add("entry")
    end = len(ledger.data)
    record = record_at(BASE + end + codes.ENTRY_HEAD)
    data = ledger.data + pack_entry(record, BASE + end, index=1)[: codes.ENTRY_HEAD] + bytes(200)
    assert codes.walk_appended(Bytes(data).region, 0, len(data), len(data), BASE, BASE + 5000).position == end
    assert codes.walk_records(Bytes(data).region, 0, len(data), BASE, BASE + 5000, True).position == end
    step = scan_bytes(data, BASE).step
    assert (step.position, step.reason) == (end, Reason.ZERO)
