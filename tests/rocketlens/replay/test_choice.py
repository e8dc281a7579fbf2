"""What is chosen of a source, and of the lines of a file that may have been edited."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocketlens
from command_line import rocketlens as command
from protocol.errors import ConfigError
from rocketlens.replay.choice import Chosen, LinesChoice, RememberedChoice, ReplayChoice, SourceChoice
from rocketlens.replay.resent import ResendManner, resent


def chosen(choice: ReplayChoice) -> list[Chosen]:
    return [each for piece in choice.pieces() for each in piece]


def refusals(lines: Sequence[object], tmp_path: Path) -> list[str]:
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return [each.refusal for each in chosen(LinesChoice(file))]


LINE: dict[str, Any] = {
    "topic": "Orders",
    "queueId": 1,
    "queueOffset": 5,
    "physicalOffset": 700,
    "storeTimestamp": 2,
    "storeHost": "127.0.0.1:10911",
    "bornTimestamp": 1,
    "uniqueKey": "U",
    "keys": ["a", "b"],
    "tags": "T",
    "properties": {"KEYS": "a  b", "TAGS": "T", "UNIQ_KEY": "U", "price": "5"},
    "flag": 3,
    "sysFlag": 0x101,
    "body": "text",
    "bodyEncoding": "text",
    "bodyError": None,
}


@pytest.mark.parametrize("of", ["export", "find"])
def test_what_an_export_wrote_is_sent_as_from_the_store(g1_store: Path, tmp_path: Path, of: str) -> None:
    file = tmp_path / "out" / "part-00000000000000000000.jsonl"
    if of == "export":
        command("export", g1_store, "--topic", "TopicTest", "--format", "jsonl", "--no-unpack", "--out", file.parent)
    else:
        file.parent.mkdir()
        file.write_bytes(command("search", g1_store, "TopicTest", "--json").output)
    with rocketlens.open(g1_store) as opened:
        expected = chosen(SourceChoice(opened, ["TopicTest"]))
    found = chosen(LinesChoice(file))
    assert [each.place for each in found] == [each.place for each in expected]
    for mine, source in zip(found, expected, strict=True):
        sent, other = resent(mine.message, ResendManner()), resent(source.message, ResendManner())
        assert not mine.refusal
        assert (sent.body, sent.flag, sorted(sent.properties.split(b"\x02"))) == (
            source.message.body,
            other.flag,
            sorted(other.properties.split(b"\x02")),
        )


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({}, ""),
        ({"body": "another", "properties": {**LINE["properties"], "price": "6"}}, ""),
        ({"tags": "Other"}, "its tags are another than in its properties"),
        ({"keys": ["c"]}, "its keys are another"),
        ({"uniqueKey": "V"}, "its uniqueKey are another"),
        ({"body": "***"}, "a part of it is masked"),
        ({"storeHost": "***"}, "a part of it is masked"),
        ({"properties": {**LINE["properties"], "price": "***"}}, "a part of it is masked"),
        ({"body": None}, "its body could not be read"),
        ({"body": "AA=", "bodyEncoding": "base64"}, "its body is no base64"),
        ({"bodyEncoding": "hex"}, "its body is no hex"),
        ({"bodyPackings": ["gzip"]}, "export it with --no-unpack"),
        ({"bodyError": "it ends early"}, "it ends early"),
        ({"properties": {**LINE["properties"], "a\x01b": "c"}}, "holds a separator"),
    ],
)
def test_an_edited_line_says_one_thing(tmp_path: Path, edit: dict[str, Any], reason: str) -> None:
    (refusal,) = refusals([LINE | edit], tmp_path)
    assert reason in refusal
    assert bool(reason) == bool(refusal)


@pytest.mark.parametrize(
    "number", [{"flag": 1 << 31}, {"physicalOffset": 1 << 63}, {"storeTimestamp": -(1 << 70)}, {"queueId": 1.5}]
)
def test_numbers_that_no_message_holds_are_named(tmp_path: Path, number: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"line 1: no message in JSON: .*{next(iter(number))}"):
        refusals([LINE | number], tmp_path)


def test_a_line_that_stands_twice_is_sent_once(tmp_path: Path) -> None:
    assert refusals([LINE, LINE], tmp_path) == ["", "the same message as line 1"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_what_is_no_message_is_named_with_its_line(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "lines"
    file.write_bytes(json.dumps(LINE).encode() + b"\n" + line.replace(b"\n", b"") + b"\n")
    if not line.strip():
        assert len(chosen(LinesChoice(file))) == 1
        return
    with pytest.raises(ConfigError, match="line 2: no message in JSON"):
        chosen(LinesChoice(file))


@pytest.mark.parametrize(("most", "most_bytes", "reads"), [(52, 10**6, 1), (51, 10**6, 2), (52, 1000, 2)])
def test_messages_are_read_once_where_they_are_few(g1_store: Path, most: int, most_bytes: int, reads: int) -> None:
    read = 0

    class Counted(SourceChoice):
        def pieces(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[list[Chosen]]:
            nonlocal read
            read += 1
            return super().pieces(should_stop)

    with rocketlens.open(g1_store) as opened:
        choice = RememberedChoice(Counted(opened, ["TopicTest"], is_masked=True), most, most_bytes)
        assert [each.place for each in chosen(choice)] == [each.place for each in chosen(choice)]
        assert choice.notes
    assert read == reads


def test_a_limit_counts_over_all_topics(g1_store: Path) -> None:
    with rocketlens.open(g1_store) as opened:
        topics = ["TopicDelay", "TopicTest", "BulkTopic"]
        found = chosen(SourceChoice(opened, topics, conditions={"limit": 5}))
    assert [each.message.topic for each in found] == ["TopicDelay"] + ["TopicTest"] * 4
