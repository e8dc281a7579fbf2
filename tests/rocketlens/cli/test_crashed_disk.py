"""The way of a person whose broker crashed, from the shell to the answer: doctor, plan, rebuild, doctor, view."""

import re
from pathlib import Path

import pytest

import read_only
from command_line import rocketlens
from spark_jobs.publish._new_checkpoint import write_checkpoint
from store_writer import StoreWriter, Written

QUEUES = 40
EACH = 10


@pytest.fixture
def crashed(tmp_path: Path) -> tuple[Path, list[Written]]:
    """A store whose log lost its end, while 40 queues and the index still point there; what is left of its messages."""
    writer = StoreWriter(
        tmp_path / "store", segment_size=1 << 17, queue_file_size=1000, index_slots=97, index_entries=150
    )
    left, lost = (
        [
            writer.append("Orders", b"body %d" % number, keys=f"{name}{number}", unique_key=f"u{name}{number}",
                          queue_id=number % QUEUES)
            for number in range(QUEUES * count)
        ]
        for name, count in (("k", EACH), ("lost", 2))
    )  # fmt: skip
    for each in lost:
        writer.overwrite(each.physical_offset, bytes(each.size))
    writer.crash()
    checkpoint = writer.root / "checkpoint"
    write_checkpoint(checkpoint, tmp_path / "new", confirm_physical_offset=0, logics_physical_offset=0)
    (tmp_path / "new").rename(checkpoint)
    return writer.root, left


def test_a_crashed_disk_is_found_rebuilt_and_answers_again(crashed: tuple[Path, list[Written]]) -> None:
    root, left = crashed
    found = rocketlens("doctor", root)
    assert found.code == 4
    assert found.text.count("warning queues: ") == 1
    assert f"warning queues: in {QUEUES} places\n" in found.text
    fixes = set(re.findall(r"^ +fix: (.*)$", found.text, re.MULTILINE))
    assert fixes == {f"rocketlens rebuild all {root}"}

    before = read_only.state_of(root)
    plan = rocketlens("rebuild", "all", root, "--dry-run")
    assert (plan.code, plan.text.splitlines()[-1]) == (
        0,
        "plan: files of 1,000 bytes in consumequeue: as most of the store's files have",
    )
    assert read_only.difference(before, read_only.state_of(root)) == {}

    rebuilt = rocketlens("rebuild", "all", root)
    assert rebuilt.code == 0, rebuilt.errors
    assert f", {len(left)} messages, " in rebuilt.text
    assert plan.text.splitlines()[-1] in rebuilt.errors
    undo, clean = rebuilt.text.splitlines()[-2:]
    assert undo.startswith(f"to undo, while no broker runs: mv {root}/")
    assert clean.startswith(f"to clean up, once all is well: rm -r {root}/")

    after = rocketlens("doctor", root)
    assert (after.code, after.text.splitlines()[-1]) == (0, "nothing is wrong; 1 note")
    assert "rocketlens rebuild" not in after.text

    last = left[-1]
    viewed = rocketlens("find", root, last.physical_offset, "--json")
    assert (viewed.code, viewed.messages[0]["physicalOffset"]) == (0, last.physical_offset)
    queried = rocketlens("find", root, f"k{len(left) - 1}", "--json")
    assert [message["physicalOffset"] for message in queried.messages] == [last.physical_offset]
    assert rocketlens("find", root, "lost1").code == 1
