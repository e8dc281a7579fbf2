"""What waits beside a running official broker that rolls messages: it delivers later just what waits."""

import time
from pathlib import Path

import pytest

from blocking_client import eventually
from interop.official_broker import G1_PROPERTIES, OfficialProcess, official_broker
from interop.wire import ask
from storage.life.pending import Pending, PendingMessage, PendingState
from storage.store.message_store import MessageStore, StoreOptions

pytestmark = [pytest.mark.interop, pytest.mark.soak]

SEND_MESSAGE = 10
BUSY = 2
TOPIC, DEFAULT_TOPIC = "PendingTopic", "TBW102"
PROPERTIES = G1_PROPERTIES | {"timerRollWindowSlot": "4", "mappedFileSizeTimerLog": "131072"}
"""A message is stored again if it is due more than four seconds ahead."""


def send(broker: OfficialProcess, key: str, due: int, cancels: str | None = None) -> None:
    properties = {"UNIQ_KEY": key, "TIMER_DELIVER_MS": str(due), "WAIT": "true"}
    properties |= {"TIMER_DEL_UNIQKEY": cancels} if cancels else {}
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    fields = {
        "producerGroup": "P", "topic": TOPIC, "defaultTopic": DEFAULT_TOPIC, "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0", "bornTimestamp": str(int(time.time() * 1000)), "flag": "0", "properties": text,
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    }  # fmt: skip

    def is_sent() -> bool:
        answer = ask(broker.address, SEND_MESSAGE, fields, body=key.encode())
        assert answer.code in (0, BUSY), answer.header
        return answer.code == 0

    eventually(is_sent, f"{key} to be sent", 20)


def opened(store: Path) -> MessageStore:
    return MessageStore.open(store, StoreOptions(scan_budget=0, check_budget=0, keeps_state=False))


def waiting(store: Path) -> dict[str, PendingMessage]:
    with Pending(opened(store)) as pending:
        found = list(pending.messages())
    keys = [each.message.unique_key or "" for each in found]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, found, strict=True))


def delivered(store: Path) -> set[str]:
    opening = opened(store)
    queue = opening.queues.queue(TOPIC, 0)
    entries = queue.entries(0, 1000) if queue else []
    records = (opening.record_at(entry.physical_offset) for entry in entries)
    return {
        key for record in records if record is not None for key in ("K1", "K2", "K3") if key.encode() in bytes(record)
    }


def test_rolled_and_cancelled_messages_end_as_they_were_said_to(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with official_broker(store, tmp_path, properties=PROPERTIES) as broker:
        due = (int(time.time()) + 45) * 1000
        send(broker, "K1", due)
        send(broker, "K2", due)
        send(broker, "K3", due + 1000)
        send(broker, "C", due, cancels="K2")
        eventually(lambda: waiting(store)["K1"].rolls >= 1, "the messages to be rolled", 60)
        now = waiting(store)
        assert {key: each.state for key, each in now.items()} == {
            "K1": PendingState.WAITING,
            "K2": PendingState.CANCELLED,
            "K3": PendingState.WAITING,
        }
        with Pending(opened(store)) as pending:
            (topic,) = pending.topics()
        assert (topic.waiting, topic.cancelled, topic.cancel_requests) == (2, 1, 1)
        assert topic.rolled >= 1
        eventually(lambda: delivered(store) >= {"K1", "K3"}, "all to be delivered", 150)
        eventually(lambda: not waiting(store), "nothing to wait", 60)
        assert delivered(store) == {"K1", "K3"}
