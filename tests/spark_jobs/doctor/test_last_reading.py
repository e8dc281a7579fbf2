"""A reading of what came since the last one: how much it reads, what it finds, and when it reads everything."""

import json
import os
import shutil

import pytest

from command_line import rocketlens
from store_writer import StoreWriter
from verifying import flip

SEGMENT = 4096


@pytest.fixture(autouse=True)
def state_of_this_test(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Growing:
    """A store that grows: one that was written with more messages takes the place of its files."""

    def __init__(self, folder) -> None:
        self.root, self._folder, self.of_batches = folder / "store", folder, False
        self.writer: StoreWriter

    def grow(self, count, body=b"body"):
        sizes = {"segment_size": SEGMENT, "index_slots": 13, "index_entries": 40, "queue_file_size": 400}
        self.writer = StoreWriter(self._folder / f"made-{count}", **sizes)
        append = self.writer.append_inner_batch if self.of_batches else self.writer.append
        content = [(body, {}), (body, {})] if self.of_batches else body * 9
        written = [append("T", content, keys=f"k{n}", queue_id=2 if n < 20 else n % 2) for n in range(count)]
        self.writer.close()
        shutil.copytree(self.writer.root, self.root, dirs_exist_ok=True)
        return written


@pytest.fixture
def store(tmp_path):
    return Growing(tmp_path)


def read(store, *options):
    outcome = rocketlens("doctor", store.root, *options, "--json")
    report = json.loads(outcome.output)
    found = [each["kind"] for each in report["findings"] if each["known"] == "read"]
    return outcome.code, report["verify"], found


@pytest.mark.parametrize("part", ["unit of a batch", "entry"])
def test_what_is_wrong_in_it_is_found_until_it_is_mended(store: Growing, part: str) -> None:
    store.of_batches = part == "unit of a batch"
    store.grow(100)
    assert read(store, "--deep")[0] == 0
    store.grow(160)
    if part.startswith("unit"):
        path, position = sorted((store.root / "batchconsumequeue" / "T" / "0").iterdir())[-1], 8
    else:
        path, position = sorted((store.root / "index").iterdir())[-2], 40 + 4 * 13 + 20 * 7 + 14
    flip(path, position + 3, 4)
    for _ in range(2):
        code, _, found = read(store, "--since-last")
        assert (code, found) == (4, part.split()[:1])


@pytest.mark.parametrize("other", ["another log", "an index that was made anew"])
def test_another_log_or_index_is_read_whole(store, tmp_path, other) -> None:
    store.grow(100)
    assert read(store, "--deep")[0] == 0
    if other == "another log":
        store.grow(100, b"ydob")
    else:
        shutil.copytree(store.root / "index", tmp_path / "index")
        shutil.rmtree(store.root / "index")
        os.rename(tmp_path / "index", store.root / "index")
    code, report, found = read(store, "--since-last")
    assert (code, found, report["messages"]) == (0, [], 100)
    assert "are others than at the last reading" in report["notes"][0]
