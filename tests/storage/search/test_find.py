"""Search by a text of unknown kind: everything that the recorded producer got for its messages finds them."""

from pathlib import Path

import pytest

import oracles
from protocol.find_place import FindPlace
from protocol.question import Question
from storage.search.find import Finder, message_at
from storage.store.message_store import MessageStore
from storage.store.topic_catalog import topic_names

HOT = 6581


@pytest.fixture(scope="module")
def store(g1_store: Path) -> MessageStore:
    return MessageStore.open(g1_store)


def find(store: MessageStore, text: str, place: FindPlace | None = None, **limits: object) -> Finder:
    asked = {name: limits.pop(name) for name in ("topic", "maximum") if name in limits}
    finder = Finder(store, Question(**{"topic": "", "text": text, **asked}), topic_names(store), **limits)  # type: ignore[arg-type]
    finder.go_on(place)
    return finder


def noted(finder: Finder, kind: str) -> str:
    return next(each.note for each in finder.readings if each.kind == kind)


def test_every_record_is_found_by_what_names_it(store: MessageStore, g1_store: Path) -> None:
    records = oracles.read_log(g1_store / "commitlog")
    assert len(records) > 300
    for record in records[::13]:
        message, damage = message_at(store, record.physical_offset)
        assert message is not None
        assert damage is None
        for text in (str(record.physical_offset), message.offset_message_id, message.offset_message_id.lower()):
            assert find(store, text).found[0].message == message
        if message.unique_key is not None:
            by_key = find(store, message.unique_key, maximum=1000).found
            assert message.physical_offset in {each.message.physical_offset for each in by_key}
            assert {each.kind for each in by_key} == {"unique key"}


def test_keys_and_tags_are_those_that_records_have(store: MessageStore, g1_store: Path) -> None:
    records = oracles.read_log(g1_store / "commitlog")
    for text in ("hotkey", "TagA", "BB", "dup", "标签"):
        found = {(each.message.physical_offset, each.kind) for each in find(store, text, maximum=1000).found}
        expected = {
            (each.physical_offset, "key") for each in records if text in each.properties.get("KEYS", "").split()
        }
        expected |= {(each.physical_offset, "tag") for each in records if each.properties.get("TAGS") == text}
        assert found == expected != set()


@pytest.mark.parametrize("maximum", [1, 7, 40, 41])
def test_a_search_goes_on_where_there_was_no_room(store: MessageStore, maximum: int) -> None:
    whole = [each.message.physical_offset for each in find(store, "hotkey", maximum=1000).found]
    pages: list[int] = []
    place: FindPlace | None = FindPlace()
    while place is not None:
        page = find(store, "hotkey", place, maximum=maximum)
        assert len(page.found) <= maximum
        pages += [each.message.physical_offset for each in page.found]
        place = page.place
    assert pages == whole
    assert len(whole) == 40


def test_a_search_whose_time_is_up_looks_into_one_topic_all_the_same(store: MessageStore) -> None:
    count, place = 0, FindPlace()
    found = []
    while True:
        finder = find(store, "BB", place, is_time_up=lambda: True)
        found += finder.found
        count += 1
        if finder.place is None:
            break
        assert finder.place > place or finder.place.kind != place.kind
        place = finder.place
    assert count == 2 * len(topic_names(store))
    assert len(found) == 2


def test_what_may_not_be_shown_is_not(store: MessageStore) -> None:
    for text in ("hotkey", str(HOT)):
        finder = find(store, text, refusal=lambda message: f"not {message.topic}")
        assert finder.found == []
    assert noted(finder, "physical offset") == "not TopicTest"


def test_each_thing_that_was_tried_says_what_it_came_to(store: MessageStore) -> None:
    finder = find(store, str(HOT + 1))
    assert noted(finder, "physical offset").startswith("no message there: physical offset 6582 lies inside")
    assert [each.kind for each in finder.readings] == ["physical offset", "unique key or key", "tag"]
    finder = find(store, "0A00000100002A9F00000000000019B5", topic="TopicTest")
    assert noted(finder, "offset message id") == (
        "the id names 10.0.0.1:10911, the message there was stored by 127.0.0.1:10911"
    )
    assert (
        noted(find(store, str(HOT), topic="TopicTx"), "physical offset")
        == "the message there is one of topic TopicTest"
    )
