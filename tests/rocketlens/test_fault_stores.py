"""Small stores of faults that people met (`tests/golden/cases`), asked by the command, in Python and by the page's API.

What is true of each is in its README: it comes from RocketMQ's own code and the records written, not from RocketLens.
"""

import codecs
import json
import re
import time
from datetime import UTC, datetime

import pytest

import rocketlens
from broker_harness import service_of, serving_in_a_thread
from command_line import rocketlens as command
from golden_store import CASES, G1, unpack
from protocol.message import decode_message
from storage.store.message_store import MessageStore
from storage.times import parse_time
from store_writer import StoreWriter, appended, closed_store
from web_questions import ApiOf


@pytest.fixture
def case(request, tmp_path):
    """The store of the case that a test names."""
    return unpack("store", tmp_path, archives=CASES / request.param)


def in_case(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [name], indirect=True)


@pytest.mark.parametrize(
    ("since", "until", "count"),
    [
        ("20240531083000", None, 3),
        ("20240531083000123", None, 2),
        (None, "20240531082958", 2),
        ("202405310830", None, 3),
        ("20240531", None, 6),
        ("202406", None, 0),
        ("2024053108", "2024053109", 6),
        ("1717144200", None, 3),
    ],
)
@in_case("B8-digits-as-times")
def test_digits_are_the_times_that_they_say(case, since, until, count) -> None:
    times = [each for name, text in (("--since", since), ("--until", until)) if text for each in (name, text)]
    outcome = command("search", case, *times, "--timezone", "UTC", "--json")
    assert len(outcome.messages) == count
    answer = ApiOf(case).ask("/search", begin=since, end=until, timezone="UTC", where="a IS NULL OR a = 1")
    assert len(answer.json["messages"]) == count
    with rocketlens.open(case) as store:
        # Seconds since 1970 have no zone.
        begin, end = (text if text in (None, "1717144200") else f"{text} UTC" for text in (since, until))
        assert len(list(store.search(begin=begin, end=end))) == count


@in_case("B8-digits-as-times")
def test_numbers_that_are_no_times_are_refused_by_every_surface(case) -> None:
    for number in ("20241331083000", "1717144200000000"):
        assert command("search", case, "--since", number).code == 2
        assert ApiOf(case).ask("/search", begin=number, contains="a").status == 400
        with rocketlens.open(case) as store:
            for value in (number, int(number)):
                with pytest.raises(rocketlens.ConfigError, match="neither milliseconds nor a time"):
                    list(store.search(begin=value))


@pytest.mark.parametrize(
    ("path", "found"),
    [("$.id=3", 1), ("$.y=4711", 1), ("$.id=1", 2), ("$.id=77", 1), ("$.id=2", 1), ("$.id=9007199254740993", 1)],
)
@in_case("C7-json-numbers")
def test_numbers_beyond_a_double_and_a_mark_hide_no_body_from_a_path(case, path, found) -> None:
    assert len(command("search", case, "--json-path", path, "--json").messages) == found
    assert len(ApiOf(case).ask("/search", jsonPath=path).json["messages"]) == found
    with rocketlens.open(case) as store:
        assert len(list(store.search(json_path=path))) == found


