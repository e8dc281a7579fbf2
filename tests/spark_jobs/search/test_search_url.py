"""A search of a store behind a URL finds what one of the same store on a disk finds, whatever goes wrong on the way."""

import os
import tempfile

import pytest

from command_line import rocketlens
from golden_store import GOLDEN, unpack
from loop_engine import LoopEngine
from spark_jobs.places import hollow_copy, remote_file
from spark_jobs.places.place_names import COPIES
from spark_jobs.run.engine import EngineOptions
from spark_jobs.scan.source import opened_source
from spark_jobs.search import _searched_segment, _waves
from spark_jobs.search import search as search_module
from spark_jobs.search.search import search_by_tasks
from spark_jobs.search.searched_store import searched_url
from storage.layout.dledger import uncommitted_problem
from storage.search import _by_queue, _by_time, plan
from storage.search.criteria import Criteria
from storage.search.engine import search
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import START_TIMESTAMP, StoreWriter
from verifying import in_memory

LAZY = StoreOptions(scan_budget=0, check_budget=0, keeps_state=False)
HOUR = 3_600_000
ENGINE = EngineOptions()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)
    monkeypatch.setattr(plan, "CHUNK_BYTES", 2048)
    monkeypatch.setattr(plan, "COST_OF_RECORD", 500)
    monkeypatch.setattr(_by_queue, "STEPS_BACK", (1000, 1 << 32))
    monkeypatch.setattr(_by_time, "RESOLUTION", 2048)
    monkeypatch.setattr(search_module, "RECORD_BYTES", 64)
    monkeypatch.setattr(hollow_copy, "LONG_BYTES", 1000)
    for name, value in (("GLANCE_BYTES", 100), ("CLOSE_BYTES", 300)):
        monkeypatch.setattr(_searched_segment, name, value)


