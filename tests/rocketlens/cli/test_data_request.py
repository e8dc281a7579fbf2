"""The way of a person who must hand over all that is kept of a customer, from the shell to the answer.

Each step types what the steps before it printed. What is kept was planted: in bodies, compressed ones among them, in
keys and in properties, beside customers whose numbers look alike.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from command_line import rocketlens
from exported_files import read_back
from store_writer import StoreWriter

CARD = "4000-1234"
COMPRESSED = 0x1
"""The system flag of a body that is compressed with zlib."""


def order(customer: object) -> bytes:
    return json.dumps({"order": {"customer": customer, "street": "Am Markt 4711"}}).encode()


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, list[int]]:
    """A store, and the physical offsets of what it holds of customer 4711."""
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    known = {"customerId": "4711", "card": CARD}
    theirs = [
        writer.append("orders", order(4711), keys="o-1", unique_key="U1"),
        writer.append("orders", zlib.compress(order(4711)), sys_flag=COMPRESSED, keys="o-2", unique_key="U2"),
        writer.append("%RETRY%billing", order("4711"), keys="o-3", unique_key="U3", reconsume_times=1),
        writer.append("mails", b"Dear Ms Who, your parcel is here.", properties=known, unique_key="U4"),
        writer.append("mails", b"Dear Ms Who, was all well?", keys="customer-4711 survey", unique_key="U5"),
    ]
    for other in (471, 47110, 4712):
        writer.append("orders", order(other), keys=f"o-{other}", unique_key=f"V{other}")
        writer.append("mails", b"Dear Mr No", properties={"customerId": str(other)}, keys=f"customer-{other}")
    for number in range(60):
        writer.append("noise", b"x" * 100, keys=f"n-{number}", unique_key=f"N{number}")
    theirs.append(writer.append("mails", b"Goodbye.", properties=known, unique_key="U6"))
    writer.close()
    return tmp_path / "store", [each.physical_offset for each in theirs]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_all_that_is_kept_of_a_customer_is_found_and_handed_over(kept: tuple[Path, list[int]], tmp_path: Path) -> None:
    root, theirs = kept
    topics = {each["topic"] for each in rocketlens("topics", root, "--json").messages}
    assert {"orders", "%RETRY%billing", "mails", "noise"} <= topics

    found: set[int] = set()
    for condition, count in (
        (("--json-path", "$.order.customer=4711"), 3),
        (("--where", "customerId = '4711'"), 2),
        (("--key", "customer-4711"), 1),
    ):
        outcome = rocketlens("search", root, *condition, "--json")
        assert (outcome.code, len(outcome.messages)) == (0, count), condition
        assert "searched" in outcome.errors
        found |= {each["physicalOffset"] for each in outcome.messages}
    assert sorted(found) == theirs

    # That a plain word finds more shows why the conditions above are what to trust.
    anywhere = rocketlens("search", root, "--contains", "4711", "--in", "any", "--json").messages
    assert found < {each["physicalOffset"] for each in anywhere}

    wanted = tmp_path / "wanted.txt"
    wanted.write_text("".join(f"{offset}\n" for offset in sorted(found)))
    answer = tmp_path / "answer.ndjson"
    looked_up = rocketlens("find", root, "-f", wanted, "--as", "physical-offset", "--out", answer)
    assert (looked_up.code, looked_up.errors.splitlines()[-1]) == (0, "rocketlens: 6 of 6 found")
    handed_over = rows(answer)
    assert [each["physicalOffset"] for each in handed_over] == theirs
    assert [each["uniqueKey"] for each in handed_over] == ["U1", "U2", "U3", "U4", "U5", "U6"]
    assert [json.loads(each["body"])["order"]["customer"] for each in handed_over[:3]] == [4711, 4711, "4711"]
    assert rocketlens("find", root, "-f", wanted, "--as", "physical-offset", "--out", answer).code == 2


def test_what_others_may_see_of_it_is_exported_without_what_is_masked(
    kept: tuple[Path, list[int]], tmp_path: Path
) -> None:
    root, theirs = kept
    out = tmp_path / "out"
    options = ("--where", "customerId = '4711'", "--mask", "properties.card", "--mask", "hosts")
    exported = rocketlens("export", root, "--format", "ndjson", "--out", out, *options)
    assert exported.code == 0, exported.errors
    found = read_back(out)
    assert [each["physical_offset"] for each in found] == [theirs[3], theirs[5]]
    assert {each["properties"]["card"] for each in found} == {"***"}
    assert {each["properties"]["customerId"] for each in found} == {"4711"}
    written = b"".join(path.read_bytes() for path in out.iterdir())
    assert b"parcel" in written
    for secret in (CARD.encode(), b"127.0.0.1"):
        assert secret not in written
