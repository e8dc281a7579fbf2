"""`rocketlens mcp` as it is typed: its options, as other commands that read a source have them."""

from pathlib import Path

import pytest

from acl_file import READER, READER_SECRET, write_accounts
from assistant import answers, call, talk
from broker.config import TlsOptions
from broker_harness import service_of, serving_in_a_thread
from certificates import Authority
from command_line import rocketlens
from golden_store import G1
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

ROW = (G1 / "produced.tsv").read_text("utf-8").splitlines()[1].split("\t")
UNIQUE_KEY = ROW[2]


def test_the_options_of_a_store_are_taken(g1_store: Path, tmp_path: Path) -> None:
    log, state = ("--commit-log", g1_store / "commitlog"), ("--state-dir", tmp_path / "state")
    (tmp_path / "state").mkdir()
    (tmp_path / "masks").write_text("body\n")
    index = ("--index-slots", 97, "--index-entries", 150)
    masks = ("--mask", "hosts", "--mask-file", tmp_path / "masks")
    (found,) = answers("--store", g1_store, *log, *state, *index, *masks, says=[call(1, "message", id=UNIQUE_KEY)])
    assert found["message"]["uniqueKey"] == UNIQUE_KEY
    assert found["message"]["body"] == "***"
    writer = StoreWriter(tmp_path / "store")
    writer.append("orders", b"again")
    writer.close()
    refused = rocketlens("mcp", writer.root, "--tier", tmp_path / "nothing")
    assert refused.code != 0
    (absent,) = answers("memory://nowhere", "--storage-options", "{}", says=[call(1, "topics")])
    assert "memory://nowhere" in absent["error"]


def test_a_server_with_tls_and_accounts_is_asked(g1_store: Path, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    own, key = authority.sign("client", "open sesame")
    (tmp_path / "password").write_text("open sesame\n")
    (tmp_path / "tools.yml").write_text(f"accessKey: {READER}\nsecretKey: {READER_SECRET}\n")
    tls = TlsOptions("enforcing", *authority.sign("server"), client_ca=authority.certificate, client_auth="required")
    acl = write_accounts(tmp_path / "plain_acl.yml")
    keys = ("--credentials", tmp_path / "tools.yml")
    ours = ("--tls-cert", own, "--tls-key", key, "--tls-key-password-file", tmp_path / "password")
    asked = [call(1, "find", text=UNIQUE_KEY, topic="TopicTest", kind="unique key")]
    with serving_in_a_thread(service_of(MessageStore.open(g1_store), tls=tls, acl=acl)) as endpoint:
        for way in (("--tls-ca", authority.certificate), ("--tls", "--tls-no-verify")):
            (found,) = answers(endpoint, *way, *ours, *keys, says=asked)
            assert [each["uniqueKey"] for each in found["messages"]] == [UNIQUE_KEY]


def test_a_server_answers_assistants_where_it_has_an_http_port_alone(g1_store: Path) -> None:
    refused = rocketlens("serve", g1_store, "--mcp")
    assert (refused.code, refused.errors) == (2, "rocketlens: --mcp has no effect: also give --http\n")


@pytest.mark.parametrize("place", ["nowhere", "127.0.0.1:1"])
def test_what_is_no_source_ends_at_once_and_a_server_that_is_gone_is_said_by_each_answer(
    place: str, tmp_path: Path
) -> None:
    if place == "nowhere":
        assert talk(tmp_path / place, says=[], code=3) == []
        return
    (answer,) = answers(place, says=[call(1, "topics")])
    assert "127.0.0.1:1" in answer["error"]
