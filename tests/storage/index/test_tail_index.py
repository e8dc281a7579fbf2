"""Keys scanned from the log where no index file covers it, against the oracle that reads every record."""

from array import array

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from storage.index.tail_index import EntryRun, TailIndex, empty_tail, extend_tail
from storage.log.commit_log import CommitLog
from store_writer import StoreWriter
from strategies import store_plans

EVERYTHING = 2**62


def filled(root, count=40, segment_size=1024):
    with StoreWriter(root, segment_size=segment_size) as writer:
        for number in range(count):
            writer.append("T", b"x" * 20, keys=f"k{number} a a", unique_key=f"u{number}", tags="t")
    return writer


def log_of(writer: StoreWriter) -> CommitLog:
    return CommitLog.open(writer.log.directories)


def listed(tail: TailIndex) -> list[list[tuple[int, int]]]:
    return [list(zip(run.hashes.tolist(), run.offsets.tolist(), strict=True)) for run in tail.runs]


def pairs(tail: TailIndex) -> set[tuple[int, int]]:
    return {pair for run in listed(tail) for pair in run}


def expected_pairs(writer: StoreWriter, start: int = 0, stop: int = EVERYTHING) -> set[tuple[int, int]]:
    return {
        (oracles.index_hash(text), record.physical_offset)
        for record in writer.records
        if start <= record.physical_offset < stop
        for text in oracles.index_keys(record)
    }


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=store_plans(maximum_messages=15))
def test_a_whole_log_is_found_under_what_a_broker_indexes(plan, tmp_path_factory) -> None:
    writer = plan.write(tmp_path_factory.mktemp("scan"))
    if not writer.written:
        return
    log = log_of(writer)
    tail = extend_tail(empty_tail([(log.minimum, log.end)]), log, EVERYTHING)
    assert pairs(tail) == expected_pairs(writer)
    assert (tail.remaining, tail.skipped) == ((), ())
    assert all(run == sorted(run) for run in listed(tail))


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_hides_only_what_it_hit(data, tmp_path_factory) -> None:
    writer = filled(tmp_path_factory.mktemp("damage"), 12, 4096)
    writer.roll()
    writer.append("T", keys="in the last segment")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, writer.written[11].physical_offset + 50))
        writer.overwrite(place, data.draw(st.binary(min_size=1, max_size=12)))
    log = log_of(writer)
    tail = extend_tail(empty_tail([(0, log.end)]), log, EVERYTHING)
    assert pairs(tail) >= expected_pairs(writer)


def test_hashes_at_both_ends_are_found_too() -> None:
    run = EntryRun.of([array("i", [5, 0, 5, 2**31 - 1])], [array("q", [7, 1, 2, 3])])
    assert [TailIndex((run,)).offsets_of(key_hash) for key_hash in (0, 5, 2**31 - 1, 6)] == [[1], [2, 7], [3], []]
    assert (run.first, run.last) == (1, 7)


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_sequence_of_ranges_is_known_as_a_new_scan_would_know_it(data, tmp_path_factory) -> None:
    writer = filled(tmp_path_factory.mktemp("ranges"), 12)
    log = log_of(writer)
    bounds = [*(written.physical_offset for written in writer.written), log.end]
    bounds += [written.physical_offset + 1 for written in writer.written]
    tail = empty_tail()
    for _ in range(data.draw(st.integers(1, 6))):
        chosen = sorted(data.draw(st.sets(st.sampled_from(bounds), max_size=6)))
        ranges = list(zip(chosen[::2], chosen[1::2], strict=False))
        tail = tail.covering(ranges)
        if data.draw(st.booleans()):
            tail = extend_tail(tail, log, data.draw(st.sampled_from([200, EVERYTHING])))
    while tail.remaining:
        tail = extend_tail(tail, log, EVERYTHING)
    assert pairs(tail) == {pair for start, stop in tail.scope for pair in expected_pairs(writer, start, stop)}
    assert tail.skipped == ()
