"""Requests that cost thousands of look-ups leave the event loop."""

import json
import shutil
from pathlib import Path

import pytest

from asking import Asker
from broker import long_work
from broker.long_work import LOOKUPS_ON_LOOP, leave_to_a_thread
from broker_harness import connected, serving
from storage.residency import Cold, allow_waiting, forbid_waiting


def test_only_the_event_loop_refuses_and_only_long_work() -> None:
    leave_to_a_thread(LOOKUPS_ON_LOOP + 1)
    forbid_waiting()
    try:
        leave_to_a_thread(LOOKUPS_ON_LOOP)
        with pytest.raises(Cold, match="1001 look-ups"):
            leave_to_a_thread(LOOKUPS_ON_LOOP + 1)
    finally:
        allow_waiting()


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (21, {}),
        (43, {}),
        (201, {}),
        (206, {}),
        (224, {"cluster": "DefaultCluster"}),
        (202, {"topic": "TopicTest"}),
        (208, {"consumerGroup": "CG_TAG"}),
        (303, {"topic": "TopicTest", "group": "CG_TAG"}),
        (317, {"isOrder": "false"}),
        (321, {"topic": "TopicTest", "queueId": "0", "index": "0", "count": "99"}),
    ],
)
def test_answers_made_of_many_look_ups_are_made_on_a_thread(
    code: int, fields: dict[str, str], g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = Asker(g1_store)
    asker.value(code, fields)
    monkeypatch.setattr(long_work, "LOOKUPS_ON_LOOP", 3)
    forbid_waiting()
    try:
        with pytest.raises(Cold):
            asker.ask(code, fields)
    finally:
        allow_waiting()
    asker.value(code, fields)


@pytest.mark.asyncio
async def test_a_topic_of_very_many_queues_is_answered_over_the_wire(g1_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(g1_store, tmp_path / "store")
    path = store / "config" / "topics.json"
    config = json.loads(path.read_text())
    config["topicConfigTable"]["TopicTest"] |= {"readQueueNums": 2**31 - 1, "writeQueueNums": 2**31 - 1}
    path.write_text(json.dumps(config))
    service = Asker(store).service
    async with serving(service) as server, connected(server.addresses[0]) as client:
        answer = await client.ask(202, {"topic": "TopicTest"})
    assert answer.code == 0
    assert answer.body.count(b'"queueId":') == 16384


@pytest.mark.asyncio
async def test_an_answer_that_no_client_accepts_is_refused_with_its_size(g1_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(g1_store, tmp_path / "store")
    path = store / "config" / "topics.json"
    table = {f"{'t' * 100}{number:04}": {"readQueueNums": 1} for number in range(700)}
    path.write_text(json.dumps({"topicConfigTable": table}))
    service = Asker(store, frame_limit=65536, broker_name="b", cluster="C").service
    async with serving(service) as server, connected(server.addresses[0]) as client:
        answer = await client.ask(206)
        assert answer.code == 1
        assert "more than clients accept" in (answer.remark or "")
        assert (await client.ask(106)).code == 0
