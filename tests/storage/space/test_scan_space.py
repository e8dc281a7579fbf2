"""Counting a log's messages: an oracle counts the same, whatever is in the log."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from golden_store import CASES, GOLDEN, unpack
from oracles import Record, read_log
from space_oracle import Rows, count
from storage.space.breakdown import name_counts
from storage.space.measure import in_threads, measure, parts_of, problems_of
from storage.space.tally import MOST_LARGEST, Counts, Tally
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import START_TIMESTAMP, StoreWriter


def opened(root: Path) -> MessageStore:
    return MessageStore.open(root, StoreOptions(scan_budget=0, check_budget=0, keeps_state=False))


def check(tally: Tally, records: Iterable[Record]) -> None:
    known = list(records)
    expected = count(known)
    assert (tally.messages, tally.size) == (len(known), sum(record.total_size for record in known))

    def same(counts: Counts[object], rows: Rows) -> None:
        assert {name: list(counts[name]) for name in counts} == dict(rows)
        assert (counts.error, counts.given_up_messages) == (0, 0)

    pairs = (
        (tally.topics, expected.topics),
        (tally.queues, expected.queues),
        (tally.tags, expected.tags),
        (tally.hosts, expected.hosts),
        (tally.hours, expected.hours),
    )
    for counts, rows in pairs:
        same(counts, rows)  # type: ignore[arg-type]
    assert tally.largest_messages(MOST_LARGEST) == expected.largest[:MOST_LARGEST]


@pytest.mark.parametrize("name", ["g2-queues", "g2-hosts"])
def test_a_recorded_store_is_counted_as_by_the_oracle(tmp_path: Path, name: str) -> None:
    store = unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
    tally = measure(opened(store).commit_log)
    records = read_log(store / "commitlog")
    assert records
    check(tally, records)
    assert problems_of(opened(store).commit_log, tally) == []


MESSAGES = st.fixed_dictionaries(
    {
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
                    "10.0.0.1:5",
                    "10.9.9.9",
                    "[2001:db8::1]:7",
                    "2001:db8::2",
                    "app-Host-7",
                    "app:9",
                    "1.2.3",
                    "?",
                )
            ]
        ),
    }
)


@settings(max_examples=examples(12))
@given(messages=st.lists(MESSAGES, min_size=1, max_size=40), threads=st.sampled_from([1, 2]))
def test_random_stores_are_counted_as_by_the_oracle(
    tmp_path_factory: pytest.TempPathFactory, messages: list[dict[str, object]], threads: int
) -> None:
    writer = StoreWriter(tmp_path_factory.mktemp("space"), segment_size=8192)
    for each in messages:
        fields = dict(each)
        topic, hours = fields.pop("topic"), fields.pop("hours")
        assert isinstance(hours, int)
        fields["store_timestamp"] = START_TIMESTAMP + hours * 3_600_000
        writer.append(str(topic), index=False, **fields)  # type: ignore[arg-type]
    writer.close()
    log = opened(writer.root).commit_log
    done: list[int] = []
    check(measure(log, lambda parts: in_threads(parts, threads), done.append), writer.records)
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, sum(part.stop for part in parts_of(log)))


def test_very_many_names_in_one_block_are_all_counted(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 20)
    for number in range(1200):
        fields = {"tags": f"tag-{number}", "born_host": (f"10.1.{number // 250}.{number % 250}", 1), "queue_id": number}
        writer.append(f"T{number % 700}", index=False, queue=False, **fields)  # type: ignore[arg-type]
    writer.close()
    check(measure(opened(writer.root).commit_log), writer.records)


def test_damage_is_passed_and_said(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    for number in range(60):
        writer.append("T", b"x" * 100, tags="AB"[number % 2])
    gone = [writer.written[5], writer.written[40]]
    for each in gone:
        writer.overwrite(each.physical_offset + 4, b"\0\0\0\0")
    writer.close()
    store = opened(writer.root)
    tally = measure(store.commit_log)
    check(tally, writer.records)
    assert tally.messages == 58
    assert tally.damage == [(each.physical_offset, each.physical_offset + each.size) for each in gone]
    (problem,) = problems_of(store.commit_log, tally)
    assert problem.startswith(f"{sum(each.size for each in gone)} bytes in 2 places hold no intact record")


@pytest.mark.parametrize("number", [0, 2])
def test_a_segment_that_is_deleted_while_others_are_counted_is_a_gap(tmp_path: Path, number: int) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    for _ in range(100):
        writer.append("T", b"x" * 100)
    writer.close()
    log = opened(writer.root).commit_log
    assert len(log.segments) > 4
    for segment in log.segments[number : number + 2]:
        segment.file.path.unlink()
    tally = measure(log)
    check(tally, read_log(writer.root / "commitlog"))
    start = number * 4096
    (problem,) = problems_of(log, tally)
    assert problem == f"segments were deleted before they were counted: physical offsets {start} to {start + 8192}"


@pytest.mark.parametrize("threads", [1, 2])
def test_counting_can_be_ended_within_a_segment(tmp_path: Path, threads: int) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 20)
    writer.append("T", b"x" * 100)
    writer.close()
    progress: list[int] = []

    def end() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        measure(opened(writer.root).commit_log, lambda parts: in_threads(parts, threads, end), progress.append)
    assert progress == [0]


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


def test_senders_behind_a_proxy_are_counted_by_their_own_names(tmp_path: Path) -> None:
    tally = measure(opened(unpack("store", tmp_path, archives=CASES / "A7-sender-behind-proxy")).commit_log)
    hosts = {row.names[0]: row.messages for row in name_counts(tally, "host")}
    assert hosts == {"10.1.1.1": 3, "10.1.1.2": 1, "2001:db8::1": 1, "app-host-7": 1}
