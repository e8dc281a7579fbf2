"""What leads to fewer sound records than the store's own index or queues does not take their place unasked."""

import contextlib
import shutil
from pathlib import Path

import pytest

from protocol.errors import StoreError
from spark_jobs.publish._publish_checks import Staged
from spark_jobs.publish.fewer_records import LeftOut, refuse_fewer
from spark_jobs.run.report import Damage
from spark_jobs.scan.log_end import unreadable
from spark_jobs.scan.source import find_source
from storage.kernels.records import BAD_BLANK
from store_writer import StoreWriter

SEGMENT = 4096
SLOTS = 97
NOTHING = LeftOut()


def make(root: Path, count: int = 60, *, without: tuple[int, ...] = ()) -> StoreWriter:
    """A store of three segments, of some messages of which neither index nor queue knows."""
    writer = StoreWriter(root, segment_size=SEGMENT, index_slots=SLOTS)
    for number in range(count):
        is_known = number not in without
        writer.append("T", b"x" * 40, keys=f"k{number}", tags="A", index=is_known, queue=is_known)
    writer.append_inner_batch("B", [(b"1", {}), (b"2", {})])
    writer.close()
    return writer


def staged_of(root: Path, *names: str) -> list[Staged]:
    return [Staged(name, root / name) for name in names]


def damage_in(writer: StoreWriter, number: int) -> Damage:
    """As a scan tells of it that could not read one message."""
    victim = writer.written[number]
    base = victim.physical_offset // SEGMENT * SEGMENT
    return unreadable(str(writer.log.segments[base]), victim.physical_offset, victim.size, BAD_BLANK)


def compare(store: Path, new: Path, damages: list[Damage], *names: str, left_out: LeftOut = NOTHING) -> None:
    names = names or ("index", "consumequeue", "batchconsumequeue")
    refuse_fewer(find_source(store, ()), staged_of(new, *names), damages, SLOTS, left_out)


@pytest.mark.parametrize("name", ["index", "consumequeue"])
def test_what_leads_to_fewer_is_refused_with_segments_and_counts(tmp_path: Path, name: str) -> None:
    writer = make(tmp_path / "store")
    make(tmp_path / "new", without=(5, 6, 7))
    in_first = sum(each.physical_offset < SEGMENT for each in writer.written)
    with pytest.raises(StoreError) as refused:
        compare(tmp_path / "store", tmp_path / "new", [damage_in(writer, 3)], name)
    text = str(refused.value)
    assert str(writer.log.segments[0]) in text
    assert f"lead to {in_first} sound records" in text
    assert f"those that were built to {in_first - 3}" in text
    assert "--allow-fewer" in text
    assert ("index files" in text) == (name == "index")


LOSS = pytest.raises(StoreError, match="sound records")


@pytest.mark.parametrize(
    ("before", "after", "damaged", "left_out", "said"),
    [
        pytest.param((), (), (3,), "", contextlib.nullcontext(), id="as many"),
        pytest.param((), (5, 6, 7), (40,), "", contextlib.nullcontext(), id="damage in another segment"),
        pytest.param((), (5, 6, 7), (), "", contextlib.nullcontext(), id="no damage"),
        pytest.param((8,), (5,), (3,), "", contextlib.nullcontext(), id="as many others make good for it"),
        pytest.param((), (5,), (3,), "T", contextlib.nullcontext(), id="asked to be left out"),
        pytest.param((), (5,), (3,), "B", LOSS, id="another one was asked to be left out"),
    ],
)
def test_only_fewer_in_a_segment_with_damage_are_a_loss(
    tmp_path: Path, before: tuple[int, ...], after: tuple[int, ...], damaged: tuple[int, ...], left_out: str,
    said: contextlib.AbstractContextManager[object],
) -> None:  # fmt: skip
    """`before` and `after` are the messages that the store's own index and queues lack, and the new ones."""
    writer = make(tmp_path / "store", without=before)
    make(tmp_path / "new", without=after)
    damages = [damage_in(writer, number) for number in damaged]
    with said:
        compare(tmp_path / "store", tmp_path / "new", damages, left_out=LeftOut({left_out}.__contains__))


def test_records_that_are_damaged_are_no_loss(tmp_path: Path) -> None:
    writer = make(tmp_path / "store")
    make(tmp_path / "new", without=(5, 6))
    for number in (5, 6):
        writer.overwrite(writer.written[number].physical_offset + 90, b"\xff\xff")
    compare(tmp_path / "store", tmp_path / "new", [damage_in(writer, 5)])


def test_what_leads_wrongly_to_a_sound_record_is_no_loss(tmp_path: Path) -> None:
    """Units and entries that a cut has left over: of another queue, at another number, by another key."""
    writer = make(tmp_path / "store")
    make(tmp_path / "new", without=(5,))
    queue = tmp_path / "store" / "consumequeue" / "T"
    units = (queue / "0" / f"{0:020d}").read_bytes()
    shutil.rmtree(queue / "0")
    (queue / "3").mkdir(parents=True)
    (queue / "3" / f"{0:020d}").write_bytes(units)
    compare(tmp_path / "store", tmp_path / "new", [damage_in(writer, 3)], "consumequeue", "batchconsumequeue")


def test_units_of_batches_count_too(tmp_path: Path) -> None:
    writer = make(tmp_path / "store")
    make(tmp_path / "new")
    shutil.rmtree(tmp_path / "new" / "batchconsumequeue" / "B")
    number = len(writer.written) - 1
    with pytest.raises(StoreError, match="the queues that it has"):
        compare(tmp_path / "store", tmp_path / "new", [damage_in(writer, number)])
