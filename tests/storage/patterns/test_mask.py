"""A mask hides what `re` hides, whatever the text, and none of its rules is held up by any."""

import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.mask import Mask
from storage.patterns.mask import BoundedMask, mask_of
from storage.patterns.processes import PatternsStopped

DOCUMENTED = r"\b[\w.]+@[\w.]+\b"
PATTERNS = (
    DOCUMENTED, r"1[3-9]\d{9}", r"\d+", r"\w+", r"\W", r"\s", r"\S+\b", r"\B.", r"(?i)straße|ǆ", r"[^\W\d_]+", r"(.)\1",
    r"(?<=a).", r"^.|.$", r"(?m)^.", r"(?s)a.b", r"[à-ý]{2}", r"(?:a|ab)(?:c|bcd)", r"(?a)\w+", r"x*?y|é",
)  # fmt: skip

QUADRATIC, EXPONENTIAL = (DOCUMENTED, "a." * 20_000), (r"(a+)+b", "a" * 60)
POLYNOMIAL = (r"(?:\w*\d*)*[;]", "1a" * 40)

texts = st.one_of(
    st.text(max_size=40),
    st.text("aAbß 12٣³_.@-é中文\u00a0\u0085\u2028\n\x1c\U0001d7d8𝒜ıİſKǅ\u0301\u200d", max_size=40),
    st.sampled_from(["张三@example.com", "a@b.c 消息 13812345678", "ſtraſſe STRASSE Straße", "１３８１２３４５６７８"]),
)


@given(st.sampled_from(PATTERNS), st.lists(texts, max_size=5))
def test_a_pattern_hides_in_texts_what_it_hides_with_re(pattern: str, some: list[str]) -> None:
    mask = mask_of((f"/{pattern}/",))
    assert mask.texts(some) == [re.sub(pattern, "***", text) for text in some]
    assert [mask.text(text) for text in some] == mask.texts(some)
    assert not mask.hidden_whole


@given(st.lists(st.sampled_from([*(f"/{each}/" for each in PATTERNS), "$..a", "$.b[*]"]), max_size=3), texts)
def test_bodies_are_what_the_mask_alone_makes_of_them(rules: list[str], text: str) -> None:
    mask, alone = mask_of(tuple(rules)), Mask(rules)
    bodies = [text.encode(), json.dumps({"a": text, "b": [text, 1.5], text: {"a": 1}}).encode(), b"\xff", b""]
    assert mask.bodies(bodies) == [alone.body(body) for body in bodies]
    assert all((shown is body) == (shown == body) for shown, body in zip(mask.bodies(bodies), bodies, strict=True))


def test_a_lone_surrogate_which_java_may_have_stays() -> None:
    assert mask_of(("/b+/",)).texts(["a\ud800b", "\udc00"]) == ["a\ud800***", "\udc00"]


@pytest.mark.parametrize(("pattern", "text"), [QUADRATIC, EXPONENTIAL, POLYNOMIAL])
def test_what_a_pattern_does_not_come_to_an_end_with_is_hidden_whole_and_counted(pattern: str, text: str) -> None:
    mask = BoundedMask((f"/{pattern}/",))
    assert mask.texts(["before", text, "13812345678", "x"]) == ["before", "***", "13812345678", "x"]
    assert mask.hidden_whole == 1
    assert mask.bodies([b"before", text.encode(), b"x"]) == [b"before", b"***", b"x"]
    assert mask.hidden_whole == 2
    assert mask.body(json.dumps([text]).encode()) == b"***"


@pytest.mark.parametrize(
    "path",
    [
        "$[?search(@.a, '(a|aa)+$')]",
        "$[?match(@.a, '(a|aa)+b')]",
        "$[?@.a =~ /(a|aa)+b/]",
        "$[?search(@.a, @.its)]",
    ],
)
def test_a_pattern_in_a_path_is_a_pattern_too_and_so_is_one_in_the_message(path: str) -> None:
    mask = BoundedMask((path,))
    assert mask.body(json.dumps([{"a": "a" * 80 + "!", "its": "(a|aa)+$"}]).encode()) == b"***"
    assert mask.hidden_whole == 1
    assert mask.body(b'[{"a":"b"}]') == b'[{"a":"b"}]'


def test_who_waits_no_more_has_it_stopped() -> None:
    mask = mask_of((f"/{EXPONENTIAL[0]}/",))
    waits = [True]

    def is_over() -> bool:
        waits.pop()
        return True

    with pytest.raises(PatternsStopped):
        mask.while_waited_for(is_over).text(EXPONENTIAL[1])
    assert not waits
    assert mask.text("aab") == "***"
    assert not mask.hidden_whole


def test_what_is_counted_is_counted_for_all_who_use_the_mask() -> None:
    mask = BoundedMask((f"/{EXPONENTIAL[0]}/",))
    assert mask.while_waited_for(lambda: False).text(EXPONENTIAL[1]) == "***"
    assert mask.hidden_whole == 1


def test_a_mask_goes_to_another_process_as_its_rules() -> None:
    mask = pickle.loads(pickle.dumps(mask_of(("keys", "/a/"))))
    assert (mask, type(mask)) == (mask_of(("keys", "/a/")), BoundedMask)
    assert mask.text("a") == "***"


def test_a_value_that_a_pattern_does_not_come_to_an_end_with_cannot_be_searched_for() -> None:
    with pytest.raises(Exception, match="is masked by a pattern"):
        BoundedMask((f"/{EXPONENTIAL[0]}/",)).refuse_value("keys", EXPONENTIAL[1])


def test_a_body_of_some_megabytes_is_not_held_up_by_what_is_documented() -> None:
    text = "Order 4711 of Kunde Müller: 3 × Apfel, to be left at the door. " * 30_000
    mask = BoundedMask((f"/{DOCUMENTED}/", "$..phone", r"/1[3-9]\d{9}/"))
    assert mask.bodies([text.encode(), b'"' + text.encode() + b' li@example.com"']) == [b"***"] * 2, "no JSON"
    mask = BoundedMask((f"/{DOCUMENTED}/", r"/1[3-9]\d{9}/"))
    (shown,) = mask.bodies([(text + "li@example.com").encode()])
    assert bytes(shown) == (text + "***").encode()
    assert not mask.hidden_whole
