"""A search by the tasks of an engine finds what one of this process finds."""

import pytest

from job_engines import JobEngine
from spark_jobs.run.engine import EngineOptions
from spark_jobs.search.search import search_by_tasks
from spark_jobs.search.searched_store import SearchedStore
from storage.search.criteria import Criteria, SearchPlace
from storage.search.engine import search
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import StoreWriter

LAZY = StoreOptions(scan_budget=0, check_budget=0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    writer = StoreWriter(tmp_path_factory.mktemp("spark-search"), segment_size=4096)
    for number in range(150):
        writer.append("T", b"body %d" % (number % 11), tags="AB"[number % 2], keys=f"k{number}")
    writer.append_inner_batch("B", [(b"body 3", {}), (b"else", {}), (b"body 3", {})])
    writer.overwrite(writer.written[20].physical_offset + 4, b"\0\0\0\0")
    writer.overwrite(0, b"\0" * 8)
    writer.close()
    return MessageStore.open(writer.root, LAZY)


@pytest.mark.parametrize(
    "criteria",
    [Criteria(contains=b"body 3"), Criteria(topic="T", tag="A"), Criteria(regex="^body [45]$", place=SearchPlace.ANY)],
    ids=str,
)
def test_tasks_find_in_order_what_threads_find(local: JobEngine, store: MessageStore, criteria: Criteria) -> None:
    here = list(search(store, criteria))
    there = list(search_by_tasks(SearchedStore(store), criteria, engine=EngineOptions(engine=local.name)))
    assert [message for step in there for message in step.messages] == [
        message for step in here for message in step.messages
    ]
    assert there[-1].notes == here[-1].notes
    assert there[-1].progress.searched_bytes == here[-1].progress.searched_bytes
    assert (there[-1].cursor, there[-1].is_last) == (None, True)


def test_a_limit_cuts_a_search_by_tasks_and_its_cursor_goes_on_anywhere(local: JobEngine, store: MessageStore) -> None:
    criteria = Criteria(contains=b"body 3")
    whole = [message for step in search(store, criteria) for message in step.messages]
    options = EngineOptions(engine=local.name)
    first = list(search_by_tasks(SearchedStore(store), criteria, engine=options, limit=5))
    rest = search(store, criteria, cursor=first[-1].cursor)
    found = [message for step in first for message in step.messages]
    assert len(found) == 5
    assert found + [message for step in rest for message in step.messages] == whole
