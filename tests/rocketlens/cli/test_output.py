"""Messages for people and for programs."""

import gzip
import os
import pty
import re
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from command_line import rocketlens
from message_encoding import encode_message
from protocol.message import HostAddress, Message, decode_message
from rocketlens.cli.output import growing_writer, json_fields, message_fields, time_text, write_details

V4 = HostAddress("10.0.0.1", 10911)


def message(body: bytes = b"hello", *, sys_flag: int = 0, properties: dict[str, str] | None = None) -> Message:
    record = encode_message(
        topic="T",
        body=body,
        properties={"UNIQ_KEY": "U1", "KEYS": "a b", "TAGS": "G"} if properties is None else properties,
        queue_id=3,
        flag=7,
        queue_offset=5,
        physical_offset=4096,
        sys_flag=sys_flag,
        born_timestamp=1_700_000_000_123,
        born_host=V4,
        store_timestamp=1_700_000_000_456,
        store_host=V4,
        reconsume_times=2,
        prepared_transaction_offset=9,
    )
    return decode_message(record)


def write_list(messages: list[Message], charset: str | None = None) -> None:
    growing_writer("table", charset)(messages)


def as_json(one: Message) -> dict[str, object]:
    fields = json_fields(one)
    assert isinstance(fields, dict)
    return fields


