"""Any bytes of a peer, a record or a store's files: a value or an error of the documented kind, and true answers."""

import inspect
import mmap
import os
import random
import re
import shutil
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import damage_oracle
import growing_index
import oracles
from examples import examples
from frame_garbage import HEADERS, changed
from fuzz.decoders import CORPUS, feed_decoders
from golden_frames import recorded_frames
from golden_store import vectors
from growing_store import Followed, hurry
from kernel_memory import record_at
from oracles import packed
from protocol import headers
from protocol.bodies import CheckClientRequestBody, HeartbeatData, LockBatchRequestBody, TopicRouteData, decode_json
from protocol.checksum import verify_property_crc
from protocol.command import Response, decode_command, decode_header, encode_response, ext_fields_of
from protocol.errors import BadCommand, BadHeader, CorruptRecord, ProtocolError, StoreError, TruncatedFile
from protocol.fastjson import parse_fastjson
from protocol.frame import FrameDecoder
from protocol.headers import RequestHeader
from protocol.host_address import HostAddress
from protocol.message import decode_message, decode_messages
from protocol.message_edit import with_store_host, without_property
from protocol.question import KeyKind, Question
from queue_stores import open_queues
from storage.files.mapped_file import MappedFile
from storage.files.waiting import finish
from storage.filter.tag import TagFilter, parse_tag_expression
from storage.index.index_file import IndexFile, determine_shape
from storage.kernels import lookups as kernel
from storage.kernels.store_view import IndexFilesView, RunsView, Shortcuts, StoreView
from storage.log.commit_log import CommitLog, Segment
from storage.log.segment_end import EndSearch
from storage.query.get_message import GetMessageStatus, get_message
from storage.query.lookup_call import run_lookup
from storage.queue.queue import TimeBoundary
from storage.store.message_store import MessageStore, StoreOptions
from store_files import write_file
from store_writer import StoreWriter
from strategies import damaged

EXAMPLES = min(100_000, 300 * settings.default.max_examples)

PAGE = mmap.PAGESIZE
EDGES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
BLANK = oracles.packed(300, 4) + oracles.BLANK_MAGIC.to_bytes(4, "big")
KEYS = ("k0", "k1", "k2", "Aa", "BB", "u3", "\ufffd")


