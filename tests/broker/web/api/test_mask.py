"""A server with a mask: no endpoint shows what is hidden, and none finds messages by it."""

from pathlib import Path
from typing import Any

import pytest

from store_kinds import RULES, SECRETS, hidden_stores
from store_writer import StoreWriter
from web_questions import ApiOf

FIRST, SECOND = SECRETS
CHANGING = ("rate", "sentence", "seconds", "readTimestamp", "countedTimestamp", "forecast", "cursor", "diskFree")
"""What differs from one answer to the next."""

QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    *(("/message", {"offset": number}) for number in range(6)),
    *(("/message/body", {"offset": number, "unpacked": "true"}) for number in range(6)),
    ("/message", {"offset": 1, "charset": "utf-16-le"}),
    ("/queue/message", {"topic": "T", "queueId": 0, "queueOffset": 1}),
    ("/messages", {"topic": "T"}),
    ("/messages", {"topic": "B"}),
    ("/messages", {"topic": "T", "tag": f"A || T{FIRST}"}),
    ("/messages", {"topic": "T", "sql": f"to <> '{FIRST}'"}),
    ("/filter", {"topic": "T", "tag": f"T{FIRST}"}),
    ("/filter", {"topic": "T", "sql": f"NOT to = '{FIRST}'"}),
    ("/tail", {"topic": "T", "sql": f"to > '{FIRST[:4]}'"}),
    ("/find", {"text": "order-1"}),
    ("/find", {"text": FIRST}),
    ("/find", {"text": f"T{FIRST}"}),
    ("/find", {"text": f"U-{FIRST}"}),
    ("/message/life", {"uniqueKey": f"U-{FIRST}"}),
    ("/message/life", {"uniqueKey": "U0"}),
    ("/search", {"contains": FIRST}),
    ("/search", {"contains": FIRST, "place": "any"}),
    ("/search", {"regex": f"^(?!.*{FIRST})"}),
    ("/search", {"jsonPath": f"$.phone={FIRST}"}),
    ("/search", {"where": f"to <> '{FIRST}'"}),
    ("/search", {"where": f"TAGS IN ('T{FIRST}', '***')", "topic": "T"}),
    ("/search", {"key": FIRST, "topic": "T"}),
    ("/search", {"keyPrefix": FIRST[:5]}),
    ("/search", {"tag": f"T{FIRST}"}),
    ("/histogram", {"topic": "T"}),
    ("/pending", {}),
    ("/space", {}),
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[StoreWriter]:
    return hidden_stores(tmp_path_factory.mktemp("hidden"))


def settled(answer: Any) -> Any:
    """An answer without what differs from one to the next."""
    if isinstance(answer, dict):
        return {name: settled(value) for name, value in answer.items() if name not in CHANGING}
    return [settled(each) for each in answer] if isinstance(answer, list) else answer


def answers(stores: list[StoreWriter], path: str, asked: dict[str, Any], apis: list[ApiOf]) -> list[Any]:
    """Status and content of the answers of both stores; small offsets stand for messages by their number."""
    found = []
    for store, api in zip(stores, apis, strict=True):
        question = dict(asked)
        if "offset" in question:
            question["offset"] = store.written[question["offset"]].physical_offset
        answer = api.ask(path, **question)
        while answer.json is not None and answer.json.get("state") == "running":
            answer = api.ask(path, **question)
        found.append((answer.status, answer.content if answer.json is None else settled(answer.json)))
    return found


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_no_endpoint_tells_two_stores_apart_that_differ_in_what_is_hidden(
    stores: list[StoreWriter], rules: tuple[str, ...]
) -> None:
    statuses = set()
    apis = [ApiOf(store.root, masked=rules) for store in stores]
    for path, asked in QUESTIONS:
        first, second = answers(stores, path, asked, apis)
        assert first == second, path
        statuses.add(first[0])
        assert SECOND not in repr(first), path
        if FIRST not in repr(asked):
            assert FIRST not in repr(first), path
    assert statuses == {200, 400}


def test_without_a_mask_they_are_told_apart(stores: list[StoreWriter]) -> None:
    apis = [ApiOf(store.root) for store in stores]
    differ = [len({repr(each) for each in answers(stores, path, asked, apis)}) for path, asked in QUESTIONS]
    assert differ.count(2) > len(QUESTIONS) // 2


@pytest.mark.parametrize(
    ("path", "asked", "parameter"),
    [
        ("/messages", {"topic": "T", "tag": "A"}, "tag"),
        ("/filter", {"topic": "T", "sql": "to = 'x'"}, "sql"),
        ("/message/life", {"uniqueKey": "U0"}, "uniqueKey"),
        ("/search", {"key": "k"}, ""),
    ],
)
def test_what_is_masked_cannot_be_searched(
    stores: list[StoreWriter], path: str, asked: dict[str, Any], parameter: str
) -> None:
    refused = ApiOf(stores[0].root, masked=RULES["fields"]).ask(path, **asked)
    assert (refused.status, refused.error["parameter"]) == (400, parameter)
    assert "what is masked cannot be searched" in refused.error["message"]


def test_pages_of_messages_that_hold_a_mask_up_end_in_time_and_come_to_an_end(tmp_path: Path) -> None:
    """What was read for all clients is masked when the one that had it read is gone."""
    writer = StoreWriter(tmp_path / "store")
    for _ in range(4):
        writer.append("T", b"a." * 20_000, keys="key")
    waits = {"REAL_TOPIC": "T", "REAL_QID": "0", "DELAY": "5"}
    for _ in range(2):
        writer.append("SCHEDULE_TOPIC_XXXX", b"a." * 20_000, queue_id=4, properties=waits)
    writer.close()
    api = ApiOf(writer.root, masked=(r"/\b[\w.]+@[\w.]+\b/",))
    pages = api.pages("/messages", topic="T", milliseconds=1)
    assert [line["preview"] for page in pages for line in page["messages"]] == ["***"] * 4
    assert all(len(page["messages"]) <= 1 for page in pages)
    pages = api.pages("/find", text="key", milliseconds=1)
    assert [line["physicalOffset"] for page in pages for line in page["messages"]] == [
        each.physical_offset for each in reversed(writer.written[:4])
    ]
    assert all(len(page["messages"]) <= 1 for page in pages)
    for _ in range(2):
        answer = api.done("/pending")
        assert [line["message"]["preview"] for line in answer["messages"]] == ["***"] * 2
