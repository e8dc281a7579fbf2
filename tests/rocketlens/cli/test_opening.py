"""What a command reads, its SOURCE, and the options by which it is opened."""

import re
import shutil
from dataclasses import replace

import fsspec
import pytest

from acl_file import ADMIN, ADMIN_SECRET, READER, READER_SECRET, write_accounts
from assistant import answers, call, talk
from broker.config import TlsOptions
from broker_harness import service_of, serving_in_a_thread
from certificates import Authority
from command_line import rocketlens
from golden_store import G1, GOLDEN, unpack
from loop_engine import run_jobs_here
from rocketlens.cli.server_options import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter, appended, closed_store

ROW = (G1 / "produced.tsv").read_text("utf-8").splitlines()[1].split("\t")
UNIQUE_KEY, OFFSET_ID = ROW[2], ROW[3]
NOBODY = "127.0.0.1:1"
READERS = ("find", "groups", "info", "life", "pending", "search", "space", "tail", "topics")
"""The commands that read a store or ask a server."""

IN_EACH_RUN = ("topics",)
"""Commands that `make test` opens in several ways; `make soak` has all."""

readers = [pytest.param(each, marks=[] if each in IN_EACH_RUN else pytest.mark.soak) for each in READERS]
each_reader = pytest.mark.parametrize("command", readers)


SPEED = re.compile(r"[0-9.]+ [kMG]?B/s, in .* s$", re.M)
PASSING = re.compile(rb'^.*"kind":"forecast".*\n', re.M)
"""How full the disk is, which is never the same."""


def run(command, *where):
    """A question that g1 answers, put to a store or to a server."""
    questions = {"find": (UNIQUE_KEY,), "life": (UNIQUE_KEY,), "tail": ("--topic", "TopicTest", "-n", 1)}
    questions["search"] = ("--topic", "TopicTest", "--contains", "hot 1")
    outcome = rocketlens(command, *where, *questions.get(command, ()), "--json")
    return replace(outcome, output=PASSING.sub(b"", outcome.output), errors=SPEED.sub("", outcome.errors))


@each_reader
def test_a_server_in_the_environment_is_asked_unless_a_store_is_typed_by_its_place_or_its_option(
    command, g1_store, server, monkeypatch
) -> None:
    of_store, of_server = run(command, g1_store), run(command, "--server", server)
    assert of_store.code == of_server.code == (1 if command == "pending" else 0)
    assert run(command, server).output == of_server.output
    assert run(command, "--store", g1_store).output == of_store.output
    monkeypatch.setenv(f"ROCKETLENS_{command.upper()}_SERVER", str(server))
    assert run(command).output == of_server.output
    monkeypatch.setenv(f"ROCKETLENS_{command.upper()}_SERVER", NOBODY)
    monkeypatch.setenv(f"ROCKETLENS_{command.upper()}_TLS", "1")
    assert run(command, g1_store).output == of_store.output
    assert run(command).code == 3
    assert run(command, g1_store, "--server", server).code != 0


@each_reader
def test_of_several_stores_each_row_says_which_it_is_of(command, g1_store, tmp_path) -> None:
    writer = closed_store(tmp_path / "second", appended("TopicTest", b"hot 1 again", unique_key=UNIQUE_KEY))
    both = run(command, "--store", g1_store, "--store", writer.root)
    assert both.code == (1 if command == "pending" else 0)
    rows = both.messages
    for where in (g1_store, writer.root):
        of_store = [row for row in rows if row["store"] == str(where)]
        alone = run(command, where).messages if command != "tail" or where == g1_store else []
        assert [{name: row[name] for name in row if name != "store"} for row in of_store] == alone
        rows = [row for row in rows if row not in of_store]
    assert not rows


@pytest.mark.parametrize("question", ["find TagA --limit 2", "search TopicTest --tag TagA --explain"])
def test_a_table_about_several_stores_begins_with_the_store(question, g1_store, tmp_path) -> None:
    writer = StoreWriter(tmp_path / "second")
    for number in range(3):
        named: dict[str, str] = {"tags": "TagA", "keys": "hotkey", "unique_key": f"U{number}"}
        writer.append("TopicTest", b"another", **named, store_timestamp=START_TIMESTAMP * 2)
    writer.close()
    command, *words = question.split()
    shown = rocketlens(command, "--store", g1_store, "--store", writer.root, *words)
    heading, *rows = shown.text.splitlines()
    assert heading.split()[0] == "STORE"
    assert {row.split()[0] for row in rows if row} <= {"STORE", str(g1_store), str(writer.root)}
    assert any(row.startswith(str(writer.root)) for row in rows)


