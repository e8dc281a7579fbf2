"""A store of which some part may not be read: refused, or served without it, never an error of Python's."""

import pytest

from protocol import errors
from protocol.question import Question
from read_only import as_nobody, reachable_directory
from storage.store.message_store import MessageStore
from store_tour import tour
from store_writer import StoreWriter

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
"""Python warns of forking a process with threads; the child does nothing that another thread could have locked."""

SEGMENT = 1024


def written(root, count=30):
    with StoreWriter(root, segment_size=SEGMENT, index_slots=7, index_entries=24) as writer:
        for number in range(count):
            writer.append("T", b"x", keys="k", unique_key=f"u{number}", tags="t", queue_id=number % 2)
    return writer


def look_at(root):
    store = MessageStore.open(root)
    tour(store)
    found = store.query(Question("T", "k"))
    return "\n".join([f"found {found.count}, {found.incomplete or 'all'}", *store.problems])


@pytest.mark.parametrize("mode", [0o000, *(pytest.param(mode, marks=pytest.mark.soak) for mode in (0o444, 0o111))])
def test_whatever_may_not_be_read_is_refused_or_missed(mode: int) -> None:
    with reachable_directory() as directory:
        root = written(directory / "store", 12).root
        outcomes = {}
        for path in [root, *sorted(root.rglob("*"))]:
            was = path.stat().st_mode
            if mode == 0o444 and not path.is_dir():
                continue
            path.chmod(mode)
            outcomes[str(path.relative_to(root))] = as_nobody(lambda: look_at(root))
            path.chmod(was)
    for path, outcome in outcomes.items():
        kind = outcome.split(":")[0]
        assert outcome.startswith("found ") or issubclass(getattr(errors, kind, type(None)), errors.StoreError), (
            path,
            outcome,
        )
    assert outcomes["."].startswith("NotAStore")
    assert outcomes["commitlog"].startswith(("NotAStore", "StoreError"))


def test_a_segment_that_may_not_be_read_is_named_and_served_without() -> None:
    with reachable_directory() as directory:
        writer = written(directory / "store")
        path = writer.root / "commitlog" / f"{SEGMENT:020d}"
        lost = [w for w in writer.written if SEGMENT <= w.physical_offset < 2 * SEGMENT]
        path.chmod(0)
        outcome = as_nobody(lambda: look_at(writer.root)).splitlines()
    assert outcome[0].startswith(f"found {len(writer.written) - len(lost)}, ")
    assert outcome[0].endswith(f"segment {path.name} cannot be read")
    assert f"{path}: cannot be opened: Permission denied; it is served without" in outcome
    assert f"hole in the log: no segment holds physical offsets {SEGMENT} to {2 * SEGMENT}" in outcome


def test_an_index_that_may_not_be_read_hides_nothing() -> None:
    with reachable_directory() as directory:
        writer = written(directory / "store")
        path = writer.index_paths()[0]
        path.chmod(0)
        one = as_nobody(lambda: look_at(writer.root)).splitlines()
        path.parent.chmod(0)
        none = as_nobody(lambda: look_at(writer.root)).splitlines()
        path.parent.chmod(0o755)
    assert one == [
        f"found {len(writer.written)}, all",
        f"{path}: cannot be opened: Permission denied; its range is scanned from the log",
    ]
    assert none == [
        f"found {len(writer.written)}, all",
        f"{path.parent} cannot be listed: Permission denied; every key is looked for in the log",
    ]
