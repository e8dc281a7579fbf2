"""`rocketlens search`: the messages that it lists, what it writes to stderr, and how it ends."""

import contextlib
import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import search_oracle
from command_line import rocketlens
from oracles import read_log
from rocketlens.cli.search import stopping
from rocketlens.cli.search_progress import SearchProgress
from storage.search.criteria import Criteria, SearchPlace
from storage.search.progress import ProgressReport
from store_writer import START_TIMESTAMP, StoreWriter


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("search") / "store"
    writer = StoreWriter(root)
    for number in range(20):
        writer.append(
            "TU"[number % 2],
            json.dumps({"order": {"id": number, "name": f"n{number}"}}).encode() + b" " * number,
            keys=f"order-{number}",
            tags="AB"[number % 2],
            properties={"n": str(number)},
            born_host=(f"10.0.0.{number}", 80),
        )
    writer.close()
    return root


def offsets(root: Path, *arguments: object) -> list[int]:
    return [message["physicalOffset"] for message in rocketlens("search", root, *arguments, "--json").messages]


@pytest.mark.parametrize(
    ("arguments", "criteria"),
    [
        ((), Criteria()),
        (("--topic", "T"), Criteria(topic="T")),
        (("--contains", "order-1", "--in", "properties"), Criteria(contains=b"order-1", place=SearchPlace.PROPERTIES)),
        (("--regex", r"n\d\d"), Criteria(regex=r"n\d\d")),
        (("--json-path", "$.order.id=7"), Criteria(json_path="$.order.id=7")),
        (("--json-path", "$.order.name=n7"), Criteria(json_path="$.order.name=n7")),
        (("--where", "n BETWEEN 3 AND 5"), Criteria(where="n BETWEEN 3 AND 5")),
        (("--tag", "A", "--topic", "T"), Criteria(tag="A", topic="T")),
        (("--key", "order-2", "--topic", "T"), Criteria(key="order-2", topic="T")),
        (("--key-prefix", "order-1"), Criteria(key_prefix="order-1")),
        (("--born-host", "10.0.0.4/30"), Criteria(born_host="10.0.0.4/30")),
        (("--size", "40..45"), Criteria(minimum_size=40, maximum_size=45)),
        (
            ("--since", START_TIMESTAMP + 3, "--until", START_TIMESTAMP + 5),
            Criteria(begin_timestamp=START_TIMESTAMP + 3, end_timestamp=START_TIMESTAMP + 5),
        ),
    ],
    ids=str,
)
def test_each_option_finds_what_a_loop_finds(root: Path, arguments: tuple[object, ...], criteria: Criteria) -> None:
    expected = [offset for offset, _ in search_oracle.hits(read_log(root / "commitlog"), criteria)]
    assert expected
    assert offsets(root, *arguments) == expected


def test_a_search_from_a_time_before_now_goes_on_as_its_last_line_says(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = [message["storeTimestamp"] for message in rocketlens("search", root, "--json").messages]
    monkeypatch.setattr("storage.times.time.time_ns", lambda: (stored[5] + 60_000) * 1_000_000)
    outcome = rocketlens("search", root, "--since", "-1m", "--limit", 10, "--json")
    found = [message["storeTimestamp"] for message in outcome.messages]
    assert len(found) == 10
    monkeypatch.undo()
    more = outcome.errors.partition("continue with ")[2].split()
    found += [message["storeTimestamp"] for message in rocketlens("search", root, *more, "--json").messages]
    assert found == [each for each in stored if each >= stored[5]]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--regex", "("), "is no regular expression"),
        (("--json-path", "$.a"), "is no JSONPath=VALUE"),
        (("--where", "a >"), "expected a property or a value"),
        (("--born-host", "no host"), "is no address"),
        (("--size", "big"), "is no size"),
        (("--cursor", "xyz"), "cursor 'xyz' is not valid"),
        (("--contains", ""), "contains: expected something"),
        (("--topic", "\udcff"), "topic: '\\udcff' is no text, its bytes are no UTF-8"),
        (("--since", "5", "--until", "4"), "--since 5 is after --until 4"),
    ],
)
def test_what_cannot_be_is_wrong_usage(root: Path, arguments: tuple[str, ...], reason: str) -> None:
    outcome = rocketlens("search", root, *arguments)
    assert outcome.code == 2
    assert reason in outcome.errors


def test_a_signal_asks_a_search_to_stop_and_leaves_the_handlers_as_they_were() -> None:
    before = signal.getsignal(signal.SIGINT)
    for number in (signal.SIGINT, signal.SIGTERM):
        with stopping() as should_stop:
            assert not should_stop()
            signal.raise_signal(number)
            assert should_stop()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_stopped_search_is_code_130_and_tells_where_to_go_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    @contextlib.contextmanager
    def after_a_while() -> Iterator[Callable[[], bool]]:
        yield lambda: len(asked) > 6 or bool(asked.append(None))

    whole = offsets(root)
    monkeypatch.setattr("rocketlens.cli.search.stopping", after_a_while)
    outcome = rocketlens("search", root, "--json")
    assert outcome.code == 130
    cursor = outcome.errors.partition("--cursor ")[2].split()[0]
    monkeypatch.undo()
    first = [message["physicalOffset"] for message in outcome.messages]
    assert 0 < len(first) < len(whole)
    assert first + offsets(root, "--cursor", cursor) == whole


def test_messages_are_written_aside_of_the_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with SearchProgress() as progress:
        progress.show(ProgressReport(10**9, 2 * 10**9, 3, 1.0))
        with progress.aside():
            terminal.write("a message\n")
        progress.show(ProgressReport(2 * 10**9, 2 * 10**9, 3, 2.0))
    assert "searched 1 of 2 GB (50 %), 3 found, 1 GB/s, 0:00:01 left" in terminal.getvalue()
    assert "a message\n" in terminal.getvalue()


def test_a_whole_log_is_read_if_that_is_asked_for(g1_store: Path) -> None:
    asked = ("search", g1_store, "--topic", "TopicTest", "--key", "hotkey", "--json")
    by_index, by_log = rocketlens(*asked), rocketlens(*asked, "--exhaustive")
    assert by_log.output == by_index.output
    assert len(by_log.messages) == 40
    assert "40 records were found by the index" in by_index.errors
    assert "by the index" not in by_log.errors
