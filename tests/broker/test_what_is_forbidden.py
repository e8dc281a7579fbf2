"""What a mask or an account forbids is in no answer, file or line of a log: every surface is asked."""

import asyncio
import io
import itertools
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocketlens as face
from acl_file import signed_fields, write_accounts
from broker_harness import connected, service_of, serving
from command_line import rocketlens
from draining import pull_of
from examples import examples
from protocol.codes import RequestCode
from secret_stores import GROUP, HIDDEN_BY, OPEN, SECRETS, TOPIC, Way, is_whole, leaked, secret_store
from spark_jobs.export.export_formats import FORMATS
from storage.columns.mask import read_mask
from storage.columns.message_columns import gather
from storage.columns.names import KINDS
from storage.columns.rows import RowReader
from storage.columns.wanted import Wanted
from storage.log.log_window import LocalFile, LogWindow
from storage.store.message_store import MessageStore
from web_questions import ApiOf, keys

SECRET = "pass12345678"
RESTRICTED, MANAGER = ("restricted", SECRET), ("manager-key", SECRET)
ACCOUNTS = f"""accounts:
- accessKey: {RESTRICTED[0]}
  secretKey: {SECRET}
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
  topicPerms:
  - {TOPIC}=DENY
- accessKey: {MANAGER[0]}
  secretKey: {SECRET}
  admin: true
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
  topicPerms:
  - {TOPIC}=DENY
"""
"""Accounts that may see all but one topic, the second an administrator."""

CONTENT = ("secret", "1", "*", "Pub", "words")
"""Texts that bodies hold, or their masks."""


def test_every_topic_of_the_table_is_tried() -> None:
    assert is_whole()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return secret_store(tmp_path_factory.mktemp("secrets") / "store")


def api_questions(store):
    ways = [
        ("/message", {}), ("/message/body", {}), ("/message/body", {"unpacked": "true"})
    ]  # fmt: skip
    for offset, (path, more) in zip({**store.secret, **store.open}, itertools.cycle(ways)):
        yield path, {"offset": offset, **more}
    for offset in [*store.secret, *store.open][::8]:
        yield "/find", {"text": str(offset)}
    for topic in store.topics:
        yield "/queue/message", {"topic": topic, "queueId": 0, "queueOffset": 0}
        yield "/messages", {"topic": topic}
        yield "/messages", {"topic": topic, "tag": "A"}
        yield "/filter", {"topic": topic, "sql": "card IS NULL"}
        yield "/histogram", {"topic": topic}
        yield "/topic", {"topic": topic}
        yield "/tail", {"topic": topic}
        yield "/search", {"topic": topic, "contains": "1"}
    for text in CONTENT:
        yield "/search", {"contains": text}
        yield "/search", {"contains": text, "place": "any"}
    yield "/search", {"minimumSize": 1}
    yield "/search", {"where": "card IS NOT NULL"}
    yield "/search", {"keyPrefix": "order"}
    for text in ("order-1", "U0", "T0", "A"):
        yield "/find", {"text": text}
    for key in ("U0", "T0", "N0", "T1"):
        yield "/message/life", {"uniqueKey": key}
    for path in ("/topics", "/pending", "/space", "/store", "/health"):
        yield path, {}
    yield "/pending", {"topic": OPEN}


def shown_by_the_api(api, store, headers=None, part=slice(None)):
    for path, question in list(api_questions(store))[part]:
        answer = api.ask(path, headers=headers, **question)
        while answer.json is not None and isinstance(answer.json, dict) and answer.json.get("state") == "running":
            answer = api.ask(path, headers=headers, **question)
        yield f"API {path} {question}", answer.content + repr(answer.headers).encode()


def commands(store, keys_file):
    keys_file.write_text("order-1\nU0\n")
    for offset in store.secret:
        yield "find", str(offset), "--full", "--as", "physical-offset"
    for topic in store.topics:
        yield "tail", "--topic", topic, "--last", "50"
        yield "find", "order-1", "--topic", topic, "--as", "key"
    yield "find", "order-1", "--topic", TOPIC, "--as", "key", "--copies"
    yield from (("find", text) for text in ("order-1", "U0", "T0", "A"))
    yield from (("search", "--contains", text) for text in CONTENT)
    yield from (("search", "--contains", text, "--in", "any") for text in CONTENT)
    yield from (("search", "--regex", pattern) for pattern in (r"[a-z]", r"^\*\*\*$|secret"))
    yield "search", "--json-path", "$.n=1"
    yield "search", "--key-prefix", "order"
    yield "search", "--where", "card IS NOT NULL"
    yield "search", "--size", "1..99999"
    yield "search", "--topic", TOPIC, "--tag", "*", "--explain"
    yield "find", "-f", str(keys_file)
    yield from (("life", "--unique-key", key) for key in ("U0", "T0", "N0", "T1"))
    yield ("pending",)
    yield ("space",)
    yield ("topics",)


