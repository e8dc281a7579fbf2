"""fastjson's JSON against what a real broker wrote, in files and in bodies, and against input made to be slow."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_frames import parse_java_json, recorded_frames
from protocol.errors import ProtocolError
from protocol.fastjson import parse_fastjson

QUEUE_KEY = '{"brokerName":"b","queueId":0,"topic":"T"}'

PARSED: list[tuple[str, Any]] = [
    ("{}", {}),
    ("[]", []),
    ("null", None),
    (' {"a" : [1, -2.5, "x", true, null]}\n', {"a": [1, -2.5, "x", True, None]}),
    ("{0:1}", {"0": 1}),
    ("{-1:{2:3},4:[5,6]}", {"-1": {"2": 3}, "4": [5, 6]}),
    ('{\n\t"table":{\n\t\t"T@G":{\n\t\t\t0:2,\n\t\t\t1 : 2\n\t\t}\n\t}\n}', {"table": {"T@G": {"0": 2, "1": 2}}}),
    ('{0:"1:2,{3:4}"}', {"0": "1:2,{3:4}"}),
    (r'{0:"a\"1:","b\\":1}', {"0": 'a"1:', "b\\": 1}),
    (f"{{{QUEUE_KEY}:{{1:2}}}}", {QUEUE_KEY: {"1": 2}}),
    ('{{"topic":"T","queueId":0,"brokerName":"b"}:1}', {QUEUE_KEY: 1}),
    ('{ {"brokerName": "b", "queueId": 0, "topic": "T"} : 1, 2 : {} }', {QUEUE_KEY: 1, "2": {}}),
    ('{{"topic":"}:{"}:1}', {'{"topic":"}:{"}': 1}),
    ('{{"标签":"😀"}:1}', {'{"标签":"😀"}': 1}),
    ('{"a":1,"a":2}', {"a": 2}),
    (r'{"\ud800":"\udfff","x":"\ud83d\ude00"}', {"?": "?", "x": "😀"}),
    (r'{0:"\uDBFF"}', {"0": "?"}),
    ("\ufeff{}", {}),
    ("12", 12),
]

REFUSED = [
    "",
    " ",
    "{",
    "{0}",
    "{0:}",
    "{:1}",
    "{a:1}",
    "{'a':1}",
    '{"a":1,}',
    "[1:2]",
    "{1.5:2}",
    "{{}:1",
    '{{"a":{"b":1}}:1}',
    '"',
    '"\\',
    "NaN",
    '{"a":Infinity}',
    '{"a":1}x',
    "\0",
]

# Each would take minutes where a pattern goes back, or end in something else than our error.
SLOW = [
    '"' + '\\"' * 50_000,
    '"\\"' * 50_000,
    "{" * 50_000,
    "[" * 50_000,
    "{0:" * 50_000,
    '{"a' * 50_000,
    '{"' * 50_000,
    "{" + " " * 100_000,
    "{1" + " " * 100_000,
    "9" * 100_000,
    "{1 " * 50_000,
    "{}" * 50_000,
    "{1:" + "9" * 5_000 + "}",
]


def test_a_text_is_parsed() -> None:
    for text, value in PARSED:
        assert parse_fastjson(text) == value
        assert parse_fastjson(text.encode()) == value


def test_what_is_no_json_is_refused() -> None:
    for text in REFUSED:
        with pytest.raises(ProtocolError, match="no JSON"):
            parse_fastjson(text)


@pytest.mark.untraced  # at the end of the stack a tracer fails itself
@pytest.mark.parametrize("text", SLOW, ids=[text[:8] for text in SLOW])
def test_hostile_text_is_refused_without_going_back_and_forth(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_fastjson(text)


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert parse_fastjson(b'{"\xff":"\xed\xa0\x80"}') == {"\ufffd": "\ufffd"}


def test_an_error_says_where() -> None:
    with pytest.raises(ProtocolError, match=r"^no JSON at character 5: Expecting value$"):
        parse_fastjson('{"a":}')


def in_quotes(value: Any) -> Any:
    """What the independent reader makes of object keys, spelled as ours."""
    if isinstance(value, dict):
        return {compact(name): in_quotes(inner) for name, inner in value.items()}
    return [in_quotes(inner) for inner in value] if isinstance(value, list) else value


def compact(name: str) -> str:
    return json.dumps(json.loads(name), separators=(",", ":"), sort_keys=True) if name.startswith("{") else name


def test_every_recorded_json_body_equals_what_another_reader_makes_of_it() -> None:
    bodies = [frame.body for frame in recorded_frames() if frame.body[:1] == b"{"]
    assert len(bodies) > 300
    assert any(b"{{" in body for body in bodies)
    assert any(b"{0:" in body for body in bodies)
    for body in bodies:
        assert parse_fastjson(body) == in_quotes(parse_java_json(body.decode()))


def test_every_configuration_file_of_a_real_broker_is_parsed(g1_store: Path) -> None:
    files = sorted((g1_store / "config").glob("*.json*"))
    assert len(files) >= 12
    for path in files:
        assert parse_fastjson(path.read_bytes()) == in_quotes(parse_java_json(path.read_text()))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, st.booleans())
def test_json_proper_means_the_same(value: Any, ascii_only: bool) -> None:
    well_formed = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    assert parse_fastjson(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "replace")) == well_formed


@given(st.dictionaries(st.integers(-(2**63), 2**63), json_values, max_size=4))
def test_integer_keys_mean_the_same_with_and_without_quotes(table: dict[int, Any]) -> None:
    members = [(str(key), json.dumps(value)) for key, value in table.items()]
    quoted = "{" + ",".join(f'"{key}":{value}' for key, value in members) + "}"
    bare = "{" + ",".join(f"{key}:{value}" for key, value in members) + "}"
    assert parse_fastjson(bare) == parse_fastjson(quoted)