def test_of_several_stores_the_worst_decides(g1_store, tmp_path) -> None:
    writer = closed_store(tmp_path / "second", appended("TopicTest", b"another"))
    several = ("--store", g1_store, "--store", writer.root)
    vain = rocketlens("life", *several, "nobody")
    assert (vain.code, vain.errors.count(f"rocketlens: {writer.root}: nothing is named nobody")) == (1, 1)
    codes = [rocketlens("doctor", "--store", each, "--json").code for each in (g1_store, writer.root)]
    both = rocketlens("doctor", *several, "--json")
    assert (both.code, [each["store"] for each in both.messages]) == (max(codes), [str(g1_store), str(writer.root)])
    assert rocketlens("doctor", *several, "--store", tmp_path / "none").code == 3
    assert rocketlens("doctor", g1_store, *several).code == 2


@each_reader
def test_a_store_behind_a_url_is_read_or_the_command_says_why_not(command, g1_store, monkeypatch) -> None:
    run_jobs_here(monkeypatch)
    place = f"memory://opening-{command}"
    memory = fsspec.filesystem("memory")
    memory.put(str(g1_store), place, recursive=True)
    try:
        found = run(command, place, "--storage-options", "{}")
    finally:
        memory.rm(place, recursive=True)
    if command == "space":
        assert (found.code, found.output) == (2, b"")
        assert "of a store behind a URL" in found.errors
    else:
        here = run(command, g1_store)
        assert (found.code, found.output) == (here.code, here.output.replace(str(g1_store).encode(), place.encode()))


@pytest.mark.parametrize("command", ["find", "export --format csv"])
def test_the_address_of_a_page_is_answered_with_that_of_the_port(command, tmp_path) -> None:
    name, *more = command.split()
    place = () if name != "export" else ("--out", tmp_path / "out")
    outcome = rocketlens(name, "http://[::1]:8080/find?text=a", *(more or ["a"]), *place)
    assert (outcome.code, outcome.output) == (2, b"")
    assert "if this is the page of a RocketLens server, name its remoting port: [::1]:PORT, 10911" in outcome.errors
    outcome = rocketlens(name, "s3://[bucket/store", *(more or ["a"]), *place)
    assert (outcome.code, outcome.errors) == (2, "rocketlens: s3://[bucket/store: Invalid IPv6 URL\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("diff", NOBODY, "STORE"),
        ("export", NOBODY, "--out", "OUT", "--format", "csv"),
        *(("rebuild", kind, NOBODY, "--out", "OUT") for kind in ("all", "index", "queues")),
    ],
    ids=" ".join,
)
def test_what_reads_the_files_of_a_store_says_so_of_a_server(arguments, g1_store, tmp_path) -> None:
    places = {"STORE": str(g1_store), "OUT": str(tmp_path / "out")}
    outcome = rocketlens(*(places.get(each, each) for each in arguments))
    assert (outcome.code, outcome.output) == (2, b"")
    is_here = "is a server, and the files of a store are read here: name its directory"
    assert outcome.errors.endswith(f"rocketlens: {NOBODY} {is_here}\n")
    assert not (tmp_path / "out").exists()


ROW_OF_STORE_OPTIONS = (G1 / "consumed-fail.tsv").read_text("utf-8").splitlines()[1].split("\t")
TOPIC, UNIQUE_KEY_OF_STORE_OPTIONS, KEY = ROW_OF_STORE_OPTIONS[1], ROW_OF_STORE_OPTIONS[4], ROW_OF_STORE_OPTIONS[7]

COMMANDS = {"find": (KEY,), "life": ("--unique-key", UNIQUE_KEY_OF_STORE_OPTIONS), "find --json": ("-f", "KEYS")}
COMMANDS |= {"search": ("--key", KEY), "space": ("--by", "topic"), "tail": ("--topic", TOPIC, "-n", 3)}
COMMANDS |= dict.fromkeys(("doctor", "groups", "info", "pending", "topics"), ())
"""Questions that g1 answers, and what is asked of it."""
SHOWING_MESSAGES = {"find", "life", "find --json", "search", "tail"}

SIZES = ("--index-slots", 97, "--index-entries", 150)
"""Of g1, as its README says."""


@pytest.fixture
def copied(g1_store, tmp_path):
    shutil.copytree(g1_store, tmp_path / "store")
    (tmp_path / "keys").write_text(f"{KEY}\n")
    return tmp_path / "store"


