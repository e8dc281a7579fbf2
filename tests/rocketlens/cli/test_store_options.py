"""The options of a STORE that all commands share, each with every command that opens one."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from command_line import Outcome, rocketlens
from golden_store import G1, GOLDEN, unpack

ROW = (G1 / "consumed-fail.tsv").read_text("utf-8").splitlines()[1].split("\t")
TOPIC, UNIQUE_KEY, KEY = ROW[1], ROW[4], ROW[7]

COMMANDS: dict[str, tuple[object, ...]] = {
    "doctor": (),
    "find": (KEY,),
    "groups": (),
    "info": (),
    "life": ("--unique-key", UNIQUE_KEY),
    "find --json": ("-f", "KEYS"),
    "pending": (),
    "search": ("--key", KEY),
    "space": ("--by", "topic"),
    "tail": ("--topic", TOPIC, "-n", 3),
    "topics": (),
}
"""Questions that g1 answers, and what is asked of it."""
SHOWING_MESSAGES = {"find", "life", "find --json", "search", "tail"}

SIZES = ("--index-slots", 97, "--index-entries", 150)
"""Of g1, as its README says."""


@pytest.fixture
def copied(g1_store: Path, tmp_path: Path) -> Path:
    shutil.copytree(g1_store, tmp_path / "store")
    (tmp_path / "keys").write_text(f"{KEY}\n")
    return tmp_path / "store"


PASSING = re.compile(rb'"seconds":[0-9.e-]+|"kind":"forecast".*')
"""What is different each time: how long the doctor took, and how full the disk is."""


def ask(command: str, store: Path, *options: object) -> Outcome:
    """Ask for what a program gets, where the command has it; without what is different each time."""
    question = [store.parent / "keys" if each == "KEYS" else each for each in COMMANDS[command]]
    outcome = rocketlens(*command.split(), store, *question, *options, "--json")
    return replace(outcome, output=PASSING.sub(b"", outcome.output))


IN_EACH_RUN = ("find --json", "search", "space")
"""`make soak` has all."""

each_command = pytest.mark.parametrize(
    "command", [pytest.param(each, marks=[] if each in IN_EACH_RUN else pytest.mark.soak) for each in COMMANDS]
)


@each_command
def test_a_log_that_lies_elsewhere_is_read_where_commit_log_says(command: str, copied: Path, tmp_path: Path) -> None:
    wanted = ask(command, copied)
    assert wanted.output
    assert wanted.code in ((0, 1) if command == "pending" else (0,))
    elsewhere = tmp_path / "elsewhere"
    shutil.move(copied / "commitlog", elsewhere)
    assert ask(command, copied).output != wanted.output
    found = ask(command, copied, "--commit-log", elsewhere)
    assert found.code == wanted.code, found.errors
    assert found.output.replace(bytes(elsewhere), bytes(copied / "commitlog")) == wanted.output


@pytest.mark.parametrize("command", ["find", "life", "tail"])
def test_a_state_directory_is_never_inside_the_store(command: str, copied: Path, tmp_path: Path) -> None:
    refused = ask(command, copied, "--state-dir", copied / "config")
    assert (refused.code, refused.output) == (2, b"")
    assert f"--state-dir {copied / 'config'} lies inside the store" in refused.errors
    (tmp_path / "state").mkdir()
    assert ask(command, copied, "--state-dir", tmp_path / "state").output == ask(command, copied).output


@pytest.mark.parametrize("command", ["find --json", "groups", "search", "tail"])
def test_a_file_of_masks_hides_what_its_rules_hide(command: str, copied: Path, tmp_path: Path) -> None:
    (tmp_path / "masks").write_text("# where it came from\nhosts\n")
    plain, masked = ask(command, copied), ask(command, copied, "--mask-file", tmp_path / "masks")
    assert masked.code == plain.code
    assert masked.output == ask(command, copied, "--mask", "hosts").output
    shows_hosts = b'"bornHost":"127.0.0.1' in plain.output
    assert shows_hosts == (command in SHOWING_MESSAGES)
    assert (b'"bornHost":"***"' in masked.output, b"127.0.0.1" in masked.output) == (shows_hosts, False)


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("store", tmp_path_factory.mktemp("tiered"), archives=GOLDEN / "g2" / "g2-tier")


@pytest.mark.parametrize("command", ["life", "space"])
def test_commands_that_read_no_tier_say_so_and_the_way_out(command: str, tiered: Path) -> None:
    question = {"life": ("--unique-key", "7F00")}.get(command, ())
    refused = rocketlens(command, tiered, *question, "--tier", tiered / "tiered")
    assert (refused.code, refused.output) == (2, b"")
    assert f"{command} reads no tiered files" in refused.errors
    assert "without the tier it reads the store's own log" in refused.errors


def test_a_topic_goes_on_in_the_store_where_its_tier_ends(tiered: Path) -> None:
    tier = ("--tier", tiered / "tiered")
    queues = rocketlens("topics", tiered, "--topic", "TierTopic", *tier, "--json").messages
    lines = (GOLDEN / "g2" / "g2-tier" / "produced.tsv").read_text().splitlines()
    of_topic = [line.split("\t") for line in lines if line.split("\t")[4] == "TierTopic"]
    assert len(of_topic) > 100
    for queue in queues:
        # A batch is one row, with the offset of the first of its messages.
        sent = [int(row[6]) + len(row[2].split(",")) for row in of_topic if int(row[5]) == queue["queueId"]]
        assert (queue["minOffset"], queue["maxOffset"]) == (0, max(sent))
    listed = {each["topic"]: each for each in rocketlens("topics", tiered, *tier, "--json").messages}
    assert listed["TierTopic"]["messages"] == sum(queue["messages"] for queue in queues)
    newest = rocketlens("tail", tiered, "--topic", "TierTopic", "-n", 1000, *tier, "--json").messages
    assert {each["uniqueKey"] for each in newest} == {name for row in of_topic for name in row[2].split(",")}
    (progress,) = rocketlens("groups", tiered, "--group", "CG_TIER", *tier, "--json").messages
    assert [(each["nextOffset"], each["endOffset"]) for each in progress["queues"]] == [(1, 1)]
    for command in ("info", "pending"):  # nothing of what these read is in a tier
        with_tier, without = (rocketlens(command, tiered, *options, "--json") for options in (tier, ()))
        assert (with_tier.code, with_tier.errors) == (without.code, without.errors)
        assert with_tier.output == without.output


@each_command
def test_sizes_of_index_files_are_given_together(command: str, copied: Path) -> None:
    wanted = ask(command, copied)
    assert ask(command, copied, *SIZES).output == wanted.output
    for alone in (SIZES[:2], SIZES[2:]):
        refused = ask(command, copied, *alone)
        assert (refused.code, refused.output) == (2, b"")
        assert "--index-slots and --index-entries: give both or neither" in refused.errors
