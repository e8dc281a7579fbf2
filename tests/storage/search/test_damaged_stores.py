"""Whatever is damaged in a record, all others are found, and so is it where nothing tells the damage."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from damage_cases import SEGMENT, write_store
from damage_oracle import intact
from examples import examples
from storage.search import criteria as criteria_module
from storage.search import plan as planning
from storage.search.criteria import Criteria
from storage.search.engine import search
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import StoreWriter

LAZY = StoreOptions(scan_budget=0, check_budget=0)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    return write_store(tmp_path_factory.mktemp("damage") / "store")


def intact_offsets(writer: StoreWriter) -> set[int]:
    """Where an intact record stands now."""
    content = {base: path.read_bytes() for base, path in writer.log.segments.items()}
    offsets = (written.physical_offset for written in writer.written)
    return {
        offset
        for offset in offsets
        if intact(content[offset - offset % SEGMENT], offset % SEGMENT, offset - offset % SEGMENT)
    }


def check(writer: StoreWriter, criteria: Criteria) -> None:
    steps = list(search(MessageStore.open(writer.root, LAZY), criteria, exhaustive=True, threads=2))
    found = [message.physical_offset for step in steps for message in step.messages]
    assert found == sorted(found)
    told = "; ".join(steps[-1].notes)  # a flag that is flipped may say that a record is a batch
    left_out = {int(told.rpartition("is left out: ")[2].split(";")[0])} if "is left out" in told else set()
    assert set(found) == intact_offsets(writer) - left_out
    assert steps[-1].is_last
    assert steps[-1].progress.searched_bytes == steps[-1].progress.total_bytes


@pytest.mark.untraced
@example([(1373, b"\0\0\xc0")]).via("a message without a body that says it is a batch")
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2 * SEGMENT - 1), st.binary(min_size=1, max_size=9)), min_size=1, max_size=5))
def test_any_damage_costs_only_what_is_damaged(writer: StoreWriter, damage: list[tuple[int, bytes]]) -> None:
    content = {base: path.read_bytes() for base, path in writer.log.segments.items()}
    try:
        for place, data in damage:
            with writer.log.segments[place // SEGMENT * SEGMENT].open("r+b") as file:
                file.seek(place % SEGMENT)
                file.write(data[: SEGMENT - place % SEGMENT])
        for criteria in (
            Criteria(),
            Criteria(contains=b"body"),
            Criteria(topic="A", regex="o.y", place=criteria_module.SearchPlace.ANY),
        ):
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
    path: Path = writer.log.segments[0]
    before = path.read_bytes()
    try:
        path.write_bytes(before[:500] + bytes(2000) + before[2500:])
        check(writer, Criteria())
        (last,) = [step for step in search(MessageStore.open(writer.root, LAZY), Criteria()) if step.is_last]
        lost = [written for written in writer.written if written.physical_offset not in intact_offsets(writer)]
        behind = next(each for each in writer.written if each.physical_offset >= 2500)
        assert f"hold no intact record: {lost[0].physical_offset} to {behind.physical_offset}" in "; ".join(last.notes)
    finally:
        path.write_bytes(before)
