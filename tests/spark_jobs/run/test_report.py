"""What a report prints of its details, and the exit code that it stands for."""

import msgspec
import pytest

from spark_jobs.commands.store_report import StoreDetails
from spark_jobs.export.export_request import ExportDetails
from spark_jobs.run.report import AnyReport, Damage, Details

DAMAGE = Damage("/store/commitlog/0", 0, 10, "an intact record", "zeros")


def exported(*, found: bool) -> ExportDetails:
    return ExportDetails(format="csv", parts=1, part_bytes=1, part_seconds=1.0, found=found)


@pytest.mark.parametrize(
    ("details", "damages", "more", "code"),
    [
        (Details(), [], 0, 0),
        (exported(found=True), [], 0, 0),
        (exported(found=False), [], 0, 1),
        (exported(found=False), [DAMAGE], 0, 4),
        (exported(found=True), [], 3, 4),
        (StoreDetails(), [DAMAGE], 0, 4),
    ],
)
def test_damage_decides_the_exit_code_and_else_the_details_do(
    details: Details, damages: list[Damage], more: int, code: int
) -> None:
    report = AnyReport(command="x", store="/s", out="/o", details=details, damages=damages, more_damages=more)
    assert report.exit_code == code


def test_details_that_a_job_has_not_are_not_printed() -> None:
    assert msgspec.json.encode(Details()) == b"{}"
    assert msgspec.json.encode(StoreDetails(log_end=0, published=[])) == b'{"logEnd":0,"published":[]}'
