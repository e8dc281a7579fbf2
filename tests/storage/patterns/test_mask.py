"""A mask hides what `re` hides, whatever the text, and none of its rules is held up by any."""

import json
import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asked_patterns import recorded
from examples import examples
from message_encoding import encode_message
from protocol.mask import Mask
from protocol.message import decode_message
from storage.patterns._pattern_process import PATIENCE
from storage.patterns.mask import BoundedMask, mask_of
from storage.patterns.processes import PatternLimit, PatternsStopped

DOCUMENTED = r"\b[\w.]+@[\w.]+\b"
PATTERNS = (
    DOCUMENTED, r"1[3-9]\d{9}", r"\d+", r"\w+", r"\W", r"\s", r"\S+\b", r"\B.", r"(?i)straße|ǆ", r"[^\W\d_]+", r"(.)\1",
    r"(?<=a).", r"^.|.$", r"(?m)^.", r"(?s)a.b", r"[à-ý]{2}", r"(?:a|ab)(?:c|bcd)", r"(?a)\w+", r"x*?y|é",
)  # fmt: skip

EXPONENTIAL = (r"(a+)+b", "a" * 60)

texts = st.one_of(
    st.text(max_size=40),
    st.text("aAbß 12٣³_.@-é中文\u00a0\u0085\u2028\n\x1c\U0001d7d8𝒜ıİſKǅ\u0301\u200d", max_size=40),
    st.sampled_from(["张三@example.com", "a@b.c 消息 13812345678", "ſtraſſe STRASSE Straße", "１３８１２３４５６７８"]),
)


@settings(max_examples=examples(12))
@given(st.sampled_from(PATTERNS), st.lists(texts, max_size=5))
def test_a_pattern_hides_in_texts_what_it_hides_with_re(pattern: str, some: list[str]) -> None:
    mask = mask_of((f"/{pattern}/",)).for_one_run()  # other tests of the process may have the same mask
    assert mask.texts(some) == [re.sub(pattern, "***", text) for text in some]
    assert [mask.text(text) for text in some] == mask.texts(some)
    assert not mask.hidden_whole


@settings(max_examples=examples(8))
@given(st.lists(st.sampled_from([*(f"/{each}/" for each in PATTERNS), "$..a", "$.b[*]"]), max_size=3), texts)
def test_bodies_are_what_the_mask_alone_makes_of_them(rules: list[str], text: str) -> None:
    mask, alone = mask_of(tuple(rules)), Mask(rules)
    bodies = [text.encode(), json.dumps({"a": text, "b": [text, 1.5], text: {"a": 1}}).encode(), b"\xff", b""]
    assert mask.bodies(bodies) == [alone.body(body) for body in bodies]
    assert all((shown is body) == (shown == body) for shown, body in zip(mask.bodies(bodies), bodies, strict=True))


def test_a_record_of_thousands_of_messages_without_end_is_soon_given_up() -> None:
    pattern, text = EXPONENTIAL
    record = encode_message(topic="T", body=text.encode())
    mask, messages = BoundedMask((f"/{pattern}/",)), [decode_message(record)] * 1_000
    given = []
    with pytest.raises(PatternLimit):
        given.extend(mask.messages(messages))
    assert [bytes(each.stored_body) for each in given] == [b"***"] * len(given)
    assert 0 < len(given) == mask.hidden_whole < 10
    assert len(list(mask.messages(messages[:2]))) == 2
    assert len(list(mask.messages([decode_message(encode_message(topic="T", body=b"a"))] * 100))) == 100


def test_what_a_pattern_does_not_come_to_an_end_with_is_hidden_whole_and_counted() -> None:
    pattern, text = EXPONENTIAL
    mask = BoundedMask((f"/{pattern}/",))
    assert mask.texts(["before", text, "13812345678", "x"]) == ["before", "***", "13812345678", "x"]
    assert (mask.hidden_whole, mask.bodies([b"before", text.encode(), b"x"])) == (1, [b"before", b"***", b"x"])
    assert (mask.hidden_whole, mask.body(json.dumps([text]).encode())) == (2, b"***")


@pytest.mark.parametrize("path", ["$[?search(@.a, '(a|aa)+$')]", "$[?search(@.a, @.its)]"])
def test_a_pattern_in_a_path_is_a_pattern_too_and_so_is_one_in_the_message(path: str) -> None:
    mask = BoundedMask((path,))
    assert mask.body(json.dumps([{"a": "a" * 80 + "!", "its": "(a|aa)+$"}]).encode()) == b"***"
    assert (mask.hidden_whole, mask.body(b'[{"a":"b"}]')) == (1, b'[{"a":"b"}]')


def test_who_waits_no_more_has_it_stopped() -> None:
    mask = mask_of((f"/{EXPONENTIAL[0]}/",))
    waits = [True]

    def is_over() -> bool:
        waits.pop()
        return True

    with pytest.raises(PatternsStopped):
        mask.for_one_run(is_over).text(EXPONENTIAL[1])
    assert not waits
    assert mask.text("aab") == "***"
    assert not mask.hidden_whole


def test_a_mask_goes_to_another_process_as_its_rules() -> None:
    mask = pickle.loads(pickle.dumps(mask_of(("keys", "/a/"))))
    assert (mask, type(mask)) == (mask_of(("keys", "/a/")), BoundedMask)
    assert mask.text("a") == "***"


SLOW = "a." * 2_000
"""On which the documented pattern takes long, and comes to an end in time."""

MANY = st.lists(st.sampled_from(["short", "aab", "li@example.com", *["endless"] * 3, *["slow"] * 2]), max_size=24)


@settings(max_examples=examples(2), deadline=None)
@given(MANY, st.booleans())
def test_messages_that_take_their_time_up_soon_get_little_and_others_are_what_they_were(kinds, as_bodies) -> None:
    rules = (f"/{EXPONENTIAL[0]}/", f"/{DOCUMENTED}/")
    texts = [{"endless": "a" * 60, "slow": SLOW}.get(kind, kind) + f" {number}" for number, kind in enumerate(kinds)]
    mask = BoundedMask(rules).for_one_run()
    with recorded() as asked:
        if as_bodies:
            shown = [str(body, "utf-8") for body in mask.bodies([text.encode() for text in texts])]
        else:
            shown = mask.texts(texts, range(len(texts)))
    assert asked.patient <= PATIENCE
    assert asked.brief <= 2 * sum(kind in ("endless", "slow") for kind in kinds)
    assert mask.hidden_whole == shown.count("***")
    for kind, text, left in zip(kinds, texts, shown, strict=True):
        if kind == "endless":
            assert left == "***"
        elif kind != "slow" or left != "***":
            assert left == Mask(rules).text(text)


def test_what_is_hidden_of_a_message_does_not_hang_on_others_beside_it() -> None:
    few, many = [["x", *("a" * 40 + f"!{number}" for number in range(count)), "y"] for count in (3, 4)]
    mask = BoundedMask((f"/{EXPONENTIAL[0]}/",))
    alone = ["x", *["***"] * 3, "y", *["***"] * 6, "x", "***"]
    texts, owners = [*few, *many, "x", "aab"], [0] * 5 + [1] * 6 + [2] * 2
    assert mask.texts(texts, owners) == alone
    assert mask.texts(texts[::-1], owners[::-1])[::-1] == alone
