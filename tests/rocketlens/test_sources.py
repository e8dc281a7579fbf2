"""What `rocketlens.open` makes of a place; several stores and a store behind a URL answer as a directory does."""

import contextlib
import itertools
import re
import shutil
from functools import partial
from pathlib import Path

import fsspec
import pytest

import rocketlens
from broker_harness import FakeStore, service_of, serving_in_a_thread
from golden_store import GOLDEN, unpack
from loop_engine import run_jobs_here
from name_server import NamedBrokers
from rocketlens.several_stores import SeveralStores
from rocketlens.url_store import UrlStore
from spark_jobs.places import hollow_copy, remote_file
from spark_jobs.places.remote_file import RemoteFile
from storage.store.message_store import MessageStore
from store_writer import StoreWriter, appended, closed_store

KINDS = {"a directory": rocketlens.Store, "several directories": SeveralStores, "a URL": UrlStore}
KINDS["a broker, a name server"] = rocketlens.RemoteStore
NUMBERS = itertools.count()
ARGUMENTS = {"pull": ("TopicTest", 0, 0), "life": ("a",), "queues": ("TopicTest",)}
ARGUMENTS |= {"follow": ("TopicTest", {}), "look_up": (["hotkey"],)}


@pytest.fixture
def url(g1_store, monkeypatch):
    run_jobs_here(monkeypatch)
    place = f"memory://sources-{next(NUMBERS)}"
    memory = fsspec.filesystem("memory")
    memory.put(str(g1_store), place, recursive=True)
    yield place
    memory.rm(place, recursive=True)


def test_a_place_is_a_path_then_a_url_then_an_address(g1_store, tmp_path, monkeypatch) -> None:
    for place in (g1_store, str(g1_store), f"file://{g1_store}"):
        with rocketlens.open(place) as source:
            assert isinstance(source, rocketlens.Store)
            assert source.path == g1_store
    assert isinstance(rocketlens.open("memory://somewhere"), UrlStore)
    assert isinstance(rocketlens.open("broker-a:10911"), rocketlens.RemoteStore)
    assert isinstance(rocketlens.open([str(g1_store), g1_store]), SeveralStores)
    (tmp_path / "broker-a:10911").symlink_to(g1_store)
    monkeypatch.chdir(tmp_path)
    assert isinstance(rocketlens.open("broker-a:10911"), rocketlens.Store)
    for nothing in ("nowhere", tmp_path / "nowhere:1"):
        with pytest.raises(rocketlens.NotAStore, match="nowhere"):
            rocketlens.open(nothing)


