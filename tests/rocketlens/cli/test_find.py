"""`rocketlens find`: what a recorded producer, consumer and mqadmin know of a message is enough to find it."""

import json
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cluster.client import Client
from broker.endpoint import Endpoint
from broker_harness import service_of, serving_in_a_thread
from command_line import Outcome, rocketlens
from golden_store import CASES, unpack
from rocketlens.cli.opening import HINT
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"


def find(where: tuple[object, ...], text: object, *arguments: object) -> Outcome:
    return rocketlens("find", *where, text, *arguments, "--json")


def test_each_reading_of_the_text_is_explained(where: tuple[object, ...]) -> None:
    assert find(where, "0A00000100002A9F00000000000019B5").errors.splitlines() == [
        "rocketlens: as offset message id: 1 message (the id names 10.0.0.1:10911, the message there was stored by "
        "127.0.0.1:10911)",
        "rocketlens: as unique key or key: none",
        "rocketlens: as tag: none",
    ]
    assert find(where, "BB").errors.splitlines() == [
        "rocketlens: as unique key or key: 1 message",
        "rocketlens: as tag: 1 message",
    ]


def test_what_is_nowhere_says_so_first_and_what_was_searched_behind_v(where: tuple[object, ...]) -> None:
    outcome = find(where, "nosuchkey")
    assert (outcome.code, outcome.output) == (1, b"")
    line, hint = outcome.errors.splitlines()
    assert line.startswith("rocketlens: nothing is named nosuchkey in ")
    assert hint == f"rocketlens: {HINT}"
    assert "index file" not in line
    first, details, _ = find(where, "nosuchkey", "-v").errors.splitlines()
    assert first == line
    assert "searched 10 index files" in details


@pytest.mark.parametrize("is_indexed", [True, False])
def test_what_may_have_been_lost_with_a_part_of_the_log_is_not_said_never_to_have_been(
    tmp_path: Path, is_indexed: bool
) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1024)
    written = [
        writer.append("orders", b"an order", keys=f"o-{number}", tags="paid", index=is_indexed) for number in range(30)
    ]
    assert len(writer.log.segments) > 2
    lost, after = written[4], written[5]
    writer.overwrite(lost.physical_offset, b"\xff" * lost.size)
    writer.close()
    place = (
        f"at physical offset {lost.physical_offset}"
        if is_indexed
        else f"between physical offsets {lost.physical_offset} and {after.physical_offset}"
    )
    says = f"; it may be lost, since the log is damaged: no intact record is {place}"
    found = find((tmp_path / "store",), "o-4")
    assert (found.code, found.errors) == (
        1,
        f"rocketlens: nothing is named o-4 in 3 topics{says}\nrocketlens: {HINT}\n",
    )
    queried = rocketlens("find", tmp_path / "store", "o-4", "--topic", "orders", "--as", "key")
    assert (queried.code, queried.errors) == (
        1,
        f"rocketlens: no message of topic orders has the key o-4{says}\n",
    )
    others = find((tmp_path / "store",), "o-5")
    assert (len(others.messages), "lost" in others.errors) == (1, False)
    with serving_in_a_thread(service_of(MessageStore.open(tmp_path / "store"))) as server:
        for options in ((), ("--topic", "orders", "--as", "key")):
            assert f"{says}\n" in rocketlens("find", server, "o-4", *options).errors


def test_queues_that_lack_are_named_where_tags_may_be_missing_alone(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", profile="5.3")
    for topic in ("orders", "lost"):
        for queue_id in range(4):
            writer.append(topic, keys=f"k-{topic}", tags="paid", queue_id=queue_id)
    writer.close()
    lacks = "rocketlens: something may be missing: the index keeps no tags from physical offset 0 to "
    assert lacks not in rocketlens("find", writer.root, "nobody").errors
    shutil.rmtree(writer.root / "consumequeue" / "lost")
    with serving_in_a_thread(service_of(MessageStore.open(writer.root))) as address:
        for where in (writer.root, address):
            for text, is_said in (("paid", True), ("nobody", True), ("k-orders", False), ("0", False)):
                outcome = rocketlens("find", where, text)
                assert (text, lacks in outcome.errors) == (text, is_said)
                assert not is_said or "and topic lost has no queue to find them by" in outcome.errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["STORE"], "and behind it a TEXT"),
        ([], "and behind it a TEXT"),
        (["STORE", "--server", "127.0.0.1:1", "--store", "STORE"], "expected one SOURCE"),
        (["STORE", "  "], "the text to find is empty"),
        (["STORE", "a", "--since", "5", "--until", "1"], "--since 5 is after --until 1"),
        (["STORE", "a", "--tls"], "are for a server, not for a STORE"),
    ],
)
def test_wrong_usage_is_code_2(g1_store: Path, arguments: list[str], says: str) -> None:
    outcome = rocketlens("find", *(argument.replace("STORE", str(g1_store)) for argument in arguments))
    assert (outcome.code, outcome.output) == (2, b"")
    assert says in outcome.errors


def test_several_texts_are_found_at_once_and_each_must_name_something(where: tuple[object, ...]) -> None:
    apart = [find(where, text).messages for text in ("BB", "0")]
    outcome = find(where, "BB", "0")
    assert (outcome.code, outcome.messages) == (0, [message for each in apart for message in each])
    assert "rocketlens: BB as tag: 1 message" in outcome.errors
    assert find(where, "BB", "BB").messages == apart[0]
    missing = find(where, "BB", "nosuchkey")
    assert (missing.code, missing.messages) == (1, apart[0])


