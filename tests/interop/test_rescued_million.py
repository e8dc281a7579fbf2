"""A million messages after a bad night: what the doctor prints is typed, and a broker delivers all that can be read.

Eight segments, `abort`, no checkpoint and no index, a queue that is cut, and 16 KiB of zeros in the fourth segment. The
judges are the official broker 5.5.0, and the store of 4.9.8, whose broker has no artifact of its own.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from benchmarks.make_store import write_commit_log
from benchmarks.store_plan import QUEUES, TOPIC, StoreParameters, StorePlan
from interop.jars import OLD_CLIENT_VERSION
from interop.official_broker import official_broker
from interop.pulling import delivered
from interop.recovery_oracle import Sizes, recovery_oracle
from storage.doctor.examine import examine

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.untraced]

COUNT: Final = 1_000_000
SEGMENT: Final = 1 << 26
SEGMENTS: Final = 8
QUEUE_FILE: Final = 6_000_000
SLOTS, ENTRIES = 500_000, 4_000_000
ZEROED: Final = (3 * SEGMENT + 20_000_000, 3 * SEGMENT + 20_000_000 + 16_384)
UNIT: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
PROPERTIES: Final = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": str(QUEUE_FILE),
    "maxHashSlotNum": str(SLOTS),
    "maxIndexNum": str(ENTRIES),
    "maxTransferCountOnMessageInMemory": "1000",
    "maxTransferBytesOnMessageInMemory": "1000000",
}


@pytest.fixture
def plan() -> StorePlan:
    return StorePlan(StoreParameters(count=COUNT, segment_size=SEGMENT, unlucky_keys=0, tags=1), ())


@pytest.fixture
def root(plan: StorePlan, tmp_path: Path) -> Iterator[Path]:
    """The damaged store; it is large, and gone afterwards."""
    root = tmp_path / "store"
    write_commit_log(root / "commitlog", plan)
    assert len(list((root / "commitlog").iterdir())) == SEGMENTS
    for queue_id in range(QUEUES):
        write_queue(root, plan, queue_id)
    write_topic(root / "config")
    (root / "abort").touch()
    with (root / "commitlog" / f"{3 * SEGMENT:020d}").open("r+b") as file:
        file.seek(ZEROED[0] - 3 * SEGMENT)
        file.write(bytes(ZEROED[1] - ZEROED[0]))
    yield root
    for path in tmp_path.glob("store*"):
        shutil.rmtree(path)


def write_topic(config: Path) -> None:
    config.mkdir()
    topic = {"topicName": TOPIC, "perm": 6, "readQueueNums": QUEUES, "writeQueueNums": QUEUES}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: topic}}))


def write_queue(root: Path, plan: StorePlan, queue_id: int) -> None:
    """A queue as a broker has it; all but a third of the first one is cut off."""
    offsets = plan.physical_offsets[queue_id::QUEUES]
    units = np.zeros(len(offsets), UNIT)
    units["physical_offset"], units["size"] = offsets, plan.sizes[queue_id::QUEUES]
    units["tags_code"] = java_hash(plan.tag(0))
    path = root / "consumequeue" / TOPIC / str(queue_id) / ("0" * 20)
    path.parent.mkdir(parents=True)
    kept = units[: len(units) // 3] if queue_id == 0 else units
    path.write_bytes(kept.tobytes())
    os.truncate(path, QUEUE_FILE)


def java_hash(text: str) -> int:
    """Java's hash code of a string of ASCII."""
    value = 0
    for letter in text.encode():
        value = (31 * value + letter) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def readable_of(plan: StorePlan, queue_id: int) -> list[int]:
    """Physical offsets of the messages of a queue that the zeros have left."""
    offsets, sizes = plan.physical_offsets[queue_id::QUEUES], plan.sizes[queue_id::QUEUES]
    kept: list[int] = offsets[(offsets + sizes <= ZEROED[0]) | (offsets >= ZEROED[1])].tolist()
    return kept


def follow_the_doctor(root: Path, tmp_path: Path) -> None:
    """Read the first line, type what it says, and look once more."""
    before = examine(root)
    first = before.findings[0]
    assert first.found.startswith("do not start a broker on this store: its recovery will cut ")
    assert [outcome.cut_messages for outcome in before.next_starts if outcome.cut_messages > 500_000]
    command = tmp_path / "bin" / "rocketlens"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketlens "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    typed = subprocess.run(["bash", "-c", first.remedy], env=environment, capture_output=True, text=True, check=False)
    assert typed.returncode in (0, 4), typed.stdout + typed.stderr
    assert [each for each in examine(root).findings if each.severity != "info"] == []


def test_a_broker_delivers_a_million_messages_but_for_those_that_were_zeroed(
    root: Path, plan: StorePlan, tmp_path: Path
) -> None:
    follow_the_doctor(root, tmp_path)
    with official_broker(root, tmp_path, properties=PROPERTIES) as broker:
        for queue_id in range(QUEUES):
            got = delivered(broker, TOPIC, 1000, queue_id=queue_id)
            assert list(dict.fromkeys(got)) == readable_of(plan, queue_id)
        broker.kill()
    assert len(list((root / "commitlog").iterdir())) >= SEGMENTS


def test_the_store_of_an_older_broker_delivers_them_too(root: Path, plan: StorePlan, tmp_path: Path) -> None:
    follow_the_doctor(root, tmp_path)
    (tmp_path / "oracle").mkdir()
    with recovery_oracle(tmp_path / "oracle", OLD_CLIENT_VERSION) as oracle:
        left = oracle.load(root, Sizes(SEGMENT, QUEUE_FILE, slots=SLOTS, entries=ENTRIES))
        assert left.is_loaded
        assert len(left.segments) == SEGMENTS
        assert left.end == plan.end_of_log
        consumed = oracle.consume()
    for queue_id in range(QUEUES):
        assert list(dict.fromkeys(consumed[TOPIC, queue_id].places)) == readable_of(plan, queue_id)
