"""Findings and their places."""

import pytest

from storage.doctor.finding import NOWHERE, CheckFindings, DoctorFinding, Severity


@pytest.mark.parametrize(
    ("path", "position", "offset", "place"),
    [
        ("/s/a", 12, 4096, "/s/a, byte 12, physical offset 4096"),
        ("/s/a", 0, NOWHERE, "/s/a, byte 0"),
        ("", NOWHERE, 7, "physical offset 7"),
        ("", NOWHERE, NOWHERE, ""),
    ],
)
def test_a_place_says_what_is_known_of_it(path: str, position: int, offset: int, place: str) -> None:
    finding = DoctorFinding(Severity.INFO, "x", path, "found", "meaning", "", position, offset)
    assert finding.place == place


def test_each_severity_is_counted_by_itself() -> None:
    findings = CheckFindings.of("x")
    for number in range(25):
        findings.add(Severity.ERROR, f"/e{number}", "f", "m", "r")
    findings.add(Severity.WARNING, "/w", "f", "m", "r")
    listed = findings.listed()
    assert [finding.severity for finding in listed].count(Severity.ERROR) == 21
    assert listed[20].path == "/w"
    assert (listed[-1].severity, listed[-1].found) == (Severity.ERROR, "5 more like these")