class ChangingFile:
    def __init__(self, path, content) -> None:
        self.original = content.ljust(-(-len(content) // PAGE) * PAGE, b"\0")
        path.write_bytes(self.original)
        self._descriptor = os.open(path, os.O_RDWR)
        self.file = MappedFile.open(path)

    def __del__(self) -> None:
        os.close(self._descriptor)

    def change(self, generator: random.Random, places: list[int]) -> bytes:
        """One to four bytes anew, at or near interesting places or anywhere; the new content."""
        content = bytearray(self.original)
        for _ in range(generator.randint(1, 4)):
            place = generator.choice(places) + generator.randrange(8) if generator.random() < 0.7 else None
            place = generator.randrange(len(content)) if place is None else min(place, len(content) - 1)
            content[place] = generator.choice(EDGES) if generator.random() < 0.5 else generator.randrange(256)
        if generator.random() < 0.05:
            cut = generator.randrange(len(content))
            content[cut:] = generator.choice([b"\0", b"\xff", b"\xda"]) * (len(content) - cut)
        os.pwrite(self._descriptor, content, 0)
        return bytes(content)


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> ChangingFile:
    data = b""
    for number in range(12):
        flags = (0, 0x10, 0x20, 0x30)[number % 4]
        data += record_at(len(data), keys=f"k{number % 3} Aa", unique_key=f"u{number}", tags="t", sys_flag=flags,
                          property_crc=number % 3 == 0)  # fmt: skip
    return ChangingFile(tmp_path_factory.mktemp("segment") / f"{0:020d}", data + BLANK + data[:400])


@pytest.fixture(scope="module")
def places(segment: ChangingFile) -> list[int]:
    """Where sizes, magics, own offsets, flags and lengths stand, and the BLANK."""
    found = []
    for record in oracles.scan_segment(segment.original, 0):
        found += [record.physical_offset + position for position in (0, 4, 28, 36, 76, 84, record.total_size - 30)]
    return [*found, len(segment.original) - PAGE % 300]


def record_of(content: bytes, position: int) -> oracles.Record | None:
    """The intact record that starts at a position of the segment, by the oracle."""
    record = oracles.read_record(content, position, position)
    if record is None or not oracles.property_crc_holds(content[position : position + record.total_size]):
        return None
    return record


def test_the_end_of_changed_segments_is_found(segment: ChangingFile, places: list[int]) -> None:
    generator = random.Random(1)
    for number in range(EXAMPLES // 4):
        content = segment.change(generator, places)
        end = EndSearch(0, segment.file).run(generator.choice([0, 0, 200, 4096, -1, 2**63 - 1]))
        assert 0 <= end.position <= segment.file.size
        if number % 20 == 0:
            end = EndSearch(0, segment.file).run()
            assert (end.position, [(each.start, each.stop) for each in end.damage]) == damage_oracle.valid_end(content)


@pytest.fixture(scope="module")
def index_file(tmp_path_factory: pytest.TempPathFactory, segment: ChangingFile) -> ChangingFile:
    image = oracles.IndexImage(7, 150)
    for record in oracles.scan_segment(segment.original, 0):
        for text in oracles.index_keys(record):
            image.put(text, record.physical_offset, record.store_timestamp)
    return ChangingFile(tmp_path_factory.mktemp("index") / "20260101000000000", image.to_bytes())


INDEX_PLACES = [32, 36, *range(40, 68, 4), *(68 + 20 * n + field for n in range(50) for field in (0, 4, 12, 16))]
WORST = 2**40


def shapes_of(index_file, count, seed):
    """Changed index files that are sound in themselves, with their shapes."""
    generator = random.Random(seed)
    for _ in range(count):
        content = index_file.change(generator, INDEX_PLACES)
        shape = determine_shape(index_file.file, generator.choice([[], [7], [7, 5_000_000], [1, 2, 3]]))
        if shape is not None:
            yield generator, content, shape


def test_changed_index_files_are_sound_or_undecided(index_file: ChangingFile) -> None:
    sound = 0
    for generator, content, shape in shapes_of(index_file, EXAMPLES // 4, seed=4):
        sound += 1
        if sound % 10 == 0:
            assert growing_index.first_bad_entry(content, shape.slots, shape.entries) == 0
        assert 40 + 4 * shape.slots + 20 * (shape.entries + 1) <= len(content) or not shape.entries
        chain = list(IndexFile(index_file.file, shape).chain(generator.randrange(2**31)))
        assert [number for number, _ in chain] == sorted({number for number, _ in chain}, reverse=True)
    assert EXAMPLES // 500 < sound < EXAMPLES // 4


def test_lookups_end_whatever_changed_under_the_snapshot(index_file, segment, places) -> None:
    """A live broker writes on after the check, and so may anybody: counts stay, bytes do not."""
    generator = random.Random(6)
    entries = sum(len(oracles.index_keys(record)) for record in oracles.scan_segment(segment.original, 0))
    log, file = CommitLog([Segment(0, segment.file, segment.file.size)], []), index_file.file
    index = IndexFilesView([(file, 7, entries, WORST, True, True, Shortcuts())])
    view = StoreView(log.view, index, RunsView())
    for number in range(EXAMPLES // 4):
        index_file.change(generator, INDEX_PLACES)
        content = segment.change(generator, places)
        key, kind = generator.choice(KEYS), generator.choice(list(KeyKind))
        query = Question("TopicTest", key, kind, maximum=generator.randint(1, 20))
        found = run_lookup(view, kernel.KeyQuery(query), 0)
        assert found.status == kernel.FOUND
        assert found.walked <= entries
        if number % 10 == 0:
            for offset, size in zip(found.physical_offsets, found.sizes, strict=True):
                record = record_of(content, offset)
                assert record.total_size == size
                name = {KeyKind.ANY: "ANY", KeyKind.KEY: "K", KeyKind.UNIQUE: "U", KeyKind.TAG: "T"}[kind]
                assert record.topic == "TopicTest"
                # What says that it is compressed as a whole is given to be looked into; no body here is.
                given_out = query.messages_in(decode_message(content[offset : offset + size]))
                assert bool(given_out) == oracles.has_key(record, key, name)


def damage_store(root, data):
    """Change, cut, lengthen, empty, remove or replace one file or directory of a store.

    Whether nothing is left of a file that lies where it lay: who looks at it through an older map dies of SIGBUS.
    """
    is_emptied = False
    paths = sorted(path for path in root.rglob("*") if not path.is_symlink())
    path = data.draw(st.sampled_from(paths), label="path")
    what = data.draw(st.sampled_from(["set", "set", "set", "cut", "lengthen", "empty", "remove", "replace", "rename"]))
    if what == "rename":
        names = ["x", "0" * 20, "9" * 20, "9" * 17, f"{1024:020d}", f"{2**63 - 1:020d}", "20260101000000000"]
        with suppress(OSError):
            path.rename(path.with_name(data.draw(st.sampled_from(names))))
    elif what in ("remove", "replace"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if what == "replace":
            kind = data.draw(st.sampled_from(["directory", "file", "loop", "pipe"]))
            {
                "directory": path.mkdir, "file": lambda: path.write_bytes(b"x" * 100),
                "loop": lambda: path.symlink_to(path), "pipe": lambda: os.mkfifo(path),
            }[kind]()  # fmt: skip
    elif path.is_file():
        content = bytearray(path.read_bytes())
        size = len(content)
        if what == "set" and size:
            place = data.draw(st.integers(0, size - 1) | st.integers(0, min(size, 400) - 1))
            piece = data.draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 8, bytes(8)]))
            content[place : place + len(piece)] = piece
        elif what == "cut":
            del content[data.draw(st.integers(0, size)) :]
        elif what == "lengthen":
            content += data.draw(st.binary(max_size=50)) * data.draw(st.integers(1, 100))
        else:
            content.clear()
        path.write_bytes(content)
        is_emptied = size > 0 and not content
    return is_emptied


def use(store: MessageStore) -> None:
    """Ask everything there is to ask; every answer is a true one, or says that the queues are not known."""
    log = store.commit_log
    for topic in ("T", "无"):
        for key in KEYS:
            for kind in KeyKind:
                try:
                    answer = store.query(Question(topic, key, kind))
                except StoreError as error:  # whose queues cannot be listed, and whose index has no tags
                    reason = str(error)
                    assert kind is KeyKind.TAG
                    assert "consumequeue" in reason
                    continue
                assert answer.search.sentence()
                position = 0
                for offset, size in zip(answer.physical_offsets, answer.sizes, strict=True):
                    record = oracles.read_record(answer.records[position : position + size], 0, offset)
                    assert record.topic == topic
                    position += size
                assert position == len(answer.records)
    for offset in (-1, 0, 1, 500, 1023, 1024, log.minimum, log.end - 1, log.end, 2**63 - 1):
        if store.record_at(offset) is None:
            assert store.explain_absence(offset)
        store.damaged_record_at(offset)
    for topic in store.queues.topics():
        with suppress(StoreError):  # of what cannot be listed, and of files that cannot be read
            for queue_id in store.queues.queue_ids(topic):
                queue = store.queues.queue(topic, queue_id)
                if queue is not None:
                    queue.entries(queue.min_offset, 10)
    assert all(isinstance(problem, str) for problem in store.problems)
    store.index_last_update()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_store_opens_or_raises_a_store_error(data, tmp_path_factory) -> None:
    base = tmp_path_factory.mktemp("store")
    root, state = base / "store", base / "state"
    profile = data.draw(st.sampled_from(["5.5", "5.3"]))
    writer = StoreWriter(root, segment_size=1024, index_slots=3, index_entries=12, profile=profile)
    for number in range(14):
        writer.append("T", b"x", keys=f"k{number % 3} Aa", unique_key=f"u{number}", tags="BB", queue_id=number % 2)
    writer.crash()
    store = None
    if data.draw(st.booleans()):
        store = MessageStore.open(root, StoreOptions(state_directory=state))
    is_emptied = False
    for _ in range(data.draw(st.integers(1, 3))):
        is_emptied |= damage_store(root, data)
    if store is None:
        with suppress(StoreError):
            store = MessageStore.open(root, StoreOptions(state_directory=state))
    if store is None:
        with pytest.raises(StoreError, match=re.escape(str(root))):
            MessageStore.open(root, StoreOptions(state_directory=state))
        return
    for _ in range(2):
        is_sound = not is_emptied
        with suppress(StoreError):  # where there is no store any more, so that what was read before is served on
            store.refresh()
            is_sound = True
        if is_sound:
            use(store)


I64 = st.one_of(st.integers(0, 3000), st.integers(-(1 << 63), (1 << 63) - 1))
I32 = st.one_of(st.integers(80, 120), st.integers(-(1 << 31), (1 << 31) - 1))
PLAIN_UNIT = st.tuples(I64, I32, I64).map(lambda unit: packed(unit[0], 8) + packed(unit[1], 4) + packed(unit[2], 8))
BATCH_UNIT = st.tuples(I64, I32, I64, I64, I64, st.integers(-2, 5)).map(
    lambda unit: b"".join(packed(value, size) for value, size in zip(unit, (8, 4, 8, 8, 8, 2), strict=True)) + bytes(8)
)


def content_of(unit: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.one_of(st.lists(unit, max_size=6).map(b"".join), st.binary(max_size=150)), max_size=5)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("fuzz")
    writer = StoreWriter(root)
    for number in range(20):
        writer.append("T", b"%d" % number, tags="TagA", properties={"INNER_NUM": "2", "INNER_BASE": str(2 * number)})
    writer.flush()
    return root


def ask_everything(root, offset, count, timestamp) -> None:
    queues, _ = open_queues(root)
    queue = queues.queue("T", 0)
    minimum, end = queue.min_offset, queue.max_offset
    assert minimum <= end
    for queue_offset in (offset, minimum, minimum + 1, end - 1, end):
        entries = queue.entries(queue_offset, count)
        assert len(entries) <= max(count, 0)
        entry = queue.entry_at(queue_offset)
        assert entry is None or minimum <= queue_offset < end
        assert queue.store_timestamp_at(queue_offset) >= -(1 << 63)
        if minimum <= queue_offset < end:
            hole = finish(queue.hole_at_lookup(queue_offset))
            assert hole.is_done
            assert hole.first <= queue_offset < hole.stop
            assert queue_offset < hole.after(queue_offset) <= hole.stop
        check_pull(get_message(queues, "T", 0, queue_offset, count, 4000), queue)
        check_pull(get_message(queues, "T", 0, queue_offset, count, 4000, tag_filter), queue)
    for boundary in TimeBoundary:
        assert max(minimum, 0) <= queue.offset_by_timestamp(timestamp, boundary) <= max(end, minimum, 0)
    found = queues.offsets_with_tag("T", timestamp, 5, 1 << 62).tolist()
    assert found == sorted(set(found), reverse=True)
    assert all(5 <= physical_offset < 1 << 62 for physical_offset in found)


tag_filter = TagFilter(parse_tag_expression("TagA"))


def check_pull(result, queue) -> None:
    assert (result.status is GetMessageStatus.FOUND) == bool(result.records)
    assert all(queue.name.owns(record) for record in result.records)


def write_files(directory, files, step) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for number, content in enumerate(files):
        write_file(directory / f"{number * step:020d}", len(content), {0: content})


@given(files=content_of(PLAIN_UNIT), offset=I64, count=st.integers(-1, 40), timestamp=I64)
def test_any_bytes_are_a_plain_queue(root, files, offset, count, timestamp) -> None:
    write_files(root / "consumequeue" / "T" / "0", files, 100)
    ask_everything(root, offset, count, timestamp)


@given(files=content_of(BATCH_UNIT), offset=I64, count=st.integers(-1, 40), timestamp=I64)
def test_any_bytes_are_a_queue_of_batches(root, files, offset, count, timestamp) -> None:
    write_files(root / "consumequeue" / "T" / "0", [], 100)
    write_files(root / "batchconsumequeue" / "T" / "0", files, 230)
    ask_everything(root, offset, count, timestamp)
    write_files(root / "batchconsumequeue" / "T" / "0", [], 230)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


steps = st.lists(
    st.sampled_from(
        ["add", "add", "add", "other", "big", "prepared", "batch", "torn", "mend", "flush", "flush", "poll", "poll",
         "watch", "roll", "advance", "expire", "index", "lose index", "queues", "refresh", "many"]
    ),
    max_size=40,
)  # fmt: skip


@pytest.mark.usefixtures("hurried")
@settings(max_examples=examples(16), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps, st.fixed_dictionaries({
    "profile": st.sampled_from(["5.5", "5.3"]), "segment_size": st.sampled_from([1024, 4096]),
    "index_entries": st.sampled_from([3, 20, 1000]), "queue_file_size": st.sampled_from([20, 100, 2000]),
}))  # fmt: skip
def test_following_is_as_good_as_opening(tmp_path_factory, taken, options) -> None:
    followed = Followed(tmp_path_factory.mktemp("steps") / "store", **options)
    for step in taken:
        if followed.growing.is_torn and step not in ("mend", "poll", "watch"):
            followed.growing.mend()
        STEPS[step](followed)
    followed.growing.mend()
    followed.growing.flush()
    followed.settle()
    followed.store.finish_scan()
    followed.check()


STEPS = {
    "add": lambda followed: followed.growing.add(queue_id=len(followed.growing.writer.written) % 2),
    "other": lambda followed: followed.growing.add("Other", keys="all Aa", tags=None),
    "big": lambda followed: followed.growing.add(body=b"x" * 700),
    # Without a tag: where index files have none, tags are found through queues, which never hold what is prepared.
    "prepared": lambda followed: followed.growing.add(sys_flag=4, tags=None),
    "batch": lambda followed: followed.growing.writer.append_inner_batch("Batch", [(b"1", {}), (b"2", {})], keys="b"),
    "torn": lambda followed: followed.growing.add_torn(0.6),
    "mend": lambda followed: followed.growing.mend(),
    "flush": lambda followed: followed.growing.flush(),
    "poll": lambda followed: followed.follower.poll(),
    "watch": lambda followed: followed.follower.watch(),
    "roll": lambda followed: followed.growing.writer.roll(),
    "advance": lambda followed: followed.growing.make_segment_in_advance(),
    "expire": lambda followed: followed.growing.expire(),
    "index": lambda followed: followed.growing.exchange_index(),
    "lose index": lambda followed: shutil.rmtree(followed.growing.root / "index", ignore_errors=True),
    "queues": lambda followed: followed.growing.flush() or followed.growing.exchange_queues(),
    "refresh": lambda followed: followed.store.refresh(),
    "many": lambda followed: [followed.growing.add(queue_id=number % 3) for number in range(15)],
}


HEADER_TYPES = [each for _, each in inspect.getmembers(headers, inspect.isclass) if issubclass(each, RequestHeader)]
BODY_TYPES = (HeartbeatData, LockBatchRequestBody, CheckClientRequestBody, TopicRouteData)


LONG_BEFORE_SHORT = sorted({frame.body for frame in recorded_frames() if frame.body[:1] == b"{"}, key=len, reverse=True)
BODIES = list({body[:24]: body for body in LONG_BEFORE_SHORT if len(body) < 2_000}.values())


def command_or_none(frame):
    with suppress(BadCommand):
        return decode_command(frame)
    return None


def use_command(command, header_type) -> None:
    assert command.is_response in (True, False)
    assert command.language_code is not None
    fields: dict[str, str] | None = None
    with suppress(BadHeader):
        fields = ext_fields_of(command)
        assert all(isinstance(text, str) for text in (*fields, *fields.values()))
    with suppress(BadHeader):
        assert type(decode_header(command, header_type)) is header_type
    answer = encode_response(command, Response(1, command.remark, fields))
    again = decode_command(FrameDecoder().feed(answer)[0])
    assert (again.opaque, again.serialize_type) == (command.opaque, command.serialize_type)
    assert again.remark == command.remark or not command.remark
    assert ext_fields_of(again) == (fields or {}) or command.serialize_type


def test_changed_headers_decode_or_fail_as_documented() -> None:
    generator = random.Random(1)
    decoded = 0
    for _ in range(EXAMPLES):
        serialize_type, header = generator.choice(HEADERS)
        command = command_or_none((serialize_type, changed(generator, header), b""))
        if command is not None:
            decoded += 1
            use_command(command, generator.choice(HEADER_TYPES))
    assert EXAMPLES // 10 < decoded < EXAMPLES


def test_changed_bodies_decode_or_fail_as_documented() -> None:
    generator = random.Random(6)
    for _ in range(EXAMPLES // 10):
        data = changed(generator, generator.choice(BODIES))
        with suppress(BadCommand):
            decode_json(data, generator.choice(BODY_TYPES))
        with suppress(ProtocolError):
            parse_fastjson(data)


RECORDS = [bytes.fromhex(columns[0]) for kind in ("message", "inner-batch") for columns in [*map(list, vectors(kind))]]

LIMIT = 1024 * 1024


def changed_records(seed, count):
    generator = random.Random(seed)
    for _ in range(count):
        record = bytearray(generator.choice(RECORDS))
        for _ in range(generator.randint(1, 3)):
            places = generator.randrange(8), generator.randrange(36, 40), generator.randrange(len(record))
            byte = generator.choice(EDGES) if generator.random() < 0.5 else generator.randrange(256)
            record[generator.choice(places)] = byte
        yield bytes(record[: generator.randrange(len(record))] if generator.random() < 0.1 else record)


def decode_or_none(data):
    with suppress(CorruptRecord, TruncatedFile):
        return decode_message(data)
    return None


def use_everything(message) -> None:
    assert message.total_size >= 91
    assert isinstance(message.message_id, str)
    assert (message.keys, message.tags) is not None
    with suppress(CorruptRecord):
        message.decoded_body(LIMIT)
    with suppress(CorruptRecord):
        message.inner_messages(LIMIT)


def test_changed_records_are_edited_or_refused() -> None:
    for data in changed_records(seed=3, count=EXAMPLES // 10):
        with suppress(CorruptRecord, TruncatedFile):
            decode_message(without_property(data, "UNIQ_KEY"), check_crc=False)
            decode_message(with_store_host(data, HostAddress("::1", 1)), check_crc=False)
            verify_property_crc(data)


@given(st.data())
def test_damaged_records_decode_or_fail_as_documented(data: st.DataObject) -> None:
    record = data.draw(damaged(data.draw(st.sampled_from(RECORDS))))
    message = decode_or_none(record)
    assert (message is None) == (oracles.read_record(record, 0) is None)
    if message is not None:
        use_everything(message)


@pytest.mark.parametrize("check_crc", [True, False])
@given(data=st.data())
def test_damaged_answers_give_whole_messages_up_to_the_damage(data: st.DataObject, check_crc: bool) -> None:
    body = data.draw(damaged(b"".join(data.draw(st.lists(st.sampled_from(RECORDS), max_size=4)))))
    total = 0
    with suppress(CorruptRecord, TruncatedFile):
        for message in decode_messages(body, check_crc=check_crc):
            total += message.total_size
    assert total <= len(body)


def test_an_input_raises_nothing_that_was_not_meant() -> None:
    for path in sorted(CORPUS.iterdir()):
        feed_decoders(path.read_bytes())
