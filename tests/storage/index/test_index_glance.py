"""A first look at an index file: sure of what it takes, and of nothing else."""

import os
from itertools import product
from pathlib import Path

import numpy as np

import oracles
from kept_store import ENTRIES, SLOTS, written
from storage.files.mapped_file import MappedFile
from storage.index.index_glance import checking_cost, glance
from storage.store.message_store import MessageStore


def test_a_sound_file_is_taken_with_the_shape_that_a_whole_check_finds(tmp_path: Path) -> None:
    writer = written(tmp_path)
    store = MessageStore.open(writer.root)
    assert store.snapshot.index.files
    for covering in store.snapshot.index.files:
        seen = glance(covering.index.file, store.commit_log, [], None if covering.has_tags else (SLOTS, ENTRIES))
        assert seen is not None
        assert seen[0].shape == covering.index.shape
        assert seen[1] == covering.has_tags


def test_a_first_look_at_what_is_no_index_file_is_sure_of_nothing(tmp_path: Path) -> None:
    writer = written(tmp_path, 10)
    store = MessageStore.open(writer.root)
    noise = np.random.default_rng(1).integers(0, 256, 5000, dtype=np.uint8).tobytes()
    for content in (bytes(5000), noise, noise[:40], bytes(40)):
        path = tmp_path / "file"
        path.write_bytes(content)
        assert glance(MappedFile.open(path), store.commit_log, [SLOTS], None) is None


def test_damage_at_the_front_and_at_the_end_leaves_a_doubt(tmp_path: Path) -> None:
    writer = written(tmp_path, 350, index_slots=97, index_entries=1401, segment_size=131072)
    store = MessageStore.open(writer.root)
    whole = writer.index_paths()[0].read_bytes()
    for entry, place in product((1, 2, 50, 1390, 1399), (0, 3, 16, 19)):
        content = bytearray(whole)
        content[40 + 4 * 97 + 20 * entry + place] ^= 0x81
        (tmp_path / "file").write_bytes(content)
        assert glance(MappedFile.open(tmp_path / "file"), store.commit_log, [97], None) is None, (entry, place)


def test_a_check_costs_what_the_header_counts_and_no_more_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for count, size, cost in (
        (0, 100, 100),
        (-1, 100, 100),
        (2**31 - 1, 1 << 26, 1 << 26),
        (1001, 1 << 26, 20_020_060),
    ):
        path.write_bytes(bytes(36) + oracles.packed(count, 4))
        os.truncate(path, size)
        assert checking_cost(MappedFile.open(path)) == cost
