"""What commands show to people and to programs, and what `--mask` and `--mask-file` hide of it."""

import io
import os
import pty
import re
import subprocess
import sys
import termios
from zoneinfo import ZoneInfo

import msgspec
import pytest

from command_line import rocketlens
from message_encoding import encode_message
from protocol.message import HostAddress, decode_message
from rocketlens.cli.coverage_picture import draw_coverage
from rocketlens.cli.output import growing_writer, message_fields, write_details
from rocketlens.cli.show_progress import LINE_SECONDS, PhaseMeter, ProgressLines
from rocketlens.cli.show_report import MOST_REPORTED, report_lines
from spark_jobs.commands.store_report import StoreDetails
from spark_jobs.run.report import AnyReport, Damage
from still_clock import StillClock
from storage.doctor.examine import Coverage
from store_kinds import RULES, SECRETS, hidden_stores
from store_writer import StoreWriter

V4 = HostAddress("10.0.0.1", 10911)


def message(body=b"hello", *, sys_flag=0, properties=None):
    properties = {"UNIQ_KEY": "U1", "KEYS": "a b", "TAGS": "G"} if properties is None else properties
    places = {"queue_id": 3, "queue_offset": 5, "physical_offset": 4096, "prepared_transaction_offset": 9}
    hosts = {
        "born_timestamp": 1_700_000_000_123,
        "born_host": V4,
        "store_timestamp": 1_700_000_000_456,
        "store_host": V4,
    }
    fields = {"flag": 7, "sys_flag": sys_flag, "reconsume_times": 2}
    record = encode_message(topic="T", body=body, properties=properties, **places, **hosts, **fields)
    return decode_message(record)


def write_list(messages, charset=None) -> None:
    growing_writer("table", charset)(messages)


def test_nothing_a_message_holds_is_obeyed_by_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    nasty = "\x1b]0;title\x07\x9b31m\u202e"
    properties = {"UNIQ_KEY": nasty, "KEYS": nasty, "TAGS": nasty, nasty: nasty}
    for write in (write_list, write_details):
        write([message(nasty.encode(), properties=properties)])
        shown = capsys.readouterr().out
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
        assert "\\x1b]0;title" in shown


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


def run_on_a_terminal(arguments: list[str], columns: int = 80, **variables: str) -> bytes:
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


def test_a_row_is_a_line_in_a_pipe_and_a_record_of_lines_where_a_terminal_is_too_narrow(g1_store, monkeypatch) -> None:
    arguments = ["search", str(g1_store), "--contains", "hot 3", "--limit", "3"]
    monkeypatch.setenv("COLUMNS", "20")  # of a pipe nothing says how wide it is
    heading, *rows = rocketlens(*arguments).text.splitlines()
    assert [each for each in ("MESSAGE ID", "TOPIC", "BODY") if each not in heading] == []
    names = re.split(r" {2,}", heading.strip())
    assert len(rows) > 2
    assert all(re.search(r"\b[0-9A-F]{56}\b", row) for row in rows)

    number_ends = heading.index("PHYSICAL") + len("PHYSICAL")
    assert all(row[number_ends - 1].isdigit() and row[number_ends] == " " for row in rows)
    coloured = run_on_a_terminal(arguments, 400).decode()
    assert "\x1b[1m" in coloured
    wide = re.sub("\x1b\\[[0-9;]*m", "", coloured).splitlines()
    assert [line.rstrip() for line in wide] == [line.rstrip() for line in (heading, *rows)]

    narrow = run_on_a_terminal(arguments, 40, NO_COLOR="1").decode().replace("\r\n", "\n")
    records = [record.splitlines() for record in narrow.strip("\n").split("\n\n")]
    assert len(records) == len(rows)
    for record, row in zip(records, rows, strict=True):
        assert [re.split(r" {2,}", line.rstrip(), maxsplit=1)[0] for line in record] == names
        values = [re.split(r" {2,}", line.rstrip(), maxsplit=1)[1:] for line in record]
        assert [value for each in values for value in each if value not in row] == []


