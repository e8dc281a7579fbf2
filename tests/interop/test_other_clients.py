"""Consumers that are not Java receive what the recorded flows list: ali-ons on Node, and the Go client."""

import contextlib
from functools import partial

import pytest

from blocking_client import eventually
from interop.flows import FLOWS, ends, expected
from interop.other_clients import other_consumers
from interop.stored import unpacked_body

pytestmark = pytest.mark.interop


NAMES = {
    "node": ("tag", "lite", "colliding-tag", "sql"),
    # Its hash of a tag outside ASCII is not Java's, so that brokers hold such messages back: no flow "tag".
    "go": ("long-sql", "lite", "colliding-tag", "sql"),
}
"""Flows of one topic, all as push consumers."""
CASES = [(language, name) for language, names in NAMES.items() for name in names]


@pytest.fixture(scope="module")
def consumed(store, stage, tmp_path_factory):
    found = {}
    with contextlib.ExitStack() as stack:
        started = {}
        for language, names in NAMES.items():
            groups = {f"CG_{language}_{name}": FLOWS[name].filter for name in names}
            work = tmp_path_factory.mktemp(language)
            consumers = other_consumers(language, stage.name_server, "TopicTest", groups, work)
            started[language] = stack.enter_context(consumers)
        for language, name in CASES:
            drained = partial(has_drained, store, stage, started[language], name, f"CG_{language}_{name}")
            eventually(drained, f"{name} on {language} at the end of its queues")
        for language, running in started.items():
            running.stop()
            found |= {(language, name): running.messages(f"CG_{language}_{name}") for name in NAMES[language]}
    return found


def has_drained(store, stage, running, name, group) -> bool:
    assert running.process.poll() is None, running.errors.read_text()[-4000:]
    if not stage.has_asked_for_more(group, "TopicTest", ends(store, "TopicTest")):
        return False
    return len(running.messages(group)) >= len(expected(store, FLOWS[name]))


@pytest.mark.parametrize(("language", "name"), CASES)
def test_a_consumer_receives_what_was_recorded(store, consumed, language, name) -> None:
    found = sorted(consumed[language, name], key=lambda message: (message["queueId"], message["queueOffset"]))
    compared = [{field: text for field, text in message.items() if field != "group"} for message in found]
    assert compared == [as_told(record) for record in expected(store, FLOWS[name])]


def as_told(record):
    return {
        "topic": record.topic, "queueId": record.queue_id, "queueOffset": record.queue_offset,
        "uniqueKey": record.properties["UNIQ_KEY"], "offsetMessageId": record.offset_message_id,
        "keys": record.properties["KEYS"], "tags": record.properties["TAGS"], "body": unpacked_body(record)
    }  # fmt: skip