def test_a_message_is_shown_whole_if_asked(g1_store: Path) -> None:
    shown = rocketlens("find", g1_store, UNIQUE_KEY, "--full")
    lines = {tuple(line.split()) for line in shown.text.splitlines()}
    assert {("topic", "TopicTest"), ("property", "TAGS", "TagD"), ("body", "hot", "0"), ("queueId", "2")} <= lines


def test_copies_of_a_message_share_a_row_until_they_are_asked_for(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    born = {"unique_key": "u-1", "born_timestamp": 1_700_000_000_000, "keys": "o-1"}
    writer.append("orders", b"an order", **born)
    for number in range(3):
        writer.append("%RETRY%g", b"an order", reconsume_times=number + 1, **born)
    last = writer.append("%DLQ%g", b"an order", **born)
    writer.append("orders", b"sent again", unique_key="u-1", born_timestamp=1_700_000_000_500, keys="o-1")
    writer.close()
    found = rocketlens("find", writer.root, "o-1")
    rows = found.text.splitlines()[1:]
    assert len(rows) == 2
    hint = f"rocketlens: what became of it: rocketlens life {shlex.quote(str(writer.root))} u-1"
    assert found.errors.splitlines()[-1] == hint
    (shared,) = (row for row in rows if "+4 copies" in row)
    assert f" {last.physical_offset} " in shared
    assert "%DLQ%g" in shared
    outcome = rocketlens("find", writer.root, "o-1", "--copies")
    listed = outcome.text.splitlines()[1:]
    assert hint not in outcome.errors
    assert (len(listed), [row for row in listed if "copies" in row]) == (6, [])
    assert len(rocketlens("find", writer.root, "o-1", "--json").messages) == 6


@given(
    st.lists(st.from_regex(r"[A-Za-z][A-Za-z0-9-]{2,7}", fullmatch=True), min_size=1, max_size=4, unique=True),
    st.data(),
)
@settings(max_examples=10, deadline=None)
def test_each_key_of_a_list_that_was_stored_is_found_alone(keys: list[str], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = StoreWriter(Path(directory) / "store")
        writer.append("orders", b"as a list", keys=f"[{', '.join(keys)}]")
        writer.close()
        key = data.draw(st.sampled_from(keys))
        for arguments in ((), ("--topic", "orders", "--as", "key")):
            found = rocketlens("find", writer.root, key, *arguments, "--json")
            assert [each["body"] for each in found.messages] == ["as a list"]
            assert f"{key}: is a key only as " in found.errors


def test_a_server_is_asked_for_each_form_in_a_list_once_a_topic_and_for_none_where_there_can_be_none(
    g1_store: Path, server: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    call = Client.call

    async def counting(self: Client, endpoint: Endpoint, code: int, *more: Any, **options: Any) -> Any:
        asked.append(code)
        return await call(self, endpoint, code, *more, **options)

    monkeypatch.setattr(Client, "call", counting)

    def requests(text: str) -> int:
        asked.clear()
        assert rocketlens("find", server, text).code in (0, 1)
        return len(asked)

    topics = len(rocketlens("topics", g1_store, "--json").messages)
    once = requests("F" * 32)
    assert once > topics
    assert requests("hotkey") == once - 1  # where nothing is found the server is asked what it does not read
    assert once < requests("nobody") <= once + 4 * (topics + 2)


TRANSACTIONS = [
    json.loads(line)
    for line in (CASES / "A3-A4-transactions" / "truth.jsonl").read_text("utf-8").splitlines()
    if line.strip()
]


@pytest.mark.parametrize("way", ["store", "server"])
def test_a_half_message_is_found_with_its_end(tmp_path: Path, way: str) -> None:
    """Through a broker's port the operations are not seen: there is a hint where only they tell."""
    store = unpack("store", tmp_path, archives=CASES / "A3-A4-transactions")
    with serving_in_a_thread(service_of(MessageStore.open(store))) as server:
        for row in TRANSACTIONS:
            outcome = find((store,) if way == "store" else ("--server", server), row["uniqueKey"])
            found = {each["physicalOffset"]: each for each in outcome.messages}
            halves = [record for record in row["records"] if record["stage"] == "half"]
            assert set(found) == {record["physicalOffset"] for record in row["records"]}
            for record in halves:
                told = found[record["physicalOffset"]]["outcome"]
                is_told = way != "server" or record["means"] != "rolled back"
                assert (told or "").startswith(record["means"]) if is_told else told is None
            untold = way == "server" and any(record["means"] == "rolled back" for record in halves)
            assert ("is said of a store, not through a broker" in outcome.errors) == untold
    if way == "store":
        table = rocketlens("find", store, "tx-rollback-at-once").text
        assert "half: rolled back" in table


@pytest.mark.parametrize("way", ["store", "server"])
def test_an_id_of_two_messages_says_that_it_is(tmp_path: Path, way: str) -> None:
    store, named = (
        unpack("store", tmp_path, archives=CASES / "B6-two-messages-one-id"),
        "7F000001000130946E09000000000001",
    )
    said = "2 messages are named this: one of topic T, one of topic T2"
    with serving_in_a_thread(service_of(MessageStore.open(store))) as server:
        outcome = find((store,) if way == "store" else ("--server", server), named)
    assert len(outcome.messages) == 4
    assert f"as unique key or key: 2 messages and 2 copies ({said})" in outcome.errors