def test_json_is_indented_on_a_terminal_alone(capsys, monkeypatch) -> None:
    one = message(b'{"id":1.50,"a":[1]}')
    write_details([one])
    assert '{"id":1.50,"a":[1]}' in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    write_details([one])
    shown = re.sub("\x1b\\[[0-9]*m", "", capsys.readouterr().out)
    words = "body {", '"id": 1.50,', '"a": [', "1", "]", "}"
    assert [line.split() for line in shown.splitlines()[-6:]] == [each.split() for each in words]


def picture(log, queues=(), index=(), width=28) -> list[str]:
    times = ((0, 1_700_000_000_000), (100, 1_700_000_100_000))
    return list(draw_coverage(Coverage(0, 200, log, queues, index, times), width, time_text))


def time_text(timestamp: int) -> str:
    return f"2023-11-14 {timestamp:08}"[:19]


def test_each_column_says_all_some_or_none() -> None:
    lines = picture(((0, 200),), ((0, 95),), ((50, 60), (190, 200)))
    assert lines[0] == "log     " + "█" * 20
    assert lines[1] == "queues  " + "█" * 9 + "▒" + "·" * 10
    assert lines[2] == "index   " + "·" * 5 + "█" + "·" * 13 + "█"
    assert lines[3] == "offset  " + "0" + " " * 16 + "200"


def test_a_meter_tells_share_messages_rate_and_what_is_left() -> None:
    clock = StillClock()
    meter = PhaseMeter("scan", 4_000_000_000, "bytes", clock)
    meter.update(0, 0)
    assert meter.state() == "0 of 4 GB"
    clock.seconds += 2
    meter.update(1_000_000_000, 2_000_000)
    assert meter.state() == "1 of 4 GB · 2,000,000 messages · 500 MB/s · 0:00:06 left"
    clock.seconds += 8
    meter.update(4_000_000_000, 8_000_000)
    assert meter.state() == "4 of 4 GB · 8,000,000 messages · 400 MB/s"
    assert meter.outcome() == "4 GB · 8,000,000 messages · 10.0 s · 400 MB/s"


