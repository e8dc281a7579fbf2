"""Counting a log's messages beside an oracle, and what is foretold of its growth."""

import os
import shutil
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from golden_store import CASES, GOLDEN, unpack
from oracles import read_log
from protocol.errors import ConfigError, StoreError
from space_oracle import count
from storage.space.breakdown import COUNTED_BY, NAME_FIELDS, NameCount, inexact_counts, name_counts
from storage.space.broker_settings import BrokerSettings, read_broker_settings
from storage.space.forecast import DAY_MS, make_forecast
from storage.space.measure import in_threads, measure, parts_of, problems_of
from storage.space.tally import HOUR_MS, MOST_LARGEST, Counts, Tally
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import START_TIMESTAMP, StoreWriter


def opened(root):
    return MessageStore.open(root, StoreOptions(scan_budget=0, check_budget=0, keeps_state=False))


def check(tally, records) -> None:
    known = list(records)
    expected = count(known)
    assert (tally.messages, tally.size) == (len(known), sum(record.total_size for record in known))

    for kind in ("topics", "queues", "tags", "hosts", "hours"):
        counts = getattr(tally, kind)
        assert {name: list(counts[name]) for name in counts} == dict(getattr(expected, kind))
        assert (counts.error, counts.given_up_messages) == (0, 0)
    assert tally.largest_messages(MOST_LARGEST) == expected.largest[:MOST_LARGEST]


@pytest.mark.parametrize("name", ["g2-queues", "g2-hosts"])
def test_a_recorded_store_is_counted_as_by_the_oracle(tmp_path, name) -> None:
    store = unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
    tally = measure(opened(store).commit_log)
    records = read_log(store / "commitlog")
    assert records
    check(tally, records)
    assert problems_of(opened(store).commit_log, tally) == []


MESSAGES = st.fixed_dictionaries({
    "topic": st.sampled_from(["T", "Topic-2", "Ünïcode", "x" * 127]),
    "body": st.sampled_from([b"", b"a", b"b" * 300, b"c" * 3000]),
    "tags": st.sampled_from([None, "A", "B", "Ä"]),
    "queue_id": st.sampled_from([0, 1, 7, 2**31 - 1]),
    "born_host": st.sampled_from([("10.0.0.1", 1), ("10.0.0.1", 2), ("10.0.0.2", 1), ("2001:db8::1", 5)]),
    "hours": st.integers(0, 30),
    "properties": st.sampled_from(
        [{}, {"a": "__BORNHOST"}]
        + [
            {"a": "b", "__BORNHOST": named}
            for named in (
                "10.0.0.1:5", "10.9.9.9", "[2001:db8::1]:7", "2001:db8::2", "app-Host-7", "app:9", "1.2.3", "?",
            )
        ]
    ),
})  # fmt: skip


@settings(max_examples=examples(12))
@given(messages=st.lists(MESSAGES, min_size=1, max_size=40), threads=st.sampled_from([1, 2]))
def test_random_stores_are_counted_as_by_the_oracle(tmp_path_factory, messages, threads) -> None:
    with StoreWriter(tmp_path_factory.mktemp("space"), segment_size=8192) as writer:
        for each in messages:
            fields = dict(each)
            fields["store_timestamp"] = START_TIMESTAMP + fields.pop("hours") * 3_600_000
            writer.append(**fields, index=False)
    log = opened(writer.root).commit_log
    done: list[int] = []
    check(measure(log, lambda parts: in_threads(parts, threads), done.append), writer.records)
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, sum(part.stop for part in parts_of(log)))


def test_damage_is_passed_and_said(tmp_path) -> None:
    with StoreWriter(tmp_path / "store", segment_size=4096) as writer:
        for number in range(60):
            writer.append("T", b"x" * 100, tags="AB"[number % 2])
        gone = [writer.written[5], writer.written[40]]
        for each in gone:
            writer.overwrite(each.physical_offset + 4, b"\0\0\0\0")
    store = opened(writer.root)
    tally = measure(store.commit_log)
    check(tally, writer.records)
    assert tally.messages == 58
    assert tally.damage == [(each.physical_offset, each.physical_offset + each.size) for each in gone]
    (problem,) = problems_of(store.commit_log, tally)
    assert problem.startswith(f"{sum(each.size for each in gone)} bytes in 2 places hold no intact record")


NAMES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 1000)), max_size=200)


@given(pieces=st.lists(NAMES, min_size=1, max_size=3))
def test_names_that_are_too_many_are_counted_within_the_error_that_is_said(pieces: list[list[tuple[int, int]]]) -> None:
    whole: Counts[int] = Counts(limit=4)
    truth: dict[int, int] = {}
    for piece in pieces:
        counts: Counts[int] = Counts(limit=4)
        for name, size in piece:
            counts.add(name, 1, size)
            truth[name] = truth.get(name, 0) + size
        counts.shrink()
        whole.merge(counts)
    assert len(whole) <= 8
    for name, size in truth.items():
        assert whole[name][1] <= size <= whole[name][1] + whole.error
    kept = sum(whole[name][1] for name in whole)
    assert kept + whole.given_up_bytes == sum(truth.values())
    messages = sum(whole[name][0] for name in whole)
    assert messages + whole.given_up_messages == sum(map(len, pieces))
    assert whole.error == 0 or len(truth) > 4


