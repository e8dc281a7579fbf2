"""`--mask` and `--mask-file`: no command shows what is hidden, and none finds messages by it."""

import pytest

from command_line import rocketlens
from store_kinds import RULES, SECRETS, hidden_stores

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
        for one, command in enumerate(COMMANDS)
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
    some = COMMANDS[::3]
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
