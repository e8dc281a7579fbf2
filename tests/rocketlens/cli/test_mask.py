"""`--mask` and `--mask-file`: no command shows what is hidden, and none finds messages by it."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import process
import rocketlens as face
from command_line import Outcome, rocketlens
from hidden_stores import RULES, SECRETS, hidden_stores
from process import ROOT
from protocol.errors import ConfigError
from store_writer import StoreWriter

FIRST, SECOND = SECRETS

COMMANDS = [
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
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[StoreWriter]:
    return hidden_stores(tmp_path_factory.mktemp("hidden"))


def run(store: StoreWriter, command: tuple[str, ...], *options: object) -> Outcome:
    """Run a command on a store; words in capitals stand for what differs by store."""
    keys = store.root.parent / "keys"
    keys.write_text(f"order-1\n{FIRST}\nU0\n")
    words = {"OFFSET": store.written[1].physical_offset, "BATCH": store.written[-1].physical_offset, "KEYS": keys}
    name, *arguments = command
    return rocketlens(name, store.root, *(words.get(word, word) for word in arguments), *options)


def same_of(outcome: Outcome) -> list[str]:
    """The lines of an output, but for that about the disk below a store."""
    return [line for line in outcome.text.splitlines() if '"kind":"forecast"' not in line]


def masks(rules: tuple[str, ...]) -> list[str]:
    return [text for rule in rules for text in ("--mask", rule)]


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        pytest.param(command, rules, id=f"{' '.join(command)}-{name}", marks=[pytest.mark.soak] * ((one + other) % 2))
        for one, command in enumerate(COMMANDS)
        for other, (name, rules) in enumerate(RULES.items())
    ],
)
def test_no_command_tells_two_stores_apart_that_differ_in_what_is_hidden(
    stores: list[StoreWriter], command: tuple[str, ...], rules: tuple[str, ...]
) -> None:
    first, second = (run(store, command, *masks(rules), "--json") for store in stores)
    assert (first.code, same_of(first)) == (second.code, same_of(second))
    assert first.code in (0, 1, 2), first.errors
    asked = FIRST in " ".join(command) or "KEYS" in command
    assert SECOND not in first.text + first.errors + second.text + second.errors
    assert FIRST not in first.text + second.text
    assert asked or FIRST not in first.errors + second.errors


def test_without_a_mask_they_are_told_apart(stores: list[StoreWriter]) -> None:
    differ = [run(stores[0], each).output != run(stores[1], each).output for each in COMMANDS]
    assert sum(differ) > len(COMMANDS) // 2


@pytest.mark.parametrize("form", [[], ["--json"], ["--format", "msgpack"]], ids=["table", "json", "msgpack"])
def test_what_is_not_hidden_is_shown_in_every_format(stores: list[StoreWriter], form: list[str]) -> None:
    shown = run(stores[0], ("find", "order-1", "--as", "key", "--topic", "T"), *masks(RULES["a pattern"]), *form).output
    assert b"order-1" in shown
    assert b"***" in shown
    assert FIRST.encode() not in shown


@pytest.mark.parametrize("rules", [*RULES.values(), ("hosts", "body", "properties")], ids=" ".join)
def test_what_is_masked_is_a_message_of_the_schema(stores: list[StoreWriter], rules: tuple[str, ...]) -> None:
    described = json.loads((ROOT / "docs/message.schema.json").read_text())
    schema = Draft202012Validator(described | {"$ref": "#/$defs/message"})
    messages = run(stores[0], ("tail", "--topic", "T"), *masks(rules), "--json").messages
    assert len(messages) == 8
    for message in messages:
        schema.validate(message)


def test_a_place_in_json_is_hidden_and_the_rest_is_found(stores: list[StoreWriter], tmp_path: Path) -> None:
    (tmp_path / "masks").write_text("# phones\n$.phone\n")
    options = ("--mask-file", tmp_path / "masks", "--json")
    (found,) = run(stores[0], ("search", "--json-path", "$.n=1", "--regex", "n.:1"), *options).messages[:1]
    assert found["body"] == '{"phone":"***","n":1}'
    assert run(stores[0], ("search", "--json-path", f"$.phone={FIRST}"), *options).code == 1
    assert rocketlens("find", stores[0].root, 0, "--body", "-", *options[:2]).output == b'{"n":0}'


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (("find", "k", "--as", "key", "--topic", "T"), "keys"),
        (("find", "A", "--as", "tag", "--topic", "T"), "tags"),
        (("search", "--contains", "x"), "body"),
        (("search", "--where", "to = 'x'"), "properties.to"),
        (("search", "--born-host", "10.0.0.1"), "hosts"),
        (("search", "--size", "7"), "body"),
        (("find", "U0", "--as", "unique-key"), "unique_key"),
        (("life", "--unique-key", "U0"), "properties"),
        (("find", "-f", "KEYS"), "keys"),
        (("search", "--topic", "T", "--tag", "A"), "tags"),
        (("tail", "--topic", "T", "--where", "to = 'x'"), "properties.to"),
    ],
)
def test_what_is_masked_cannot_be_searched(stores: list[StoreWriter], command: tuple[str, ...], rule: str) -> None:
    outcome = run(stores[0], command, "--mask", rule)
    assert (outcome.code, outcome.output) == (2, b"")
    assert "what is masked cannot be searched" in outcome.errors


def test_a_wrong_rule_is_code_2(stores: list[StoreWriter], tmp_path: Path) -> None:
    (tmp_path / "masks").write_text("keys\nkez\n")
    for options, says in (
        (("--mask", "kez"), "no field 'kez' to mask"),
        (("--mask-file", tmp_path / "masks"), "no field 'kez' to mask"),
        (("--mask-file", tmp_path / "none"), "cannot be read"),
    ):
        outcome = run(stores[0], ("find", "OFFSET"), *options)
        assert (outcome.code, outcome.output) == (2, b"")
        assert says in outcome.errors


@pytest.mark.parametrize(
    "command",
    [
        ("find", "U0", "--as", "unique-key", "--server", "127.0.0.1:1"),
        ("find", "7F00000100002A9F00000000000019B5", "--from-id"),
        ("find", "U0", "--server", "127.0.0.1:1"),
        ("tail", "--topic", "T", "--server", "127.0.0.1:1"),
        ("find", "k", "--as", "key", "--topic", "T", "--server", "127.0.0.1:1"),
    ],
    ids=" ".join,
)
def test_no_server_is_asked_with_a_mask_wherever_it_comes_from(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = rocketlens(*command, "--mask", "keys")
    monkeypatch.setenv(f"ROCKETLENS_{command[0].upper()}_MASK_FILE", "/no/such/file")
    for outcome in (typed, rocketlens(*command)):
        assert (outcome.code, outcome.output) == (2, b"")
        assert "are for a STORE, not for a server" in outcome.errors


def test_programs_get_masked_messages_too(stores: list[StoreWriter]) -> None:
    with face.open(stores[0].root, mask=RULES["a pattern"]) as store:
        for found in (store.query("T", key="order-1"), store.pull("T", 0, 0), store.find("order-1"), store.view(0)):
            assert FIRST not in repr([(each.body, each.properties, each.message_id) for each in found])
        assert store.space().tags == ()
        with pytest.raises(ConfigError, match="cannot be searched"):
            store.view(f"U-{FIRST}")


@pytest.mark.parametrize("form", [[], ["--json"], ["--verbose"]], ids=" ".join)
def test_a_unique_key_among_the_keys_of_a_trace_is_found_no_more_than_one_that_is_nowhere(
    tmp_path: Path, form: list[str]
) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("MyTraceTopic", b"Pub\x011700000000000\x01", keys="UNIQUE-1 order-1", unique_key="T1")
    writer.close()
    said = []
    for key in ("UNIQUE-1", "UNIQUE-2"):
        outcome = rocketlens(
            "find", writer.root, key, "--as", "key", "--topic", "MyTraceTopic", "--mask", "unique_key", *form
        )
        said.append((outcome.code, outcome.output, outcome.errors.replace(key, "KEY")))
    assert said[0] == said[1]
    assert said[0][:2] == (1, b"")


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_command_ends_with_how_much_was_hidden_whole(tmp_path: Path, count: int) -> None:
    writer = StoreWriter(tmp_path / "store")
    for number in range(count):
        written = writer.append("T", b"a" * 60, properties={"p": f"x{number}"})
    writer.append("T", b"behind")
    writer.close()
    end = " hidden whole: a pattern or path of the mask did not come to an end there"
    said = {1: f"1 body or property value was{end}", 2: f"2 bodies or property values were{end}"}
    for command, times in (
        (("find", writer.root, written.physical_offset), 1),
        (("search", writer.root, "--topic", "T", "--contains", "***"), count),
        (("search", writer.root, "--topic", "T"), count),
    ):
        done = process.rocketlens(*map(str, command), "--mask", "/(a+)+b/", "--json")
        assert done.stdout.count(b'"***"') == times, command
        assert done.stderr.decode().splitlines()[-1:] == [f"rocketlens: {said[times]}"], command