def test_senders_behind_a_proxy_are_counted_by_their_own_names(tmp_path) -> None:
    tally = measure(opened(unpack("store", tmp_path, archives=CASES / "A7-sender-behind-proxy")).commit_log)
    hosts = {row.names[0]: row.messages for row in name_counts(tally, "host")}
    assert hosts == {"10.1.1.1": 3, "10.1.1.2": 1, "2001:db8::1": 1, "app-host-7": 1}


NOW = START_TIMESTAMP + 10 * DAY_MS
DISK = SimpleNamespace(total=1_000_000, used=500_000, free=400_000)


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: DISK)


def test_growth_is_that_of_the_last_day(tmp_path) -> None:
    with StoreWriter(tmp_path / "store", segment_size=4096) as writer:
        first = START_TIMESTAMP - START_TIMESTAMP % HOUR_MS
        for hour in range(49):
            writer.append("T", b"x" * 100, store_timestamp=first + hour * HOUR_MS)
    store = opened(writer.root)
    tally = measure(store.commit_log)
    size = tally.size // tally.messages
    forecast = make_forecast(store.commit_log, tally, BrokerSettings(), NOW)
    # 24 messages in the 23 hours from the first to the last of them.
    assert (forecast.growth_hours, forecast.growth) == (23, 24 * size * 24 // 23)
    growth = forecast.growth
    assert forecast.full_timestamp == NOW + 400_000 * DAY_MS // growth
    assert (forecast.crowded_timestamp, forecast.kept_size) == (NOW + 250_000 * DAY_MS // growth, growth * 3)
    assert forecast.is_full_first is False
    oldest = store.commit_log.segments[0].file.path
    assert forecast.expiry_timestamp == os.stat(oldest).st_mtime_ns // 1_000_000 + 72 * HOUR_MS


def test_a_brokers_configuration_is_read_and_the_rest_assumed(tmp_path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("# a comment\nbrokerName = a\nfileReservedTime= 48 \n\n!diskMaxUsedSpaceRatio=1\n")
    assert read_broker_settings(path) == BrokerSettings(48, 75, frozenset({"diskMaxUsedSpaceRatio"}))
    path.write_text("diskMaxUsedSpaceRatio=99\n")
    assert read_broker_settings(path) == BrokerSettings(72, 95, frozenset({"fileReservedTime"}))


@pytest.mark.parametrize("line", ["fileReservedTime=soon", "fileReservedTime=-1", "diskMaxUsedSpaceRatio=101"])
def test_a_configuration_that_cannot_be_is_refused_by_name(tmp_path, line) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(line)
    with pytest.raises(ConfigError, match=line.partition("=")[0]):
        read_broker_settings(path)
    with pytest.raises(StoreError, match="nowhere"):
        read_broker_settings(tmp_path / "nowhere")


@pytest.fixture
def tally() -> Tally:
    tally = Tally()
    tally.topics.add("Ünï".encode(), 3, 300)
    tally.topics.add(b"T", 5, 900)
    tally.queues.add((b"T", 7), 5, 900)
    tally.tags.add((b"T", None), 1, 100)
    tally.tags.add((b"T", b"A"), 4, 800)
    tally.hosts.add(bytes([10, 0, 0, 1]), 5, 900)
    tally.hosts.add(bytes.fromhex("20010db8") + bytes(11) + b"\x05", 3, 300)
    tally.hours.add(100, 5, 900)
    tally.hours.add(101, 3, 300)
    return tally


def test_names_are_texts_addresses_and_times_and_what_is_not_exact_is_said(tally) -> None:
    # Names are texts addresses and times.
    assert {kind: [row.names for row in name_counts(tally, kind)] for kind in COUNTED_BY} == {
        "topic": [("T",), ("Ünï",)], "queue": [("T", 7)], "tag": [("T", "A"), ("T", None)],
        "host": [("10.0.0.1",), ("2001:db8::5",)], "hour": [(101 * HOUR_MS,), (100 * HOUR_MS,)],
    }  # fmt: skip
    assert all(len(row.names) == len(NAME_FIELDS[kind]) for kind in COUNTED_BY for row in name_counts(tally, kind))
    # What is not exact is said and how much it may be.
    assert inexact_counts(tally) == []
    tally.topics = Counts(limit=1)
    for name, size in ((b"A", 500), (b"B", 40), (b"C", 30)):
        tally.topics.add(name, 1, size)
    assert name_counts(tally, "topic") == [NameCount(("A",), 1, 500, 540)]
    (sentence,) = inexact_counts(tally)
    assert sentence.startswith("there are more topics than are counted exactly: each may have up to 40 bytes more")
    assert sentence.endswith("70 bytes are of others")


def test_a_segment_that_is_deleted_while_others_are_counted_is_a_gap(tmp_path) -> None:
    with StoreWriter(tmp_path / "store", segment_size=4096) as writer:
        for _ in range(100):
            writer.append("T", b"x" * 100)
    log = opened(writer.root).commit_log
    assert len(log.segments) > 4
    for segment in log.segments[2:4]:
        segment.file.path.unlink()
    tally = measure(log)
    check(tally, read_log(writer.root / "commitlog"))
    (problem,) = problems_of(log, tally)
    assert problem == "segments were deleted before they were counted: physical offsets 8192 to 16384"
