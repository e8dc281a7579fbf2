"""What only RocketLens is asked for: rights, questions that are none, work that is under way, and the client's end."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketlens
from acl_file import READER, READER_SECRET, write_accounts
from broker.cluster.client import Client, ResponseError
from broker.endpoint import Endpoint
from broker.security.answer_rights import OF_ACCOUNT
from broker.service._popped_counts import CountedPops, PoppedCounts
from broker.service.kept_work import KeptWorks, Report, WorkState
from broker.service.store_answers import SentLife, decode_answer, decode_life
from broker_harness import service_of, serving_in_a_thread
from protocol.codes import OwnRequestCode, ResponseCode
from protocol.errors import ProtocolError, StoreError
from storage.store.message_store import MessageStore

KEYS = {"access_key": READER, "secret_key": READER_SECRET}


@pytest.fixture(scope="module")
def address(g1_store: Path) -> Iterator[Endpoint]:
    with serving_in_a_thread(service_of(MessageStore.open(g1_store))) as endpoint:
        yield endpoint


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"question": "weather"},
            "expected one of life, pending, space, doctor, notes, copies, extent, topics, popped",
        ),
        ({"question": "space", "diskMaxUsedSpaceRatio": "101"}, "diskMaxUsedSpaceRatio"),
    ],
)
def test_what_cannot_be_asked_is_refused(fields: dict[str, str], says: str, address: Endpoint) -> None:
    async def ask() -> ResponseError:
        async with Client() as client:
            with pytest.raises(ResponseError, match=says) as caught:
                await client.call(address, OwnRequestCode.ASK_STORE, fields)
            return caught.value

    assert asyncio.run(ask()).code == ResponseCode.INVALID_PARAMETER


def test_only_an_administrator_is_answered(g1_store: Path, tmp_path: Path) -> None:
    acl = write_accounts(tmp_path / "plain_acl.yml")
    service = service_of(MessageStore.open(g1_store), acl=acl)
    with serving_in_a_thread(service) as address, rocketlens.connect(str(address), group="readers", **KEYS) as remote:
        for ask in (remote.space, remote.doctor, remote.pending, lambda: remote.life("a")):
            with pytest.raises(rocketlens.ResponseError) as caught:
                ask()
            assert caught.value.code == ResponseCode.NO_PERMISSION
        known = remote.topics()
        assert ([topic.name for topic in known], known.notes) == (["TopicTest"], (OF_ACCOUNT,))
        found, of_topic = remote.find("hotkey"), remote.find("hotkey", topic="TopicTest")
        assert found.messages == of_topic.messages != ()
        assert OF_ACCOUNT in found.notes
        assert [each.body for each in remote.search(topic="TopicTest", contains="hot", limit=2)] == [b"hot 0", b"hot 1"]
        (denied,) = (each for each in rocketlens.open(g1_store).find("batch-0") if each.topic == "TopicBatch")
        assert not remote.find(str(denied.physical_offset))


def test_topics_whose_configuration_is_broken_are_those_of_queues_as_in_a_directory(
    g1_store: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(g1_store, tmp_path / "broken")
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_text("{nonsense")
    with (
        serving_in_a_thread(service_of(MessageStore.open(root))) as address,
        rocketlens.connect(str(address)) as remote,
        rocketlens.open(root) as store,
    ):
        assert remote.topics() == store.topics() != []
        assert remote.topics().notes == store.topics().notes
        assert replace(remote.info(), where="", version=None) == replace(store.info(), where="")
        assert "is no JSON" in remote.info().problems[0]
        for text in ("hotkey", "nobody"):
            ours, theirs = store.find(text), remote.find(text)
            assert (theirs.messages, theirs.readings, theirs.notes) == (ours.messages, ours.readings, ours.notes)
        assert remote.life("batch-0") == store.life("batch-0")
        assert list(remote.search(topic="TopicTest")) == list(store.search(topic="TopicTest"))


def test_what_groups_popped_is_counted_once_for_all_who_ask_and_its_age_is_said(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[object] = []

    def count(counts: object, _report: object) -> CountedPops:
        counted.append(counts)
        return CountedPops({"CG_TAG": {"TopicTest": {0: 3}}}, time.monotonic() - 12)

    monkeypatch.setattr(PoppedCounts, "_counted", count)
    with serving_in_a_thread(service_of(MessageStore.open(g1_store))) as address:
        for _ in range(2):
            with rocketlens.open(str(address)) as remote:
                groups = remote.groups()
            assert {group.name: group.popped for group in groups}["CG_TAG"] == {"TopicTest": {0: 3}}
            assert "what groups have popped was counted 12 s ago" in groups.notes
    assert len(counted) == 1


def test_a_forecast_is_made_with_the_settings_of_who_asks(address: Endpoint, g1_store: Path, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("fileReservedTime=24\ndiskMaxUsedSpaceRatio=99\n")
    with rocketlens.open(str(address)) as remote, rocketlens.open(g1_store) as store:
        for config in (tmp_path / "broker.conf", None):
            forecasts = [source.space(broker_config=config).forecast for source in (remote, store)]
            assert forecasts[0] is not None
            assert forecasts[1] is not None
            assert forecasts[0].settings == forecasts[1].settings
            assert (forecasts[0].settings.reserved_hours, forecasts[0].settings.most_used) == (
                (72, 75) if config is None else (24, 95)
            )
            assert forecasts[0].expiry_timestamp == forecasts[1].expiry_timestamp


def test_a_client_asks_again_until_the_work_is_done(address: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    states = [WorkState(True, 4, 0.1, None, None), WorkState(True, 5, 0.2, None, None)]
    ask = KeptWorks.ask

    def ask_slowly(works: KeptWorks[object], key: str, work: object, maximum_age: float) -> WorkState[object]:
        return states.pop() if states else ask(works, key, work, maximum_age)  # type: ignore[arg-type]

    monkeypatch.setattr(KeptWorks, "ask", ask_slowly)
    with rocketlens.open(str(address)) as remote:
        assert remote.space().messages == 390
    assert states == []


def test_why_the_work_failed_is_said(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_service: object, _report: Report) -> object:
        raise StoreError("consumequeue", what="cannot be listed")

    monkeypatch.setattr("broker.service.processors.whole_store._waiting", fail)
    service = service_of(MessageStore.open(g1_store))
    says = pytest.raises(rocketlens.ResponseError, match="cannot be listed")
    with serving_in_a_thread(service) as address, rocketlens.connect(str(address)) as remote, says:
        remote.pending()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_life_or_an_error_of_ours(data: bytes) -> None:
    try:
        decode_life(data)
    except (ProtocolError, StoreError):
        return
    assert isinstance(decode_answer(data, SentLife), SentLife)
