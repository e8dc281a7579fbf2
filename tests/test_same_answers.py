"""One question has one answer, whichever surface it is asked on: store, server, name server, page, command."""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import rocketlens
from broker_harness import FakeStore, service_of, serving_in_a_thread
from command_line import rocketlens as command
from examples import examples
from golden_store import CASES, GOLDEN, unpack
from name_server import NamedBrokers
from protocol.host_address import HostAddress
from protocol.message_id import encode_message_id
from rocketlens.cli.find import AS
from storage.life.pending import PendingWindow
from storage.store.message_store import MessageStore, StoreOptions
from web_questions import ApiOf

Source = rocketlens.Store | rocketlens.RemoteStore

STORES = {
    "g1": ("store", GOLDEN / "g1"),
    "crashed": ("store-crashed", GOLDEN / "g1"),
    "queues": ("store", GOLDEN / "g2" / "g2-queues"),
    "transactions": ("store", CASES / "A3-A4-transactions"),
    "popped": ("store", CASES / "A1-A2-B1-pop"),
    "batches": ("store", CASES / "B2-B3-batches"),
    "rocksdb": ("store", GOLDEN / "g2" / "g2-rocksdb"),
    "tiered": ("store", GOLDEN / "g2" / "g2-tier"),
}

TELLING = ("batches", "rocksdb", "tiered")
"""Stores that differ in what their answers are made of; `make soak` asks the others too."""

ASKED = {name: pytest.param(name, marks=[] if name in TELLING else [pytest.mark.soak]) for name in STORES}

OF_ONE_LOG = [each for name, each in ASKED.items() if name != "tiered"]
"""The stores whose messages all lie in the log that the oracle reads."""

MOST = 1000
LARGEST = 2**63 - 1

OTHER_TEXTS = ("0", "nobody", "9" * 19, str(2**63), "9" * 40)


@dataclass
class Served:
    """A recorded store in all the ways in which it can be asked."""

    root: Path
    tier: Path | None
    sources: dict[str, Source]
    commands: dict[str, tuple[object, ...]]
    api: ApiOf
    records: list[oracles.Record] = field(default_factory=list)

    @property
    def topics(self) -> list[str]:
        return sorted({record.topic for record in self.records})


@pytest.fixture(scope="module", params=ASKED.values(), ids=ASKED.keys())
def served(request, tmp_path_factory):
    name, archives = STORES[request.param]
    root = unpack(name, tmp_path_factory.mktemp(request.param), archives=archives)
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr("web_questions.DEADLINE_SECONDS", 180.0)
        tier = root / "tiered" if request.param == "tiered" else None
        opened = MessageStore.open(root, StoreOptions(tier=tier))
        address = stack.enter_context(serving_in_a_thread(service_of(opened, tier=tier)))
        store = stack.enter_context(rocketlens.open(root, tier=tier))
        names = NamedBrokers([topic.name for topic in store.topics()], a=address)
        name_server = stack.enter_context(serving_in_a_thread(service_of(FakeStore()), [names]))
        sources: dict[str, Source] = {
            "directory": store,
            "server": stack.enter_context(rocketlens.connect(str(address))),
            "name server": stack.enter_context(rocketlens.connect(str(name_server))),
        }
        commands = {
            "command": (root,) if tier is None else (root, "--tier", tier),
            "command of a server": ("--server", address),
            "command of a name server": ("--server", name_server),
        }
        api = ApiOf(root) if tier is None else ApiOf(root, tier=tier)
        messages = [each for record in oracles.read_log(root / "commitlog") for each in oracles.messages_of(record)]
        yield Served(root, tier, sources, commands, api, messages)


class Found(NamedTuple):
    """How it ended, the places of its messages and as what each was found, the readings, and if there are more."""

    ending: str
    messages: tuple[tuple[int, str], ...] = ()
    readings: tuple[tuple[str, int, str], ...] = ()
    is_cut: bool = False


REFUSED = Found("refused")


def said_by(source, ask):
    try:
        return ask(source)
    except (rocketlens.ConfigError, rocketlens.FilterSyntaxError):
        return REFUSED
    except rocketlens.NoSuchTopic:
        return Found("no such topic")


def of_command(outcome):
    ending = {0: "found", 1: "nothing", 2: "refused"}[outcome.code]
    return ending, tuple((each["physicalOffset"], each.get("foundBy", "")) for each in outcome.messages)


def options_of(**options: object) -> list[str]:
    """Options of a command, those that are None left out."""
    return [part for name, value in options.items() if value is not None for part in (f"--{name}", str(value))]


