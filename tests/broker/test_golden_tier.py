"""Recorded stores with tiered files: a server of ours gives what the official broker did from its log and its tier."""

import asyncio
import json
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker_harness import connected, service_of, serving
from draining import pull_of
from golden_store import GOLDEN, unpack
from oracles import read_record
from protocol.codes import RequestCode, ResponseCode
from protocol.command import ext_fields_of
from storage.store.message_store import MessageStore, StoreOptions
from tier_answers import Exchange, exchanges_of, pulls_of, records_in

NAMES = ("g2-tier", "g2-tier-killed")
ONLY_IN_TIER = ("Tier-old", "TierDelay")
"""Topics whose queues a broker counts from 0 anew, since its own log has lost all their messages."""
OFFSETS = {RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME}
OFFSETS.add(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
PHYSICAL_OFFSET = slice(28, 36)


def alike(record: bytes) -> bytes:
    return record[: PHYSICAL_OFFSET.start] + record[PHYSICAL_OFFSET.stop :]


def decoded(record):
    found = read_record(record, 0)
    assert found is not None
    return found


@dataclass(frozen=True)
class Case:
    name: str
    shape: str
    exchanges: list[Exchange]
    store: MessageStore


@pytest.fixture(scope="module", params=[(NAMES[0], "alone"), (NAMES[1], "joined")], ids=" ".join)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, shape = request.param
    root = unpack("store", tmp_path_factory.mktemp(name), archives=GOLDEN / "g2" / name)
    tier = root / json.loads((GOLDEN / "g2" / name / "store.json").read_text())["tier"]
    if shape == "alone":
        (root / "config" / "tieredStoreMetadata.json").unlink()
        tier = Path(shutil.move(tier, root.with_name("tier")))
        options, place = StoreOptions(keeps_state=False), tier
    else:
        options, place = StoreOptions(keeps_state=False, tier=tier), root
    return Case(name, shape, exchanges_of(name), MessageStore.open(place, options))


def ask_all(case: Case, questions: list[tuple[int, dict[str, str]]]) -> list[tuple[int, dict[str, str], bytes]]:
    async def run() -> list[tuple[int, dict[str, str], bytes]]:
        async with serving(service_of(case.store)) as server, connected(server.addresses[0]) as client:
            answers = [await client.ask(code, fields) for code, fields in questions]
            return [(each.code, ext_fields_of(each), bytes(each.body)) for each in answers]

    return asyncio.run(run())


def pull_all(case, queues):
    async def run():
        async with serving(service_of(case.store)) as server, connected(server.addresses[0]) as client:
            return {queue: await pull(client, queue) for queue in queues}

    return asyncio.run(run())


async def pull(client, queue) -> list[bytes]:
    topic, queue_id, kind, expression = queue
    found: list[bytes] = []
    offset, end = 0, 1
    while offset < end:
        fields = pull_of(topic, int(queue_id), offset, subscription=expression, expressionType=kind)
        answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
        assert answer.code in (0, ResponseCode.PULL_RETRY_IMMEDIATELY), answer.remark
        found += records_in(bytes(answer.body))
        following = ext_fields_of(answer)
        assert int(following["nextBeginOffset"]) > offset
        offset, end = int(following["nextBeginOffset"]), int(following["maxOffset"])
    return found


def test_every_queue_is_pulled_as_from_the_broker_by_each_filter(case: Case) -> None:
    recorded = pulls_of(case.exchanges)
    assert len(recorded) == 9
    pulled = pull_all(case, recorded)
    for queue, records in recorded.items():
        assert len(records) >= 1
        assert list(map(alike, pulled[queue])) == list(map(alike, records)), queue


def test_offsets_and_times_are_the_brokers(case: Case) -> None:
    asked = [each for each in case.exchanges if each.code in OFFSETS and each.topic not in ONLY_IN_TIER]
    assert len(asked) == 9 + 15
    answers = ask_all(case, [(each.code, each.fields) for each in asked])
    assert [fields for _, fields, _ in answers] == [each.answer["extFields"] for each in asked]


def test_every_key_unique_key_and_tag_finds_the_messages_that_have_it(case: Case) -> None:
    """A broker finds them where its index of the tier does: what it found is among these."""
    everything = defaultdict(list)
    for (topic, _, kind, expression), records in pulls_of(case.exchanges).items():
        if (kind, expression) == ("TAG", "*"):
            everything[topic] += map(decoded, records)
    asked = [each for each in case.exchanges if each.code == RequestCode.QUERY_MESSAGE and each.fields.get("indexType")]
    assert len(asked) > 300
    found_by_broker = 0
    for each, (_, _, body) in zip(asked, ask_all(case, [(each.code, each.fields) for each in asked]), strict=True):
        kind, key = each.fields["indexType"], each.fields["key"]
        having = [record for record in everything[each.topic] if has(record, kind, key)]
        newest = sorted(having, key=lambda record: record.store_timestamp)[-64:]
        ours = {(record.queue_id, record.queue_offset) for record in map(decoded, records_in(body))}
        if len(having) <= 32:
            assert ours == {(record.queue_id, record.queue_offset) for record in newest}, (each.topic, key)
        # A broker gives what has the hash of a tag; only what has the tag counts.
        matching = [record for record in map(decoded, records_in(each.body)) if has(record, kind, key)]
        theirs = {(record.queue_id, record.queue_offset) for record in matching}
        assert len(having) > 32 or theirs <= ours
        found_by_broker += bool(theirs)
    assert found_by_broker > 100


def has(record, kind, key) -> bool:
    properties = record.properties
    if kind == "K":
        return key in properties.get("KEYS", "").split(" ")
    return properties.get("UNIQ_KEY" if kind == "U" else "TAGS") == key


def test_an_offset_that_only_the_tier_had_is_refused_with_the_way_out(case: Case) -> None:
    views = [each for each in case.exchanges if each.code == RequestCode.VIEW_MESSAGE_BY_ID]
    asked = [each for each in views if each.answer["code"] == ResponseCode.SYSTEM_ERROR]
    assert len(asked) > 50
    for code, _, body in ask_all(case, [(each.code, each.fields) for each in asked]):
        assert code == ResponseCode.SYSTEM_ERROR
        assert not body