def shown_by_commands(store, keys_file, rules, part):
    masks = [text for rule in rules for text in ("--mask", rule)]
    for name, *arguments in list(commands(store, keys_file))[part]:
        own = [] if name == "topics" else masks
        for form in ([], ["--json"]):
            outcome = rocketlens(name, store.root, *arguments, *own, *form)
            assert outcome.code in (0, 1, 2), outcome.errors
            yield f"{name} {' '.join(form)}", outcome.output + outcome.errors.encode()
    for offset in list(store.secret)[part]:
        outcome = rocketlens("find", store.root, str(offset), "--as", "physical-offset", "--body", "-", *masks)
        yield "find --body", outcome.output + outcome.errors.encode()


def shown_by_exports(store, rules):
    """What a task of an export writes in each format, and what a task of the data source reads."""
    mask = read_mask(rules)
    (segment,) = (store.root / "commitlog").iterdir()
    for names in (tuple(KINDS), ("keys", "physical_offset"), ("properties", "topic"), ("body_crc", "body")):
        with LogWindow(LocalFile(segment), 0) as window:
            reader = RowReader(window, Wanted(), names="properties" not in mask.reading(names))
            gathered = (gather(rows, mask.reading(names)) for rows in reader.read(0, segment.stat().st_size))
            blocks = [mask.apply(columns, names) for each in gathered for columns in each]
        assert blocks
        for form, write in FORMATS.items():
            file = io.BytesIO()
            writer = write(file, names, "none" if form == "parquet" else None)
            for columns in blocks:
                writer.write(columns)
            file_bytes = file.getvalue() if form == "parquet" else None
            writer.close()
            yield f"export {form}", file_bytes or file.getvalue()
    with face.open(store.root, mask=rules) as opened:
        for columns_of in (None, ["keys"], ["body"], ["properties", "unique_key"]):
            table = face.arrow(opened, columns=columns_of).read_all()
            yield "arrow", repr(table.to_pylist()).encode()


def shown_by_programs(store, rules):
    with face.open(store.root, mask=rules) as opened:
        for topic in store.topics:
            pulled = opened.pull(topic, 0, 0)
            yield "pull", repr([(each, each.body, each.properties, each.message_id) for each in pulled]).encode()
        yield "repr", repr((opened, opened.topics())).encode()


def assert_hidden(surfaces, secrets) -> int:
    tried = 0
    for surface, shown in surfaces:
        tried += 1
        assert not leaked(shown, secrets), surface
    return tried


