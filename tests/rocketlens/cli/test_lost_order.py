"""The way of a person who is asked where an order is, from the shell to the answer.

Each step types what the step before it printed. The first order was recorded: a broker, its clients and mqadmin say
where it is. The second one was given up, so that nothing but its dead letter is left to be done.
"""

import re
from pathlib import Path

import pytest

from broker.endpoint import Endpoint
from command_line import rocketlens
from golden_store import G1
from store_writer import StoreWriter

_, TOPIC, QUEUE, OFFSET, UNIQUE_KEY, OFFSET_ID, _, KEY, BODY_BYTES, _ = (
    (G1 / "consumed-fail.tsv").read_text("utf-8").splitlines()[1].split("\t")
)
"""What the consumer that always failed received first."""

BODY = b'{"order": 4711, "items": 3}'
RETRIES = 2


@pytest.mark.parametrize("kind", ["store", "server"])
def test_an_order_that_was_not_consumed_is_found_by_its_key_with_who_failed(
    kind: str, g1_store: Path, server: Endpoint
) -> None:
    where = (g1_store,) if kind == "store" else ("--server", server)

    found = rocketlens("find", *where, KEY)
    assert "rocketlens: as unique key or key: 1 message and 2 copies" in found.errors.splitlines()
    (unique_key,) = set(re.findall(rf"\b{UNIQUE_KEY}\b", found.text))
    retried = next(line for line in found.text.splitlines() if " retry " in line)
    (group,) = re.findall(r"%RETRY%(\S+)", retried)

    (progress,) = rocketlens("groups", *where, "--group", group, "--topic", TOPIC, "--json").messages
    mqadmin = (G1 / "mqadmin-out" / "consumerProgress.txt").read_text().splitlines()
    (printed,) = (line.split() for line in mqadmin if line.startswith(f"{group} "))
    assert progress["lag"] == int(printed[-1]) == 0

    if kind == "store":
        events = rocketlens("life", *where, "--unique-key", unique_key)
        assert events.code == 0
        (_, *lines), (_, of_group) = (part.splitlines() for part in events.text.split("\n\n"))
        assert [line.split()[2] for line in lines] == ["delivered", "scheduled", "retry"]
        assert of_group.split(maxsplit=1)[0] == group

    (viewed,) = rocketlens("find", *where, unique_key, "--topic", TOPIC, "--json").messages
    assert (viewed["topic"], viewed["queueId"], viewed["queueOffset"]) == (TOPIC, int(QUEUE), int(OFFSET))
    assert viewed["offsetMessageId"] == OFFSET_ID
    assert (viewed["body"], len(viewed["body"])) == ("batch body 0", int(BODY_BYTES))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three orders, one of which billing failed on to the end, as it did on an older one; it has come to the end."""
    writer = StoreWriter(tmp_path / "store")
    for order in (4709, 4710, 4711):
        writer.append(
            "orders", BODY if order == 4711 else b"{}", keys=f"order-{order}", unique_key=f"U{order}", tags="paid"
        )
    failed = {"RETRY_TOPIC": "orders"}
    for order in (4709, 4711):
        for retries in range(1, RETRIES + 2):
            topic = "%RETRY%billing" if retries <= RETRIES else "%DLQ%billing"
            body = BODY if order == 4711 else b"{}"
            names = {"keys": f"order-{order}", "unique_key": f"U{order}", "tags": "paid"}
            writer.append(topic, body, properties=failed, reconsume_times=retries, **names)
    writer.consumer_offsets |= {
        "orders@billing": {0: 3},
        "%RETRY%billing@billing": {0: 2 * RETRIES},
        "orders@shipping": {0: 1},
    }
    writer.close()
    return tmp_path / "store"


def test_an_order_that_was_given_up_is_found_though_no_group_is_behind(store: Path) -> None:
    # What is known of it is its number, and the topic as one remembers it.
    wrong = rocketlens("find", store, "order-4711", "--topic", "order", "--as", "key")
    assert wrong.code == 1
    (topic,) = re.findall(r"did you mean (\w+)\?", wrong.errors)

    behind = rocketlens("groups", store, "--topic", topic, "--json").messages
    assert {each["group"]: each["lag"] for each in behind} == {"billing": 0, "shipping": 2}

    found = rocketlens("find", store, "order-4711", "--json").messages
    assert [each["stage"] for each in found] == ["dead letter", *["retry"] * RETRIES, "delivered"]
    (unique_key,) = {each["uniqueKey"] for each in found}

    told = rocketlens("life", store, "--unique-key", unique_key)
    assert told.code == 0
    events, groups = (part.splitlines() for part in told.text.split("\n\n"))
    assert events[-1].endswith(f"billing gave up after {RETRIES} retries → DLQ")
    assert [line.strip() for line in groups if line.startswith("shipping")] == ["shipping  not yet"]

    letters = rocketlens("tail", store, "--topic", found[0]["topic"], "--json").messages
    assert [each["keys"] for each in letters] == [["order-4709"], ["order-4711"]]
    queues = rocketlens("topics", store, "--topic", found[0]["topic"], "--json").messages
    assert sum(each["messages"] for each in queues) == len(letters)

    (letter,) = rocketlens("find", store, found[0]["physicalOffset"], "--json").messages
    assert (letter["body"].encode(), letter["properties"]["RETRY_TOPIC"]) == (BODY, topic)
