"""A look-up on Spark finds what one of this process finds, in a directory and behind a URL, whatever goes wrong."""

import contextlib

import pyarrow.parquet as pq
import pytest

from loop_engine import LoopEngine
from spark_jobs.places import hollow_copy, remote_file
from spark_jobs.search import _searched_segment, _waves
from spark_jobs.search import look_up as look_up_module
from spark_jobs.search.look_up import LookupByTasks
from spark_jobs.search.lookup_parquet import ParquetRows
from spark_jobs.search.searched_store import SearchedStore, searched_url
from storage.search.lookup import LookupHere, look_up
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import StoreWriter
from verifying import flip, in_memory

LAZY = StoreOptions(scan_budget=0, check_budget=0, keeps_state=False)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)
    monkeypatch.setattr(look_up_module, "NEWEST_BYTES", 10_000)
    monkeypatch.setattr(look_up_module, "RECORD_BYTES", 64)
    monkeypatch.setattr(hollow_copy, "LONG_BYTES", 1000)
    for name, value in (("GLANCE_BYTES", 100), ("CLOSE_BYTES", 300)):
        monkeypatch.setattr(_searched_segment, name, value)


def write(root):
    with StoreWriter(root, segment_size=8192) as writer:
        for number in range(300):
            body = b"body %d " % number * (1 + 30 * (number % 29 == 0))
            writer.append("AB"[number % 2], body, keys=[f"k{number}", f"of-{number % 40}"], unique_key=f"U{number}")
    assert len(list((root / "index").iterdir())) > 3
    assert len(list((root / "commitlog").iterdir())) > 5
    return root


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write(tmp_path_factory.mktemp("lookup") / "store")


def queries(store):
    ids = [message.offset_message_id for step in by_key(store, ["k5", "k150"]) for message in step]
    assert len(ids) == 2
    moved = "0A000001" + ids[0][8:]
    return ["k0", "k17", "of-3", "U299", "none", "k299", "of-39", *ids, moved, "0" * 32, "17"]


def by_key(store, keys):
    for step in look_up(LookupHere(MessageStore.open(store)), keys):
        yield [match.message for match in step.matches]


def facts(steps):
    every = list(steps)
    return [repr((match.text, match.kind, match.message)) for step in every for match in step.matches], every[-1].notes


def here_of(store, wanted, **options):
    return facts(look_up(LookupHere(MessageStore.open(store)), wanted, **options))


@contextlib.contextmanager
def sources(store):
    engine = LoopEngine()
    with in_memory(store) as url, searched_url(url, "", None) as searched:
        local = SearchedStore(MessageStore.open(store, LAZY))
        yield [LookupByTasks(engine, local, 0), LookupByTasks(engine, searched, 0)]


def assert_same_everywhere(store, wanted, **options) -> None:
    expected = here_of(store, wanted, **options)
    with sources(store) as every:
        assert [facts(look_up(source, wanted, **options)) for source in every] == [expected] * 2


@pytest.mark.parametrize("topic", [None, "C"])
def test_what_is_found_is_what_one_process_finds(store, topic) -> None:
    wanted = queries(store)
    assert_same_everywhere(store, wanted, topic=topic)
    found, notes = here_of(store, wanted, topic=topic)
    assert bool(found) == (topic != "C")
    assert not notes


@pytest.mark.parametrize("kind", ["key", "unique key", "physical offset"])
def test_texts_are_what_they_are_said_to_be(store, kind) -> None:
    assert_same_everywhere(store, ["0", "5", "999999999", *queries(store)], kind=kind)


def one_file_less(store) -> None:
    sorted((store / "index").iterdir())[1].unlink()


def a_record(store) -> None:
    path = sorted((store / "commitlog").iterdir())[2]
    flip(path, path.read_bytes().index(b"body"))


@pytest.mark.parametrize("damage", [one_file_less, a_record])
def test_what_the_index_lacks_is_read_from_the_log(tmp_path, damage) -> None:
    store = write(tmp_path / "store")
    wanted = [f"k{number}" for number in range(300)]
    damage(store)
    expected, notes = here_of(store, wanted)
    with sources(store) as every:
        for source in every:
            found, said = facts(look_up(source, wanted))
            assert found == expected
            # An entry whose record is damaged is counted where the index leads to it, not where the log is read.
            assert [note for note in said if "no intact" not in note] == [n for n in notes if "no intact" not in n]
    assert len(expected) > 200


def test_more_hits_than_the_driver_may_hold_come_in_waves(store, monkeypatch) -> None:
    wanted = [f"of-{number}" for number in range(40)]
    expected = here_of(store, wanted)
    assert len(expected[0]) == 300
    monkeypatch.setattr(_waves, "WAVE_BYTES", 2000 * _waves.WAVES_OF * LoopEngine().tasks_at_once)
    held: list[int] = []
    run_tasks = LoopEngine.run_tasks

    def watched(*arguments):
        answers = run_tasks(*arguments)
        if arguments[1] == "records":
            held.extend(sum(len(record or b"") for _, record in answer) for answer in answers)
        return answers

    monkeypatch.setattr(LoopEngine, "run_tasks", watched)
    with sources(store) as every:
        assert [facts(look_up(source, wanted)) for source in every] == [expected] * 2
    assert len(held) > 20
    assert max(held) <= 2000 < sum(held)


def test_half_a_surrogate_pair_is_a_question_mark(tmp_path) -> None:
    rows = ParquetRows(tmp_path / "out")
    texts = {"query": "a\ud800", "found": True, "keys": ["x\udc00"], "properties": {"n\ud800": "é", "b": "\udfff"}}
    rows.write([texts, {"query": "文", "found": False}])
    rows.close()
    found = pq.read_table(tmp_path / "out").select(["query", "keys", "properties"]).to_pylist()
    assert found == [
        {"query": "a?", "keys": ["x?"], "properties": [("n?", "é"), ("b", "?")]},
        {"query": "文", "keys": None, "properties": None},
    ]