def test_json_has_every_field_of_the_record() -> None:
    one = message()
    assert as_json(one) == {
        "messageId": "U1",
        "uniqueKey": "U1",
        "offsetMessageId": "0A00000100002A9F0000000000001000",
        "topic": "T",
        "queueId": 3,
        "queueOffset": 5,
        "physicalOffset": 4096,
        "totalSize": one.total_size,
        "magic": 0xDAA320A7,
        "bodyCrc": one.body_crc,
        "flag": 7,
        "sysFlag": 0,
        "bornTimestamp": 1_700_000_000_123,
        "bornHost": "10.0.0.1:10911",
        "storeTimestamp": 1_700_000_000_456,
        "storeHost": "10.0.0.1:10911",
        "reconsumeTimes": 2,
        "preparedTransactionOffset": 9,
        "tags": "G",
        "keys": ["a", "b"],
        "properties": {"UNIQ_KEY": "U1", "KEYS": "a b", "TAGS": "G"},
        "body": "hello",
        "bodyEncoding": "text",
    }


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_body_that_an_application_packed_is_unpacked(
    pack: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    one = message(pack("消息 4711".encode()))
    name = pack.__module__.partition(".")[0].replace("zstandard", "zstd")
    fields = as_json(one)
    assert (fields["body"], fields["bodyEncoding"], fields["bodyPackings"]) == ("消息 4711", "text", [name])
    assert message_fields(one)["body"] == "消息 4711".encode()
    for write in (write_list, write_details):
        write([one])
        assert "消息 4711" in capsys.readouterr().out


def test_a_body_in_another_charset_is_text_when_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    one = message("订单".encode("gbk"))
    assert as_json(one)["bodyEncoding"] == "base64"
    assert json_fields(one, "gbk")["body"] == "订单"
    for write in (write_list, write_details):
        write([one], "gbk")
        assert "订单" in capsys.readouterr().out


def test_nothing_a_message_holds_is_obeyed_by_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    nasty = "\x1b]0;title\x07\x9b31m\u202e"
    properties = {"UNIQ_KEY": nasty, "KEYS": nasty, "TAGS": nasty, nasty: nasty}
    for write in (write_list, write_details):
        write([message(nasty.encode(), properties=properties)])
        shown = capsys.readouterr().out
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
        assert "\\x1b]0;title" in shown


def test_a_list_has_a_line_a_message_and_a_heading(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    write_list([message(b"one\ntwo"), message(b"x" * 500)])
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        "MESSAGE",
        "ID",
        "TOPIC",
        "QUEUE",
        "OFFSET",
        "PHYSICAL",
        "STORED",
        "(UTC)",
        "TAG",
        "KEYS",
        "BODY",
    ]
    assert first.split()[0] == "U1"
    number, name = first.split()[4], first.split()[1]
    assert first.index(f" {number} ") + len(f" {number}") == heading.index("PHYSICAL") + len("PHYSICAL")
    assert first.index(f" {name} ") + 1 == heading.index("TOPIC")
    assert "one two" in first
    assert second.rstrip().endswith("…")


def test_details_name_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    one = message()
    write_details([one, message(b"\xff\xfe")])
    shown = capsys.readouterr().out
    for name, value in message_fields(one).items():
        if name not in ("properties", "body"):
            assert name in shown, name
        if isinstance(value, int) and name not in ("magic", "bodyCrc"):
            assert str(value) in shown, name
    assert "property KEYS" in shown
    assert "0xdaa320a7" in shown
    assert "2 bytes that are not text, in base64: //4=" in shown


def test_times_are_local_and_what_is_no_date_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert time_text(1_700_000_000_456) == "2023-11-15 06:13:20.456+08:00"
        assert time_text(-1) == "1970-01-01 07:59:59.999+08:00"
        assert time_text(2**63 - 1) == str(2**63 - 1)
        assert time_text(-(2**63)) == str(-(2**63))
    finally:
        monkeypatch.undo()
        time.tzset()


def run_on_a_terminal(arguments: list[str], columns: int = 80, **variables: str) -> bytes:
    """What a command writes to a terminal of so many columns."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", **variables}
    with subprocess.Popen([sys.executable, "-m", "rocketlens", *arguments], stdout=slave, env=environment) as process:
        os.close(slave)
        written = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not piece:
                break
            written += piece
    os.close(master)
    assert process.returncode == 0
    return written


def test_a_row_is_a_line_in_a_pipe_and_a_record_of_lines_where_a_terminal_is_too_narrow(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["search", str(g1_store), "--contains", "hot 3", "--limit", "3"]
    monkeypatch.setenv("COLUMNS", "20")  # of a pipe nothing says how wide it is
    heading, *rows = rocketlens(*arguments).text.splitlines()
    assert [each for each in ("MESSAGE ID", "TOPIC", "BODY") if each not in heading] == []
    names = re.split(r" {2,}", heading.strip())
    assert len(rows) > 2
    assert all(re.search(r"\b[0-9A-F]{56}\b", row) for row in rows)

    wide = run_on_a_terminal(arguments, 400, NO_COLOR="1").decode().splitlines()
    assert [line.rstrip() for line in wide] == [line.rstrip() for line in (heading, *rows)]

    narrow = run_on_a_terminal(arguments, 40, NO_COLOR="1").decode().replace("\r\n", "\n")
    records = [record.splitlines() for record in narrow.strip("\n").split("\n\n")]
    assert len(records) == len(rows)
    for record, row in zip(records, rows, strict=True):
        assert [re.split(r" {2,}", line.rstrip(), maxsplit=1)[0] for line in record] == names
        values = [re.split(r" {2,}", line.rstrip(), maxsplit=1)[1:] for line in record]
        assert [value for each in values for value in each if value not in row] == []


def test_json_is_indented_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = message(b'{"id":1.50,"a":[1]}')
    write_details([one])
    assert '{"id":1.50,"a":[1]}' in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    write_details([one])
    shown = re.sub("\x1b\\[[0-9]*m", "", capsys.readouterr().out)
    assert [line.split() for line in shown.splitlines()[-6:]] == [
        *(["body", "{"], ['"id":', "1.50,"], ['"a":', "["], ["1"], ["]"], ["}"])
    ]


def test_nothing_is_bold_or_coloured_with_no_color(g1_store: Path) -> None:
    arguments = ["topics", str(g1_store), "--contains", "TopicTest"]
    assert b"\x1b[" in run_on_a_terminal(arguments)
    plain = run_on_a_terminal(arguments, NO_COLOR="1")
    assert b"\x1b" not in plain
    assert b"TopicTest" in plain