def test_an_option_of_another_kind_of_source_is_an_error(g1_store: Path) -> None:
    wrong = {"memory://somewhere": {"state_directory": "/tmp/state"}, "broker-a:10911": {"mask": ["keys"]}}
    for place, options in (*wrong.items(), (g1_store, {"tls": True}), ([g1_store], {"tier": "/tmp/tier"})):
        with pytest.raises(rocketlens.ConfigError, match=f"{next(iter(options))}: .* has no such option"):
            rocketlens.open(place, **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'masks'"):
        rocketlens.open(g1_store, masks=[])
    with pytest.raises(rocketlens.ConfigError, match="expected the directories of stores, got none"):
        rocketlens.open([])


@pytest.mark.parametrize("kind", KINDS)
def test_a_method_that_a_source_does_not_have_says_why(kind, g1_store, server) -> None:
    places = {"a directory": g1_store, "several directories": [g1_store], "a URL": "memory://somewhere"}
    with rocketlens.open(places.get(kind, str(server))) as source:
        for name, reason in source.why_not.items():
            with pytest.raises(rocketlens.ConfigError) as caught:
                getattr(source, name)(*ARGUMENTS.get(name, ()))
            assert str(caught.value) == f"`{name}`: {reason}"


@pytest.mark.parametrize("kind", [None, "unique key or key"])
def test_many_texts_name_the_same_in_a_directory_behind_a_url_and_in_several_stores(g1_store, url, kind) -> None:
    ids = ["FD000000000000000000000000000002708C30946E09687211CE0017", "7F00000100002A9F00000000000019B5"]
    texts = ["hotkey", "nowhere", "BB", "0", *ids, "hotkey"]
    answers = []
    for place in (g1_store, url, [g1_store]):
        with rocketlens.open(place) as source:
            found = source.look_up(texts, kind=kind)
            named = [(match.text, match.kind, match.message.physical_offset) for match in found]
            answers.append((named, found.missing, found.notes))
    assert answers == [answers[0]] * 3
    named, missing, _ = answers[0]
    assert {text for text, _, _ in named}.isdisjoint(missing)
    assert {text for text, _, _ in named} | {*missing} == {*texts}
    kinds = {"unique key", "key"} if kind == "unique key or key" else {kind}
    assert named
    assert kind is None or {by for _, by, _ in named} <= kinds


def test_a_url_has_what_the_directory_has(g1_store: Path, url: str) -> None:
    with rocketlens.open(g1_store) as local, rocketlens.open(url) as there:
        offset_id = local.view(0)[0].offset_message_id
        for text in (offset_id, "6582"):
            assert places(there.view(text)) == places(local.view(text))
        asked = (local.query("TopicTest", key="hotkey", maximum=7), there.query("TopicTest", key="hotkey", maximum=7))
        assert [(places(found), found.cursor) for found in asked] == [(places(asked[0]), asked[0].cursor)] * 2
        expected, found = local.find("hotkey", maximum=1000), there.find("hotkey", maximum=1000)
        assert places(found) == places(expected) == paged(there, "hotkey", 25) != []
        assert [each.kind for each in found.readings] == [each.kind for each in expected.readings]
        assert [topic.name for topic in there.topics()] == [topic.name for topic in local.topics()]
        found_there = [message.body for message in there.search(topic="TopicTest", contains="hot 3")]
        assert found_there == [message.body for message in local.search(topic="TopicTest", contains="hot 3")] != []
    with pytest.raises(rocketlens.Error, match="is closed"):
        there.view(0)


def places(found: rocketlens.Answer) -> list[int]:
    return [message.physical_offset for message in found]


def paged(source, text, maximum) -> list[int]:
    found = source.find(text, maximum=maximum)
    listed = places(found)
    while found.next_page is not None:
        assert len(found) >= maximum
        found = source.find(text, maximum=maximum, cursor=found.next_page)
        listed += places(found)
    return listed


@pytest.fixture
def two_stores(g1_store: Path, tmp_path: Path) -> list[Path]:
    """Stores of two brokers, some of whose topics have the same names."""
    return [g1_store, unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-queues")]


def test_several_directories_are_asked_as_a_name_server_is(two_stores: list[Path]) -> None:
    services = [service_of(MessageStore.open(store)) for store in two_stores]
    with serving_in_a_thread(services[0]) as one, serving_in_a_thread(services[1]) as other:
        topics = [{topic.name for topic in rocketlens.open(store).topics()} for store in two_stores]
        both, only = sorted(topics[0] & topics[1]), sorted(topics[0] - topics[1])
        assert (len(both), len(only)) > (0, 0)
        brokers = NamedBrokers(sorted(topics[0] | topics[1]), a=one, b=other)
        with (
            serving_in_a_thread(service_of(FakeStore()), [brokers]) as names,
            rocketlens.open(str(names)) as remote,
            rocketlens.open(two_stores) as local,
        ):
            assert local.topics() == [rocketlens.Topic(each.name) for each in remote.topics()]
            texts = ("hotkey", "0", "TagA", "nobody", local.view(0)[0].offset_message_id)
            for text, maximum in itertools.product(texts, (2, 1000)):
                ours, theirs = local.find(text, maximum=maximum), remote.find(text, maximum=maximum)
                assert places(ours) == places(theirs)
                assert ours.kinds == theirs.kinds
                assert (ours.reason == "") == (theirs.reason == "") == (len(ours) > 0)
                is_cut = [any("there are more than" in note for note in found.notes) for found in (ours, theirs)]
                assert is_cut == [len(local.find(text, maximum=1000)) > len(ours)] * 2
                read = [[(each.kind, each.found) for each in found.readings] for found in (ours, theirs)]
                assert read[0] == read[1]
                assert places(local.view(text)) == places(remote.view(text))
            for text, maximum in (("hotkey", 17), ("TagA", 17)):
                found = places(local.find(text, maximum=1000))
                assert paged(local, text, maximum) == paged(remote, text, maximum) == found
            found = local.query("TopicTest", tag="TagA", maximum=5)
            assert places(found) == places(remote.query("TopicTest", tag="TagA", maximum=5)) != []


def test_what_one_store_alone_can_answer_is_asked_of_the_one_that_has_the_topic(two_stores, tmp_path) -> None:
    with rocketlens.open(two_stores) as both, rocketlens.open(two_stores[0]) as first:
        assert places(both.pull("TopicBatch", 1, 0)) == places(first.pull("TopicBatch", 1, 0)) != []
        assert both.queues("TopicBatch") == first.queues("TopicBatch")
        assert both.queues("nowhere") == []
        assert both.life("OrderID188") == first.life("OrderID188")
    again = shutil.copytree(two_stores[0], tmp_path / "again")
    with rocketlens.open([two_stores[0], again]) as twice:
        query = partial(twice.query, "TopicTest", key="a", cursor=5)
        for ask in (partial(twice.pull, "TopicTest", 0, 0), query, partial(twice.life, "hotkey")):
            with pytest.raises(rocketlens.ConfigError, match="in several"):
                ask()


@pytest.mark.parametrize("topic", [None, "TopicBatch"])
def test_a_search_of_several_stores_goes_through_one_after_the_other_and_goes_on_where_it_ended(
    two_stores, topic
) -> None:
    whole = []
    for path in two_stores:
        with rocketlens.open(path) as store, contextlib.suppress(rocketlens.NoSuchTopic):
            whole += [(str(path), each.physical_offset) for each in store.search(topic=topic, size="1..")]
    with rocketlens.open(two_stores) as stores:
        for step in (7, 10, 52):  # TopicBatch has ten messages, TopicTest 52 in one store
            found: list[tuple[str, int]] = []
            cursor = None
            for limit in (step, 1, step + 100, None):
                search = stores.search(topic=topic, size="1..", limit=limit, cursor=cursor)
                found += [(search.store, message.physical_offset) for message in search]
                cursor = search.cursor
                if cursor is None:
                    break
            assert found == whole
        assert {store for store, _ in found} == set(map(str, two_stores[: 2 if topic is None else 1]))
        with pytest.raises(rocketlens.ConfigError, match="not valid for a search of 2 stores"):
            stores.search(cursor="2/")
        with pytest.raises(rocketlens.NoSuchTopic, match="did you mean TopicTest"):
            list(stores.search(topic="TopicTst"))


def test_what_comes_to_several_stores_is_followed_in_all(tmp_path: Path) -> None:
    writers = [StoreWriter(tmp_path / name) for name in ("a", "b")]
    for writer in writers:
        writer.append("T", b"before")
        writer.close()
    with rocketlens.open([each.root for each in writers]) as stores:
        assert isinstance(stores, SeveralStores)
        coming = stores.follow_each("T", {str(writers[0].root): {0: 1}})
        where, (message,) = next(coming)
        assert (where, message.body) == (str(writers[1].root), b"before")


def waiting(source):
    with source.pending() as found:
        return found.as_of, found.incomplete, found.topics(), list(found.messages())


QUESTIONS = {
    "groups": lambda source: source.groups(),
    "topics": lambda source: source.topics(),
    "info": lambda source: source.info(),
    "queues": lambda source: [source.queues(name) for name in ("TopicTest", "TopicBatch", "%RETRY%CG_FAIL", "none")],
    "pull": lambda source: [source.pull("TopicTest", queue_id, 3) for queue_id in range(4)],
    "pending": waiting,
    "life": lambda source: [source.life(text) for text in ("batch-0", "hotkey", "nosuchkey")],
    "doctor": lambda source: source.doctor(),
}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many bytes were fetched of each file, in small pieces."""
    found: dict[str, int] = {}
    fetch = RemoteFile._fetch

    def counted(self: RemoteFile, start: int, stop: int) -> bytes:
        found[Path(self.path).name] = found.get(Path(self.path).name, 0) + stop - start
        return fetch(self, start, stop)

    monkeypatch.setattr(RemoteFile, "_fetch", counted)
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)
    monkeypatch.setattr(hollow_copy, "UNIT_BYTES", 512)
    monkeypatch.setattr(hollow_copy, "MOST_AHEAD", 2048)
    return found


def put(store: Path) -> str:
    """A place for a copy of a store in a file system that only this process has."""
    place = f"memory://url-store-{next(NUMBERS)}"
    fsspec.filesystem("memory").put(str(store), place, recursive=True)
    return place


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    made: dict[str, tuple[Path, str]] = {}

    def store(name: str) -> tuple[Path, str]:
        if name not in made:
            series, _, archive = name.partition("/")
            root = unpack(archive, tmp_path_factory.mktemp("stores"), archives=GOLDEN / series)
            made[name] = root, put(root)
        return made[name]

    yield store
    for _, place in made.values():
        fsspec.filesystem("memory").rm(place, recursive=True)


def said(source: rocketlens.Source, question: str, place: str) -> str:
    try:
        text = repr(QUESTIONS[question](source))
    except rocketlens.Error as error:
        text = str(error)
    return re.sub(r"seconds=[\d.e-]+", "", text.replace(place, "STORE"))


@pytest.mark.parametrize(
    "question",
    [pytest.param(each, marks=[] if each in ("groups", "pull", "doctor") else pytest.mark.soak) for each in QUESTIONS],
)
@pytest.mark.parametrize("name", ["g1/store-crashed"])
def test_every_question_has_the_answer_of_the_directory(name, question, stores, fetched) -> None:
    root, place = stores(name)
    with rocketlens.open(root) as here, rocketlens.open(place) as there:
        assert said(there, question, place) == said(here, question, str(root))
    assert fetched


def test_old_segments_are_not_fetched_to_see_groups_and_queues(tmp_path: Path, fetched: dict[str, int]) -> None:
    writer = closed_store(tmp_path / "store", *(appended("T", bytes(900)) for _ in range(600)), segment_size=1 << 16)
    segments = sorted(each.name for each in (writer.root / "commitlog").iterdir())
    place = put(writer.root)
    with rocketlens.open(place) as source:
        queue = source.queues("T")[0]
        assert (queue.min_offset, queue.max_offset) == (0, 600)
        assert source.groups() == []
        assert source.pull("T", 0, 100, maximum=1)[0].queue_offset == 100
        assert len(segments) > 8
        assert sum(fetched.get(each, 0) for each in segments[:-1]) < 1 << 17
    fsspec.filesystem("memory").rm(place, recursive=True)


def test_what_cannot_be_fetched_is_an_error_and_the_next_question_is_asked_anew(stores, fetched, monkeypatch) -> None:
    _, place = stores("g1/store")
    with rocketlens.open(place) as source:
        for question in ("groups", "pull"):
            with monkeypatch.context() as patch:
                memory = type(fsspec.filesystem("memory"))
                cat = memory.cat_file

                def spoiled(self, path, *given, cat=cat, **more) -> bytes:
                    if "commitlog" in path:
                        raise OSError("the line is cut")
                    return bytes(cat(self, path, *given, **more))

                patch.setattr(memory, "cat_file", spoiled)
                source.close()
                source = rocketlens.open(place)
                with pytest.raises(rocketlens.Error, match=rf"{place}/commitlog/\d+: cannot be read .*the line is cut"):
                    QUESTIONS[question](source)
            assert QUESTIONS[question](source)


def test_what_is_no_store_and_what_is_broken_bear_the_names_that_they_have_behind_the_url(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "file").write_bytes(b"x")
    writer = closed_store(tmp_path / "broken", appended("T", b"first"))
    (writer.root / "config" / "consumerOffset.json").write_bytes(b"{")
    memory = fsspec.filesystem("memory")
    for root, error in ((tmp_path / "nothing", rocketlens.NotAStore), (writer.root, rocketlens.Error)):
        place = put(root)
        said = []
        for where in (root, place):
            with pytest.raises(error) as caught, rocketlens.open(str(where)) as source:
                source.groups()
            said.append(str(caught.value).replace(str(where), "STORE"))
        assert said[0] == said[1]
        memory.rm(place, recursive=True)


@pytest.mark.parametrize("maximum", [2, 39])
def test_what_one_of_several_stores_has_is_found_up_to_a_limit_as_in_it_alone(two_stores, maximum) -> None:
    with rocketlens.open(two_stores) as stores, rocketlens.open(two_stores[0]) as first:
        found, alone = stores.find("hotkey", maximum=maximum), first.find("hotkey", maximum=maximum)
    assert {message.keys[0] for message in found} == {"hotkey"}
    assert len(found) == maximum
    assert (found.messages, found.kinds, found.readings) == (alone.messages, alone.kinds, alone.readings)
    assert found.notes == alone.notes
