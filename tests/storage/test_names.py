"""Names that people type, with and without slips of the finger."""

from storage.names import MOST_COMPARED, did_you_mean, names_holding, similar_names

TOPICS = ["%DLQ%GroupA", "%RETRY%GroupA", "SixTopic", "TBW102", "TopicTest", "TopicTx", "orders", "orders-eu", "order"]


def test_the_name_that_was_meant_comes_first() -> None:
    for typed, meant in [
        ("SixTopc", "SixTopic"),
        ("sixtopic", "SixTopic"),
        ("TopicTets", "TopicTest"),
        ("ordres", "orders"),
        ("oders_eu", "orders-eu"),
        ("%DLQ%groupa", "%DLQ%GroupA"),
        ("DLQGroupA", "%DLQ%GroupA"),
    ]:
        assert similar_names(typed, TOPICS)[0] == meant


def test_a_name_like_none_is_not_guessed() -> None:
    for typed in ("", "payments", "x", "Topic" * 40):
        assert similar_names(typed, TOPICS) == []


def test_at_most_three_are_proposed_and_never_the_name_itself() -> None:
    names = [f"topic-{number}" for number in range(10)]
    proposed = similar_names("topic-3", names)
    assert len(proposed) == 3
    assert "topic-3" not in proposed


def test_names_that_differ_in_case_alone_are_all_proposed() -> None:
    assert set(similar_names("ORDERS", ["Orders", "orders"])) == {"Orders", "orders"}


def test_very_many_names_are_compared_up_to_a_bound() -> None:
    names = [f"t{number:07d}" for number in range(MOST_COMPARED + 5)]
    assert similar_names("t0000000x", names)[0] == "t0000000"


def test_a_question_names_what_is_proposed() -> None:
    assert did_you_mean([]) == ""
    assert did_you_mean(["a"]) == "did you mean a?"
    assert did_you_mean(["a", "b", "c"]) == "did you mean a, b or c?"


def test_names_that_hold_a_text_are_found_in_any_case() -> None:
    assert names_holding(TOPICS, "ORDER") == ["orders", "orders-eu", "order"]
    assert names_holding(TOPICS, "groupa") == ["%DLQ%GroupA", "%RETRY%GroupA"]
