"""What a command reads: a store that is typed, or a server, typed or in the environment."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.endpoint import Endpoint
from broker_harness import service_of, serving_in_a_thread
from command_line import Outcome, rocketlens
from golden_store import G1
from storage.store.message_store import MessageStore

ROW = (G1 / "produced.tsv").read_text("utf-8").splitlines()[1].split("\t")
UNIQUE_KEY, OFFSET_ID = ROW[2], ROW[3]
NOBODY = "127.0.0.1:1"
READERS = ("find", "groups", "info", "query", "tail", "topics", "view")
"""The commands that read a store or ask a server."""


@pytest.fixture(scope="module")
def server(g1_store: Path) -> Iterator[Endpoint]:
    with serving_in_a_thread(service_of(MessageStore.open(g1_store))) as endpoint:
        yield endpoint


def run(command: str, *where: object) -> Outcome:
    """A question that g1 answers, put to a store or to a server."""
    questions: dict[str, tuple[object, ...]] = {
        "find": (UNIQUE_KEY,),
        "query": ("--topic", "TopicTest", "--unique-key", UNIQUE_KEY),
        "tail": ("--topic", "TopicTest", "-n", 1),
        "view": (UNIQUE_KEY,),
    }
    return rocketlens(command, *where, *questions.get(command, ()), "--json")


@pytest.mark.parametrize("command", READERS)
def test_a_server_in_the_environment_is_asked_unless_a_store_is_typed(
    command: str, g1_store: Path, server: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_store, of_server = run(command, g1_store), run(command, "--server", server)
    assert (of_store.code, of_server.code) == (0, 0)
    monkeypatch.setenv(f"ROCKETLENS_{command.upper()}_SERVER", str(server))
    assert run(command).output == of_server.output
    monkeypatch.setenv(f"ROCKETLENS_{command.upper()}_SERVER", NOBODY)
    monkeypatch.setenv(f"ROCKETLENS_{command.upper()}_TLS", "1")
    assert run(command, g1_store).output == of_store.output
    assert run(command).code == 3
    assert run(command, g1_store, "--server", server).code != 0


@pytest.mark.parametrize("command", READERS)
def test_options_of_a_store_in_the_environment_do_not_keep_from_asking_a_server(
    command: str, server: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = run(command, "--server", server)
    monkeypatch.setenv(f"ROCKETLENS_{command.upper()}_INDEX_SLOTS", "5")
    assert run(command, "--server", server).output == asked.output
    refused = run(command, "--server", server, "--index-slots", 5)
    assert (refused.code, refused.output) == (2, b"")
    assert "options of a STORE cannot be used with a server" in refused.errors


@pytest.mark.parametrize("command", READERS)
def test_a_mask_is_never_passed_over_where_a_server_is_asked(
    command: str, server: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "masks").write_text("hosts\n")
    for name, value in (("MASK", "hosts"), ("MASK_FILE", str(tmp_path / "masks"))):
        with monkeypatch.context() as patch:
            patch.setenv(f"ROCKETLENS_{command.upper()}_{name}", value)
            refused = run(command, "--server", server)
        assert (refused.code, refused.output) == (2, b"")
        assert "--mask and --mask-file are for a STORE, not for a server" in refused.errors


def test_ids_are_asked_of_the_brokers_in_them_unless_a_store_or_a_server_is_typed(
    g1_store: Path, server: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETLENS_VIEW_FROM_ID", "1")
    (here,) = rocketlens("view", g1_store, OFFSET_ID, "--json").messages
    assert here["offsetMessageId"] == OFFSET_ID
    assert rocketlens("view", "--server", server, OFFSET_ID, "--json").messages == [here]
    monkeypatch.setenv("ROCKETLENS_VIEW_SERVER", str(server))
    assert rocketlens("view", OFFSET_ID).code == 2
