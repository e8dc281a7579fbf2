"""One box for anything: what a recorded producer and mqadmin know of a message is enough to find it."""

import pytest

from golden_store import G1
from web_questions import ApiOf


def printed(name: str) -> list[list[str]]:
    """The rows that mqadmin printed under a heading."""
    lines = (G1 / "mqadmin-out" / f"{name}.txt").read_text("utf-8").splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize(("text", "name"), [("hotkey", "queryMsgByKey-hot"), ("Aa", "queryMsgByKey-collide")])
def test_a_key_is_found_where_mqadmin_found_it(api: ApiOf, text: str, name: str) -> None:
    found = [each for page in api.pages("/find", text=text, limit=7) for each in page["messages"]]
    by_key = [each for each in found if each["foundBy"] == "key" and each["topic"] == "TopicTest"]
    wanted = [(row[0], int(row[1]), int(row[2])) for row in printed(name)]
    assert [(each["uniqueKey"], each["queueId"], each["queueOffset"]) for each in reversed(by_key)] == wanted


def test_topics_that_may_be_meant_are_named_where_nothing_is_found(api: ApiOf) -> None:
    assert api.get("/find", text="TopicTets")["similarTopics"][0] == "TopicTest"
    assert api.get("/find", text="hotkey", topic="TopicTets")["similarTopics"][0] == "TopicTest"
    assert api.get("/find", text="hotkey")["similarTopics"] == []
    assert api.get("/message/life", uniqueKey="nobody", topic="TopicBtach")["similarTopics"] == ["TopicBatch"]
    for path in ("/topic", "/messages", "/histogram"):
        answer = api.ask(path, topic="TopicBtach")
        assert (answer.status, answer.error["message"]) == (
            404,
            "the store has no topic TopicBtach; did you mean TopicBatch?",
        )
        assert answer.error["similarTopics"] == ["TopicBatch"]


def test_little_time_makes_many_answers_that_are_the_same_together(api: ApiOf) -> None:
    whole = [each["physicalOffset"] for each in api.get("/find", text="TagA", limit=200)["messages"]]
    pages = api.pages("/find", text="TagA", milliseconds=1, limit=2)
    assert len(pages) > 1
    assert [each["physicalOffset"] for page in pages for each in page["messages"]] == whole


def test_a_cursor_of_nobody_is_refused(api: ApiOf) -> None:
    for cursor in ("x", "e30", "WzEsMiwzXQ", "ÿ"):
        assert api.ask("/find", text="a", cursor=cursor).error["parameter"] == "cursor"