def says_more(lines):
    return any("there are more than" in line for line in lines)


def find_everywhere(served, text, kind=None, maximum=MOST, **options):
    """What each surface finds for a text, all but the page if it is taken for one thing. Times are numbers, which all
    surfaces take. Of the page the first answer, or all where a maximum is more than it gives at once."""
    narrowed = [] if kind is None else ["--as", next(typed for typed, words in AS.items() if words == kind)]

    def ask(source: Source) -> Found:
        found = source.find(text, maximum=maximum, kind=kind, **options)
        messages = tuple((message.physical_offset, kind) for message, kind in zip(found, found.kinds, strict=True))
        readings = tuple((each.kind, each.found, each.note) for each in found.readings)
        return Found("found" if found else "nothing", messages, readings, says_more(found.notes))

    answers = {name: said_by(source, ask) for name, source in served.sources.items()}
    for name, where in served.commands.items():
        outcome = command("find", *where, text, "--limit", maximum, "--json", *options_of(**options), *narrowed)
        is_cut = says_more(outcome.errors.splitlines())
        if kind is not None and "topic" in options and "offset" not in kind:  # such a list is continued by a cursor
            is_cut = "there are older matches" in outcome.errors
        answers[name] = Found(*of_command(outcome), answers["directory"].readings, is_cut)
        if outcome.code == 0 and kind is None:
            said = [line for line in outcome.errors.splitlines() if line.startswith("rocketlens: as ")]
            assert [line.split(": ")[1].removeprefix("as ") for line in said] == [
                kind for kind, _, _ in answers["directory"].readings
            ]
    if kind is not None:
        return answers
    pages = []
    cursor, limit = None, min(maximum, 200)
    while not pages or (cursor is not None and maximum > limit):
        answer = served.api.ask("/find", text=text, limit=limit, milliseconds=10_000, cursor=cursor, **options)
        if answer.status != 200:
            assert answer.status == 400, answer.content
            return answers | {"page": REFUSED}
        pages.append(answer.json)
        cursor = answer.json["cursor"]
    messages = tuple((each["physicalOffset"], each["foundBy"]) for page in pages for each in page["messages"])
    counts: dict[str, tuple[int, str]] = {}
    for each in (each for page in pages for each in page["tried"]):
        count, note = counts.get(each["kind"], (0, ""))
        counts[each["kind"]] = count + each["found"], note or each["note"]
    readings = tuple((kind, *rest) for kind, rest in counts.items())
    return answers | {"page": Found("found" if messages else "nothing", messages, readings, cursor is not None)}


def agreed(answers: dict[str, Found]) -> Found:
    first = next(iter(answers.values()))
    assert answers == dict.fromkeys(answers, first)
    return first


def texts_of(record: oracles.Record) -> list[str]:
    """Everything that names a record, and what nearly does."""
    properties, offset = record.properties, record.physical_offset
    keys = oracles.split_keys(properties.get("KEYS", ""))
    named = [*keys, properties.get("UNIQ_KEY", ""), properties.get("TAGS", "")]
    # Segments are named by 20 digits, and so are offsets by some people.
    places = [str(offset), f"{offset:020d}", f"{offset:040d}", str(offset + 1)]
    ids = [encode_message_id(HostAddress(ip, 10911), offset) for ip in ("127.0.0.1", "10.0.0.1")]
    return [text for text in (*named, *places, *ids, ids[0].lower()) if text.strip()]


@pytest.mark.parametrize("served", OF_ONE_LOG, indirect=True)
@settings(max_examples=examples(4))
@given(data=st.data())
def test_what_a_text_names_is_found_on_every_surface(served: Served, data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(served.records))
    text = data.draw(st.sampled_from([*texts_of(record), *OTHER_TEXTS]))
    topic = data.draw(st.sampled_from([None, None, record.topic, served.topics[0], "ordrs"]))
    times = st.none() | st.sampled_from([0, record.store_timestamp, record.store_timestamp + 1, 2**63, 2**64])
    begin, end = data.draw(times), data.draw(times)
    kind = data.draw(st.sampled_from([None, None, *AS.values()]))
    options = {"topic": topic, "begin": begin, "end": end, "kind": kind}
    found = agreed(find_everywhere(served, text, **{name: each for name, each in options.items() if each is not None}))
    first, last = 0 if begin is None else min(begin, LARGEST), LARGEST if end is None else min(end, LARGEST)
    assert (found.ending == "refused") == (first > last or 2**64 in (begin, end))
    if found.ending == "refused":
        return
    judged = {
        (each.physical_offset, part)
        for each in served.records
        if topic in (None, each.topic)
        for part, texts, is_timed in (
            ("unique key", [each.properties.get("UNIQ_KEY")], False),
            ("key", oracles.split_keys(each.properties.get("KEYS", "")), True),
            ("tag", [each.properties.get("TAGS")], True),
        )
        if text in texts and kind in (None, part) and (not is_timed or first <= each.store_timestamp <= last)
    }
    places = {place for place, by in found.messages if by in ("offset message id", "physical offset")}
    by_text = {(place, by) for place, by in found.messages if place not in places}
    assert kind is None or {by for _, by in found.messages} <= {kind}
    # A message that is named twice is listed once, by the first part that names it.
    assert by_text <= judged
    assert {place for place, _ in judged} <= {place for place, _ in found.messages}


