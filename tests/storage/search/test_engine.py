"""Searching a store by content against a loop over its records; pages, stops, threads, damage, sizes."""

import gzip
import threading
import zlib
from dataclasses import replace
from types import SimpleNamespace

import lz4.frame
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import search_oracle
from asked_patterns import recorded
from damage_cases import SEGMENT, write_store
from damage_oracle import intact
from examples import examples
from oracles import read_log
from protocol.errors import ConfigError
from storage.patterns._pattern_process import PATIENCE
from storage.search import plan as planning
from storage.search.criteria import Criteria, SearchPlace, parse_size_range
from storage.search.engine import search, search_in_threads
from storage.search.progress import ProgressReport
from storage.search.query import ONE_SPELLING
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import StoreWriter
from strategies import StorePlan, store_plans

UNREADABLE = "whose body cannot be decompressed or taken apart, or holds a pattern up without end"

LAZY = StoreOptions(scan_budget=0, check_budget=0)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "CHUNK_BYTES", 500)


def hits_of(steps):
    return [(message.physical_offset, message.queue_offset) for step in steps for message in step.messages]


def found(root, criteria, **options):
    return hits_of(search(MessageStore.open(root, LAZY), criteria, **options))  # type: ignore[arg-type]


def by_loop(root, criteria):
    return search_oracle.hits(read_log(root / "commitlog"), criteria)


COMPRESSED = {
    0x1: zlib.compress, 0x101: lz4.frame.compress, 0x201: zstandard.ZstdCompressor().compress, 0x301: zlib.compress,
}  # fmt: skip


class TestBodies:
    def test_what_a_compressed_body_says_is_found(self, tmp_path) -> None:
        with StoreWriter(tmp_path) as writer:
            body = b"all the same " * 40
            for flag, compress in COMPRESSED.items():
                writer.append("T", compress(body), sys_flag=flag)
                writer.append("T", compress(body + b"needle"), sys_flag=flag)
        hits = [(each.physical_offset, each.queue_offset) for each in writer.written[1::2]]
        for criteria in (Criteria(contains=b"needle"), Criteria(regex="need.e$"), Criteria(minimum_size=len(body) + 1)):
            assert found(tmp_path, criteria) == hits
        assert len(found(tmp_path, Criteria(maximum_size=len(body)))) == len(COMPRESSED)

    @pytest.mark.parametrize("pack", [zstandard.ZstdCompressor().compress, zlib.compress], ids=["zstd", "zlib"])
    def test_what_an_application_packed_is_found_unpacked_and_as_it_is(self, tmp_path, pack) -> None:
        with StoreWriter(tmp_path) as writer:
            body = b'{"id": 4711, "text": "needle needle needle needle"}'
            writer.append("T", pack(b"all the same " * 40))
            hit = writer.append("T", pack(body))
            batch = writer.append_inner_batch("B", [(b"one", {}), (pack(body), {})])
        expected = [(hit.physical_offset, 1), (batch.physical_offset, batch.queue_offset + 1)]
        for criteria in (
            Criteria(contains=b"needle needle"), Criteria(regex="^.{20}.*needle"), Criteria(json_path="$.id=4711"),
            Criteria(contains=pack(body)), Criteria(contains=b"needle needle", charset="gbk"),
        ):  # fmt: skip
            assert found(tmp_path, criteria) == expected == by_loop(tmp_path, criteria)
        assert found(tmp_path, Criteria(minimum_size=len(pack(body)), contains=b"needle")) == expected
        assert found(tmp_path, Criteria(minimum_size=len(pack(body)) + 1, contains=b"needle")) == []

    def test_a_packed_body_that_cannot_be_unpacked_is_named(self, tmp_path) -> None:
        with StoreWriter(tmp_path) as writer:
            writer.append("T", gzip.compress(b"needle" * 30)[:-9])
            bomb = writer.append("T", gzip.compress(gzip.compress(bytes(65 << 20), 1), 1))
        steps = search(MessageStore.open(tmp_path, LAZY), Criteria(contains=b"something else"))
        (last,) = [step for step in steps if step.is_last]
        left_out = f"are left out: 0, {bomb.physical_offset}"
        assert f"2 records {UNREADABLE}, {left_out}" in last.notes
        assert found(tmp_path, Criteria(contains=b"x", place=SearchPlace.PROPERTIES, minimum_size=1)) == []

    def test_a_charset_that_is_none_and_bytes_that_are_no_text_are_refused(self, tmp_path) -> None:
        with StoreWriter(tmp_path) as writer:
            writer.append("T", b"x")
        with pytest.raises(ConfigError, match="'klingon' is no charset"):
            found(tmp_path, Criteria(contains=b"x", charset="klingon"))
        with pytest.raises(ConfigError, match="bytes that are no UTF-8"):
            found(tmp_path, Criteria(contains=b"\xff", charset="gbk"))

    @pytest.mark.soak
    @pytest.mark.parametrize("charset", sorted(ONE_SPELLING))
    def test_no_two_sequences_of_bytes_are_one_character_where_texts_are_looked_for_by_bytes(self, charset) -> None:
        spelled: dict[str, bytes] = {}
        for number in range(1 << 16):
            for data in (bytes([number >> 8, number & 0xFF]), bytes([number & 0xFF])):
                try:
                    text = data.decode(charset)
                except UnicodeDecodeError:
                    continue
                if len(text) == 1:
                    assert spelled.setdefault(text, data) == data == text.encode(charset)
        assert len(spelled) >= 128

    def test_messages_of_a_batch_are_told_apart(self, tmp_path) -> None:
        with StoreWriter(tmp_path) as writer:
            messages = [(b"one", {"TAGS": "A"}), (b"two", {"TAGS": "B", "KEYS": "k"}), (b"two", {"TAGS": "A"})]
            batch = writer.append_inner_batch("B", messages)
        assert found(tmp_path, Criteria(contains=b"two")) == [(batch.physical_offset, n) for n in (1, 2)]
        assert found(tmp_path, Criteria(tag="A", contains=b"two")) == [(batch.physical_offset, 2)]
        assert found(tmp_path, Criteria(key_prefix="k")) == [(batch.physical_offset, 1)]
        assert found(tmp_path, Criteria(contains=b"A", place=SearchPlace.PROPERTIES)) == [
            (batch.physical_offset, n) for n in (0, 2)
        ]


