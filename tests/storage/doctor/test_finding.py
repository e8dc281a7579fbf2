"""Findings and their places."""

import pytest

from storage.doctor.finding import NOWHERE, CheckFindings, DoctorFinding, Severity, grouped


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


def test_each_kind_is_counted_by_itself_and_makes_one_group() -> None:
    findings = CheckFindings.of("x")
    for number in range(21):
        findings.add(Severity.WARNING, f"/a{number}", f"{number} bytes", "it is short", "rebuild")
        findings.add(Severity.WARNING, f"/b{number}", "f", f"{number} are lost", "rebuild", kind="lost")
    findings.add(Severity.ERROR, "/c", "f", "it is short", "rebuild")
    groups = grouped(findings.listed())
    shape = [(group.findings[0].severity.value, group.findings[0].path, group.count) for group in groups]
    assert shape == [("warning", "/a0", 21), ("warning", "/b0", 21), ("error", "/c", 1)]
    assert [len(group.findings) for group in groups] == [20, 20, 1]
