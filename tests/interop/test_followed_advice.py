"""What the doctor says of a broker's start on a damaged store, an official broker does; what it advises helps.

Zeros in a segment, `abort`, and no checkpoint: the broker cuts its log at the zeros. The printed line, typed into a
shell, makes a store of the same log from which the broker delivers every message that can be read.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interop.official_broker import OfficialProcess, official_broker
from interop.pulling import delivered
from interop.wire import ask
from storage.doctor.examine import examine
from store_writer import StoreWriter, Written

pytestmark = pytest.mark.interop

RUNTIME_INFO = 28
SEGMENT = 1 << 16
QUEUES = 2
PROPERTIES = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "97",
    "maxIndexNum": "1500",
}


def zeroed_store(root: Path) -> list[Written]:
    """A store whose broker died, with zeros in the fourth of eight segments; the messages that can be read."""
    writer = StoreWriter(root, segment_size=SEGMENT, queue_file_size=20000, index_slots=97, index_entries=1500)
    number = 0
    while writer.log.end < 7.5 * SEGMENT:
        writer.append("T", bytes(200), keys=f"k{number}", unique_key=f"u{number}", queue_id=number % QUEUES)
        number += 1
    writer.crash()
    (root / "checkpoint").write_bytes(bytes(4096))
    start, stop = 3 * SEGMENT + 20_000, 3 * SEGMENT + 36_384
    writer.overwrite(start, bytes(stop - start))
    return [
        each for each in writer.written if each.physical_offset + each.size <= start or each.physical_offset >= stop
    ]


def harm_the_rest(root: Path) -> None:
    """As after a night of trying: no index, and a queue that is cut."""
    shutil.rmtree(root / "index")
    (file,) = (root / "consumequeue" / "T" / "0").iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:4000].ljust(len(content), b"\0"))


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds the command."""
    command = tmp_path / "bin" / "rocketlens"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketlens "$@"\n')
    command.chmod(0o755)
    python_path = str(Path(__file__).parents[2])
    return os.environ | {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": python_path}


def end_of_log(broker: OfficialProcess) -> int:
    """Where a broker's log ends; a busy broker is asked again."""
    deadline = time.monotonic() + 120
    while not (answer := ask(broker.address, RUNTIME_INFO)).body:
        assert time.monotonic() < deadline, answer.header
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


def test_a_broker_that_is_started_nevertheless_cuts_what_was_foretold(tmp_path: Path) -> None:
    root = tmp_path / "store"
    readable = zeroed_store(root)
    before = {str(path) for path in (root / "commitlog").iterdir()}
    outcome = examine(root).next_starts[0]
    with official_broker(root, tmp_path, properties=PROPERTIES) as broker:
        end = end_of_log(broker)
        kept = {each for queue_id in range(QUEUES) for each in delivered(broker, "T", queue_id=queue_id)}
        broker.kill()
    assert outcome.end == end
    assert before - {str(path) for path in (root / "commitlog").iterdir()} == set(outcome.deleted)
    assert len(outcome.deleted) == 5
    assert outcome.cut_messages == len(readable) - len(kept) > 500
    assert outcome.cut_bytes == readable[-1].physical_offset + readable[-1].size - end


def test_the_line_that_is_printed_ends_with_a_broker_that_has_every_message(
    tmp_path: Path, shell: dict[str, str]
) -> None:
    root = tmp_path / "store"
    readable = zeroed_store(root)
    harm_the_rest(root)
    diagnosis = examine(root)
    first = diagnosis.findings[0]
    assert first.found.startswith("do not start a broker on this store: its recovery will cut ")
    assert {each.remedy for each in diagnosis.findings if "rebuild" in each.remedy} == {first.remedy}
    ended = subprocess.run(["bash", "-c", first.remedy], env=shell, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    after = examine(root)
    assert [(each.check, each.remedy) for each in after.findings if each.check != "log-end"] == []
    with official_broker(root, tmp_path, properties=PROPERTIES) as broker:
        for queue_id in range(QUEUES):
            expected = [each.physical_offset for each in readable if each.queue_id == queue_id]
            assert list(dict.fromkeys(delivered(broker, "T", queue_id=queue_id))) == expected
        assert (root / "commitlog" / f"{4 * SEGMENT:020d}").exists()
        broker.stop()
    assert [each.check for each in examine(root).findings] == ["log-end"]
