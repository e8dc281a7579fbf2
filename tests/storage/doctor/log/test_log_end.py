"""The doctor on damage in the log, and on its end."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doctoring import SEGMENT, findings_of, make_store, only, put
from oracles import BLANK_MAGIC, packed
from storage.doctor._next_start import NO_START, RIGHT_NAMES
from storage.doctor.examine import examine
from storage.doctor.finding import Severity
from store_writer import Written


def damage(root: Path, record: Written, position: int = 90) -> Path:
    base = record.physical_offset // SEGMENT * SEGMENT
    path = root / "commitlog" / f"{base:020d}"
    put(path, record.physical_offset - base + position, b"\xff\xff")
    return path


def test_a_damaged_record_in_an_earlier_segment_is_named_where_it_starts(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path)
    writer.close()
    path = damage(tmp_path, written[10])
    finding = only(tmp_path, "log-end")
    assert (finding.severity, finding.path) == (Severity.ERROR, str(path))
    assert finding.position == finding.physical_offset == written[10].physical_offset
    said = "expected an intact record, found a damaged record: its body does not match its CRC"
    line = f"rocketlens find {tmp_path} {written[10].physical_offset} --as physical-offset --full"
    look = f"what is left of the first: {line}"
    assert finding.what == f"{said} ({written[10].size} bytes passed over; {look})"
    assert finding.remedy.startswith(f"rocketlens rescue {tmp_path} --out ")
    (left, right) = examine(tmp_path).coverage.log
    assert (left[1], right[0]) == (written[10].physical_offset, written[11].physical_offset)


@pytest.mark.parametrize("kept", [91])
def test_a_torn_last_record_is_named_where_it_starts(tmp_path: Path, kept: int) -> None:
    writer, written = make_store(tmp_path)
    last = written[-1]
    writer.overwrite(last.physical_offset, last.record[:kept].ljust(last.size, b"\0"))
    writer.crash()
    (finding,) = findings_of(examine(tmp_path), "log-end")
    assert (finding.severity, finding.physical_offset) == (Severity.ERROR, last.physical_offset)
    assert finding.position == last.physical_offset % SEGMENT


def test_segments_that_have_each_others_names_are_no_end_that_a_broker_may_write_over(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 400)
    writer.close()
    log = tmp_path / "commitlog"
    first, other = (log / f"{number * SEGMENT:020d}" for number in (0, 2))
    for each in sorted(log.iterdir())[3:]:
        each.unlink()
    swapped = first.read_bytes(), other.read_bytes()
    other.write_bytes(swapped[0])
    first.write_bytes(swapped[1])
    (log / f"{SEGMENT:020d}").write_bytes(swapped[1])
    found = findings_of(examine(tmp_path), "log-end")
    assert [each.path for each in found] == [str(path) for path in sorted(log.iterdir())]
    for each, stated in zip(found, (other, other, first), strict=True):
        assert f"its records are those of {stated.name}: do not start a broker here" in each.meaning
        assert each.remedy == RIGHT_NAMES


def other_content(data: st.DataObject, log: Path, own: bytes) -> tuple[str, bytes]:
    """What is drawn to lie in the place of a log's last segment, and what it is."""
    kind = data.draw(st.sampled_from(["junk", "another", "half", "zeros"]))
    if kind == "junk":
        return kind, data.draw(st.binary(min_size=1, max_size=300).filter(lambda each: any(each[:8]))).ljust(300, b"x")
    if kind == "another":
        return kind, (log / f"{data.draw(st.integers(0, 1)) * SEGMENT:020d}").read_bytes()
    return kind, own[: data.draw(st.integers(4, 80))].ljust(SEGMENT, b"\0") if kind == "half" else bytes(SEGMENT)


@settings(max_examples=settings.default.max_examples // 8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), crashed=st.booleans())
def test_a_last_segment_that_is_none_is_named_and_so_is_one_of_zeros_that_had_messages(
    data: st.DataObject, crashed: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        writer, written = make_store(root, 400)
        (writer.crash if crashed else writer.close)()
        last = root / "commitlog" / f"{written[-1].physical_offset // SEGMENT * SEGMENT:020d}"
        kind, content = other_content(data, root / "commitlog", last.read_bytes())
        last.write_bytes(content[:SEGMENT])
        if kind == "junk":
            os.truncate(last, SEGMENT)
        found = [each for each in findings_of(examine(root), "log-end") if each.path == str(last)]
        assert len(found) == 1
        for each in found:
            assert (each.severity, each.position, each.physical_offset) == (Severity.ERROR, 0, int(last.name))
            assert NO_START in each.meaning
            is_rescue = each.remedy.startswith("rocketlens rescue ")
            assert (is_rescue, each.remedy == RIGHT_NAMES) == (kind != "another", kind == "another")
            assert ("there is nothing, and queues lead to messages" in each.found) == (kind == "zeros")
        assert not [each for each in examine(root).findings if "nothing to do" in each.remedy]


def test_of_a_segment_of_zeros_the_checkpoint_knows_that_it_had_messages_where_queues_are_lost(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path)
    writer.close()
    last = tmp_path / "commitlog" / f"{written[-1].physical_offset // SEGMENT * SEGMENT:020d}"
    last.write_bytes(bytes(SEGMENT))
    shutil.rmtree(tmp_path / "consumequeue")
    flushed = written[-1].physical_offset + written[-1].size
    for said in (flushed, 0):
        put(tmp_path / "checkpoint", 40, packed(said, 8))
        found = findings_of(examine(tmp_path), "log-end")
        assert [each.path for each in found] == [str(last)][: said // flushed]
        assert all(f"the checkpoint says that queues led up to {flushed}, in it" in each.found for each in found)


def test_a_hole_behind_the_end_is_passed_over_and_what_lies_behind_it_is_not(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path)
    writer.close()
    behind = tmp_path / "commitlog" / f"{(written[-1].physical_offset // SEGMENT + 1) * SEGMENT:020d}"
    behind.touch()
    os.truncate(behind, SEGMENT)
    assert findings_of(examine(tmp_path), "log-end") == []
    put(behind, SEGMENT // 2, b"x" * 100)
    assert only(tmp_path, "log-end").path == str(behind)


@pytest.mark.parametrize("number", [10, 199])
def test_a_false_blank_is_named_in_whichever_segment_it_lies(tmp_path: Path, number: int) -> None:
    writer, written = make_store(tmp_path)
    writer.overwrite(written[number].physical_offset + 4, BLANK_MAGIC.to_bytes(4, "big"))
    writer.close()
    finding = only(tmp_path, "log-end")
    assert (finding.severity, finding.physical_offset) == (Severity.ERROR, written[number].physical_offset)
    blank = "it is a BLANK, which closes a segment, but its size does not lead to the segment's end"
    passed = f" ({written[number].size} bytes passed over)" if number < 199 else ""  # else the log ends there
    assert finding.what.endswith(blank + passed)


def test_a_segment_that_starts_with_a_blank_must_be_blank_to_its_end(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path, 400)
    first = next(each for each in written if each.physical_offset == SEGMENT)
    for size, count in ((SEGMENT, 0), (first.size, 1)):
        writer.overwrite(SEGMENT, packed(size, 4) + BLANK_MAGIC.to_bytes(4, "big"))
        writer.close()
        found = [finding.found for finding in findings_of(examine(tmp_path), "segments")]
        assert len(found) == count
        assert all("it is a BLANK" in sentence for sentence in found)
