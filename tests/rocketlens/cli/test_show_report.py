"""What a job did, in lines."""

from typing import Any

import msgspec
import pytest

from rocketlens.cli.show_report import MOST_REPORTED, report_lines
from spark_jobs.build.place_queues import QueueDetails
from spark_jobs.commands.store_report import StoreDetails
from spark_jobs.run.report import AnyReport, Damage

ZEROS = "expected an intact record, found zeros (10 bytes skipped)"
INDEX = {"slots": 97, "entries": 150, "profile": "5.5", "kept": ["1", "2"], "built": ["3"], "reasons": ["3: not full"]}


def report(**fields: Any) -> AnyReport:
    return AnyReport(**{"command": "rebuild", "store": "/store", "out": "/store", "details": StoreDetails(), **fields})


def damages(count: int) -> list[Damage]:
    return [Damage("/store/commitlog/0", 100 * number, 10, "an intact record", "zeros") for number in range(count)]


def test_a_rebuild_of_the_index() -> None:
    told = report(
        bytes=4_294_967_296,
        messages=8_388_608,
        entries=33_554_432,
        seconds=12.34,
        steady_seconds=4,
        details=msgspec.convert({"index": INDEX, "backups": ["/store/index.bak-1"]}, StoreDetails),
        notes=["a segment is empty"],
    )
    assert list(report_lines(told)) == [
        "rebuilt /store in 12.3 s: 4.29 GB of log, 8,388,608 messages, 33,554,432 index entries "
        "(1.07 GB/s, 8.39 million entries/s)",
        "index: 1 file built, 2 kept; 97 slots and 150 entries in each file, profile 5.5",
        "index: 3: not full",
        "note: a segment is empty",
        "backup: /store/index.bak-1",
    ]


def test_a_rebuild_of_queues_into_another_directory_that_went_on() -> None:
    numbers = dict.fromkeys((name for name, kind in QueueDetails.__annotations__.items() if kind is int), 0)
    numbers |= {"queues": 17, "batch_queues": 2}
    others: dict[str, Any] = {"unknown_topics": [], "left_out": {}, "remarkable": []}
    queues = QueueDetails(**numbers, **others, carried_over={"withoutRecords": 3}, file_sizes={})
    details = StoreDetails(queues=queues)
    told = report(out="/out", units=390, resumed=True, seconds=75, steady_seconds=1, details=details)
    assert list(report_lines(told)) == [
        "rebuilt /store into /out in 0:01:15: 0 bytes of log, 0 messages, 390 queue units; "
        "continued from an earlier run",
        "queues: 17 built, 2 of them with batches, 3 without messages kept",
    ]


@pytest.mark.parametrize(
    ("count", "more", "last"),
    [
        (1, 0, f"damage: /store/commitlog/0 at physical offset 0: {ZEROS}"),
        (20, 0, f"damage: /store/commitlog/0 at physical offset 1900: {ZEROS}"),
        (23, 0, "damage: and 3 more; --json lists all"),
        (21, 5, "damage: and 6 more"),
    ],
)
def test_the_first_places_of_damage_are_listed(count: int, more: int, last: str) -> None:
    lines = [
        line for line in report_lines(report(damages=damages(count), more_damages=more)) if line.startswith("damage")
    ]
    places = f"{count + more} place" + "s" * (count + more > 1)
    assert lines[0] == f"damage: {places}, {count * 10} bytes skipped"
    assert lines[-1] == last
    assert len(lines) == 1 + min(count, MOST_REPORTED) + (count + more > MOST_REPORTED)
