"""Makes the benchmark's store: a million messages in the real format, queues and index by the official broker itself.

The commit log is written here, record by record after store-format §2.2. Then an official broker 5.5.0 is started on
it with no checkpoint and an ``abort`` file: it replays the whole log, builds every ConsumeQueue and the IndexFile
with its own code, and is stopped cleanly. So what both servers are measured on is the broker's own index, byte for
byte.

Stores are cached under ``--store-dir`` by their parameters; making one takes about 30 seconds and 0.65 GB of disk.
"""

import json
import shutil
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import Struct

import click
import numpy as np

from benchmarks.java_broker import JavaBroker, find_jars
from benchmarks.store_plan import (
    BORN_HOST,
    FIRST_STORE_TIMESTAMP,
    MANIFEST,
    QUEUES,
    STORE_HOST,
    StoreParameters,
    StorePlan,
    order_key,
)

DEFAULT_STORE_DIRECTORY = Path.home() / ".cache" / "rocketlens" / "bench"

# totalSize magic bodyCRC queueId flag queueOffset physicalOffset sysFlag bornTimestamp bornHost storeTimestamp
# storeHost reconsumeTimes preparedTransactionOffset bodyLength; then body, topic and properties with their lengths.
RECORD_HEAD = Struct(">iIiiiqqiq8sq8siqi")
LENGTH_OF_PROPERTIES = Struct(">h")
BLANK_RECORD = Struct(">iI")
MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194

_ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", dtype=np.uint8)


def make_store(directory: Path, parameters: StoreParameters, jars: Path | None) -> Path:
    """The store for these parameters under ``directory``; made if it is not there yet.

    Without jars it has no queues and no index.
    """
    store = directory / (parameters.directory_name + ("" if jars else "-log-only"))
    if (store / MANIFEST).exists():
        return store
    shutil.rmtree(store, ignore_errors=True)
    plan = StorePlan(parameters)
    write_commit_log(store / "commitlog", plan)
    _write_topics(store / "config", sorted({topic for topic, _ in parameters.queues}))
    if jars:
        _let_the_broker_build(store, plan, jars)
    # Last, so that a store with a manifest is a whole one.
    (store / MANIFEST).write_text(json.dumps(plan.manifest(), indent=1))
    return store


def write_commit_log(directory: Path, plan: StorePlan) -> None:
    """Every record into segments of full, sparse length, each but the last ended by its BLANK record."""
    directory.mkdir(parents=True)
    segment_size = plan.parameters.segment_size
    segments = plan.physical_offsets // segment_size
    boundaries = [0, *(np.flatnonzero(np.diff(segments)) + 1).tolist(), plan.parameters.count]
    filler = _filler(plan.parameters.seed)
    for number, (first, behind) in enumerate(pairwise(boundaries)):
        with (directory / f"{number * segment_size:020d}").open("wb", buffering=1 << 22) as file:
            for record in encode_records(plan, first, behind, filler):
                file.write(record)
            if behind < plan.parameters.count:
                file.write(BLANK_RECORD.pack(segment_size - file.tell(), BLANK_MAGIC))
            file.truncate(segment_size)


def encode_records(plan: StorePlan, first: int, behind: int, filler: bytes) -> Iterator[bytes]:
    """The records of messages ``first`` to ``behind - 1``, as a broker stores them."""
    offsets = plan.physical_offsets[first:behind].tolist()
    sizes = plan.sizes[first:behind].tolist()
    queues = plan.parameters.queues
    body_sizes = plan.body_sizes[first:behind].tolist()
    for number, physical_offset, size, body_size in zip(range(first, behind), offsets, sizes, body_sizes, strict=True):
        body = _body(plan, number, body_size, filler)
        properties = plan.properties(number)
        timestamp = FIRST_STORE_TIMESTAMP + number
        topic, queue_id = queues[number % len(queues)]
        head = RECORD_HEAD.pack(
            *(
                size,
                MESSAGE_MAGIC,
                zlib.crc32(body) & 0x7FFFFFFF,
                queue_id,
                0,
                number // len(queues),
                physical_offset,
                0,
            ),
            *(timestamp, BORN_HOST, timestamp, STORE_HOST, 0, 0, body_size),
        )
        topic_field = bytes([len(topic)]) + topic.encode()
        yield b"".join((head, body, topic_field, LENGTH_OF_PROPERTIES.pack(len(properties)), properties))


def _body(plan: StorePlan, number: int, size: int, filler: bytes) -> bytes:
    """A little JSON order, different in each message, of exactly ``size`` bytes."""
    start = number * 97 % (len(filler) - size)
    head = f'{{"order":"{order_key(number)}","customer":"{plan.second_key(number)}","note":"'.encode()
    return head + filler[start : start + size - len(head) - 2] + b'"}'


def _filler(seed: int) -> bytes:
    """Some text to cut notes from."""
    return np.random.default_rng(seed).choice(_ALPHABET, 8192).tobytes()


def _write_topics(directory: Path, names: list[str]) -> None:
    """Our topics, so that the broker knows them; its system topics it adds itself."""
    directory.mkdir(parents=True)
    topic = {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": QUEUES,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "writeQueueNums": QUEUES,
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": FIRST_STORE_TIMESTAMP}
    topics = {name: {**topic, "topicName": name} for name in names}
    (directory / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": topics}))


def _let_the_broker_build(store: Path, plan: StorePlan, jars: Path) -> None:
    """Has the official broker replay the log: a crash with no checkpoint makes it (store-format §6.5)."""
    (store / "abort").write_text("0")
    parameters = plan.parameters
    settings = {
        "mappedFileSizeCommitLog": parameters.segment_size,
        "maxHashSlotNum": parameters.index_slots,
        "maxIndexNum": parameters.index_entries,
    }
    with JavaBroker(store, jars, settings) as broker:
        broker.wait_until_dispatched(plan.end_of_log)
    if (store / "abort").exists():
        raise click.ClickException(f"the official broker did not stop cleanly on {store}")


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--count", default=StoreParameters.count, show_default=True, help="Messages.")
@click.option("--seed", default=StoreParameters.seed, show_default=True)
@click.option("--tags", default=StoreParameters.tags, show_default=True)
@click.option("--hot-keys", default=StoreParameters.hot_keys, show_default=True)
@click.option("--hot-hits", default=StoreParameters.hot_hits, show_default=True, help="Messages a hot key.")
@click.option("--body-minimum", default=StoreParameters.body_minimum, show_default=True, help="Bytes.")
@click.option("--body-maximum", default=StoreParameters.body_maximum, show_default=True, help="Bytes.")
@click.option(
    "--jars",
    type=click.Path(path_type=Path, exists=True),
    help="Folder with the official broker's jars [default: by Maven].",
)
@click.option("--log-only", is_flag=True, help="Write the commit log and let no broker build queues and index.")
def main(store_dir: Path, jars: Path | None, log_only: bool, **parameters: int) -> None:
    """Make the benchmark's store, or find it made, and print its path."""
    click.echo(make_store(store_dir, StoreParameters(**parameters), None if log_only else find_jars(jars)))


if __name__ == "__main__":
    main()
