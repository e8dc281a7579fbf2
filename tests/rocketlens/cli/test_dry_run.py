"""`--dry-run` of rebuild, compact, convert and rescue: what is printed; nothing is changed."""

import json
import shutil
from pathlib import Path

import pytest

import read_only
from command_line import rocketlens
from loop_engine import run_jobs_here
from rocketlens.cli import command_run
from store_writer import appended, closed_store

SLOTS, ENTRIES, QUEUE_FILE = 97, 150, 2000


class NoEngine:
    def __init__(self, *_: object) -> None:
        raise AssertionError("a plan asks for an engine")


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a plan asks for an engine")

    monkeypatch.setattr(command_run, "check_spark", fail)
    run_jobs_here(monkeypatch, NoEngine)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    sizes = {"index_slots": SLOTS, "index_entries": ENTRIES, "queue_file_size": QUEUE_FILE}
    messages = (appended("T", b"body", keys=f"k{number}", unique_key=f"u{number}", tags="t") for number in range(400))
    closed_store(tmp_path / "store", *messages, segment_size=1 << 17, **sizes)
    return tmp_path / "store"


def plan(*arguments: object) -> list[str]:
    outcome = rocketlens(*arguments, "--dry-run")
    assert (outcome.code, outcome.errors) == (0, "")
    return outcome.text.splitlines()


@pytest.mark.parametrize("command", ["rebuild queues", "compact index"])
def test_a_topic_that_the_store_does_not_have_is_said_with_those_that_may_be_meant(command, g1_store) -> None:
    named = (part for topic in ("TopicTst", "TopicTest", "%LMQ%a") for part in ("--topic", topic))
    lines = plan(*command.split(), g1_store, *named)
    assert lines[-1] == "plan: there is no topic TopicTst; did you mean TopicTest or TopicTx?"


def test_sizes_are_those_of_the_store_and_nothing_is_changed(root: Path) -> None:
    before = read_only.state_of(root)
    newest = max(path.name for path in (root / "index").iterdir())
    lines = plan("rebuild", "all", root)
    assert lines[0].startswith(f"plan: rebuild {root}: reads ")
    replaces = "replaces the store's own directories in one step each, and keeps the old ones as NAME.bak-TIME"
    assert lines[1] == f"plan: {replaces}"
    assert lines[2].startswith("plan: disk: about ")
    assert f" at {root}/.rocketlens-work, of " in lines[2]
    assert lines[3].startswith("plan: time: about ")
    assert [line.partition("plan: ")[2] for line in lines[4:]] == [
        f"index files of 97 slots and 150 entries, 3.43 kB each whatever it holds: as {newest} has",
        f"profile 5.5: as {newest} was written",
        "files of 2,000 bytes in consumequeue: as most of the store's files have",
    ]
    assert read_only.difference(before, read_only.state_of(root)) == {}


def test_what_nothing_shows_any_more_is_called_a_guess_with_its_option(root: Path) -> None:
    for name in ("index", "consumequeue"):
        shutil.rmtree(root / name)
    assert plan("rebuild", "all", root, "--out", root.parent / "out")[4:] == [
        "plan: index files of 5,000,000 slots and 20,000,000 entries, 420 MB each whatever it holds: a broker's "
        "defaults (guessed: no index file is left that shows its own; --slots and --entries give the broker's "
        "maxHashSlotNum and maxIndexNum)",
        "plan: profile 5.5: a broker's from 5.4 on (guessed: no index file shows it; --profile gives another)",
        "plan: files of 6,000,000 bytes in consumequeue: a broker's default (guessed: no file of consumequeue is left; "
        "--queue-file-size gives another)",
    ]
    assert not (root.parent / "out").exists()


def test_light_queues_extensions_and_sizes_are_inferred_from_what_is_left(root: Path) -> None:
    shutil.move(root / "consumequeue", root / "consumequeue.bak-20260102030405")
    topics = json.loads((root / "config" / "topics.json").read_text())
    table = topics["topicConfigTable"]
    table["%LMQ%light"] = table["T"] | {"topicName": "%LMQ%light"}
    (root / "config" / "topics.json").write_text(json.dumps(topics))
    assert plan("rebuild", "queues", root)[4:] == [
        "plan: light queues are made, since config/topics.json has %LMQ%light (guessed: none is left in the store)",
        "plan: files of consumequeue get 2,000 bytes, as those of consumequeue.bak-20260102030405 have (guessed: no "
        "other is left)",
    ]


def test_a_rescue_is_planned_with_its_copy_of_the_log_and_what_will_be_lost(root, tmp_path, monkeypatch) -> None:
    run_jobs_here(monkeypatch)
    shutil.copytree(root, tmp_path / "copy")
    offsets = {"offsetTable": {"T@g": {"0": 100}}}
    for store in (root, tmp_path / "copy"):
        (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    units = (root / "consumequeue" / "T" / "0" / "00000000000000000000").read_bytes()
    places = [int.from_bytes(units[20 * number :][:8], "big") for number in (97, 99, 90, 91)]
    with next((root / "commitlog").iterdir()).open("r+b") as file:
        for start, stop in (places[:2], places[2:]):
            file.seek(start)
            file.write(bytes(stop - start))
    with next((tmp_path / "copy" / "commitlog").iterdir()).open("r+b") as file:
        file.seek(places[0] + 60)
        file.write(b"damage")
    before = read_only.state_of(tmp_path)
    lines = plan("rescue", root, "--out", tmp_path / "new")
    assert lines[0].startswith(f"plan: rescue {root}: reads ")
    assert lines[1] == f"plan: writes into {tmp_path}/new; the store stays as it is"
    first = f"message 90 of T queue 0, from physical offset {places[2]} on"
    other = f"2 messages 97 to 98 of T queue 0, from physical offset {places[0]} on"
    assert lines[-3:] == ["plan: keeps 397 messages", f"plan: lost: {first}", f"plan: lost: {other}"]
    size = places[3] - places[2]
    filled = plan("rescue", root, "--out", tmp_path / "new", "--fill-from", tmp_path / "copy")
    assert filled[-4] == "plan: keeps 398 messages"
    assert filled[-3] == f"plan: filled: {size} bytes at physical offset {places[2]}, 1 message, from {tmp_path}/copy"
    assert filled[-2].startswith(f"plan: not filled: {places[1] - places[0]} bytes at physical offset {places[0]}: ")
    assert filled[-1] == lines[-1]
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"T@g": {"0": 98}}}))
    last = plan("rescue", root, "--out", tmp_path / "new")[-1]
    assert last == "plan: lost: group g had not consumed 1 message of them in T"
    outcome = rocketlens("rescue", root, "--out", tmp_path / "new", "--dry-run", "--json")
    assert json.loads(outcome.text)["outlook"]["losses"]["messages"] == 3
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    changed = read_only.difference(before, read_only.state_of(tmp_path))
    assert {Path(path).name for path in changed} <= {"consumerOffset.json"}
