"""Groups that are beyond a message: what a known filter says of it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.message import Message, decode_message
from storage.life.message_life import find_life
from storage.life.verdicts import LONGEST_FILTER, Ending, KnownFilter, Passage
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter

STORED = START_TIMESTAMP + 1


def written(directory: Path, filters: dict[str, dict[str, object]], **more: object) -> MessageStore:
    """A store with one message, and the groups `filtering` and `other` beyond it."""
    writer = StoreWriter(directory / "store")
    writer.append("T", b"body", unique_key="U", **more)  # type: ignore[arg-type]
    writer.close()
    writer.write_config(
        "consumerOffset.json", {"offsetTable": {"T@filtering": {"0": 1}, "T@other": {"0": 1}, "T@late": {"0": 0}}}
    )
    data = {
        group: {"consumerGroup": group, "topic": "T", "expressionType": "SQL92", **each}
        for group, each in filters.items()
    }
    config = writer.root / "config" / "consumerFilter.json"
    config.write_text(json.dumps({"filterDataByTopic": {"T": {"topic": "T", "groupFilterData": data}}}))
    return MessageStore.open(writer.root)


@pytest.mark.parametrize(
    ("registered", "ending", "passage", "text"),
    [
        ({"expression": "a > 5"}, Ending.SKIPPED, Passage.SKIPPED, "skipped by its filter"),
        ({"expression": "a > 2"}, Ending.PASSED, Passage.CONSUMED, "has passed it"),
        ({"expression": "a > 5", "bornTime": STORED}, Ending.SKIPPED, Passage.SKIPPED, "skipped by its filter"),
        # The group may have had another filter when it came to the message.
        ({"expression": "a > 5", "bornTime": STORED + 1}, Ending.PASSED, Passage.BEYOND, "is beyond it"),
        ({"expression": "a > 5", "deadTime": STORED - 1}, Ending.PASSED, Passage.BEYOND, "is beyond it"),
        ({"expression": "a > 5", "deadTime": STORED}, Ending.SKIPPED, Passage.SKIPPED, "skipped by its filter"),
        ({"expression": "a >"}, Ending.PASSED, Passage.BEYOND, "is beyond it"),
        ({"expression": None}, Ending.PASSED, Passage.BEYOND, "is beyond it"),
    ],
)
def test_a_filter_that_the_broker_had_registered_says_who_was_skipped(
    tmp_path: Path, registered: dict[str, object], ending: Ending, passage: Passage, text: str
) -> None:
    store = written(tmp_path, {"filtering": registered}, properties={"a": "3"})
    verdicts = {each.group: each for each in find_life(store, "U").verdicts}
    said = verdicts["filtering"]
    assert (said.ending, said.passage, said.text, said.is_certain) == (ending, passage, text, passage != Passage.BEYOND)
    assert (verdicts["other"].text, verdicts["other"].is_certain) == ("is beyond it", False)
    assert verdicts["late"].text == "not yet"


def test_a_failure_shows_that_the_filter_let_the_message_through(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("T", b"body", unique_key="U", born_timestamp=START_TIMESTAMP)
    back = {"RETRY_TOPIC": "T"}
    writer.append(
        "%RETRY%g", b"body", unique_key="U", born_timestamp=START_TIMESTAMP, properties=back, reconsume_times=1
    )
    writer.close()
    writer.write_config("consumerOffset.json", {"offsetTable": {"T@g": {"0": 1}, "%RETRY%g@g": {"0": 1}}})
    life = find_life(MessageStore.open(writer.root), "U")
    assert [[each.passage for each in event.groups] for event in life.events] == [[Passage.CONSUMED]] * 2
    assert [each.text for each in life.verdicts] == ["has passed it at retry 1"]


def message(tag: str | None, directory: Path) -> Message:
    writer = StoreWriter(directory)
    writer.append("T", b"", tags=tag)
    writer.close()
    return decode_message(writer.written[0].record)


@given(
    tag=st.sampled_from([None, "A", "B", "BB", "Aa"]),
    wanted=st.lists(st.sampled_from(["A", "B", "BB", "Aa"]), max_size=3),
)
def test_a_subscription_to_tags_lets_through_those_that_it_names(
    tmp_path_factory: pytest.TempPathFactory, tag: str | None, wanted: list[str]
) -> None:
    """Compared as clients do: `Aa` and `BB` have one hash."""
    known = KnownFilter(" || ".join(wanted) or "*", "TAG")
    assert known.lets_through(message(tag, tmp_path_factory.mktemp("tag"))) == (not wanted or tag in wanted)


def test_a_filter_that_is_too_long_is_not_applied(tmp_path: Path) -> None:
    long = "a > 5 OR " * (LONGEST_FILTER // 9 + 1) + "a > 5"
    assert KnownFilter(long, "SQL92").lets_through(message("A", tmp_path)) is None
    assert KnownFilter("true", "OTHER").lets_through(message("A", tmp_path)) is None