@pytest.mark.parametrize(
    ("rules", "secrets"),
    [
        pytest.param(rules, secrets, marks=[pytest.mark.soak] if number % 6 else [], id=" ".join(rules))
        for number, (rules, secrets) in enumerate(reversed(HIDDEN_BY.items()))
    ],
)
def test_what_a_mask_hides_is_nowhere(made, tmp_path, rules, secrets, caplog) -> None:
    """In no command, export or program; `web/api/test_access.py` asks the API."""
    part = slice([*HIDDEN_BY].index(rules) // 2, None, 8)
    with caplog.at_level(logging.DEBUG):
        tried = assert_hidden(shown_by_commands(made, tmp_path / "keys", rules, part), secrets)
        tried += assert_hidden(shown_by_exports(made, rules), secrets)
        tried += assert_hidden(shown_by_programs(made, rules), secrets)
    assert tried > 40
    assert not leaked(caplog.text.encode(), secrets)


def test_without_a_mask_each_secret_is_somewhere(made, tmp_path) -> None:
    everything = b"".join(shown for _, shown in shown_by_the_api(ApiOf(made.root), made, part=slice(None, None, 9)))
    assert leaked(everything, SECRETS) == list(SECRETS)
    exported = b"".join(shown for _, shown in shown_by_exports(made, ("charset=gbk",)))
    assert leaked(exported, SECRETS) == list(SECRETS)


WAYS = st.builds(Way, is_compressed=st.booleans(), is_packed=st.booleans())
MASKS = st.sets(st.sampled_from(sorted(HIDDEN_BY)), min_size=1, max_size=3)


@settings(max_examples=examples(1), deadline=None, suppress_health_check=[*HealthCheck])
@given(WAYS, MASKS, st.booleans(), st.integers(0, 31))
def test_what_masks_hide_is_nowhere_however_bodies_are_stored(tmp_path_factory, way, masks, knows_group, start) -> None:
    """By some of the questions and commands, and every record in every format."""
    root, part = tmp_path_factory.mktemp("drawn"), slice(start, None, 32)
    store = secret_store(root / "store", way, knows_group=knows_group)
    rules = tuple(dict.fromkeys(rule for each in sorted(masks) for rule in each))
    secrets = tuple({secret for each in masks for secret in HIDDEN_BY[each]})
    assert_hidden(shown_by_exports(store, rules), secrets)
    assert_hidden(shown_by_programs(store, rules), secrets)
    assert_hidden(shown_by_the_api(ApiOf(store.root, masked=rules), store, part=part), secrets)
    assert_hidden(shown_by_commands(store, root / "keys", rules, part), secrets)


async def shown_by_the_port(store, accounts, who):
    service = service_of(await asyncio.to_thread(MessageStore.open, store.root), acl=accounts)
    found = []
    times = {"beginTimestamp": "0", "endTimestamp": "9" * 18}
    requests: list[tuple[RequestCode, dict[str, str]]] = []
    for offset in {**store.secret, **store.open}:
        requests.append((RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}))
        requests.append((RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset), "topic": OPEN}))
    for topic in store.topics:
        for copies in ("", "true"):
            named = {"topic": topic, "key": "order-1", "maxNum": "64", "rocketlensCopies": copies}
            requests.append((RequestCode.QUERY_MESSAGE, named | times))
        requests.append((RequestCode.PULL_MESSAGE, pull_of(topic, consumerGroup=GROUP)))
        requests.append((RequestCode.GET_CONSUME_STATS, {"consumerGroup": GROUP, "topic": topic}))
    of_group = {"consumerGroup": GROUP, "group": GROUP}
    requests += [(RequestCode.GET_CONSUME_STATS, of_group), (RequestCode.QUERY_TOPICS_BY_CONSUMER, of_group)]
    requests += [
        (RequestCode.GET_ALL_CONSUMER_OFFSET, {}),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    ]
    async with serving(service) as server, connected(server.addresses[0]) as client:
        for code, fields in requests:
            answer = await client.ask(code, signed_fields(fields, *who))
            named_here = TOPIC in repr(fields)
            said = "" if named_here else repr((answer.remark, answer.ext_fields))
            found.append((f"port {code.name} {fields}", said.encode() + bytes(answer.body)))
    return found


@pytest.mark.parametrize("knows_group", [True, pytest.param(False, marks=pytest.mark.soak)])
@pytest.mark.parametrize("who", [RESTRICTED, MANAGER], ids=lambda who: who[0])
def test_what_is_denied_to_an_account_is_nowhere(tmp_path, who, knows_group, caplog) -> None:
    store = secret_store(tmp_path / "store", knows_group=knows_group)
    accounts = write_accounts(tmp_path / "plain_acl.yml", ACCOUNTS)
    with caplog.at_level(logging.DEBUG):
        half = slice(2 * (who == MANAGER), None, 4)
        surfaces = list(shown_by_the_api(ApiOf(store.root, accounts), store, keys(*who), half))
        surfaces += asyncio.run(shown_by_the_port(store, accounts, who))
    assert assert_hidden(iter(surfaces), SECRETS) > 140
    assert any(b"open words" in shown for _, shown in surfaces), "what is not denied is shown"
    assert not leaked(caplog.text.encode(), SECRETS)
    if who == RESTRICTED:  # an administrator may know the names of all topics
        unnamed = [(surface, shown) for surface, shown in surfaces if TOPIC not in surface]
        assert len(unnamed) > 100
        assert [surface for surface, shown in unnamed if TOPIC.encode() in shown] == []