PASSING_OF_STORE_OPTIONS = re.compile(rb'"seconds":[0-9.e-]+|"kind":"forecast".*')
"""What is different each time: how long the doctor took, and how full the disk is."""


def ask(command, store, *options):
    """Ask for what a program gets, where the command has it; without what is different each time."""
    question = [store.parent / "keys" if each == "KEYS" else each for each in COMMANDS[command]]
    outcome = rocketlens(*command.split(), store, *question, *options, "--json")
    return replace(outcome, output=PASSING_OF_STORE_OPTIONS.sub(b"", outcome.output))


IN_EACH_RUN_OF_STORE_OPTIONS = ("find --json", "search", "space")
"""`make soak` has all."""

each_command = pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=[] if each in IN_EACH_RUN_OF_STORE_OPTIONS else pytest.mark.soak) for each in COMMANDS],
)


@pytest.mark.parametrize("command", ["tail"])
def test_a_state_directory_is_never_inside_the_store(command, copied, tmp_path) -> None:
    refused = ask(command, copied, "--state-dir", copied / "config")
    assert (refused.code, refused.output) == (2, b"")
    assert f"--state-dir {copied / 'config'} lies inside the store" in refused.errors
    (tmp_path / "state").mkdir()
    assert ask(command, copied, "--state-dir", tmp_path / "state").output == ask(command, copied).output


@pytest.mark.parametrize("command", ["find --json", "groups"])
def test_a_file_of_masks_hides_what_its_rules_hide(command, copied, tmp_path) -> None:
    (tmp_path / "masks").write_text("# where it came from\nhosts\n")
    plain, masked = ask(command, copied), ask(command, copied, "--mask-file", tmp_path / "masks")
    assert masked.code == plain.code
    assert masked.output == ask(command, copied, "--mask", "hosts").output
    shows_hosts = b'"bornHost":"127.0.0.1' in plain.output
    assert shows_hosts == (command in SHOWING_MESSAGES)
    assert (b'"bornHost":"***"' in masked.output, b"127.0.0.1" in masked.output) == (shows_hosts, False)


@each_command
def test_sizes_of_index_files_go_together_and_a_log_elsewhere_is_read(command, copied, tmp_path) -> None:
    wanted = ask(command, copied)
    assert wanted.output
    assert wanted.code in ((0, 1) if command == "pending" else (0,))
    assert ask(command, copied, *SIZES).output == wanted.output
    for alone in (SIZES[:2], SIZES[2:]):
        refused = ask(command, copied, *alone)
        assert (refused.code, refused.output) == (2, b"")
        assert "--index-slots and --index-entries: give both or neither" in refused.errors
    elsewhere = tmp_path / "elsewhere"
    shutil.move(copied / "commitlog", elsewhere)
    assert ask(command, copied).output != wanted.output
    found = ask(command, copied, "--commit-log", elsewhere)
    assert found.code == wanted.code, found.errors
    assert found.output.replace(bytes(elsewhere), bytes(copied / "commitlog")) == wanted.output


OFFSET = 6581
QUERY = ("find", UNIQUE_KEY, "--topic", "TopicTest", "--as", "unique-key", "--json")
VIEW = ("find", OFFSET, "--as", "physical-offset", "--json")
PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(g1_store, authority, tmp_path_factory):
    """It speaks TLS alone, to clients with a certificate, and answers signed requests alone."""
    pair = authority.sign("server")
    tls = TlsOptions("enforcing", *pair, client_ca=authority.certificate, client_auth="required")
    acl = write_accounts(tmp_path_factory.mktemp("acl") / "plain_acl.yml")
    with serving_in_a_thread(service_of(MessageStore.open(g1_store), tls=tls, acl=acl)) as endpoint:
        yield endpoint


@pytest.fixture
def credentials(tmp_path):
    path = tmp_path / "tools.yml"
    path.write_text(f"accessKey: {READER}\nsecretKey: {READER_SECRET}\n")
    return path


@pytest.fixture
def tls(authority, tmp_path) -> tuple[object, ...]:
    own, key = authority.sign("client", PASSWORD)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    ours = ("--tls-cert", own, "--tls-key", key, "--tls-key-password-file", tmp_path / "password")
    return ("--tls-ca", authority.certificate, *ours)


def unique_keys(outcome) -> list[str]:
    assert (outcome.code, outcome.errors) == (0, "")
    return [message["uniqueKey"] for message in outcome.messages]


ASKED = {"find": (UNIQUE_KEY,), "doctor": (), "tail": ("--topic", "TopicTest")}
ASKED_IN_SOAK = {"life": (UNIQUE_KEY,), "search": ("--topic", "TopicTest")}
ASKED_IN_SOAK |= dict.fromkeys(("groups", "info", "topics", "space", "pending"), ())


