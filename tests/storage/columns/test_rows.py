"""Columns of messages beside the oracle that reads record by record: chosen, decompressed, masked."""

import gzip
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oracles
from column_rows import expected_rows, host_text, read_log_rows, read_rows, rows_of, texts_of, values_of
from examples import examples
from kernel_memory import Bytes
from protocol.mask import Mask
from protocol.message import decode_message
from storage.columns import message_columns
from storage.columns.mask import read_mask
from storage.columns.message_columns import gather
from storage.columns.names import KINDS
from storage.columns.properties import Properties
from storage.columns.rows import RowReader
from storage.columns.texts import FEW, RepeatedTexts, TextPlaces, Texts, gather_hosts, hold
from storage.columns.wanted import HIGHEST, Wanted
from storage.kernels import records as codes
from storage.log.damaged_ranges import ZEROS, DamagedRange
from storage.log.log_window import LocalFile, LogWindow
from store_writer import START_TIMESTAMP, StoreWriter
from strategies import batch_plans, store_plans


@settings(max_examples=examples(12))
@given(store_plans(maximum_messages=25))
def test_every_record_of_a_log_is_a_row(plan) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = plan.write(Path(directory))
        assert read_log_rows(Path(directory) / "commitlog") == expected_rows(writer.records)


@settings(max_examples=examples(12))
@given(batch_plans)
def test_every_message_of_a_batch_is_a_row(plan) -> None:
    with tempfile.TemporaryDirectory() as directory:
        messages = expected_rows(plan.write(Path(directory)).records)
        log = Path(directory) / "commitlog"
        assert read_log_rows(log) == messages
        chosen = Wanted(tags=frozenset({b"Aa", b"TagA"}), queue_offsets=(1, 9))
        wanted = [row for row in messages if row["tags"] in ("Aa", "TagA") and 1 <= row["queue_offset"] <= 9]
        assert read_log_rows(log, chosen) == wanted
        by_name = [row for row in messages if row["properties"].get("UNIQ_KEY") == "BB"]
        assert read_log_rows(log, Wanted(where="UNIQ_KEY = 'BB'")) == by_name


@pytest.fixture
def varied(tmp_path: Path) -> StoreWriter:
    with StoreWriter(tmp_path, segment_size=1 << 20) as writer:
        for number in range(60):
            writer.append(
                ("Ta", "Tb", "标题")[number % 3], b"body", queue_id=number % 4 - 1,
                tags=(None, "Aa", "BB", "标签")[number % 4], store_timestamp=START_TIMESTAMP + (number * 37) % 60,
                properties={"n": str(number)},
            )  # fmt: skip
    return writer


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(topics=frozenset({"标题".encode(), b"Tb", b"none"})),
        Wanted(queue_ids=frozenset({-1, 2})),
        Wanted(tags=frozenset({b"Aa", "标签".encode()})),
        Wanted(times=(START_TIMESTAMP + 10, START_TIMESTAMP + 30)),
        Wanted(queue_offsets=(2, 4)),
        Wanted(physical_offsets=(500, 2500)),
        Wanted(topics=frozenset({b"Ta"}), tags=frozenset({b"BB"}), queue_ids=frozenset({1}), times=(0, HIGHEST)),
    ],
)  # fmt: skip
def test_exactly_what_is_wanted_is_found(varied: StoreWriter, wanted: Wanted) -> None:
    def is_wanted(record):
        tag = record.properties.get("TAGS")
        return (
            (wanted.topics is None or record.topic_bytes in wanted.topics)
            and (wanted.queue_ids is None or record.queue_id in wanted.queue_ids)
            and (wanted.tags is None or (tag is not None and tag.encode() in wanted.tags))
            and wanted.times[0] <= record.store_timestamp <= wanted.times[1]
            and wanted.queue_offsets[0] <= record.queue_offset <= wanted.queue_offsets[1]
            and wanted.physical_offsets[0] <= record.physical_offset <= wanted.physical_offsets[1]
        )

    found = read_log_rows(varied.root / "commitlog", wanted)
    assert found == expected_rows(filter(is_wanted, varied.records))