bodies = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([
        *(b'{"id": 5, "a": [{"b": "abc"}]}', b'{"id":"5"}', b'{"a":[{"b":"\\u0061bc"}]}', b"abc", b"xabcx" * 30),
        *(gzip.compress(b'{"id": 5}' + b" " * 60), gzip.compress(gzip.compress(b"xabc" * 9)), b"\x1f\x8b\x08abc"),
        *(zstandard.compress(b"abc" * 20), '{"b": "标abc"}'.encode("gbk"), "标".encode("utf-16-le")),
    ]),
)  # fmt: skip
NAMED_SENDERS = [{"__BORNHOST": named} for named in ("10.1.2.3", "10.1.9.9:81", "[::1]:80", "APP", "app:5")]
messages = st.lists(
    st.fixed_dictionaries({
        "topic": st.sampled_from(["T", "TT", "消息"]), "body": bodies,
        "keys": st.sampled_from([None, "a b", "abc k1", " abc"]),
        "unique_key": st.sampled_from([None, "abc", "7F"]), "tags": st.sampled_from([None, "A", "AB", "标"]),
        "properties": st.sampled_from([{}, {"n": "5"}, {"n": "abc"}, {"A": "abc", "n": "7"}, *NAMED_SENDERS]),
        "sys_flag": st.sampled_from([0, 0, 0, 1, 0x101, 0x201, 0x301, 0x701]),
        "born_host": st.sampled_from([("10.1.2.3", 80), ("10.1.9.9", 81), ("::1", 80), ("2001:db8::5", 81)]),
        "magic": st.sampled_from([None, 0xDAA320AB]), "property_crc": st.booleans(),
    }),
    min_size=1,
    max_size=25,
)  # fmt: skip
criteria_of_all_kinds = st.builds(
    Criteria,
    topic=st.sampled_from([None, None, "T", "消息", "nowhere"]),
    contains=st.sampled_from([None, None, b"abc", b"a", b"bcxx", b"\x00", b"5", "标".encode()]),
    place=st.sampled_from(SearchPlace),
    regex=st.sampled_from([None, None, None, "abc", "^ab?c", "(?i)ABC", "x(abc)+x", "."]),
    json_path=st.sampled_from([None, None, None, "$.id=5", "$..b=abc", "$.a[0].b=abc"]),
    where=st.sampled_from([None, None, None, "n > 4", "n = 'abc' OR TAGS = 'A'", "n IS NULL"]),
    tag=st.sampled_from([None, None, "A", "标", "\ufffd"]),
    key=st.sampled_from([None, None, None, "abc", "a"]),
    key_prefix=st.sampled_from([None, None, None, "a", "7", "b"]),
    born_host=st.sampled_from(
        [None, None, None, "10.1.2.3", "10.1.0.0/16", "10.1.9.9:81", "::1", "[::1]:80", "::/0", "app", "App:5"]
    ),
    minimum_size=st.sampled_from([0, 0, 3, 30]),
    maximum_size=st.sampled_from([None, None, 3, 200]),
    charset=st.sampled_from([None, None, None, "gbk", "utf-16-le", "big5"]),
)  # fmt: skip