@pytest.mark.parametrize("served", OF_ONE_LOG, indirect=True)
@settings(max_examples=examples(3))
@given(data=st.data())
def test_a_limit_that_is_reached_leaves_the_same_out_on_every_surface(served: Served, data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(served.records))
    text = data.draw(st.sampled_from(texts_of(record)))
    options = {"kind": data.draw(st.sampled_from([None, None, "key", "tag"]))}
    if data.draw(st.booleans()):
        options["topic"] = record.topic
    whole = served.sources["directory"].find(text, maximum=MOST, **options)
    maximum = data.draw(st.sampled_from([1, 2, *(max(len(whole) + more, 1) for more in (-1, 0, 1))]))
    found = agreed(find_everywhere(served, text, maximum=maximum, **options))
    places = [message.physical_offset for message in whole]
    kept = min(maximum, len(places))
    while kept < len(places) and places[kept - 1] == places[kept]:  # of a batch all messages are listed
        kept += 1
    assert found.messages == tuple(zip(places[:kept], whole.kinds, strict=False))
    assert found.is_cut == (kept < len(places))
    if not found.is_cut:
        assert found.readings == tuple((each.kind, each.found, each.note) for each in whole.readings)


@pytest.mark.parametrize("served", ["tiered"], indirect=True)
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(text, kind, marks=[] if kind is None else [pytest.mark.soak])
        for text in ("old-7", "new-7", "TagB", "shared", "nobody", "UNIQUE")
        for kind in (None, "key", "unique key", "tag")
    ],
)  # fmt: skip
def test_what_a_text_names_in_tiered_files_is_found_on_every_surface(served, text, kind) -> None:
    """The newest messages of a topic, of which a tier gives one page."""
    directory = served.sources["directory"]
    if text == "UNIQUE":
        text = directory.find("old-7")[0].unique_key or ""
    found = agreed(find_everywhere(served, text, kind))
    if kind is None:
        assert bool(found.messages) == (text != "nobody")
    if text == "old-7" and kind in (None, "key"):
        assert [each.keys for each in directory.find(text)] == [["old-7", "shared", "old"]]


def viewed(source: Source, text: int | str, topic: str | None) -> Found:
    found = source.view(text, topic=topic)
    notes = tuple(("note", 1, note) for note in found.notes)
    return Found("found" if found else "nothing", tuple((each.physical_offset, "") for each in found), notes)


@settings(max_examples=examples(4))
@given(data=st.data())
def test_an_id_shows_the_same_message_everywhere(served: Served, data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(served.records))
    unique_key = record.properties.get("UNIQ_KEY", "nobody")
    ids = [text for text in texts_of(record) if text.isdigit() or len(text) in (32, 56)]
    text = data.draw(st.sampled_from([*ids, unique_key, *OTHER_TEXTS]))
    topic = data.draw(st.sampled_from([None, record.topic, served.topics[0], "ordrs"]))
    answers = {name: said_by(source, lambda each: viewed(each, text, topic)) for name, source in served.sources.items()}
    found = agreed(answers)
    if text in (str(record.physical_offset), f"{record.physical_offset:020d}") and topic == "ordrs":
        assert found.ending == "nothing"


def query_everywhere(served, topic, options):
    def ask(source: Source) -> Found:
        found = source.query(topic, **options)
        messages = tuple((each.physical_offset, "") for each in found)
        return Found("found" if found else "nothing", messages, (("cursor", found.cursor or 0, ""),))

    return {name: said_by(source, ask) for name, source in served.sources.items()}


