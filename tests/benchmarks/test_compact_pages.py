"""The measurement of cold look-ups in miniature: its store, its keys, and what it counts."""

import mmap
import shutil
from pathlib import Path

import click
import pytest

from benchmarks.compact_pages import Plan, count_faults, java_hash, key_of, look_up, measure
from compacting import compact_store
from oracles import build_index, index_hash, read_log, signed

PLAN = Plan(files=3, slots=503, entries=4001, keys_a_message=100, segment_bytes=1 << 17, lookups=60)


def run_here(*arguments: str) -> None:
    """Stands in for the product's commands, without Spark."""
    store = Path(arguments[2])
    if arguments[0] == "rebuild":
        (store / "index").mkdir()
        for number, data in enumerate(build_index(read_log(store / "commitlog"), PLAN.slots, PLAN.entries)):
            (store / "index" / f"{20260101000000000 + number}").write_bytes(data)
    else:
        assert arguments[3] == "--out"
        compacted = compact_store(store, store.parent / "work").directory
        shutil.copytree(compacted, Path(arguments[4]) / "index")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[int]]]:
    scratch = tmp_path_factory.mktemp("pages")
    return scratch, measure(scratch, PLAN, run_here)


def pages(index: Path, keys: list[bytes]) -> float:
    """Pages of a look-up through all files, on average."""
    touched = 0
    for path in index.iterdir():
        data = path.read_bytes()
        for key in keys:
            slot = 40 + 4 * (index_hash(f"PagesTopic#{key.decode()}") % PLAN.slots)
            number, seen = signed(data, slot, 4), {slot // 4096}
            while number:
                entry = 40 + 4 * PLAN.slots + 20 * number
                seen.add(entry // 4096)
                number = signed(data, entry + 16, 4)
            touched += len(seen)
    return touched / len(keys)


def test_each_key_is_looked_up_in_both_forms(measured: tuple[Path, dict[str, list[int]]]) -> None:
    assert {name: len(faults) for name, faults in measured[1].items()} == {
        "as a broker builds it": PLAN.lookups,
        "compacted": PLAN.lookups,
    }
    assert all(fault >= 0 for faults in measured[1].values() for fault in faults)


def test_the_files_are_full_and_hold_every_key(measured: tuple[Path, dict[str, list[int]]]) -> None:
    scratch, _ = measured
    for form in ("store", "compacted"):
        paths = sorted((scratch / form / "index").iterdir())
        counts = [signed(path.read_bytes(), 36, 4) for path in paths]
        assert counts[: PLAN.files] == [PLAN.entries] * PLAN.files
        assert sum(count - 1 for count in counts) == PLAN.messages * PLAN.keys_a_message


def test_a_look_up_touches_fewer_pages_of_compacted_files(measured: tuple[Path, dict[str, list[int]]]) -> None:
    scratch, _ = measured
    keys = [key_of(number) for number in range(0, 12_000, 97)]
    before, after = pages(scratch / "store" / "index", keys), pages(scratch / "compacted" / "index", keys)
    assert after <= 3 * PLAN.files + 3
    assert before > 1.5 * after


def test_a_key_that_is_nowhere_ends_the_measurement(measured: tuple[Path, dict[str, list[int]]]) -> None:
    with pytest.raises(click.ClickException, match="NOSUCHKEY"):
        count_faults(measured[0] / "store" / "index", PLAN.slots, [b"NOSUCHKEY"])


def test_keys_are_spread_and_their_hashes_are_java_s(measured: tuple[Path, dict[str, list[int]]]) -> None:
    keys = [key_of(number) for number in range(5_000)]
    assert len(set(keys)) == 5_000
    assert [java_hash(b"PagesTopic#" + key) for key in keys] == [
        index_hash(f"PagesTopic#{key.decode()}") for key in keys
    ]
    path = max((measured[0] / "compacted" / "index").iterdir())
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    last = key_of(PLAN.messages * PLAN.keys_a_message - 1)
    assert look_up(view, PLAN.slots, java_hash(b"PagesTopic#" + last)) == 1
    view.close()