def pack(message: dict[str, object]) -> dict[str, object]:
    compress = COMPRESSED.get(message["sys_flag"], b"\x00\xff\x01".__add__)  # type: ignore[call-overload]
    return {**message, "body": compress(message["body"]) if message["sys_flag"] else message["body"]}


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages, st.lists(criteria_of_all_kinds, min_size=1, max_size=6), st.sampled_from([1, 3]))
def test_any_criteria_find_in_any_log_what_a_loop_finds(tmp_path_factory, plan, asked, threads) -> None:
    root = tmp_path_factory.mktemp("store")
    StorePlan({"segment_size": 2048}, list(map(pack, plan))).write(root)
    store = MessageStore.open(root, LAZY)
    for criteria in asked:
        assert hits_of(search(store, criteria, threads=threads, exhaustive=True)) == by_loop(root, criteria)


@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(store_plans().filter(lambda plan: plan.messages), st.integers(1, 5), st.sampled_from([1, 3]))
def test_pages_joined_are_the_whole(tmp_path_factory, plan, limit, threads) -> None:
    root = tmp_path_factory.mktemp("store")
    plan.write(root)
    store, criteria = MessageStore.open(root, LAZY), Criteria(contains=b"\x00")
    everything = hits_of(search(store, criteria, exhaustive=True))
    assert everything == by_loop(root, criteria)
    paged, cursor = [], None
    for _ in range(len(everything) + 2):
        steps = list(search(store, criteria, limit=limit, cursor=cursor, threads=threads, exhaustive=True))
        page, cursor = hits_of(iter(steps)), steps[-1].cursor
        assert len(page) == limit or cursor is None
        paged += page
        if cursor is None:
            break
    assert paged == everything


class TestSteps:
    @pytest.fixture
    def store(self, tmp_path):
        with StoreWriter(tmp_path, segment_size=4096) as writer:
            for number in range(60):
                writer.append("T", b"body %d" % number)
        return MessageStore.open(tmp_path, LAZY)

    def test_a_search_may_be_left_early(self, store: MessageStore) -> None:
        before = set(threading.enumerate())
        steps = search(store, Criteria(), threads=2)
        assert next(steps).messages
        started = set(threading.enumerate()) - before
        assert started
        steps.close()  # type: ignore[attr-defined]
        assert not any(thread.is_alive() for thread in started)
        assert list(steps) == []

    def test_a_cursor_of_another_search_is_refused(self, store: MessageStore) -> None:
        cursor = next(search(store, Criteria(contains=b"body"), limit=1)).cursor
        with pytest.raises(ConfigError, match="belongs to a search for something else"):
            search(store, Criteria(contains=b"bode"), cursor=cursor)
        for nonsense in ("", "x", "é", "AAAA", "%%%%"):
            with pytest.raises(ConfigError, match="is not valid"):
                search(store, Criteria(), cursor=nonsense)


def test_a_search_that_nobody_closed_may_be_collected_on_one_of_its_own_threads() -> None:
    """The last reference to it may go on any thread; there it cannot wait for that thread itself."""
    may_close, is_over = threading.Event(), threading.Event()
    outcomes = []

    def run(chunk: int) -> int:
        if chunk == 3:
            may_close.wait(60)
            try:
                outcomes.append(parts.close())
            except RuntimeError as error:
                outcomes.append(error)
            is_over.set()
        return chunk

    parts = search_in_threads(SimpleNamespace(run=run), range(8), threads=2)
    assert next(parts) == (0, 0)
    may_close.set()
    assert is_over.wait(60)
    assert outcomes == [None]


def test_nothing_is_found_by_a_body_that_is_hidden_whole(tmp_path) -> None:
    """A trace in a topic of one's own repeats keys and hosts of others; what else there is of it is found."""
    with StoreWriter(tmp_path / "store") as writer:
        for topic, body in (("Orders", b'{"n":"secret-1"}'), ("MyTraceTopic", b"Pub\x011700000000000\x01secret-1\x02")):
            writer.append(topic, body, properties={"colour": f"red of {topic}"})
        writer.append("B", zlib.compress(b"Pub\x01secret-1\x02"), sys_flag=1)
    order, trace, packed = ([(each.physical_offset, 0)] for each in writer.written)
    for criteria in (
        Criteria(contains=b"secret-1"), Criteria(contains=b"secret-1", charset="gbk"), Criteria(regex="secret-1"),
        Criteria(regex=r"^\*\*\*$|secret-1"), Criteria(regex=r"^$|secret-1", place=SearchPlace.BODY),
        Criteria(contains=b"secret-1", place=SearchPlace.ANY),
    ):  # fmt: skip
        assert found(writer.root, criteria) == order + trace + packed
        masked = replace(criteria, masked=("keys",))
        assert found(writer.root, masked) == order, criteria
    for content in (Criteria(regex=r"^\*\*\*$"), Criteria(contains=b"*"), Criteria(json_path="$.n=secret-1")):
        assert found(writer.root, replace(content, masked=("keys",))) in ([], order)
    kept = Criteria(contains=b"red of MyTraceTopic", place=SearchPlace.ANY, masked=("keys",))
    assert found(writer.root, kept) == trace
    assert found(writer.root, Criteria(minimum_size=20, masked=("keys",))) == trace


