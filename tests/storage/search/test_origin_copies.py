"""The copies of an expired message are found by the id that they name as their origin's."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acl_file import DEFAULTS, DEFAULTS_SECRET, write_accounts
from broker_harness import service_of, serving_in_a_thread
from command_line import rocketlens
from examples import examples
from golden_store import CASES, unpack
from protocol.properties import DLQ_ORIGIN_MESSAGE_ID, ORIGIN_MESSAGE_ID
from rocketlens import connect
from storage.search import origin_copies
from storage.search.origin_copies import copies_of
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from web_questions import ApiOf

GONE = "7F00000100002A9F0000000000000000"
OTHER = "7F00000100002A9F00000000000000FF"
DEAD_LETTER, RETRY = 4967, 4734
"""Where the copies are in the recorded case."""


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return unpack("store", tmp_path, archives=CASES / "B5-expired-origin")


@pytest.mark.parametrize("text", [GONE, GONE.lower()])
def test_an_expired_message_is_found_by_its_copies(text: str, case: Path) -> None:
    outcome = rocketlens("find", case, text, "--json")
    assert outcome.code == 0
    assert [each["physicalOffset"] for each in outcome.messages] == [DEAD_LETTER, RETRY]
    assert f"copies of it: the dead letter at {DEAD_LETTER}, the retry at {RETRY}" in outcome.errors
    assert "no message there: physical offset 0 lies before the log's start" in outcome.errors
    assert "g gave up" in rocketlens("life", case, text).text
    answer = ApiOf(case).ask("/find", text=text).json
    assert [each["physicalOffset"] for each in answer["messages"]] == [DEAD_LETTER, RETRY]


def test_a_server_is_asked_for_the_copies_of_an_expired_message_by_our_own_client(case: Path, tmp_path: Path) -> None:
    here = rocketlens("find", case, GONE, "--json")
    with serving_in_a_thread(service_of(MessageStore.open(case))) as address:
        outcome = rocketlens("find", address, GONE, "--json")
        assert (outcome.code, outcome.messages) == (0, here.messages)
        assert f"copies of it: the dead letter at {DEAD_LETTER}, the retry at {RETRY}" in outcome.errors
        one = rocketlens("find", address, GONE, "--topic", "%DLQ%g", "--json")
        assert [each["physicalOffset"] for each in one.messages] == [DEAD_LETTER]
        assert rocketlens("find", address, OTHER).code == 1
        assert "g gave up" in rocketlens("life", address, GONE).text
    service = service_of(MessageStore.open(case), acl=write_accounts(tmp_path / "plain_acl.yml"))
    keys = {"access_key": DEFAULTS, "secret_key": DEFAULTS_SECRET}  # which is no administrator
    with serving_in_a_thread(service) as address, connect(str(address), **keys) as remote:
        assert (
            "copies of it are listed to administrators" in remote.find(GONE, kind="offset message id").readings[0].note
        )


@pytest.mark.parametrize("mask", ["unique_key", "store_host", "properties"])
def test_nothing_is_found_by_an_id_that_is_hidden(mask: str, case: Path) -> None:
    outcome = rocketlens("find", case, GONE, "--mask", mask)
    assert outcome.code == 1
    assert "copies of it" not in outcome.errors


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    copies=st.lists(
        st.tuples(
            st.sampled_from(["%DLQ%g", "%RETRY%g", "%RETRY%h_T", "T", "SCHEDULE_TOPIC_XXXX"]),
            st.sampled_from([ORIGIN_MESSAGE_ID, DLQ_ORIGIN_MESSAGE_ID, "KEYS"]),
            st.sampled_from([GONE, OTHER]),
        ),
        max_size=30,
    ),
    at_once=st.integers(1, 9),
)
def test_those_of_retry_and_dead_letter_topics_that_name_it_are_found_and_no_others(
    copies: list[tuple[str, str, str]], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin_copies, "AT_ONCE", at_once)
    with tempfile.TemporaryDirectory() as directory:
        writer = StoreWriter(Path(directory))
        places = [
            writer.append(topic, b"x", properties={name: text}, queue_id=number % 2).physical_offset
            for number, (topic, name, text) in enumerate(copies)
        ]
        writer.append("T", b"x")
        writer.close()
        expected = [
            (not topic.startswith("%DLQ%"), topic, place)
            for (topic, name, text), place in zip(copies, places, strict=True)
            if topic.startswith("%") and name != "KEYS" and text == GONE
        ]
        store = MessageStore.open(directory)
        found = [
            (not each.topic.startswith("%DLQ%"), each.topic, each.physical_offset) for each in copies_of(store, GONE)
        ]
        assert sorted(found) == sorted(expected)
        assert [each[:2] for each in found] == sorted(each[:2] for each in found)
        assert list(copies_of(store, GONE, lambda: True)) == []
