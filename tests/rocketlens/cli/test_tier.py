"""Commands on tiered files: those that read them, and those that refuse them in one sentence."""

from pathlib import Path
from typing import Any

import pytest

from command_line import rocketlens
from golden_store import GOLDEN, unpack
from loop_engine import run_jobs_here


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("store", tmp_path_factory.mktemp("tier"), archives=GOLDEN / "g2" / "g2-tier")


def produced(label: str) -> list[str]:
    lines = (GOLDEN / "g2" / "g2-tier" / "produced.tsv").read_text().splitlines()
    (line,) = [line.split("\t") for line in lines if line.startswith(f"{label}\t")]
    return line


def places(store: Path, is_alone: bool) -> tuple[Any, ...]:
    return (store / "tiered",) if is_alone else (store, "--tier", store / "tiered")


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_unique_key_and_a_key_find_what_only_the_tier_has(store: Path, is_alone: bool) -> None:
    _, _, unique_key, offset_id, topic, queue_id, queue_offset, *_ = produced("old-7")
    viewed = rocketlens("find", *places(store, is_alone), unique_key, "--json")
    queried = rocketlens("find", *places(store, is_alone), "old-7", "--topic", topic, "--as", "key", "--json")
    for found in (viewed, queried):
        assert found.code == 0, found.errors
        (message,) = found.messages
        assert (message["uniqueKey"], message["queueId"], message["queueOffset"]) == (
            unique_key,
            int(queue_id),
            int(queue_offset),
        )
    refused = rocketlens("find", *places(store, is_alone), offset_id)
    assert refused.code == 1
    assert "ask for its messages by key, unique key or queue offset" in refused.errors


@pytest.mark.parametrize(
    "arguments",
    [("space",), ("life", "--unique-key", "7F0000016C8F"), ("pending",), ("doctor",)],
    ids=lambda arguments: arguments[0],
)
def test_commands_that_read_the_log_alone_refuse_a_tier_in_one_sentence(
    store: Path, arguments: tuple[str, ...]
) -> None:
    command, *rest = arguments
    refused = rocketlens(command, store / "tiered", *rest)
    assert refused.code not in (0, 1)
    (line,) = refused.errors.strip().splitlines()
    assert "serve, find, search, filter, tail, topics and export" in line


@pytest.mark.parametrize("command", ["rebuild queues TIER --out OUT", "compact index TIER", "convert TIER --out OUT"])
def test_jobs_that_read_the_log_alone_refuse_a_tier_before_anything_starts(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    run_jobs_here(monkeypatch, lambda *_: pytest.fail("too late"))
    places = {"TIER": store / "tiered", "OUT": tmp_path / "out"}
    refused = rocketlens(*(places.get(word, word) for word in command.split()))
    assert refused.code == 3
    (line,) = refused.errors.strip().splitlines()
    assert "tiered files of a broker, which serve, find, search, filter, tail, topics and export read" in line
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_no_tier_is_named(store: Path) -> None:
    refused = rocketlens("find", store, "--tier", store / "config", "7F00")
    assert refused.code not in (0, 1)
    assert f"{store / 'config'}" in refused.errors
    assert "tiered files of one broker" in refused.errors
