"""A writer of whole stores for tests: what a broker would leave behind for the messages of a test.

It shares no code with ours; `tests/test_store_writer.py` has it reproduce a recorded broker byte for byte.
`flush` brings the files up to date at any time (a live broker's store), `close` is a clean stop, as is the end of a
block `with StoreWriter(…) as writer`.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address

from oracles import DEFAULT_DELAY_LEVELS, IndexBuilder, is_queued, packed, read_record, tags_code
from store_files import (
    LEDGER_HEAD,
    BatchConsumeQueueFiles,
    ConsumeQueueExtFiles,
    ConsumeQueueFiles,
    LogFiles,
    host_bytes,
    pack_batch,
    pack_record,
    property_bytes,
    with_host_bits,
    write_file,
    write_index_file,
)

START_TIMESTAMP = 1_700_000_000_000
CHECKPOINT_SIZE = 4096


@dataclass(frozen=True)
class Written:
    """Where a message went. `record` are its bytes in the log."""

    physical_offset: int
    size: int
    queue_offset: int
    topic: str
    queue_id: int
    store_timestamp: int
    offset_message_id: str
    record: bytes


class StoreWriter:
    """Writes one store. Every size is as the broker's configuration would have it.

    `profile` is "5.5" (one index entry more for the tag) or "5.3"; `commit_log_directories` default to `commitlog`
    under `root`; `start` is the physical offset of the first segment; `padding` is repeated behind a BLANK (default
    zeros); the log of `is_ledger` is DLedger's, in `dledger-n0/data` by default;
    `ext_bit_map`, if given, is the bit map of a ConsumeQueueExt unit made for every queued message.
    """

    def __init__(
        self,
        root,
        *,
        segment_size=131072,
        index_slots=97,
        index_entries=150,
        queue_file_size=2000,
        batch_queue_file_size=46 * 20,
        ext_file_size=4096,
        ext_bit_map=None,
        profile="5.5",
        commit_log_directories=(),
        start=0,
        padding=b"",
        is_ledger=False,
        delay_levels=DEFAULT_DELAY_LEVELS,
        cluster="DefaultCluster",
        broker_name="broker-a",
        first_index_name=20260101000000000,
    ) -> None:
        self.root = root
        self.queue_file_size, self.batch_queue_file_size = queue_file_size, batch_queue_file_size
        self.ext_file_size, self.ext_bit_map = ext_file_size, ext_bit_map
        self.delay_levels, self.first_index_name = delay_levels, first_index_name
        own = root / "dledger-n0" / "data" if is_ledger else root / "commitlog"
        self.log = LogFiles(commit_log_directories or [own], segment_size, start, padding, is_ledger=is_ledger)
        self.overwrite, self.roll, self.skip_segments = self.log.overwrite, self.log.roll, self.log.skip_segments
        self.index = IndexBuilder(index_slots, index_entries, profile)
        self.queues: dict[tuple[str, int], ConsumeQueueFiles] = {}
        self.batch_queues: dict[tuple[str, int], BatchConsumeQueueFiles] = {}
        self.queue_exts: dict[tuple[str, int], ConsumeQueueExtFiles] = {}
        self.next_queue_offset: dict[tuple[str, int], int] = defaultdict(int)
        self.written: list[Written] = []
        self.topic_attributes: dict[str, dict[str, str]] = {cluster: {}, broker_name: {}}
        self.consumer_offsets: dict[str, dict[int, int]] = {}
        self.last_store_timestamp = START_TIMESTAMP

    def append(
        self,
        topic,
        body=b"",
        *,
        keys=None,
        unique_key=None,
        tags=None,
        properties=None,
        store_timestamp=None,
        born_timestamp=None,
        born_host=("127.0.0.1", 54321),
        store_host=("127.0.0.1", 10911),
        sys_flag=0,
        queue_id=0,
        queue_offset=None,
        flag=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
        magic=None,
        body_crc=None,
        property_crc=False,
        own_offset=None,
        index=True,
        queue=True,
    ):
        """Append one message, in a new segment if it must, and dispatch it to queue and index.

        `properties` come first, as bytes or by name, then KEYS (a list is joined by spaces), UNIQ_KEY and TAGS. Without
        `store_timestamp` the clock advances a millisecond a message; without `queue_offset` the queue counts. `index`
        and `queue` off leave a gap there. `body_crc` and `own_offset` are for records that lie about themselves; they
        are dispatched all the same.
        """
        block = properties if isinstance(properties, bytes) else property_bytes(properties or {})
        block += _named_properties(keys, unique_key, tags)
        if store_timestamp is None:
            store_timestamp = self.last_store_timestamp + 1
        if queue_offset is None:
            queue_offset = self.next_queue_offset[topic, queue_id] if sys_flag & 0xC in (0, 0x8) else 0
        fields = {
            "topic_bytes": topic.encode("utf-8", "replace"), "body": body, "properties_bytes": block,
            "queue_id": queue_id, "flag": flag, "queue_offset": queue_offset,
            "sys_flag": with_host_bits(sys_flag, born_host, store_host),
            "born_timestamp": store_timestamp - 1 if born_timestamp is None else born_timestamp, "born_host": born_host,
            "store_timestamp": store_timestamp, "store_host": store_host, "reconsume_times": reconsume_times,
            "prepared_transaction_offset": prepared_transaction_offset, "magic": magic, "crc": body_crc,
            "property_crc": property_crc,
        }  # fmt: skip
        return self._append(fields, own_offset, index=index, queue=queue)

    def append_inner_batch(self, topic, messages, *, queue_id=0, packed=None, **more):
        """Append a batch as one record of a BatchCQ topic, from bodies and properties; `more` as in `append`.

        `packed` is the body, where that is another one than a client makes of them.
        """
        self.set_topic(topic, {"queue.type": "BatchCQ"})
        base = self.next_queue_offset[topic, queue_id]
        inner = {"INNER_NUM": str(len(messages)), "INNER_BASE": str(base)}
        more = {"sys_flag": 0xC0, "properties": inner, **more}
        body = pack_batch(messages) if packed is None else packed
        written = self.append(topic, body, queue_id=queue_id, queue_offset=base, **more)
        self.next_queue_offset[topic, queue_id] = base + len(messages)
        return written

    def append_record(self, record, *, index=True, queue=True):
        """Append a decoded record again, field by field; its own offset becomes the place where it lands."""
        names = (
            "topic_bytes body properties_bytes queue_id flag queue_offset sys_flag born_timestamp store_timestamp"
            " reconsume_times prepared_transaction_offset magic"
        )
        fields = {name: getattr(record, name) for name in names.split()}
        hosts = {"born_host": _host(record.born_host), "store_host": _host(record.store_host)}
        return self._append(fields | hosts | {"crc": record.body_crc}, None, index=index, queue=queue)

    @property
    def records(self):
        """What is really in the log now: every appended record that is still valid where it was written."""
        found = (self._read(written) for written in self.written)
        return [record for record in found if record is not None]

    def _read(self, written):
        base = written.physical_offset - written.physical_offset % self.log.segment_size
        with self.log.segments[base].open("rb") as segment:
            segment.seek(written.physical_offset - base)
            return read_record(segment.read(written.size), 0, written.physical_offset)

    def _append(self, fields, own_offset, *, index, queue):
        here = self.log.end + (LEDGER_HEAD if self.log.is_ledger else 0)
        data = pack_record(**fields, physical_offset=here if own_offset is None else own_offset)
        offset = self.log.make_room(len(data))
        if own_offset is None and offset != here:
            data = pack_record(**fields, physical_offset=offset)
        self.log.write_record(data)
        record = read_record(data, 0, check_crc=False)
        if own_offset is not None:
            record = replace(record, physical_offset=offset)
        self.last_store_timestamp = record.store_timestamp
        self.topic_attributes.setdefault(record.topic, {})
        message_id = (host_bytes(_host(record.store_host)) + packed(offset, 8)).hex().upper()
        written = Written(
            offset, len(data), record.queue_offset, record.topic, record.queue_id, record.store_timestamp, message_id,
            data,
        )  # fmt: skip
        self.written.append(written)
        if is_queued(record):
            self._dispatch_to_queues(record, write_units=queue)
        if index:
            self.index.dispatch(record)
        return written

    def _dispatch_to_queues(self, record, *, write_units) -> None:
        key = record.topic, record.queue_id
        self.next_queue_offset[key] = max(self.next_queue_offset[key], record.queue_offset + 1)
        if not write_units:
            return
        code = tags_code(record, self.delay_levels)
        if self.topic_attributes[record.topic].get("queue.type") == "BatchCQ":
            self._put_batch_unit(record, code)
            return
        own_code = code
        if self.ext_bit_map is not None:
            own_code = self._queue_ext(key).put(code, record.store_timestamp, self.ext_bit_map)
        self._queue(key).put(record.physical_offset, record.total_size, own_code, record.queue_offset)
        for name, queue_id, queue_offset in _light_queues(record.properties):  # these have no extension
            self._queue((name, queue_id)).put(record.physical_offset, record.total_size, code, queue_offset)

    def _put_batch_unit(self, record, code) -> None:
        key, properties = (record.topic, record.queue_id), record.properties
        base, count = record.queue_offset, 1  # of a message that is no batch: so in 5.5.0
        if "INNER_BASE" in properties and "INNER_NUM" in properties:
            base, count = int(properties["INNER_BASE"]), int(properties["INNER_NUM"])
        directory = self._directory("batchconsumequeue", key)
        files = self.batch_queues.setdefault(key, BatchConsumeQueueFiles(directory, self.batch_queue_file_size))
        files.put(record.physical_offset, record.total_size, code, record.store_timestamp, base, count)

    def _queue(self, key: tuple[str, int]) -> ConsumeQueueFiles:
        if key not in self.queues:
            self.queues[key] = ConsumeQueueFiles(self._directory("consumequeue", key), self.queue_file_size)
        return self.queues[key]

    def _queue_ext(self, key: tuple[str, int]) -> ConsumeQueueExtFiles:
        if key not in self.queue_exts:
            self.queue_exts[key] = ConsumeQueueExtFiles(self._directory("consumequeue_ext", key), self.ext_file_size)
        return self.queue_exts[key]

    def _directory(self, tree, key):
        return self.root / tree / key[0] / str(key[1])

    def set_topic(self, topic: str, attributes: Mapping[str, str] | None = None) -> None:
        """Have a topic in topics.json, with these attributes."""
        self.topic_attributes.setdefault(topic, {}).update(attributes or {})

    def index_paths(self):
        """Where the index files lie, oldest first."""
        return [self.root / "index" / str(self.first_index_name + n) for n in range(len(self.index.files))]

    def flush(self) -> None:
        for files in [*self.queues.values(), *self.batch_queues.values(), *self.queue_exts.values()]:
            files.flush()
        for path, image in zip(self.index_paths(), self.index.files, strict=True):
            write_index_file(path, image)
        self._write_checkpoint()
        self._write_config()
        (self.root / "lock").write_text("lock")
        (self.root / "abort").write_text("1")

    def close(self) -> None:
        self.flush()
        (self.root / "abort").unlink()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def crash(self) -> None:
        """Bring all files up to date, as a broker that dies: `abort` stays, and so does the segment made in advance."""
        self.flush()
        self.log.add_empty_segment()

    def _write_checkpoint(self) -> None:
        full = [image.end_timestamp for image in self.index.files if image.is_full]
        stamp = self.last_store_timestamp if self.written else 0
        last = self.written[-1].physical_offset if self.written else 0
        numbers = (stamp, stamp, full[-1] if full else 0, 0, last, self.log.end if self.written else 0)
        write_file(self.root / "checkpoint", CHECKPOINT_SIZE, {0: b"".join(packed(number, 8) for number in numbers)})

    def _write_config(self) -> None:
        version = {"counter": 1, "stateVersion": 0, "timestamp": START_TIMESTAMP}
        topics = {
            topic: {
                "attributes": attributes, "order": False, "perm": 6, "readQueueNums": 4, "topicName": topic,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "writeQueueNums": 4,
            }
            for topic, attributes in self.topic_attributes.items()
        }  # fmt: skip
        self.write_config("topics.json", {"dataVersion": version, "topicConfigTable": topics})
        self.write_config("consumerOffset.json", {"dataVersion": version, "offsetTable": self.consumer_offsets})

    def write_config(self, name: str, value: object) -> None:
        """Write a file of config/ as a broker does: tabs, and integer keys without quotes."""
        path = self.root / "config" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_fastjson(value), encoding="utf-8")


def _named_properties(keys, unique_key, tags):
    joined = keys if keys is None or isinstance(keys, str) else " ".join(keys)
    named = {"KEYS": joined, "UNIQ_KEY": unique_key, "TAGS": tags}
    return property_bytes({name: value for name, value in named.items() if value is not None})


@functools.cache
def _host(raw):
    return str(ip_address(raw[0])), raw[1]


def _light_queues(properties):
    """The LMQ queues a message is in as well: name, queue id 0, offset (store-format §2.10)."""
    names = properties.get("INNER_MULTI_DISPATCH", "").split(",")
    offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
    if len(names) == len(offsets) and all(offsets):
        for name, offset in zip(names, offsets, strict=True):
            yield name, 0, int(offset)


_in_one_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _fastjson(value: object, depth: int = 0) -> str:
    """JSON as fastjson 1.x prints it."""
    if not isinstance(value, Mapping) or not value:
        return _in_one_line(value)
    start = "\t" * (depth + 1)
    items = [
        f"{start}{key if isinstance(key, int) else _in_one_line(key)}:{_fastjson(item, depth + 1)}"
        for key, item in value.items()
    ]
    return "{\n" + ",\n".join(items) + "\n" + start[1:] + "}"


def appended(*message, **more):
    """What `StoreWriter.append` is called with."""
    return message, more


def closed_store(root, *messages, **options):
    """The writer of a store of some messages, `appended`, which it has closed."""
    writer = StoreWriter(root, **options)
    for message, more in messages:
        writer.append(*message, **more)
    writer.close()
    return writer
