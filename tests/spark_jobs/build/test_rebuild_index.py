"""Index files rebuilt from the log, end to end: the bytes that a broker wrote."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golden_store import unpack
from oracles import build_index, read_log
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.run.progress import Silence
from spark_jobs.run.report import Report
from store_writer import StoreWriter


def rebuild(store: Path, **options: Any) -> Report:
    paths = {name: str(value) for name, value in options.items() if isinstance(value, Path)}
    return run_rebuild(RebuildRequest(store=str(store), index=True, **{**options, **paths}), Silence())


def index_bytes(store: Path) -> list[bytes]:
    """Content of the index files in name order."""
    return [path.read_bytes() for path in sorted((store / "index").iterdir())]


# --- what a real broker wrote -----------------------------------------------------------------------------------------


def test_files_at_the_front_are_kept_up_to_one_that_is_missing(tmp_path: Path) -> None:
    store = unpack("store", tmp_path)
    recorded, names = index_bytes(store), sorted(path.name for path in (store / "index").iterdir())
    for name in (names[3], *names[6:]):
        (store / "index" / name).unlink()
    report = rebuild(store, out=tmp_path / "out")
    assert report.details.index.kept == names[:3]
    assert index_bytes(tmp_path / "out") == recorded
    assert names[4] in report.details.index.reasons[0]


ENTRY_70 = 40 + 97 * 4 + 20 * 70


@pytest.mark.parametrize(
    ("what", "position"),
    [
        ("begin time", 7), ("end offset", 31), ("count", 39), ("slot", 40 + 11), ("hash", ENTRY_70 + 2),
        ("previous", ENTRY_70 + 19),
    ],
)  # fmt: skip
def test_a_damaged_file_is_not_kept(tmp_path: Path, what: str, position: int) -> None:
    store = unpack("store", tmp_path)
    recorded, names = index_bytes(store), sorted(path.name for path in (store / "index").iterdir())
    damaged = bytearray(recorded[4])
    damaged[position] ^= 0x10
    (store / "index" / names[4]).write_bytes(damaged)
    report = rebuild(store, out=tmp_path / "out")
    assert report.details.index.kept == names[:4], what
    assert index_bytes(tmp_path / "out") == recorded


# --- what a broker would write ----------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "Aa", "BB", "polygenelubricants", "ключ", "😀", "dup"])


@st.composite
def messages(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages with any number of keys, some without, some rolled back, some with a clock that steps back."""
    count = draw(st.integers(1, 40))
    return [
        {
            "keys": " ".join(draw(st.lists(KEYS, max_size=5))) or None,
            "unique_key": draw(st.none() | st.sampled_from(["0A00002A1F90", "u2"])),
            "tags": draw(st.none() | st.sampled_from(["TagA", "Aa", "BB"])),
            "sys_flag": draw(st.sampled_from([0, 0, 0, 4, 8, 12])),
            "store_timestamp": 1_700_000_000_000 + draw(st.integers(-100_000, 5_000_000)),
            "body": b"x" * draw(st.integers(0, 300)),
        }
        for _ in range(count)
    ]


@settings(max_examples=settings.default.max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=messages(), profile=st.sampled_from(["5.5", "classic"]), entries=st.integers(2, 30))
def test_random_logs_give_what_putting_one_by_one_gives(
    tmp_path_factory: pytest.TempPathFactory, written: list[dict[str, Any]], profile: str, entries: int
) -> None:
    root = tmp_path_factory.mktemp("random")
    writer = StoreWriter(root / "store", segment_size=2048, index_slots=7, index_entries=entries)
    for message in written:
        body = message.pop("body")
        writer.append("TopicTest", body, **message)
    writer.close()
    shutil.rmtree(root / "store" / "index", ignore_errors=True)
    rebuild(root / "store", out=root / "out", slots=7, entries=entries, profile=profile)
    expected = build_index(read_log(root / "store" / "commitlog"), 7, entries, "5.5" if profile == "5.5" else "5.3")
    assert index_bytes(root / "out") == expected
