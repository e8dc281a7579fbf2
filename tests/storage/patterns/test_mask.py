"""A mask hides what `re` hides, whatever the text, and none of its rules is held up by any."""

import json
import pickle
import re
from operator import mul

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asked_patterns import recorded
from message_encoding import encode_message
from protocol.mask import Mask
from protocol.message import Message, decode_message
from storage.patterns._pattern_process import PATIENCE
from storage.patterns.mask import BoundedMask, mask_of
from storage.patterns.processes import PatternLimit, PatternsStopped

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
    mask = mask_of((f"/{pattern}/",)).for_one_run()  # other tests of the process may have the same mask
    assert mask.texts(some) == [re.sub(pattern, "***", text) for text in some]
    assert [mask.text(text) for text in some] == mask.texts(some)
    assert not mask.hidden_whole


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
    given: list[Message] = []
    with pytest.raises(PatternLimit):
        given.extend(mask.messages(messages))
    assert [bytes(each.stored_body) for each in given] == [b"***"] * len(given)
    assert 0 < len(given) == mask.hidden_whole < 10
    assert len(list(mask.messages(messages[:2]))) == 2
    assert len(list(mask.messages([decode_message(encode_message(topic="T", body=b"a"))] * 100))) == 100


@pytest.mark.parametrize(
    ("pattern", "text"),
    [EXPONENTIAL, *(pytest.param(*each, marks=pytest.mark.soak) for each in (QUADRATIC, POLYNOMIAL))],
)
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
        pytest.param("$[?match(@.a, '(a|aa)+b')]", marks=pytest.mark.soak),
        pytest.param("$[?@.a =~ /(a|aa)+b/]", marks=pytest.mark.soak),
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
        mask.for_one_run(is_over).text(EXPONENTIAL[1])
    assert not waits
    assert mask.text("aab") == "***"
    assert not mask.hidden_whole


def test_a_mask_goes_to_another_process_as_its_rules() -> None:
    mask = pickle.loads(pickle.dumps(mask_of(("keys", "/a/"))))
    assert (mask, type(mask)) == (mask_of(("keys", "/a/")), BoundedMask)
    assert mask.text("a") == "***"


def test_a_body_of_some_megabytes_is_not_held_up_by_what_is_documented() -> None:
    text = "Order 4711 of Kunde Müller: 3 × Apfel, to be left at the door. " * 30_000
    mask = BoundedMask((f"/{DOCUMENTED}/", "$..phone", r"/1[3-9]\d{9}/"))
    assert mask.bodies([text.encode(), b'"' + text.encode() + b' li@example.com"']) == [b"***"] * 2, "no JSON"
    mask = BoundedMask((f"/{DOCUMENTED}/", r"/1[3-9]\d{9}/"))
    (shown,) = mask.bodies([(text + "li@example.com").encode()])
    assert bytes(shown) == (text + "***").encode()
    assert not mask.hidden_whole


@pytest.mark.soak
def test_a_message_of_very_many_texts_without_end_is_soon_given_up() -> None:
    """32 KB of properties may be a thousand such texts; the bound is one of the message, not of each."""
    hostile = {f"p{number}": "a" * 40 + f"!{number}" for number in range(500)}
    mask = BoundedMask((f"/{EXPONENTIAL[0]}/",))
    shown = mask.property_texts({"before": "b", **hostile})
    assert set(shown) == {"before", *hostile}
    assert set(shown.values()) == {"***"}
    assert mask.hidden_whole >= 500


SLOW = "a." * 2_000
"""On which the documented pattern takes long, and comes to an end in time."""

MANY = st.lists(st.sampled_from(["short", "aab", "li@example.com", *["endless"] * 3, *["slow"] * 2]), max_size=24)


@settings(max_examples=3, deadline=None)
@given(MANY, st.booleans())
def test_messages_that_take_their_time_up_soon_get_little_and_others_are_what_they_were(
    kinds: list[str], as_bodies: bool
) -> None:
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
    alone = [mask.texts(few), mask.texts(many), mask.texts(["x", "aab"])]
    assert alone == [["x", *["***"] * 3, "y"], ["***"] * 6, ["x", "***"]]
    texts, owners = [*few, *many, "x", "aab"], [0] * 5 + [1] * 6 + [2] * 2
    assert mask.texts(texts, owners) == [shown for each in alone for shown in each]
    assert mask.texts(texts[::-1], owners[::-1])[::-1] == mask.texts(texts, owners)


ATOMS = st.sampled_from(["a", "ab", ".", r"\w", r"\d", "[ab]", r"\w\d?", "a?b", r"\s", "(a|ab)", "(a)"])


@st.composite
def costly_patterns(draw: st.DrawFn) -> str:
    """A pattern of nested, neighbouring or referenced repeats, most of which take very long on some texts."""
    nested = st.recursive(
        st.builds("{}{}".format, ATOMS, st.sampled_from(["", "+", "*", "{1,9}"])),
        lambda inner: st.one_of(
            st.builds("(?:{}){}".format, inner, st.sampled_from(["+", "*", "+?", "{2,}"])),
            st.builds("(?:{}|{})*".format, inner, inner),
            st.builds("{}{}".format, inner, inner),
        ),
        max_leaves=5,
    )
    kind = draw(st.sampled_from(["nested", "polynomial", "reference"]))
    if kind == "nested":
        return draw(nested) + draw(st.sampled_from(["!", "$", "", "(?!.)"]))
    if kind == "polynomial":
        return draw(ATOMS) + draw(st.sampled_from([r".*", r"\w*", r"\w*\d*"])) * draw(st.integers(2, 6)) + "!"
    return f"({draw(nested)})" + r".*\1" * draw(st.integers(1, 3)) + "!"


def is_rule(pattern: str) -> bool:
    """Whether a mask takes a pattern: it is one, and matches something."""
    try:
        return not re.search(pattern, "")
    except re.error:
        return False


@settings(max_examples=3)
@given(
    st.lists(costly_patterns().filter(is_rule), min_size=1, max_size=2),
    st.lists(st.builds(mul, st.sampled_from(["a", "ab", "a1", "a.", "é", "a b"]), st.integers(0, 3000)), max_size=3),
    st.sampled_from(["", "!", "@b"]),
)
def test_drawn_patterns_hide_what_they_hide_with_re_or_all(patterns: list[str], some: list[str], end: str) -> None:
    """Only what is hidden whole need not be what `re` makes of it, which here is not waited for."""
    rules = [f"/{pattern}/" for pattern in patterns]
    texts = [text + end for text in some] + [text[:8] + end for text in some]
    for shown in (
        [str(body, "utf-8") for body in BoundedMask(rules).bodies([text.encode() for text in texts])],
        BoundedMask(rules).texts(texts, range(len(texts))),
    ):
        for text, left in zip(texts, shown, strict=True):
            if left != "***":
                assert left == Mask(rules).text(text)
    for pattern in patterns:  # on texts of four characters, for which no pattern takes long, the answer is that of re
        short = [text[: 4 - len(end)] + end for text in some]
        assert BoundedMask((f"/{pattern}/",)).texts(short) == [re.sub(pattern, "***", text) for text in short]