@in_case("B14-compressed-twice")
def test_bodies_that_were_packed_otherwise_are_found_shown_and_exported_unpacked_unless_told_not_to(case) -> None:
    found = {each["keys"][0]: each for each in command("search", case, "--contains", "4711", "--json").messages}
    packings = {key: each["bodyPackings"] for key, each in found.items()}
    assert packings == {
        "twice": ["zlib"], "plainflag": ["zlib"], "c3gzip": ["gzip"], "c4raw": ["deflate"], "plaingzip": ["gzip"],
    }  # fmt: skip
    assert all(each["body"].startswith('{"order":4711,') for each in found.values())
    assert {key for key, each in found.items() if "bodyNote" in each} == {"c3gzip", "c4raw"}
    assert found["c3gzip"]["bodyNote"] == "sysFlag says zlib, and the body is gzip"
    api = ApiOf(case)
    assert len(api.ask("/search", contains="4711").json["messages"]) == len(found)
    shown = {key: api.ask("/message", offset=each["physicalOffset"]).json for key, each in found.items()}
    assert {key: each["bodyPackings"] for key, each in shown.items()} == packings
    assert {each["bodyKind"] for each in shown.values()} == {"json"}
    assert shown["c4raw"]["bodyNote"] == "sysFlag says zlib, and the body is deflate"
    with rocketlens.open(case) as store:
        assert {message.keys[0] for message in store.search(contains="4711")} == set(found)
    sent = {"twice", "plainflag", "c3gzip", "plaingzip"}  # to whose consumers something packed comes
    for options, packed in (((), set()), (("--no-unpack",), sent)):
        out = case.parent / f"out{len(options)}"
        outcome = command("export", case, "--format", "jsonl", "--out", out, "--columns", "keys,body", *options)
        assert ("4 bodies were packed when sent, and written unpacked" in outcome.text) == (not packed)
        lines = (line for path in out.glob("part-*") for line in path.read_text().splitlines())
        bodies = {row["keys"][0]: row["body"] for row in map(json.loads, lines)}
        assert {*bodies} == sent | {"c4raw"}
        assert {key for key, body in bodies.items() if not body.startswith('{"order":4711,')} == packed


@in_case("A5-flag-says-compressed")
def test_plain_bodies_under_the_flag_of_a_compression_are_read_as_they_are(case) -> None:
    outcome = command("search", case, "--contains", "471", "--json")
    found = {each["keys"][0]: each for each in outcome.messages}
    assert list(found) == ["k0", "k1", "k2", "k3", "k4"]
    expected = [f'{{"order":{number}}}' for number in range(4711, 4716)]
    assert [each["body"].rstrip() for each in found.values()] == expected
    notes = [each.get("bodyNote") for each in found.values()]
    kinds = ("zlib", "zlib", "LZ4", "zstd")
    assert notes == [*(f"sysFlag says {kind}, and the body is not compressed" for kind in kinds), None]
    assert "1 record whose body cannot be decompressed" in outcome.errors  # k5, which is named
    (odd,) = command("find", case, "k5", "--json").messages
    assert (odd["bodyEncoding"], "bodyNote" in odd) == ("base64", False)
    assert odd["bodyError"]


@pytest.mark.parametrize("charset", ["gbk", "shift_jis"])
def test_a_body_of_another_charset_is_said_once_with_the_option_that_reads_it(charset, tmp_path) -> None:
    text = {"gbk": "订单已付款，请尽快发货", "shift_jis": "ご注文ありがとうございます"}[charset]
    messages = (appended("T", text.encode(charset), keys=f"k{each}", unique_key=f"U{each}") for each in range(3))
    writer = closed_store(tmp_path / "store", *messages)
    hint = f"a body looks like {charset.upper()}: --charset {charset} shows such bodies as text"
    found = [("find", writer.root, "k1", *more) for more in ((), ("--full",), ("--json",))]
    for arguments in (*found, ("search", writer.root), ("tail", writer.root, "T")):
        assert command(*arguments).errors.count(hint) == 1, arguments
        read = command(*arguments, "--charset", charset)
        assert "looks like" not in read.errors
        assert text in read.text
    shown = ApiOf(writer.root).ask("/message", offset=0).json
    assert (shown["bodyKind"], shown["bodyLooksLike"]) == ("binary", charset)
    assert ApiOf(writer.root).ask("/message", offset=0, charset=charset).json["bodyLooksLike"] is None


@in_case("A6-csv")
def test_no_text_of_an_exported_table_is_a_formula_and_a_spreadsheet_is_told_the_charset(case) -> None:
    def exported(*options: str) -> bytes:
        out = case.parent / "_".join(("out", *options))
        columns = ("--columns", "keys,body,store_timestamp")
        outcome = command("export", case, "--format", "csv", "--out", out, *columns, *options)
        assert outcome.code == 0, outcome.errors
        (part,) = out.glob("part-*")
        return part.read_bytes()

    plain, excel, exact = exported(), exported("--excel"), exported("--keep-formulas")
    assert plain.startswith(b"keys,body,body_encoding,store_timestamp\r\n")
    assert "'=1+1,订单 已付款,utf-8,".encode() in plain
    assert excel.startswith(codecs.BOM_UTF8)
    assert "'=1+1,订单 已付款,utf-8,20".encode() in excel
    times = [row.rsplit(b",", 1)[1] for row in plain.splitlines()[1:]]
    shown = [row.rsplit(b",", 1)[1].decode() for row in excel.splitlines()[1:]]
    assert [f"{datetime.fromtimestamp(int(each) / 1000, UTC):%FT%T}" for each in times] == [each[:19] for each in shown]
    assert "\r\n=1+1,订单 已付款".encode() in exact