def write(root, damage=lambda _: None, *, is_ledger=False):
    with StoreWriter(root, segment_size=8192, is_ledger=is_ledger) as writer:
        for number in range(400):
            body = b"body %d " % (number % 11) * (1 + 40 * (number % 29 == 0))
            topic = "Rare" if number % 37 == 0 else "Often"
            time = START_TIMESTAMP + number * HOUR // 4
            queue = (number // 37 if topic == "Rare" else number) % 4
            writer.append(topic, body, tags="AB"[number % 2], keys=f"k{number}", store_timestamp=time, queue_id=queue)
        damage(writer)
    return writer.root


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = write(tmp_path_factory.mktemp("search-url") / "store")
    assert len(list((root / "commitlog").iterdir())) > 6
    return root


def by_url(url, criteria, storage="", **options):
    with searched_url(url, storage, criteria.topic) as searched:
        return list(search_by_tasks(searched, criteria, engine=ENGINE, **options))


def messages(steps):
    return [message.detached() for step in steps for message in step.messages]


def here_of(store, criteria, **options):
    return list(search(MessageStore.open(store, LAZY), criteria, threads=1, **options))


def assert_same(found, expected) -> None:
    assert messages(found) == messages(expected)
    assert found[-1].notes == expected[-1].notes
    assert found[-1].progress.searched_bytes == expected[-1].progress.searched_bytes
    assert found[-1].is_last


CRITERIA = [
    Criteria(contains=b"body 3"),
    Criteria(topic="Rare"),
    Criteria(topic="Rare", contains=b"body 3"),
    Criteria(topic="Often", tag="A", contains=b"body 4"),
    Criteria(begin_timestamp=START_TIMESTAMP + 40 * HOUR, end_timestamp=START_TIMESTAMP + 50 * HOUR),
    Criteria(topic="Often", begin_timestamp=START_TIMESTAMP + 90 * HOUR),
    Criteria(key="k77"),
]


@pytest.mark.parametrize("criteria", CRITERIA, ids=str)
def test_what_is_found_is_that_of_the_same_store_on_a_disk(store, criteria, tmp_path, monkeypatch) -> None:
    """And no copy is left of what was fetched."""
    expected = here_of(store, criteria)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with in_memory(store) as url:
        assert_same(by_url(url, criteria), expected)
    assert messages(expected)
    assert not [path for path in tmp_path.iterdir() if COPIES in path.name]


def test_what_is_found_in_a_ledger_is_that_of_the_same_store_on_a_disk(tmp_path) -> None:
    store = write(tmp_path / "store", is_ledger=True)
    with in_memory(store) as url:
        for criteria in CRITERIA:
            assert_same(by_url(url, criteria), here_of(store, criteria))


@pytest.mark.parametrize("agreed", [-1, 7])
def test_what_a_group_has_not_agreed_on_is_named_behind_a_url_as_on_a_disk(tmp_path, agreed) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-dledger")
    (root / "dledger-n0" / "checkpoint").write_text(f"committedIndex={agreed}\nendIndex=81\n")
    index = root / "dledger-n0" / "index" / ("0" * 20)
    os.truncate(index, 4096)
    (expected,) = MessageStore.open(root).problems
    assert "lie behind the committedIndex" in expected
    with in_memory(root) as url, opened_source(url, ()) as source:
        found = uncommitted_problem(source.layout.ledgers, source.end)
        assert source.named(found or "") == expected.replace(str(root), url)


DAMAGES = {
    "at the start of a segment": lambda writer: writer.overwrite(16384, b"\xff" * 8),
    "at the end": lambda writer: writer.overwrite(writer.written[-1].physical_offset + 4, b"\0\0\0\0"),
}


def copy_a_unit(writer: StoreWriter) -> None:
    (content,) = writer.queues["Rare", 1].files.values()
    content[20:40] = content[:20]


DAMAGES["a unit that is a copy of the one before it"] = copy_a_unit


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_passed_over_and_named_as_on_a_disk(tmp_path, damage) -> None:
    store = write(tmp_path / "store", DAMAGES[damage])
    for criteria in (Criteria(contains=b"body"), Criteria(topic="Often", tag="B"), Criteria(topic="Rare")):
        expected = here_of(store, criteria)
        assert messages(expected) == messages(here_of(store, criteria, exhaustive=True))
        with in_memory(store) as url:
            assert_same(by_url(url, criteria), expected)
        assert messages(expected)


def test_more_hits_than_the_driver_may_hold_come_in_waves(store, monkeypatch) -> None:
    most = 9000
    monkeypatch.setattr(_waves, "WAVE_BYTES", most * _waves.WAVES_OF * LoopEngine().tasks_at_once)
    held: list[int] = []
    run_tasks = LoopEngine.run_tasks

    def watched(*arguments):
        answers = run_tasks(*arguments)
        held.extend(sum(len(record) for each in found for _, record in each.records) for found in answers)
        return answers

    monkeypatch.setattr(LoopEngine, "run_tasks", watched)
    for criteria in (Criteria(contains=b"body"), Criteria(topic="Rare")):
        expected = here_of(store, criteria)
        with in_memory(store) as url:
            found = by_url(url, criteria)
        assert messages(found) == messages(expected)
        assert found[-1].notes == expected[-1].notes
    assert len(held) > 5
    longest = 8 * 41 + 400
    assert max(held) <= max(most, longest)
    assert sum(held) > most


def test_a_limit_cuts_a_search_and_its_cursor_goes_on(store) -> None:
    criteria = Criteria(contains=b"body 3")
    with in_memory(store) as url:
        first = by_url(url, criteria, limit=7)
        rest = by_url(url, criteria, cursor=first[-1].cursor)
    assert len(messages(first)) == 7
    assert messages(first) + messages(rest) == messages(here_of(store, criteria))


class TestCommand:
    def test_a_url_gives_the_lines_of_the_directory(self, store) -> None:
        arguments = ("--contains", "body 3", "--json")
        expected = rocketlens("search", store, *arguments)
        with in_memory(store) as url:
            found = rocketlens("search", url, "--storage-options", "{}", *arguments)
        assert (found.code, found.output) == (0, expected.output)
        assert expected.output.count(b"\n") == len(range(3, 400, 11))
