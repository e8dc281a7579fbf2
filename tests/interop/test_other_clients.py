"""Consumers that are not Java receive what the recorded flows list: ali-ons on Node, and the Go client."""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from blocking_client import eventually
from golden.record.records import Record
from interop.flows import FLOWS, ends, expected
from interop.other_clients import OtherConsumers, other_consumers
from interop.stages import Stage, official_stage, our_stage
from interop.stored import Stored, stored, unpacked_body

pytestmark = pytest.mark.interop

Messages = list[dict[str, Any]]

NAMES = {
    "node": ("tag", "lite", "colliding-tag", "sql"),
    # Its hash of a tag outside ASCII is not Java's, so that brokers hold such messages back: no flow "tag".
    "go": ("long-sql", "lite", "colliding-tag", "sql"),
}
"""Flows of one topic, all as push consumers."""
CASES = [(language, name) for language, names in NAMES.items() for name in names]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return stored("g1", tmp_path_factory.mktemp("other-g1"))


@pytest.fixture(scope="module", params=["ours", pytest.param("official", marks=pytest.mark.soak)])
def stage(request: pytest.FixtureRequest, store: Stored, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    work = tmp_path_factory.mktemp("stage")
    with (our_stage if request.param == "ours" else official_stage)(store.root, work) as running:
        yield running


@pytest.fixture(scope="module")
def consumed(store: Stored, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Messages]:
    """What each flow's consumer had received when it was at the end of its queues and took its leave."""
    found: dict[tuple[str, str], Messages] = {}
    with contextlib.ExitStack() as stack:
        started = {}
        for language, names in NAMES.items():
            groups = {f"CG_{language}_{name}": FLOWS[name].filter for name in names}
            work = tmp_path_factory.mktemp(language)
            started[language] = stack.enter_context(
                other_consumers(language, stage.name_server, "TopicTest", groups, work)
            )
        for language, name in CASES:
            drained = partial(has_drained, store, stage, started[language], name, f"CG_{language}_{name}")
            eventually(drained, f"{name} on {language} at the end of its queues")
        for language, running in started.items():
            running.stop()
            found |= {(language, name): running.messages(f"CG_{language}_{name}") for name in NAMES[language]}
    return found


def has_drained(store: Stored, stage: Stage, running: OtherConsumers, name: str, group: str) -> bool:
    assert running.process.poll() is None, running.errors.read_text()[-4000:]
    if not stage.has_asked_for_more(group, "TopicTest", ends(store, "TopicTest")):
        return False
    return len(running.messages(group)) >= len(expected(store, FLOWS[name]))


@pytest.mark.parametrize(("language", "name"), CASES)
def test_a_consumer_receives_what_was_recorded(
    store: Stored, consumed: dict[tuple[str, str], Messages], language: str, name: str
) -> None:
    found = sorted(consumed[language, name], key=lambda message: (message["queueId"], message["queueOffset"]))
    compared = [{field: text for field, text in message.items() if field != "group"} for message in found]
    assert compared == [as_told(record) for record in expected(store, FLOWS[name])]


def as_told(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "uniqueKey": record.properties["UNIQ_KEY"],
        "offsetMessageId": record.offset_message_id,
        "keys": record.properties["KEYS"],
        "tags": record.properties["TAGS"],
        "body": unpacked_body(record),
    }
