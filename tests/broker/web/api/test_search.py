"""Search by content over the API: what a recorded producer sent is found, and no expression can hold the server up."""

import time
from pathlib import Path

import pytest

from store_writer import StoreWriter
from web_questions import ApiOf


def test_a_search_goes_on_by_cursor_and_says_how_far_it_is(api: ApiOf) -> None:
    whole = [each["physicalOffset"] for each in api.get("/search", contains="hot ", limit=200)["messages"]]
    assert len(whole) == 40
    pages = api.pages("/search", contains="hot ", limit=7)
    assert [each["physicalOffset"] for page in pages for each in page["messages"]] == whole
    assert [len(page["messages"]) for page in pages[:5]] == [7] * 5
    assert all(page["sentence"].startswith("searched ") for page in pages)


def test_a_search_from_a_time_before_now_goes_on_with_the_times_of_its_answer(
    api: ApiOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = api.get("/search", contains="hot ", limit=200)
    assert (whole["begin"], whole["end"]) == (0, None)
    times = [each["storeTimestamp"] for each in whole["messages"]]
    monkeypatch.setattr("storage.times.time.time_ns", lambda: (times[9] + 60_000) * 1_000_000)
    page = api.get("/search", contains="hot ", begin="-1m", limit=7)
    monkeypatch.undo()
    assert page["begin"] == times[9]
    wrong = api.ask("/search", contains="hot ", begin="-1m", cursor=page["cursor"])
    assert (wrong.status, wrong.error["parameter"]) == (400, "cursor")
    rest = api.get("/search", contains="hot ", begin=page["begin"], limit=200, cursor=page["cursor"])
    found = [each["storeTimestamp"] for each in (*page["messages"], *rest["messages"])]
    assert found == [each for each in times if each >= times[9]]


LONG = "x" * 500 + " \n before it  order-4711 behind it " + "y" * 500


@pytest.fixture(scope="module")
def matched(tmp_path_factory: pytest.TempPathFactory) -> ApiOf:
    writer = StoreWriter(tmp_path_factory.mktemp("matched") / "store")
    writer.append("orders", LONG.encode(), properties={"region": "hz order-12"})
    writer.append("orders", b"order-4711")
    writer.append("orders", "Bestellung 4711".encode("utf-16-le"), keys="binary")
    writer.append("orders", "订单 order-4711".encode("gbk"))
    writer.close()
    return ApiOf(writer.root)


def test_the_match_is_shown_with_the_text_around_it(matched: ApiOf) -> None:
    for conditions, expected in (
        ({"contains": "order-4711"}, ["order-4711"] * 2),
        ({"regex": "order-[0-9]+"}, ["order-4711"] * 2),
        ({"contains": "order-12", "place": "properties"}, ["order-12"]),
        ({"regex": "order-(12|99)", "place": "any"}, ["order-12"]),
        ({"contains": "订单", "charset": "gbk"}, ["订单"]),
        ({"tag": "none", "topic": "orders"}, []),
    ):
        found = [each["match"] for each in matched.get("/search", **conditions)["messages"]]
        assert [match for _, match, _ in (each for each in found if each is not None)] == expected, conditions
    before, _, behind = matched.get("/search", contains="order-4711")["messages"][0]["match"]
    assert (before[0], before[-11:], behind[:12], behind[-1]) == ("…", " before it ", " behind it y", "…")
    assert max(len(before), len(behind)) < 100


def test_a_match_that_a_mask_hides_is_not_shown(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("orders", b'{"card": "4711-0815", "id": "order-4711"}')
    writer.close()
    masked = ApiOf(writer.root, masked=("$.card",))
    (found,) = masked.get("/search", contains="4711")["messages"]
    assert "0815" not in "".join(found["match"])


def test_expressions_that_run_in_a_process_of_their_own_find_the_same(api: ApiOf) -> None:
    answer = api.get("/search", topic="TopicTest", regex="^hot [0-9]$", limit=4)
    assert [each["preview"] for each in answer["messages"]] == ["hot 0", "hot 1", "hot 2", "hot 3"]
    rest = api.get("/search", topic="TopicTest", regex="^hot [0-9]$", limit=200, cursor=answer["cursor"])
    assert [each["preview"] for each in rest["messages"]] == [f"hot {number}" for number in range(4, 10)]
    assert rest["cursor"] is None


@pytest.mark.parametrize(
    "place", ["any", *(pytest.param(each, marks=pytest.mark.soak) for each in ("body", "properties"))]
)
def test_a_message_that_would_hold_an_expression_up_for_ever_is_left_out_and_passed(tmp_path: Path, place: str) -> None:
    writer = StoreWriter(tmp_path / "store")
    held_up = [writer.append("orders", b"a" * 4000, keys="a" * 4000).physical_offset for _ in range(3)]
    found = writer.append("orders", b"aab", keys="aab").physical_offset
    writer.close()
    pages = ApiOf(tmp_path / "store").pages("/search", regex="^(a+)+b$", milliseconds=200, place=place)
    assert [each["physicalOffset"] for page in pages for each in page["messages"]] == [found]
    notes = " ".join(note for page in pages for note in page["notes"])
    assert "holds a pattern up without end" in notes
    assert all(str(offset) in notes for offset in held_up)


def test_what_cannot_be_searched_for_is_named(api: ApiOf) -> None:
    for parameters, wrong in (
        ({"regex": "("}, "regex"),
        ({"regex": "(?:" * 1000 + "a" + "{9}" * 9 + ")" * 1000}, "regex"),
        ({"jsonPath": "no value"}, "jsonPath"),
        ({"jsonPath": ("$[?@.a==1&&" + "@.b==1&&" * 500)[:4090] + "=1"}, "jsonPath"),
        ({"where": "a >"}, "where"),
        ({"tag": "||"}, "tag"),
        ({"bornHost": "no host"}, "bornHost"),
        ({"contains": "a", "cursor": "abc"}, "cursor"),
        ({"place": "nowhere"}, "place"),
        ({"begin": "5", "end": "4"}, "end"),
        ({"minimumSize": "5", "maximumSize": "4"}, "maximumSize"),
    ):
        before = time.process_time()
        answer = api.ask("/search", **parameters)
        assert (answer.status, answer.error["parameter"]) == (400, wrong), answer.content
        assert time.process_time() - before < 1.0, "what takes long to compile holds nobody up"