def judged_newest(records, topic, options):
    """The places of the newest messages with a key, by a look at all; with one of a batch all of it that match."""
    kind = next(name for name in ("key", "unique_key", "tag") if name in options)
    letter, end = {"key": "K", "unique_key": "U", "tag": "T"}[kind], options.get("end", LARGEST)
    matching = [
        each.physical_offset
        for each in records
        if each.topic == topic and oracles.has_key(each, options[kind], letter) and each.sys_flag & 0xC != 0xC
        if kind == "unique_key" or each.store_timestamp <= end
    ]
    first = max(len(matching) - options["maximum"], 0)
    while 0 < first < len(matching) and matching[first - 1] == matching[first]:
        first -= 1
    return matching[first:]


@settings(max_examples=examples(4))
@given(data=st.data())
def test_a_query_has_the_same_messages_and_cursor_everywhere(served: Served, data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(served.records))
    properties = record.properties
    asked = [{"key": text} for text in (*oracles.split_keys(properties.get("KEYS", "")), "nobody")] + [
        {"unique_key": properties.get("UNIQ_KEY", "nobody")},
        {"tag": properties.get("TAGS", "nobody")},
    ]
    options = data.draw(st.sampled_from(asked))
    topic = data.draw(st.sampled_from([record.topic, record.topic, "ordrs"]))
    options |= {"maximum": data.draw(st.sampled_from([1, 7, 64, 100])), "copies": data.draw(st.booleans())}
    if data.draw(st.booleans()):
        options["end"] = data.draw(st.sampled_from([record.store_timestamp - 1, record.store_timestamp, 2**64]))

    found = agreed(query_everywhere(served, topic, options))
    if served.tier is None and not options["copies"] and found.ending != "refused":
        assert [place for place, _ in found.messages] == judged_newest(served.records, topic, options)
    kind = next(name for name in ("key", "unique_key", "tag") if name in options)
    typed = {"as": kind.replace("_", "-"), "topic": topic, "limit": options["maximum"], "until": options.get("end")}
    copies = ["--copies"] if options["copies"] else []
    for where in served.commands.values():
        outcome = command("find", *where, options[kind], "--json", *options_of(**typed), *copies)
        ending, messages = of_command(outcome)
        assert (ending, [place for place, _ in reversed(messages)]) == (
            found.ending,
            [place for place, _ in found.messages],
        )


@settings(max_examples=examples(4))
@given(data=st.data())
def test_a_queue_is_pulled_alike(served: Served, data: st.DataObject) -> None:
    store = served.sources["directory"]
    topic = data.draw(st.sampled_from([*(topic.name for topic in store.topics()), "ordrs", "%RETRY%nonesuch"]))
    queue_id = data.draw(st.sampled_from([0, 1, 99, -1, 2**31, 2**70]))
    offset = data.draw(st.sampled_from([0, 1, 3, 10_000, 2**63, 2**70]))
    tag = data.draw(st.sampled_from([None, "", "*", "||", "TagA || TagB"]))

    def ask(source: Source) -> Found:
        found = source.pull(topic, queue_id, offset, tag=tag)
        messages = tuple((each.physical_offset, each.unique_key or "") for each in found)
        return Found("found" if found else "nothing", messages)

    found = agreed({name: said_by(source, ask) for name, source in served.sources.items()})
    assert (found.ending == "refused") == (queue_id >= 2**31 or offset >= 2**63 or tag == "||")


def whole_store(source: Source, keys: list[str]) -> list[object]:
    """What a source says of the whole store, without what is another at another moment."""
    answers: list[object] = [source.life(key) for key in keys]
    with source.pending() as pending:
        answers += [pending.topics(), pending.as_of, pending.incomplete, list(pending.messages())]
        answers += [pending.topics(PendingWindow(topic.topic)) for topic in pending.topics()]
    space, diagnosis = source.space(), source.doctor()
    return [*answers, replace(space, forecast=None), replace(diagnosis, seconds=0.0)]