@pytest.mark.parametrize("command", [*ASKED, *(pytest.param(each, marks=pytest.mark.soak) for each in ASKED_IN_SOAK)])
def test_every_command_that_asks_a_server_takes_them(g1_store, secured, tls, tmp_path, command) -> None:
    rest = (ASKED | ASKED_IN_SOAK)[command]
    credentials = tmp_path / "admin.yml"  # lists are for administrators
    credentials.write_text(f"accessKey: {ADMIN}\nsecretKey: {ADMIN_SECRET}\n")
    asked = (command, secured, *rest, "--json", *tls[2:], "--credentials", credentials)
    for trusting in (tls[:2], ("--tls-no-verify",)):
        outcome = rocketlens(*asked, *trusting)
        assert outcome.code == (1 if command == "pending" else 0), outcome.errors
        assert outcome.output
    refused = rocketlens(*asked, "--tls")
    assert (refused.code, refused.output) == (3, b"")
    assert "TLS: " in refused.errors
    for options in (("--tls",), ("--credentials", credentials)):
        misplaced = rocketlens(command, g1_store, *rest, *options)
        assert (misplaced.code, misplaced.output) == (2, b"")
        assert "are for a server, not for a STORE" in misplaced.errors


def test_what_sends_takes_them_for_both_ends(g1_store, secured, tls, tmp_path) -> None:
    keys = tmp_path / "admin.yml"
    keys.write_text(f"accessKey: {ADMIN}\nsecretKey: {ADMIN_SECRET}\n")
    for source in (secured, g1_store):
        asked = ("replay", source, "--topic", "TopicTest", "--limit", "1", "--to", secured, *tls)
        for options in (("--credentials", keys), ("--credentials", keys, "--to-credentials", keys)):
            outcome = rocketlens(*asked, *options)
            # A RocketLens server names itself as a broker to which nobody writes.
            assert (outcome.code, "topic TopicTest cannot be written there" in outcome.errors) == (1, True)
        refused = rocketlens(*asked)
        assert (refused.code, "answered" in refused.errors) == (3, True)
    assert rocketlens("replay", g1_store, "--topic", "T", "--to", secured, "--tls").code == 3


def test_keys_are_taken_from_a_file_first_and_from_the_environment(secured, tls, credentials, monkeypatch) -> None:
    monkeypatch.setenv(ACCESS_KEY_VARIABLE, READER)
    monkeypatch.setenv(SECRET_KEY_VARIABLE, "not-the-one")
    wrong = rocketlens(*QUERY, "--server", secured, *tls)
    assert wrong.code == 3
    assert "check signature failed" in wrong.errors
    assert "not-the-one" not in wrong.errors
    found = rocketlens(*QUERY, "--server", secured, *tls, "--credentials", credentials)
    assert unique_keys(found) == [UNIQUE_KEY]
    monkeypatch.setenv(ACCESS_KEY_VARIABLE, READER)
    monkeypatch.setenv(SECRET_KEY_VARIABLE, READER_SECRET)
    assert unique_keys(rocketlens(*QUERY, "--server", secured, *tls)) == [UNIQUE_KEY]
    monkeypatch.setenv(SECRET_KEY_VARIABLE, "")
    outcome = rocketlens(*QUERY, "--server", secured, *tls)
    assert outcome.code == 2
    assert f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}: set both or neither" in outcome.errors


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"- hidden-secret\n", "expected accessKey and secretKey"),
        (b"accessKey: reader-key\nsecretKey: [hidden-secret]\n", "neither a text nor a number"),
        (b"accessKey: reader-key\nsecretKey: 'hidden-secret\n", "not YAML in line 3"),
    ],
)
def test_a_file_that_holds_no_keys_is_named_and_not_quoted(tmp_path, text, says) -> None:
    path = tmp_path / "tools.yml"
    path.write_bytes(text)
    outcome = rocketlens(*VIEW, "--server", "127.0.0.1:1", "--credentials", path)
    assert outcome.code == 2
    assert f"--credentials {path}: " in outcome.errors
    assert says in outcome.errors
    assert "hidden" not in outcome.errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("STORE", "--credentials", "FILE"), "are for a server, not for a STORE"),
        (("--server", "127.0.0.1:1", "--tls-key", "FILE"), "need --tls-cert"),
        (("--server", "127.0.0.1:1", "--tls-ca", "FILE", "--tls-no-verify"), "exclude each other"),
        (("--server", "127.0.0.1:1", "--tls-cert", "FILE"), "cannot be used"),
    ],
)
def test_options_that_cannot_be_are_refused(g1_store, credentials, arguments, says) -> None:
    places = {"STORE": g1_store, "FILE": credentials}
    named = [places.get(each, each) for each in arguments]
    for command in (("find", *named, *QUERY[1:]), ("find", *named, OFFSET)):
        outcome = rocketlens(*command)
        assert outcome.code == 2
        assert says in outcome.errors


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return unpack("store", tmp_path_factory.mktemp("tier"), archives=GOLDEN / "g2" / "g2-tier")