def test_without_a_terminal_there_is_a_line_now_and_then_and_one_at_the_end() -> None:
    clock, stream = StillClock(), io.StringIO()
    lines = ProgressLines(stream, clock)
    lines.begin("scan", 2_000_000, "bytes")
    for done in range(0, 2_000_001, 50_000):
        lines.update(done, done // 100)
        clock.seconds += 0.25 if done < 2_000_000 else 0
    lines.end()
    assert LINE_SECONDS == 5
    assert [line.removeprefix("rocketlens: scan: ") for line in stream.getvalue().splitlines()] == [
        "1 of 2 MB · 10,000 messages · 200 kB/s · 0:00:05 left",
        "2 of 2 MB · 20,000 messages · 200 kB/s",
        "2 MB · 20,000 messages · 10.0 s · 200 kB/s",
    ]


ZEROS = "expected an intact record, found zeros (10 bytes skipped)"
INDEX = {"slots": 97, "entries": 150, "profile": "5.5", "kept": ["1", "2"], "built": ["3"], "reasons": ["3: not full"]}


def report(**fields) -> AnyReport:
    return AnyReport(**{"command": "rebuild", "store": "/store", "out": "/store", "details": StoreDetails(), **fields})


def damages(count: int) -> list[Damage]:
    return [Damage("/store/commitlog/0", 100 * number, 10, "an intact record", "zeros") for number in range(count)]


def test_a_rebuild_of_the_index() -> None:
    details = msgspec.convert({"index": INDEX, "backups": ["/store/index.bak-1"]}, StoreDetails)
    counts = {"bytes": 4_294_967_296, "messages": 8_388_608, "entries": 33_554_432}
    told = report(**counts, seconds=12.34, steady_seconds=4, details=details, notes=["a segment is empty"])
    assert list(report_lines(told)) == [
        "rebuilt /store in 12.3 s: 4.29 GB of log, 8,388,608 messages, 33,554,432 index entries "
        "(1.07 GB/s, 8.39 million entries/s)",
        "index: 1 file built, 2 kept; 97 slots and 150 entries in each file, profile 5.5",
        "index: 3: not full",
        "note: a segment is empty",
        "backup: /store/index.bak-1",
    ]


@pytest.mark.parametrize(
    ("count", "more", "last"),
    [
        (1, 0, f"damage: /store/commitlog/0 at physical offset 0: {ZEROS}"),
        (20, 0, f"damage: /store/commitlog/0 at physical offset 1900: {ZEROS}"),
        (23, 0, "damage: and 3 more; --json lists all"),
        (21, 5, "damage: and 6 more"),
    ],
)
def test_the_first_places_of_damage_are_listed(count: int, more: int, last: str) -> None:
    told = report_lines(report(damages=damages(count), more_damages=more))
    lines = [line for line in told if line.startswith("damage")]
    places = f"{count + more} place" + "s" * (count + more > 1)
    assert lines[0] == f"damage: {places}, {count * 10} bytes skipped"
    assert lines[-1] == last
    assert len(lines) == 1 + min(count, MOST_REPORTED) + (count + more > MOST_REPORTED)


ZONE = ZoneInfo("Asia/Kathmandu")
"""Nobody's default, and no whole number of hours from UTC."""

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"

TOPIC = ("--topic", "TopicTest")

COMMANDS = {"find": ("STORE", UNIQUE_KEY), "tail": ("STORE", *TOPIC, "-n", "1"), "pending": ("WAITING",)}
COMMANDS |= {"life": ("STORE", "--unique-key", UNIQUE_KEY), "space": ("STORE", "--by", "hour")}
"""What shows times in columns."""


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    writer = StoreWriter(tmp_path_factory.mktemp("waiting") / "store")
    writer.append("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "B", "DELAY": "18"}, queue_id=17, unique_key="K5")
    writer.close()
    return writer.root


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_columns_of_times_name_the_zone_and_have_its_offset(g1_store, waiting, command) -> None:
    places = {"STORE": g1_store, "WAITING": waiting}
    arguments = [places.get(each, each) for each in COMMANDS[command]]
    text = rocketlens(command, *arguments, "--timezone", ZONE.key).text
    assert re.search(r"\b(STORED|TIME|DUE|HOUR) \(Asia/Kathmandu\)", text)
    assert re.search(r"\d\d:\d\d:\d\d\.\d{3}\+05:45\b", text)
    assert "+00:00" not in text
    shown = rocketlens(command, *arguments, "--timezone", "+08:00").text
    assert re.search(r"\b(STORED|TIME|DUE|HOUR) \(UTC\+08:00\)", shown)


def test_a_diagnosis_and_what_a_store_says_of_itself_are_in_the_zone(g1_store) -> None:
    first, *lines = rocketlens("doctor", g1_store, "--timezone", ZONE.key).text.splitlines()
    assert first.endswith("; times: Asia/Kathmandu")
    (times,) = (line for line in lines if line.startswith("time "))
    # g1 was recorded from 06:45:05 UTC on.
    assert times.split()[1:3] == ["2026-11-21", "12:30:05"]
    assert "+05:45 (" in rocketlens("info", g1_store, "--timezone", ZONE.key).text


FIRST, SECOND = SECRETS

MASKED = [
    *(("find", "OFFSET"), ("find", "BATCH"), ("find", "order-1", "--as", "key", "--topic", "T"), ("find", "order-1")),
    *(
        ("find", FIRST, "--as", "key", "--topic", "T"),
        ("find", f"T{FIRST}", "--as", "tag", "--topic", "T"),
        ("find", FIRST),
    ),
    *(("find", f"U-{FIRST}", "--as", "unique-key", "--topic", "T"), ("find", f"U-{FIRST}"), ("find", f"T{FIRST}")),
    *(("life", "--unique-key", f"U-{FIRST}"), ("life", "--unique-key", "U0"), ("find", "-f", "KEYS"), ("pending",)),
    *(("tail", "--topic", "T"), ("tail", "--topic", "B"), ("tail", "--topic", "T", "--tag", f"A || T{FIRST}")),
    *(("tail", "--topic", "T", "--where", f"to <> '{FIRST}'"), ("search", "--topic", "T", "--tag", "*")),
    *(("search", "--topic", "T", "--tag", "A", "--explain"), ("search", "--topic", "B", "--tag", "*")),
    *(("search", "--topic", "T", "--where", f"NOT to = '{FIRST}'", "--explain"), ("search",), ("space", "--by", "tag")),
    *(("search", "--contains", FIRST), ("search", "--contains", FIRST, "--in", "any"), ("search", "--key", FIRST)),
    *(("search", "--regex", f"^(?!.*{FIRST})"), ("search", "--regex", f"{FIRST}", "--in", "properties")),
    *(
        ("search", "--json-path", f"$.phone={FIRST}"),
        ("search", "--where", f"to <> '{FIRST}'"),
        ("search", "--tag", "A"),
        ("search", "--topic", "T", "--where", f"TAGS IN ('T{FIRST}', '***')"),
    ),
    *(("search", "--key-prefix", FIRST[:4]), ("search", "--tag", f"T{FIRST}"), ("search", "--key-prefix", "order")),
    *(("search", "--where", f"to > '{FIRST[:5]}'"), ("search", "--contains", "n", "--topic", "B")),
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return hidden_stores(tmp_path_factory.mktemp("hidden"))


def run(store, command, *options):
    keys = store.root.parent / "keys"
    keys.write_text(f"order-1\n{FIRST}\nU0\n")
    words = {"OFFSET": store.written[1].physical_offset, "BATCH": store.written[-1].physical_offset, "KEYS": keys}
    name, *arguments = command
    return rocketlens(name, store.root, *(words.get(word, word) for word in arguments), *options)


def same_of(outcome) -> list[str]:
    return [line for line in outcome.text.splitlines() if '"kind":"forecast"' not in line]


def masks(rules: tuple[str, ...]) -> list[str]:
    return [text for rule in rules for text in ("--mask", rule)]


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        pytest.param(
            command, rules, id=f"{' '.join(command)}-{name}", marks=[pytest.mark.soak] * ((one + other) % 8 > 0)
        )
        for one, command in enumerate(MASKED)
        for other, (name, rules) in enumerate(RULES.items())
    ],
)
def test_no_command_tells_two_stores_apart_that_differ_in_what_is_hidden(stores, command, rules) -> None:
    first, second = (run(store, command, *masks(rules), "--json") for store in stores)
    assert (first.code, same_of(first)) == (second.code, same_of(second))
    assert first.code in (0, 1, 2), first.errors
    asked = FIRST in " ".join(command) or "KEYS" in command
    assert SECOND not in first.text + first.errors + second.text + second.errors
    assert FIRST not in first.text + second.text
    assert asked or FIRST not in first.errors + second.errors


def test_without_a_mask_they_are_told_apart(stores) -> None:
    some = MASKED[::3]
    differ = [run(stores[0], each).output != run(stores[1], each).output for each in some]
    assert sum(differ) > len(some) // 2


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (("find", "k", "--as", "key", "--topic", "T"), "keys"),
        (("find", "A", "--as", "tag", "--topic", "T"), "tags"),
        (("search", "--contains", "x"), "body"),
        (("search", "--where", "to = 'x'"), "properties.to"),
        (("search", "--born-host", "10.0.0.1"), "hosts"),
        (("life", "--unique-key", "U0"), "properties"),
        (("search", "--topic", "T", "--tag", "A"), "tags"),
        (("tail", "--topic", "T", "--where", "to = 'x'"), "properties.to"),
    ],
)
def test_what_is_masked_cannot_be_searched(stores, command, rule) -> None:
    outcome = run(stores[0], command, "--mask", rule)
    assert (outcome.code, outcome.output) == (2, b"")
    assert "what is masked cannot be searched" in outcome.errors


@pytest.mark.parametrize(
    "command",
    [
        ("find", "U0", "--as", "unique-key", "--server", "127.0.0.1:1"),
        ("find", "7F00000100002A9F00000000000019B5", "--from-id"),
        ("find", "k", "--as", "key", "--topic", "T", "--server", "127.0.0.1:1"),
    ],
    ids=" ".join,
)
def test_no_server_is_asked_with_a_mask_wherever_it_comes_from(command, monkeypatch) -> None:
    typed = rocketlens(*command, "--mask", "keys")
    monkeypatch.setenv(f"ROCKETLENS_{command[0].upper()}_MASK_FILE", "/no/such/file")
    for outcome in (typed, rocketlens(*command)):
        assert (outcome.code, outcome.output) == (2, b"")
        assert "are for a STORE, not for a server" in outcome.errors