@pytest.mark.parametrize("served", OF_ONE_LOG, indirect=True)
def test_life_and_the_whole_store_are_the_same_over_the_network(served: Served) -> None:
    each = max(len(served.records) // 5, 1)
    keys = list(dict.fromkeys(each.properties.get("UNIQ_KEY", "nobody") for each in served.records))[::each]
    places = [str(each.physical_offset) for each in served.records[::each]]
    answers = {name: whole_store(source, [*keys, *places, "nobody"]) for name, source in served.sources.items()}
    assert any(life.events for life in answers["directory"][: len(keys)])  # type: ignore[attr-defined]
    assert answers["server"] == answers["name server"] == answers["directory"]


@pytest.mark.parametrize("served", OF_ONE_LOG, indirect=True)
@settings(max_examples=examples(3))
@given(data=st.data())
def test_a_search_has_the_same_order_and_goes_on_where_it_ended_everywhere(served: Served, data: st.DataObject) -> None:
    topic = data.draw(st.sampled_from(served.topics))
    limits = data.draw(st.lists(st.integers(1, 40), max_size=4))

    def ask(source: Source) -> Found:
        found: list[tuple[int, str]] = []
        cursor = None
        for limit in (*limits, None):
            search = source.search(topic=topic, limit=limit, cursor=cursor)
            page = [(message.physical_offset, str(message.queue_offset)) for message in search]
            assert limit is None or len(page) <= limit
            found, cursor = found + page, search.cursor
            if cursor is None:
                break
        return Found("found" if found else "nothing", tuple(found))

    agreed({name: said_by(source, ask) for name, source in served.sources.items()})


def extents(source: Source, topic: str) -> dict[int, tuple[int, int]]:
    return {each.queue_id: (each.min_offset, each.max_offset) for each in source.queues(topic)}


def test_topics_queues_and_how_far_all_reaches_are_the_same(served: Served) -> None:
    for source in served.sources.values():
        assert replace(source.info(), where="", version=None) == replace(served.sources["directory"].info(), where="")
    directory, server, name_server = served.sources.values()
    topics = directory.topics()
    assert topics == server.topics()
    assert [topic.name for topic in topics] == [topic.name for topic in name_server.topics()]
    listed = {each["topic"]: each["queues"] for page in served.api.pages("/topics") for each in page["topics"]}
    for topic in topics:
        queues = extents(directory, topic.name)
        assert extents(server, topic.name) == extents(name_server, topic.name) == queues
        pages = served.api.pages("/topic", topic=topic.name)
        lines = [each for page in pages for each in page["queues"]]
        assert {each["queueId"]: (each["minOffset"], each["maxOffset"]) for each in lines} == queues
        assert listed[topic.name] == pages[0]["queueCount"] == len(queues)
    assert [source.queues("%RETRY%nonesuch") for source in served.sources.values()] == [[], [], []]
    assert served.api.ask("/topic", topic="%RETRY%nonesuch").status == 404


def named(outcome):
    """The places of listed messages, sorted, and their unique keys, which messages of a batch have each its own."""
    return sorted((row["physicalOffset"], row["uniqueKey"] or "") for row in outcome.messages)


def test_the_end_of_a_topic_is_the_same_and_whole(served: Served) -> None:
    """Light queues and batches have offsets of their own."""
    directory = served.sources["directory"]
    topics = directory.topics()
    empty = [each for each in topics if all(first == end for first, end in extents(directory, each.name).values())]
    kinds: dict[str, rocketlens.Topic] = {}
    for topic in topics:
        kinds.setdefault("empty" if topic in empty else topic.name[:5] if topic.name[0] == "%" else "", topic)
    for topic in kinds.values():
        ends = [
            named(command("tail", *where, "--topic", topic.name, "--json", "-n", MOST))
            for where in served.commands.values()
        ]
        pulled = sorted(
            (message.physical_offset, message.unique_key or "")
            for queue in directory.queues(topic.name)
            for message in pulled_whole(directory, topic.name, queue.queue_id)
        )
        assert ends == [pulled] * 3
        listed = [
            line["uniqueKey"] or ""
            for queue in directory.queues(topic.name)
            for page in served.api.pages("/messages", topic=topic.name, queueId=queue.queue_id)
            for line in page["messages"]
        ]
        assert sorted(listed) == sorted(key for _, key in pulled)
        everything = ("--topic", topic.name, "--tag", "*", "--json")
        searched = named(command("search", *served.commands["command"], *everything))
        # What a tier and the log both have is at another place in each.
        assert sorted(key for _, key in searched) == sorted(key for _, key in pulled)
        if topic.name.startswith("%LMQ%"):
            for source in served.sources.values():
                found = [(each.physical_offset, each.unique_key or "") for each in source.search(topic=topic.name)]
                assert sorted(found) == pulled


def pulled_whole(source, topic, queue_id):
    offset, end = 0, 1
    while offset < end:
        found = source.pull(topic, queue_id, offset)
        yield from found
        if found.next_offset <= offset:
            return
        offset, end = found.next_offset, found.max_offset
