"""What waits, by the API: read once, listed page by page, and shown to those who may see it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from acl_file import write_accounts
from blocking_client import eventually
from broker.web.api.pending import PendingQuestion, WaitingMessages
from broker.web.api.request_context import RequestContext
from broker_harness import service_of
from storage.life.pending import Pending
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import START_TIMESTAMP, StoreWriter
from web_questions import ApiOf, keys

DUE = START_TIMESTAMP + 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Nine timer messages of two topics, a cancelled one, and one of a delay level."""
    writer = StoreWriter(tmp_path / "store")
    for number in range(9):
        more = {"TIMER_OUT_MS": str(DUE + number // 3), "REAL_TOPIC": "TopicTest" if number % 3 else "other"}
        writer.append("rmq_sys_wheel_timer", properties=more, unique_key=f"K{number}")
    cancels = {"TIMER_OUT_MS": str(DUE), "REAL_TOPIC": "other", "TIMER_DEL_UNIQKEY": "K0"}
    writer.append("rmq_sys_wheel_timer", properties=cancels, unique_key="C")
    writer.append("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "other", "DELAY": "18"}, queue_id=17)
    writer.crash()
    return writer.root


def test_counts_and_messages_come_when_all_is_read(store: Path) -> None:
    answer = ApiOf(store).done("/pending")
    assert answer["state"] == "done"
    topics = {each["topic"]: each for each in answer["topics"]}
    assert (topics["TopicTest"]["waiting"], topics["TopicTest"]["cancelled"]) == (6, 0)
    assert (topics["other"]["waiting"], topics["other"]["cancelled"], topics["other"]["cancelRequests"]) == (3, 1, 1)
    assert [each["message"]["uniqueKey"] for each in answer["messages"]][:9] == [f"K{number}" for number in range(9)]
    assert (answer["messages"][0]["state"], answer["messages"][9]["delayLevel"]) == ("cancelled", 18)
    assert answer["timersTimestamp"] is None
    assert len(answer["notes"]) == 2


def test_pages_hold_every_message_once(store: Path) -> None:
    api = ApiOf(store)
    whole = [each["message"]["physicalOffset"] for each in api.done("/pending")["messages"]]
    assert len(whole) == 10
    for limit in (1, 3, 10):
        pages = api.pages("/pending", limit=limit, maximumAge=3600)
        assert [each["message"]["physicalOffset"] for page in pages for each in page["messages"]] == whole
        assert [bool(page["topics"]) for page in pages] == [True, *[False] * (len(pages) - 1)]
    within = api.done("/pending", topic="TopicTest", dueAfter=DUE + 1, dueBefore=DUE + 1, maximumAge=3600)
    assert [each["message"]["uniqueKey"] for each in within["messages"]] == ["K4", "K5"]


def test_an_account_sees_what_waits_for_its_topics(store: Path, tmp_path: Path) -> None:
    write_accounts(tmp_path / "plain_acl.yml")
    api = ApiOf(store, tmp_path / "plain_acl.yml")
    reader, admin = keys("reader-key", "reader-secret-1"), keys("admin-key", "admin-secret-1")
    assert len(api.done("/pending", headers=admin)["messages"]) == 10
    assert api.ask("/pending", headers=reader).status == 403
    assert api.ask("/pending", headers=reader, topic="other").status == 403
    own = api.done("/pending", headers=reader, topic="TopicTest")
    assert [each["topic"] for each in own["topics"]] == ["TopicTest"]
    assert own["topics"][0]["waiting"] == 6
    # As everywhere, a record needs the right to the topic that it is stored under as well.
    assert (own["messages"], own["leftOut"]) == ([], 6)
    bounded = api.done("/pending", headers=keys("bounded-key", "bounded-secret"))
    assert ([each["topic"] for each in bounded["topics"]], bounded["leftOut"]) == (["TopicTest"], 10)


def test_who_comes_while_another_page_is_being_read_is_to_ask_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RequestContext(service_of(MessageStore.open(store, StoreOptions(keeps_state=False))))
    waiting, question = WaitingMessages(), PendingQuestion(maximum_age=3600)
    eventually(lambda: waiting.pending(context, question).state != "running")
    whole = waiting.pending(context, question)
    page, is_reading, goes_on = Pending.page, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        is_reading.set()
        assert goes_on.wait(60)
        return page(*arguments)

    monkeypatch.setattr(Pending, "page", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(waiting.pending, context, question)
        assert is_reading.wait(60)
        try:
            second = waiting.pending(context, question)
            assert not first.done()
        finally:
            goes_on.set()
        assert (second.state, second.messages, second.topics) == ("running", [], [])
        assert first.result(60).messages == whole.messages
    assert len(whole.messages) == 10
    assert waiting.pending(context, question).messages == whole.messages