def test_many_messages_that_a_pattern_has_no_end_with_are_left_out_soon(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(planning, "CHUNK_BYTES", 1 << 20)
    with StoreWriter(tmp_path / "store", segment_size=1 << 20) as writer:
        for number in range(40):
            writer.append("T", b"%s%d" % (b"a" * 60, number) if number % 4 else b"aab")
    store = MessageStore.open(writer.root, LAZY)
    with recorded() as asked:
        steps = list(search(store, Criteria(regex="(a+)+b", masked=("/(x+)+y/",))))
    assert sum(len(step.messages) for step in steps) == 10
    assert any(note.startswith("30 records") for note in steps[-1].notes), steps[-1].notes
    assert asked.patient == PATIENCE, "the store is one piece"


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    return write_store(tmp_path_factory.mktemp("damage") / "store")


def intact_offsets(writer: StoreWriter) -> set[int]:
    content = {base: path.read_bytes() for base, path in writer.log.segments.items()}
    places = [divmod(written.physical_offset, SEGMENT) for written in writer.written]
    return {SEGMENT * n + at for n, at in places if intact(content[SEGMENT * n], at, SEGMENT * n)}


@pytest.mark.untraced
@example([(1373, b"\0\0\xc0")]).via("a message without a body that says it is a batch")
@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2 * SEGMENT - 1), st.binary(min_size=1, max_size=9)), min_size=1, max_size=5))
def test_any_damage_costs_only_what_is_damaged(writer: StoreWriter, damage: list[tuple[int, bytes]]) -> None:
    content = {base: path.read_bytes() for base, path in writer.log.segments.items()}
    try:
        for place, data in damage:
            with writer.log.segments[place // SEGMENT * SEGMENT].open("r+b") as file:
                file.seek(place % SEGMENT)
                file.write(data[: SEGMENT - place % SEGMENT])
        in_any = Criteria(topic="A", regex="o.y", place=SearchPlace.ANY)
        for criteria in (Criteria(), Criteria(contains=b"body"), in_any):
            steps = list(search(MessageStore.open(writer.root, LAZY), criteria, exhaustive=True))
            found = {message.physical_offset for step in steps for message in step.messages}
            intact_now = intact_offsets(writer)
            assert found <= intact_now
            assert criteria != Criteria() or found == intact_now or "left out" in "; ".join(steps[-1].notes)
    finally:
        for base, path in writer.log.segments.items():
            path.write_bytes(content[base])


def test_a_hole_in_a_segment_is_told_as_damage(writer: StoreWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "CHUNK_BYTES", 300)
    path = writer.log.segments[0]
    before = path.read_bytes()
    try:
        path.write_bytes(before[:500] + bytes(2000) + before[2500:])
        steps = list(search(MessageStore.open(writer.root, LAZY), Criteria(), threads=2))
        assert {message.physical_offset for step in steps for message in step.messages} == intact_offsets(writer)
        lost = [written for written in writer.written if written.physical_offset not in intact_offsets(writer)]
        behind = next(each for each in writer.written if each.physical_offset >= 2500)
        said = f"hold no intact record: {lost[0].physical_offset} to {behind.physical_offset}"
        assert said in "; ".join(steps[-1].notes)
    finally:
        path.write_bytes(before)


def test_sizes_are_read_and_progress_is_told() -> None:
    # Sizes are read and other texts are none.
    for text, sizes in {"512": (512, 512), "1k..2M": (1024, 2 << 20), "..3": (0, 3), "100..": (100, None)}.items():
        assert parse_size_range(text) == sizes
    for text in ["", "..", "x", "1.5k", "-1", "5..4", "1kB"]:
        with pytest.raises(ConfigError):
            parse_size_range(text)
    # Progress is told in a sentence.
    assert ProgressReport(0, 0, 0, 0.0).sentence() == "searched 0 of 0 bytes (100 %), 0 found"
    assert ProgressReport(5, 5, 1, 2.0).sentence() == "searched 5 of 5 bytes (100 %), 1 found, 2.50 bytes/s, in 2.0 s"
    resumed = ProgressReport(3 * 10**9, 4 * 10**9, 2, 2.0, before_bytes=2 * 10**9)
    assert resumed.sentence() == "searched 3 of 4 GB (75 %), 2 found, 500 MB/s, 0:00:02 left"