@pytest.mark.parametrize(
    ("where", "numbers"),
    [("missing IS NULL AND n = '7'", [7]), ("n CONTAINS 'x'", []), ("n > 58 OR n BETWEEN 3 AND 4", [3, 4, 59])],
)
def test_a_sql92_expression_decides_as_for_a_consumer(varied, where, numbers) -> None:
    found = read_log_rows(varied.root / "commitlog", Wanted(where=where))
    assert [int(row["properties"]["n"]) for row in found] == numbers


COMPRESSED = 1


def test_a_body_that_cannot_be_decompressed_is_missing_and_says_why(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.append("T", zlib.compress(b"good"), sys_flag=COMPRESSED)
        writer.append("T", b"no stream\xff\1", sys_flag=COMPRESSED)
        writer.append("T", b"odd\xff\1", sys_flag=COMPRESSED | 0x700)
        writer.append("T", b"plain")
        writer.append("T", b"", sys_flag=COMPRESSED)
    rows = read_log_rows(tmp_path / "commitlog")
    assert [row["body"] for row in rows] == [b"good", None, None, b"plain", b""]
    assert [row["body_error"] is None for row in rows] == [True, False, False, True, True]
    assert "zlib" in rows[1]["body_error"]
    assert rows[2]["body_error"] == "compression type 7, expected 0 to 3"


def test_bodies_that_decompress_to_very_much_end_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_columns, "MOST_BODY_BYTES", 1000)
    with StoreWriter(tmp_path) as writer:
        sizes = [600, 3, 600, 5, 2000, 1, 7]
        for size in sizes:
            compressed = size > 100
            body = bytes(size)
            writer.append("T", zlib.compress(body) if compressed else body, sys_flag=COMPRESSED if compressed else 0)
        writer.append("T", b"bad\xff\1", sys_flag=COMPRESSED)
    rows = read_log_rows(tmp_path / "commitlog")
    assert [len(row["body"]) for row in rows[:-1]] == sizes
    assert [row["queue_offset"] for row in rows] == list(range(8))
    assert [row["body_error"] is None for row in rows] == [True] * 7 + [False]


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    with StoreWriter(tmp_path) as writer:
        writer.append("T", b"secret", tags="A", keys="k l", unique_key="u", properties={"card": "4111", "cart": "x"})
        writer.append("T", b"", properties={"cart": "y"})
    return writer


def masked(writer, *fields):
    (segment,) = writer.log.segments.values()
    with LogWindow(LocalFile(segment), 0) as window:
        for rows in RowReader(window, Wanted(), names=True).read(0, writer.log.end):
            (columns,) = gather(rows, tuple(KINDS))
            return rows_of(columns), rows_of(read_mask(fields).apply(columns, tuple(columns)))
    raise AssertionError


RULES = [
    *(["body"], ["keys"], ["tags"], ["unique_key"], ["hosts"], ["properties"], ["properties.card"]),
    *(["$.phone"], ["/1[3-9]\\d{9}/"], ["/l m/"], ["body:/138/", "tags"], ["properties:/4\\d+/", "$..x"]),
]


@pytest.mark.parametrize("rules", RULES, ids=" ".join)
def test_columns_and_messages_are_masked_alike(tmp_path: Path, rules: list[str]) -> None:
    with StoreWriter(tmp_path) as writer:
        phone = b"13812345678"
        for body in (b'{"phone": "138"}', phone, b"\xff" + phone, gzip.compress(phone), b"", b"plain"):
            writer.append("T", body, tags="A 13812345678", keys="k l m", unique_key="u", properties={"card": "4111"})
        writer.append("T", zlib.compress(phone), sys_flag=1, properties={"REAL_TOPIC": "T41"})
        writer.append("T", b"batch " + phone, sys_flag=0xC0, properties={"card": "4111"})
        writer.append("RMQ_SYS_TRACE_TOPIC", b"Pub k")
    mask = Mask(rules)
    rows = masked(writer, *rules)[1]
    assert len(rows) == len(writer.records)
    (segment,) = writer.log.segments.values()
    data = segment.read_bytes()
    for record, row in zip(writer.records, rows, strict=True):
        shown = mask.message(decode_message(data[record.physical_offset :]))
        assert row["body"] == shown.body
        assert row["properties"] == shown.properties
        assert (row["tags"], row["unique_key"]) == (shown.tags, shown.unique_key)
        assert (row["born_host"], row["store_host"]) == (str(shown.born_host), str(shown.store_host))
        assert (row["body_crc"], len(row["keys"])) in {(shown.body_crc, 3), (shown.body_crc, 0), (shown.body_crc, 2)}
        assert not set(row["keys"]) - {"k", "l", "m", "***"}


