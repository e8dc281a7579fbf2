"""Findings: their places, how they are counted, and which of them are alike."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.doctor.finding import (
    ADVICE,
    NOWHERE,
    Finding,
    Findings,
    FoundAt,
    Kind,
    Known,
    Severity,
    capped,
    counts_of,
    grouped,
)


@pytest.mark.parametrize(
    ("at", "where"),
    [
        (FoundAt("/s/a", "unit 3", 12, 4096), "/s/a, unit 3, byte 12, physical offset 4096"),
        (FoundAt("/s/a", position=0), "/s/a, byte 0"),
        (FoundAt("", physical_offset=7), "physical offset 7"),
        (FoundAt(""), ""),
    ],
)
def test_a_place_says_what_is_known_of_it(at: FoundAt, where: str) -> None:
    findings = Findings("x")
    findings.add(Kind.FILE, Severity.INFO, at, "found", "meaning", "")
    (finding,) = findings.listed()
    assert (finding.where, finding.known) == (where, Known.LOOKED_AT)
    assert (finding.position, finding.physical_offset) == (at.position, at.physical_offset)
    assert NOWHERE == -1


def test_what_one_remedy_mends_makes_one_group() -> None:
    findings = Findings("x")
    for number in range(21):
        findings.add(Kind.FILE, Severity.WARNING, f"/a{number}", f"{number} bytes", "it is short", "rebuild")
        findings.add(Kind.UNIT, Severity.WARNING, f"/b{number}", f"{number} are lost", "it is short", "rebuild")
    findings.add(Kind.FILE, Severity.WARNING, "/d", "1 byte", "it is empty", "rm /d")
    findings.add(Kind.FILE, Severity.WARNING, "/e", "1 byte", "it is empty", "rm /e")
    findings.add(Kind.FILE, Severity.ERROR, "/c", "f", "it is short", "rebuild")
    groups = grouped(findings.listed())
    shape = [(group.findings[0].severity.value, group.findings[0].path, group.count) for group in groups]
    assert shape == [
        ("warning", "/a0", 21),
        ("warning", "/b0", 21),
        ("warning", "/d", 1),
        ("warning", "/e", 1),
        ("error", "/c", 1),
    ]
    assert [len(group.findings) for group in groups] == [20, 20, 1, 1, 1]


@given(st.lists(st.sampled_from(sorted(ADVICE["queues"]))), st.integers(1, 5), st.integers(0, 20))
def test_what_is_not_listed_is_counted(kinds: list[Kind], limit: int, in_all: int) -> None:
    findings = Findings("queues", Known.READ, limit)
    for number, kind in enumerate(kinds):
        findings.note(kind, FoundAt("/q", f"unit {number}"), "a", "b")
        findings.more(kind, number % 3)
    expected = Counter(kinds)
    for number, kind in enumerate(kinds):
        expected[kind] += number % 3
    assert findings.counts == counts_of(capped(findings.listed(), in_all)) == expected
    kept = capped(findings.listed(), in_all)
    assert sum(not each.more for each in kept) <= in_all
    assert all(sum(each.kind == kind and not each.more for each in kept) <= limit for kind in kinds)


def test_every_advice_where_everything_is_read_has_its_words_and_a_packed_finding_is_the_same() -> None:
    for check, kinds in ADVICE.items():
        findings = Findings(check, Known.READ)
        for kind, (severity, meaning, remedy) in kinds.items():
            assert (severity is not Severity.INFO, bool(meaning), bool(remedy)) == (True, True, True)
            findings.note(kind, FoundAt("/p"), "a", "b")
        packed = msgspec.msgpack.encode(findings.listed())
        assert msgspec.msgpack.decode(packed, type=list[Finding]) == findings.listed()
