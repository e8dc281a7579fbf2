"""The doctor on the log: damage, its end, its files, and times that clocks do not show."""

import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doctoring import NOW, SEGMENT, findings_of, make_store, only, put
from storage.doctor._next_start import NO_START, RIGHT_NAMES
from storage.doctor.examine import examine
from storage.doctor.finding import Severity


def damage(root, record, position=90):
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
    kind = data.draw(st.sampled_from(["junk", "another", "half", "zeros"]))
    if kind == "junk":
        return kind, data.draw(st.binary(min_size=1, max_size=300).filter(lambda each: any(each[:8]))).ljust(300, b"x")
    if kind == "another":
        return kind, (log / f"{data.draw(st.integers(0, 1)) * SEGMENT:020d}").read_bytes()
    return kind, own[: data.draw(st.integers(4, 80))].ljust(SEGMENT, b"\0") if kind == "half" else bytes(SEGMENT)


@settings(max_examples=settings.default.max_examples // 8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), crashed=st.booleans())
def test_a_last_segment_that_is_none_is_named_and_so_is_one_of_zeros_that_had_messages(data, crashed) -> None:
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


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SEGMENT:020d}"


@pytest.mark.parametrize(
    ("harm", "severity", "position", "found"),
    [
        pytest.param(lambda path: path.unlink(), Severity.ERROR, -1, f"{SEGMENT} to {2 * SEGMENT}", id="missing"),
        pytest.param(lambda path: put(path, 0, bytes(4096)), Severity.ERROR, 0, "starts with zeros", id="zeros"),
        pytest.param(lambda path: put(path, 4, b"\xff"), Severity.ERROR, 0, "magic", id="a damaged first record"),
    ],
)
def test_a_damaged_segment_is_named(root, harm, severity, position, found) -> None:
    harm(segment(root, 1))
    finding = only(root, "segments")
    assert (finding.severity, finding.position, finding.physical_offset) == (severity, position, SEGMENT)
    assert found in finding.found


def test_a_segment_that_lies_twice_is_named_where_it_is_not_used(root: Path) -> None:
    other = root / "other"
    other.mkdir()
    (other / segment(root, 1).name).write_bytes(segment(root, 1).read_bytes())
    finding = only(root, "segments", directories=[root / "commitlog", other])
    assert finding.path == str(other / segment(root, 1).name)
    assert str(segment(root, 1)) in finding.found


def test_an_overlap_is_named_at_the_byte_where_it_begins(root: Path) -> None:
    put(segment(root, 1), SEGMENT, bytes(100))
    findings = [finding for finding in findings_of(examine(root), "segments") if "reaches" in finding.found]
    assert [(finding.path, finding.position) for finding in findings] == [(str(segment(root, 1)), SEGMENT)]


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        pytest.param(NOW - 60_000, ["stepped back by 60100 ms"], id="a step back"),
        pytest.param(NOW + 100 - 900, [], id="a step of less than a second"),
        pytest.param(int(time.time() * 1000) + 10**9, ["is in the future"], id="a time that has not come"),
    ],
)
def test_times_that_clocks_do_not_show_are_named(tmp_path: Path, timestamp: int, found: list[str]) -> None:
    writer, _ = make_store(tmp_path, 100)
    stepped = writer.append("T", b"x", store_timestamp=timestamp)
    writer.append("T", b"x", store_timestamp=max(timestamp, NOW))
    writer.close()
    findings = findings_of(examine(tmp_path), "clock")
    assert [finding.physical_offset for finding in findings] == [stepped.physical_offset] * len(found)
    assert all(said in finding.found for said, finding in zip(found, findings, strict=True))


def test_an_empty_segment_is_named_unless_it_is_the_last_which_a_start_deletes(root: Path) -> None:
    segment(root, 1).write_bytes(b"")
    segment(root, 9).write_bytes(b"")
    findings = findings_of(examine(root), "segments", Severity.WARNING)
    assert [finding.path for finding in findings if finding.found == "is empty"] == [str(segment(root, 1))]