def produced(label: str) -> list[str]:
    lines = (GOLDEN / "g2" / "g2-tier" / "produced.tsv").read_text().splitlines()
    (line,) = [line.split("\t") for line in lines if line.startswith(f"{label}\t")]
    return line


def places(store, is_alone):
    return (store / "tiered",) if is_alone else (store, "--tier", store / "tiered")


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_unique_key_and_a_key_find_what_only_the_tier_has(store, is_alone) -> None:
    _, _, unique_key, offset_id, topic, queue_id, queue_offset, *_ = produced("old-7")
    viewed = rocketlens("find", *places(store, is_alone), unique_key, "--json")
    queried = rocketlens("find", *places(store, is_alone), "old-7", "--topic", topic, "--as", "key", "--json")
    for found in (viewed, queried):
        assert found.code == 0, found.errors
        (message,) = found.messages
        found = message["uniqueKey"], message["queueId"], message["queueOffset"]
        assert found == (unique_key, int(queue_id), int(queue_offset))
    refused = rocketlens("find", *places(store, is_alone), offset_id)
    assert refused.code == 1
    assert "ask for its messages by key, unique key or queue offset" in refused.errors


@pytest.mark.parametrize(
    "arguments",
    [("space",), ("life", "--unique-key", "7F0000016C8F"), ("pending",), ("doctor",)],
    ids=lambda arguments: arguments[0],
)
def test_commands_that_read_the_log_alone_refuse_a_tier_in_one_sentence(store, arguments) -> None:
    command, *rest = arguments
    refused = rocketlens(command, store / "tiered", *rest)
    assert refused.code not in (0, 1)
    (line,) = refused.errors.strip().splitlines()
    assert "serve, find, search, filter, tail, topics and export" in line


def test_the_options_of_a_store_are_taken(g1_store, tmp_path) -> None:
    log, state = ("--commit-log", g1_store / "commitlog"), ("--state-dir", tmp_path / "state")
    (tmp_path / "state").mkdir()
    (tmp_path / "masks").write_text("body\n")
    index = ("--index-slots", 97, "--index-entries", 150)
    masks = ("--mask", "hosts", "--mask-file", tmp_path / "masks")
    asked = [call(1, "message", id=UNIQUE_KEY)]
    (found,) = answers("--store", g1_store, *log, *state, *index, *masks, says=asked)
    assert found["message"]["uniqueKey"] == UNIQUE_KEY
    assert found["message"]["body"] == "***"
    writer = closed_store(tmp_path / "store", appended("orders", b"again"))
    refused = rocketlens("mcp", writer.root, "--tier", tmp_path / "nothing")
    assert refused.code != 0
    (absent,) = answers("memory://nowhere", "--storage-options", "{}", says=[call(1, "topics")])
    assert "memory://nowhere" in absent["error"]


def test_a_server_with_tls_and_accounts_is_asked(secured, tls, credentials) -> None:
    asked = [call(1, "find", text=UNIQUE_KEY, topic="TopicTest", kind="unique key")]
    for way in (tls, ("--tls", "--tls-no-verify", *tls[2:])):
        (found,) = answers(secured, *way, "--credentials", credentials, says=asked)
        assert [each["uniqueKey"] for each in found["messages"]] == [UNIQUE_KEY]


def test_a_server_answers_assistants_where_it_has_an_http_port_alone(g1_store) -> None:
    refused = rocketlens("serve", g1_store, "--mcp")
    assert (refused.code, refused.errors) == (2, "rocketlens: --mcp has no effect: also give --http\n")


@pytest.mark.parametrize("place", ["nowhere", "127.0.0.1:1"])
def test_what_is_no_source_ends_at_once_and_a_server_that_is_gone_is_said_by_each_answer(place, tmp_path) -> None:
    if place == "nowhere":
        assert talk(tmp_path / place, says=[], code=3) == []
        return
    (answer,) = answers(place, says=[call(1, "topics")])
    assert "127.0.0.1:1" in answer["error"]
