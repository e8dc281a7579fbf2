"""`rocketlens find` of ids: one message whole, its body, and what is no message, from a store or from a server."""

import gzip
import shutil
import zlib
from pathlib import Path

import pytest

from broker.endpoint import Endpoint
from broker.service.dispatcher import handles
from broker_harness import FakeStore, service_of, serving_in_a_thread
from command_line import rocketlens
from message_encoding import encode_message
from protocol.codes import RequestCode
from protocol.command import Response
from protocol.headers import ViewMessageRequestHeader
from protocol.message import HostAddress
from protocol.message_id import encode_message_id
from store_writer import StoreWriter

# Of produced.tsv: hot0.
UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"
OFFSET_ID = "7F00000100002A9F00000000000019B5"
OFFSET = 6581


class Fixed:
    """A broker that answers every view with the same bytes, as Java's answers garbage."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    @handles(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader) -> Response:
        return Response(body=self.body)


@pytest.mark.parametrize("text", [OFFSET_ID, OFFSET_ID.lower(), str(OFFSET), "000" + str(OFFSET), UNIQUE_KEY])
def test_any_id_shows_its_message(g1_store: Path, server: Endpoint, text: str) -> None:
    local = rocketlens("find", g1_store, text, "--json")
    (message,) = local.messages
    assert (message["uniqueKey"], message["offsetMessageId"], message["body"]) == (UNIQUE_KEY, OFFSET_ID, "hot 0")
    kind = {OFFSET_ID: "offset-id", UNIQUE_KEY: "unique-key"}.get(text.upper(), "physical-offset")
    narrowed = rocketlens("find", g1_store, text, "--as", kind, "--json")
    assert (narrowed.code, narrowed.errors, narrowed.output) == (0, "", local.output)
    remote = rocketlens("find", server, text, "--json")
    assert remote == local


def test_from_id_dials_the_address_in_the_id(server: Endpoint) -> None:
    ours = encode_message_id(HostAddress(*server), OFFSET)
    outcome = rocketlens("find", ours, "--from-id", "--json")
    assert (outcome.code, outcome.messages[0]["uniqueKey"]) == (0, UNIQUE_KEY)


def test_what_is_neither_a_broker_nor_a_name_server_is_code_3() -> None:
    with serving_in_a_thread(service_of(FakeStore()), []) as endpoint:
        outcome = rocketlens("find", endpoint, "0", "--as", "physical-offset")
    assert outcome.code == 3
    assert "is neither a broker nor a name server" in outcome.errors


@pytest.mark.parametrize("body", [b"", b"garbage", bytes(100), encode_message(topic="T", physical_offset=7)])
def test_bytes_that_are_not_the_message_asked_for_are_not_shown(body: bytes) -> None:
    with serving_in_a_thread(service_of(FakeStore()), [Fixed(body)]) as endpoint:
        outcome = rocketlens("find", endpoint, "5", "--as", "physical-offset")
    assert (outcome.code, outcome.output) == (1, b"")
    assert "answered bytes that are not a message" in outcome.errors


def test_a_damaged_record_is_shown_and_named(g1_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(g1_store, tmp_path / "store"))
    with (store / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(OFFSET)
        data = segment.read(289)
        segment.seek(OFFSET + data.index(b"hot 0"))
        segment.write(b"HOT")
    for text, kind in ((OFFSET_ID, "offset-id"), (OFFSET, "physical-offset")):
        for options in ((), ("--as", kind)):
            outcome = rocketlens("find", store, text, *options, "--json")
            assert (outcome.code, outcome.messages[0]["body"]) == (0, "HOT 0")
            assert f"the message at physical offset {OFFSET} is damaged: " in outcome.errors
            assert "CRC" in outcome.errors
    assert rocketlens("find", store, str(OFFSET + 1)).code == 1
    assert "is damaged" not in rocketlens("find", store, "0").errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["STORE", "0", "--json", "--format", "table"], "--json and --format table exclude each other"),
        (["0", "--store", "STORE", "--from-id"], "--from-id takes no SOURCE"),
        (["0", "--from-id", "--index-slots", "5"], "cannot be used with a server"),
        (["0", "--from-id", "--as", "key"], "--as does not apply"),
        (["STORE", "0", "--state-dir", "STORE"], "inside the store"),
        (["STORE", "0", "--state-dir", "/proc/none/state"], "--state-dir /proc/none/state: cannot be written to"),
    ],
)
def test_wrong_usage_is_code_2(g1_store: Path, arguments: list[str], says: str) -> None:
    outcome = rocketlens("find", *(argument.replace("STORE", str(g1_store)) for argument in arguments))
    assert (outcome.code, outcome.output) == (2, b"")
    assert says in outcome.errors


class TestBodies:
    """`--body` writes the bytes of one body, `--charset` reads them."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Path:
        writer = StoreWriter(tmp_path / "store")
        writer.append("T", zlib.compress(b"\x00\xff body"), sys_flag=1, unique_key="U1")
        writer.append("T", gzip.compress("订单".encode("gbk"), mtime=0), unique_key="U2")
        writer.append("T", b"one", unique_key="U3")
        writer.append("T", b"two", unique_key="U3")
        writer.append("T", b"no zl\xff\x01", sys_flag=1, unique_key="U4")
        writer.close()
        return writer.root

    def test_the_body_goes_to_stdout_or_a_file_as_consumers_get_it(self, store: Path, tmp_path: Path) -> None:
        for key, body in (("U1", b"\x00\xff body"), ("U2", gzip.compress("订单".encode("gbk"), mtime=0))):
            outcome = rocketlens("find", store, key, "--as", "unique-key", "--body", "-")
            assert (outcome.code, outcome.output, outcome.errors) == (0, body, "")
            written = rocketlens("find", store, key, "--as", "unique-key", "--body", tmp_path / key)
            assert (written.code, written.output, (tmp_path / key).read_bytes()) == (0, b"", body)
            assert written.errors == f"rocketlens: {len(body)} bytes written to {tmp_path / key}\n"

    def test_a_body_that_cannot_be_decompressed_is_written_as_stored_and_that_is_said(self, store: Path) -> None:
        outcome = rocketlens("find", store, "U4", "--body", "-")
        assert (outcome.code, outcome.output) == (0, b"no zl\xff\x01")
        assert "the body is written as it is stored: " in outcome.errors

    def test_no_file_is_replaced_and_none_is_made_in_the_store(self, store: Path, tmp_path: Path) -> None:
        (tmp_path / "there").write_bytes(b"before")
        refused = rocketlens("find", store, "U1", "--body", tmp_path / "there")
        assert (refused.code, (tmp_path / "there").read_bytes()) == (2, b"before")
        assert "exists already: choose another name" in refused.errors
        inside = rocketlens("find", store, "U1", "--body", store / "body")
        assert (inside.code, (store / "body").exists()) == (2, False)
        assert "lies inside the store" in inside.errors

    @pytest.mark.parametrize("options", [["--json"], ["--charset", "gbk"]])
    def test_options_that_contradict_it_are_refused(self, store: Path, options: list[str]) -> None:
        outcome = rocketlens("find", store, "U1", "--body", "-", *options)
        assert (outcome.code, outcome.output) == (2, b"")


def test_what_is_found_is_shown_and_what_is_not_is_explained(g1_store: Path, server: Endpoint) -> None:
    for where in (g1_store, server):
        outcome = rocketlens("find", where, "0", "1", "--as", "physical-offset", "--json")
        assert outcome.code == 1
        assert len(outcome.messages) == 1
        assert "inside the record that starts at 0" in outcome.errors
        assert len(outcome.errors.splitlines()) == 1