def test_no_message_is_wanted_where_a_choice_has_nothing_or_a_range_ends_before_it_begins() -> None:
    assert Wanted(topics=frozenset()).is_empty
    assert Wanted(times=(5, 4)).is_empty
    assert not Wanted().is_empty


def test_what_lies_far_before_the_first_offset_wanted_is_not_read(disk_path: Path) -> None:
    with StoreWriter(disk_path, segment_size=1 << 23) as writer:
        places = [writer.append("T", bytes(100_000)).physical_offset for _ in range(60)]
        writer.overwrite(places[50] + 4, b"#")
    (segment,) = writer.log.segments.values()
    for first, expected in ((places[55], places[55:]), (places[50], places[51:]), (places[50] + 1, places[51:])):
        wanted = Wanted(physical_offsets=(first, HIGHEST))
        with LogWindow(LocalFile(segment), 0) as window:
            reader = RowReader(window, wanted)
            found = [rows.table["position"] + rows.base_offset for rows in reader.read(0, writer.log.end)]
            assert [offset for each in found for offset in each.tolist()] == expected
            assert [each.start for each in reader.damage] == [places[50]]  # it lies near before, or behind
            assert window.bytes_read < writer.log.end / 2


@given(st.binary(max_size=12).filter(lambda tag: b"\1" not in tag and b"\2" not in tag))
@settings(max_examples=examples(30))
def test_a_tag_is_compared_byte_by_byte(tag: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        with StoreWriter(Path(directory)) as writer:
            writer.append("T", properties=b"TAGS\1" + tag + b"\2")
            writer.append("T", properties=b"TAGS\1other\2")
        found = read_log_rows(Path(directory) / "commitlog", Wanted(tags=frozenset({tag})))
    assert len(found) == (1 if tag else 0) + (tag == b"other")


def test_zeros_before_another_segment_and_a_body_that_does_not_match_its_crc_are_damage(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=1 << 16)
    for number in range(10):
        writer.append("T", b"body of %d" % number, property_crc=True)
    writer.flush()
    (segment,) = writer.log.segments.values()
    rows, damage = read_rows(segment, 0, is_last=False)
    last, offsets = writer.written[-1], [each.physical_offset for each in writer.written]
    assert [row["physical_offset"] for row in rows] == offsets
    assert damage == [DamagedRange(last.physical_offset + last.size, 1 << 16, ZEROS)]
    third = writer.written[3]
    writer.overwrite(third.physical_offset + 90, b"X")
    rows, damage = read_rows(segment, 0)
    assert [row["physical_offset"] for row in rows] == offsets[:3] + offsets[4:]
    assert damage == [DamagedRange(third.physical_offset, third.physical_offset + third.size, codes.BAD_BODY_CRC)]


any_text = st.one_of(st.binary(max_size=20), st.text(max_size=12).map(str.encode))


def places_of(texts):
    region, starts, sizes = hold([text or b"" for text in texts])
    lengths = np.where([text is None for text in texts], -1, sizes).astype(np.int64)
    return TextPlaces(region, starts, lengths)


repeated_texts = st.sampled_from([b"", b"a", b"ab", b"TAGS", b"CLUSTER", b"UNIQ_KEY", b"__CRC32#", b"\xff"])


@given(st.lists(st.none() | repeated_texts) | st.lists(st.none() | any_text, max_size=10))
@settings(max_examples=examples(60))
def test_texts_that_come_again_are_kept_once_and_no_utf8_is_decoded_as_java_does(texts: list[bytes | None]) -> None:
    places = places_of(texts)
    repeated = places.gather_repeated()
    assert isinstance(repeated, RepeatedTexts)
    assert texts_of(repeated) == texts_of(repeated.spread()) == texts
    words = texts_of(repeated.words)
    assert (len(words), set(words)) == (len(set(words)), set(texts) - {None})
    decoded = [text if text is None else oracles.decode_java(text) for text in texts]
    for found in (places.gather_repeated_utf8(), places.gather_utf8()):
        assert [text if text is None else text.decode() for text in texts_of(found)] == decoded


addresses = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
hosts = st.tuples(addresses, st.integers(-(2**31), 2**31 - 1))
few_hosts = st.sampled_from([(bytes(4), 1), (bytes(4), 2), (bytes([127, 0, 0, 1]), 1)])


@given(st.lists(hosts, max_size=8) | st.lists(few_hosts, max_size=12))
@example([(bytes(4), number) for number in range(FEW + 1)] * 2)
@settings(max_examples=examples(30))
def test_hosts_are_written_as_people_do(hosts: list[tuple[bytes, int]]) -> None:
    packed = [address + port.to_bytes(4, "big", signed=True) for address, port in hosts]
    region, starts, _ = hold(packed)
    is_v6 = np.array([len(address) == 16 for address, _ in hosts], np.bool_)
    found = gather_hosts(region, starts, is_v6)
    assert [text.decode() for text in texts_of(found) if text is not None] == [host_text(host) for host in hosts]


blocks = st.one_of(
    st.binary(max_size=30),
    st.lists(st.sampled_from([b"a", b"bb", b"\1", b"\2", b"\1", b"\2", b"\xff", "é".encode(), b"\0"]), max_size=24).map(
        b"".join
    ),
)
BEFORE = b"." * 64


def properties_of(blocks: list[bytes]) -> Properties:
    held = Bytes(b"".join(BEFORE + block for block in blocks))
    sizes = np.array([len(block) for block in blocks], np.int64)
    return Properties(held.region, np.cumsum(sizes + len(BEFORE)) - sizes, sizes)


def maps_of(blocks: list[bytes]) -> list[dict[str, str]]:
    return values_of("properties", properties_of(blocks).maps())


@given(st.lists(blocks, max_size=8))
@settings(max_examples=examples(40))
def test_property_blocks_become_maps_and_values_by_the_brokers_rules(blocks: list[bytes]) -> None:
    maps = maps_of(blocks)
    expected = [oracles.parse_properties(oracles.decode_java(block)) for block in blocks]
    assert maps == expected
    assert [list(each) for each in maps] == [list(each) for each in expected]
    for name in ("a", "bb", "aa", "c"):
        found = texts_of(properties_of(blocks).of(name.encode()).gather_utf8())
        assert [text if text is None else text.decode() for text in found] == [each.get(name) for each in expected]


def test_however_many_names_there_are_each_is_kept_once() -> None:
    """Of one message, and of many."""
    for count in (FEW - 1, FEW, FEW + 1, 70 * FEW):
        names = [f"n{number}" for number in range(count)]
        many = b"".join(b"n%d\1v%d\2" % (number, number) for number in range(count))
        few, all_, none = maps_of([b"a\1b\2", many * 2, b""])
        assert (few, list(all_), none) == ({"a": "b"}, names, {})
        assert all_["n7"] == "v7"
        properties = properties_of([b"n%d\1v\2n0\1w\2" % number for number in range(count)])
        kept = properties.maps().names
        assert isinstance(kept, RepeatedTexts)
        assert texts_of(kept.words) == [name.encode() for name in names]
        assert texts_of(properties.of(b"n0").gather()) == [b"w"] * count


def test_texts_of_which_very_many_differ_stay_as_they_are() -> None:
    for count, kind in ((FEW, RepeatedTexts), (FEW + 1, Texts)):
        for first in (b"a", "é".encode(), b"\xff"):
            texts: list[bytes | None] = [first, None, first, *(b"text %d" % number for number in range(count - 1))]
            places = places_of(texts)
            assert isinstance(places.gather_repeated(), kind)
            assert texts_of(places.gather_repeated()) == texts
            decoded = [text if text is None else oracles.decode_java(text).encode() for text in texts]
            assert texts_of(places.gather_repeated_utf8()) == decoded
