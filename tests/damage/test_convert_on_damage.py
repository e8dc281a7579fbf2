"""Whatever is damaged in a store of DLedger's, its conversion ends as documented and leaves the store alone."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from giant_files import make_giant
from loop_engine import run_jobs_here
from protocol.errors import RocketLensError, StoreError
from read_only import state_of
from spark_jobs.commands.run import run_convert
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.run.progress import Silence
from store_kinds import Ledger
from verifying import verify_here

WAYS = ("overwrite", "zero", "cut", "remove", "lengthen", "exchange")
FEW, MANY = 2, 1500

Damage = tuple[str, int, float, int]
DAMAGES = st.lists(
    st.tuples(st.sampled_from(WAYS), st.integers(0, 99), st.floats(0, 1), st.integers(1, 300)), min_size=1, max_size=4
)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Ledger(tmp_path_factory.mktemp("ledger") / "store")
    for number in range(4):
        made.transaction(number, 25)
        made.timer(number)
    made.write_timer_log()
    made.writer.close()
    return made.root


def damage(store: Path, way: str, number: int, part: float, size: int) -> None:
    files = sorted(path for path in store.rglob("*") if path.is_file())
    path = files[number % len(files)]
    content = path.read_bytes()
    at = int(part * len(content))
    match way:
        case "overwrite":
            path.write_bytes(content[:at] + bytes(n * 89 % 251 for n in range(size)) + content[at + size :])
        case "zero":
            path.write_bytes(content[:at] + bytes(size) + content[at + size :])
        case "cut":
            os.truncate(path, at)
        case "remove":
            path.unlink()
        case "lengthen":
            path.write_bytes(content + content[at : at + size])
        case "exchange":
            files[(number + 1) % len(files)].write_bytes(content)


def check(ledger: Path, damages: list[Damage]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        run_jobs_here(patch)
        store, out = Path(folder) / "store", Path(folder) / "new"
        shutil.copytree(ledger, store)
        for each in damages:
            damage(store, *each)
        before = state_of(store)
        try:
            report = run_convert(ConvertRequest(store=str(store), out=str(out), slots=20, entries=20), Silence())
        except RocketLensError:
            assert not out.exists()
        else:
            assert report.exit_code in (0, 4)
            assert verify_here(out, Path(folder)).messages == report.messages
        assert state_of(store) == before


@settings(max_examples=FEW, deadline=None)
@given(DAMAGES)
def test_a_damaged_store_of_dledgers_is_converted_with_all_that_is_counted_or_not_at_all(ledger, damages) -> None:
    check(ledger, damages)


def convert_with_giant(ledger, folder, place):
    shutil.copytree(ledger, folder / "store")
    make_giant(place((folder / "store").glob("*/data/*")))
    request = ConvertRequest(store=str(folder / "store"), out=str(folder / "new"), slots=20, entries=20)
    with pytest.MonkeyPatch.context() as patch:
        run_jobs_here(patch)
        run_convert(request, Silence())
    return folder / "new"


def test_a_last_segment_that_is_a_giant_is_named_and_nothing_is_converted(ledger: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="more than a broker can map"):
        convert_with_giant(ledger, tmp_path, max)
    assert not (tmp_path / "new").exists()


@pytest.mark.soak
@settings(max_examples=MANY, deadline=None)
@given(DAMAGES)
def test_no_damage_of_a_store_of_dledgers_ends_its_conversion_otherwise(ledger: Path, damages: list[Damage]) -> None:
    check(ledger, damages)
