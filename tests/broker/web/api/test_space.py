"""What takes the disk, by the API: every count as the oracle has it, counted once for all, shown to administrators."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acl_file import write_accounts
from blocking_client import eventually
from broker.web.api.request_context import RequestContext
from broker.web.api.space import SpaceCounts, SpaceQuestion
from broker_harness import service_of
from golden_store import GOLDEN, unpack
from oracles import read_log
from protocol.host_address import HostAddress
from space_oracle import Rows, count
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import StoreWriter
from web_questions import ApiOf, keys

HOUR_MS = 3_600_000


def counted(api: ApiOf, **parameters: Any) -> dict[str, Any]:
    answer = api.done("/space", **parameters)
    assert answer["state"] == "done", answer
    outcome: dict[str, Any] = answer["outcome"]
    return outcome


def named(rows: Rows) -> dict[tuple[object, ...], list[int]]:
    """What the oracle counted, by names as JSON has them."""

    def text(part: object) -> object:
        return part.decode() if isinstance(part, bytes) else part

    return {tuple(map(text, name if isinstance(name, tuple) else (name,))): row for name, row in rows.items()}


@pytest.mark.parametrize("archives", ["g1", "g2/g2-hosts"])
def test_every_count_is_as_the_oracle_has_it(tmp_path: Path, archives: str) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / archives)
    outcome = counted(ApiOf(root), limit=200)
    records = read_log(root / "commitlog")
    expected = count(records)
    assert (outcome["messages"], outcome["bytes"]) == (len(records), sum(record.total_size for record in records))
    stored = [record.store_timestamp for record in records]
    assert (outcome["oldestTimestamp"], outcome["newestTimestamp"]) == (min(stored), max(stored))
    for table, fields, rows in (
        ("topics", ("topic",), named(expected.topics)),
        ("queues", ("topic", "queueId"), named(expected.queues)),
        ("tags", ("topic", "tag"), named(expected.tags)),
        ("hosts", ("host",), {(HostAddress.from_raw(name, 0).ip,): row for name, row in expected.hosts.items()}),  # type: ignore[arg-type]
        ("hours", ("hourTimestamp",), {(int(str(name)) * HOUR_MS,): row for name, row in expected.hours.items()}),
    ):
        lines = outcome[table]["lines"]
        assert lines
        assert outcome[table]["names"] == len(rows)
        assert len(lines) == min(len(rows), 200)
        found = {tuple(line[field] for field in fields): [line["messages"], line["bytes"]] for line in lines}
        assert found == {name: rows[name] for name in found}
        order = [line["hourTimestamp" if table == "hours" else "bytes"] for line in lines]
        assert order == sorted(order, reverse=True)
    largest = [(each["bytes"], each["physicalOffset"]) for each in outcome["largest"]]
    assert largest == expected.largest[: min(len(records), 100)]
    keys_of = {record.physical_offset: record.topic_bytes.decode() for record in records}
    assert all(each["message"]["topic"] == keys_of[each["physicalOffset"]] for each in outcome["largest"])
    assert outcome["forecast"]["assumed"] == ["diskMaxUsedSpaceRatio", "fileReservedTime"]
    assert (outcome["notes"], outcome["leftOut"]) == ([], 0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A log of many segments and two topics; one message is larger than all others."""
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    for number in range(100):
        size = 1500 if number == 41 else 100
        writer.append("other" if number % 3 else "TopicTest", b"x" * size, tags="A", unique_key=f"K{number}")
    writer.close()
    return writer.root


def test_an_administrator_sees_it_and_of_topics_those_that_it_may_read(store: Path, tmp_path: Path) -> None:
    write_accounts(tmp_path / "plain_acl.yml")
    api = ApiOf(store, tmp_path / "plain_acl.yml")
    assert api.ask("/space").status == 401
    assert api.ask("/space", headers=keys("reader-key", "reader-secret-1")).status == 403
    whole = counted(api, headers=keys("admin-key", "admin-secret-1"))
    assert ({line["topic"] for line in whole["topics"]["lines"]}, whole["leftOut"]) == ({"other", "TopicTest"}, 0)
    own = counted(api, headers=keys("bounded-key", "bounded-secret"), limit=200)
    for table in ("topics", "queues", "tags"):
        assert {line["topic"] for line in own[table]["lines"]} == {"TopicTest"}
    assert {each["message"]["topic"] for each in own["largest"]} == {"TopicTest"}
    assert own["hosts"]["lines"] == []
    # A topic, its queue and its tag, the sender of all; and the messages.
    assert own["leftOut"] == 4 + sum(number % 3 > 0 for number in range(100))
    assert own["bytes"] == whole["bytes"]


def test_segments_that_a_broker_deletes_meanwhile_are_said(store: Path) -> None:
    api = ApiOf(store)
    for segment in api.store.commit_log.segments[:2]:
        segment.file.path.unlink()
    outcome = counted(api)
    records = read_log(store / "commitlog")
    assert outcome["messages"] == len(records) < 100
    assert outcome["notes"] == ["segments were deleted before they were counted: physical offsets 0 to 8192"]
    assert outcome["forecast"]["expiryTimestamp"] is None


def test_a_large_message_that_is_deleted_once_it_was_counted_is_named_by_its_place(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.web.api.space.message_at", lambda _store, _offset: (None, "it is deleted"))
    outcome = counted(ApiOf(store), limit=1)
    (each,) = outcome["largest"]
    assert (each["message"], each["damage"]) == (None, "it is deleted")
    assert each["bytes"] == max(record.total_size for record in read_log(store / "commitlog"))


@pytest.mark.parametrize("alone", [False, True])
def test_the_log_of_a_tier_is_not_counted(tmp_path: Path, alone: bool) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-tier")
    api = ApiOf(root / "tiered") if alone else ApiOf(root, tier=root / "tiered")
    assert api.ask("/space").error["code"] == "in_tier"


def test_of_several_stores_one_is_counted_at_a_time(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from storage.space.measure import measure

    goes_on, at_once, most = threading.Event(), [0], [0]

    def slow(*arguments: Any) -> Any:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        while not goes_on.wait(0.01):
            arguments[2](7)
        at_once[0] -= 1
        return measure(*arguments)

    monkeypatch.setattr("broker.web.api.space.measure", slow)
    opened = MessageStore.open(store, StoreOptions(keeps_state=False))
    contexts = [RequestContext(service_of(opened, broker_name=name)) for name in ("broker-a", "broker-b")]
    counts = SpaceCounts()
    asks = [partial(counts.space, context, SpaceQuestion()) for context in contexts]
    eventually(lambda: asks[0]().counted_bytes == 7)
    waiting = asks[1]()
    assert (waiting.state, waiting.counted_bytes) == ("running", 0)
    assert waiting.total_bytes > 0
    goes_on.set()
    eventually(lambda: {ask().state for ask in asks} == {"done"})
    assert most == [1]
    counts.close()