def test_a_table_that_began_some_time_ago_goes_on_from_there(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store")
    now = time.time_ns() // 1_000_000
    writer.append("T", b"old", store_timestamp=now - 2 * 3_600_000)
    writer.append("T", b"new", store_timestamp=now)
    writer.close()
    table = tmp_path / "table"
    to = ("export", writer.root, "--format", "jsonl", "--to", table, "--since-last", "--since")
    assert command(*to, "-1h").code == 0
    assert command(*to, "-1s").code == 0
    said = command(*to, "2024-05-31T00:00Z").errors
    made = re.search(r"the table was made with --since (\S+), and this run is with --since (\S+)", said)
    assert made[2] == "2024-05-31T00:00:00.000Z"
    assert now - 3_700_000 < parse_time(made[1]) < now
    assert "with --since" in command(*to[:-1]).errors
    assert "without --since" in command(*to[:-1]).errors
    rows = [json.loads(line) for path in table.glob("data/part-*") for line in path.read_text().splitlines()]
    assert [row["body"] for row in rows] == ["new"]
    assert "--until -1m is another time in each run" in command(*to, "-1h", "--until", "-1m").errors


@in_case("B4-keys-with-blanks")
def test_keys_that_a_blank_has_split_are_found_by_their_words_and_alone(case) -> None:
    for arguments in ((), ("--topic", "orders", "--as", "key")):
        blank = command("find", case, "order 4711", *arguments, "--json")
        assert [each["body"] for each in blank.messages] == ["blank"]
        assert "RocketMQ splits KEYS at blanks; looked for each of order, 4711" in blank.errors
        one = command("find", case, "order-1", *arguments, "--json")
        assert [each["keys"] for each in one.messages] == [["[order-1,", "order-2]"]]
        assert "order-1: is a key only as [order-1,: KEYS was a list" in one.errors
        assert "did you mean" not in one.errors
    vain = command("find", case, "order-7")
    assert vain.code == 1
    assert "a part of a body is found by `search --contains`; keys are compared whole" in vain.errors


def test_a_message_whose_checksum_is_wrong_is_said_to_be_damaged_where_its_keys_are_asked_for(tmp_path) -> None:
    store = unpack("store", tmp_path, archives=G1)
    log = store / "commitlog" / f"{0:020}"
    with log.open("r+b") as file:
        head = file.read(1000)
        first = decode_message(head[: int.from_bytes(head[:4])])
        file.seek(head.index(first.body))
        file.write(bytes([first.body[0] ^ 1]))
    damaged = "1 message that may be meant is damaged, at physical offset 0 (its body does not match its CRC)"
    check_is_missed(store, first.keys[0], damaged)
    check_is_missed(store, first.unique_key or "", damaged)
    left_out = f"queue {first.queue_id}: 1 message is left out at queue offset {first.queue_offset}: damaged"
    with serving_in_a_thread(service_of(MessageStore.open(store))) as server:
        for source in (store, server):
            outcome = command("tail", source, first.topic, "-n", 1000, "--json")
            assert (left_out in outcome.errors, outcome.errors.count("left out")) == (True, 1)


def check_is_missed(store, text, damaged) -> None:
    with serving_in_a_thread(service_of(MessageStore.open(store))) as server:
        for arguments in [(name, source, text) for name in ("find", "life") for source in (store, server)]:
            outcome = command(*arguments)
            assert (outcome.code, outcome.errors.count(damaged)) == (1, 1), outcome.errors
    assert damaged in ApiOf(store).ask("/find", text=text).json["incomplete"]
