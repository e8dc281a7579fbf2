"""The comparison of log and entries against the oracle that looks for each record's entries in a set."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kernel_memory import Bytes, segment_at
from storage.kernels.records import AT_BLANK, AT_DAMAGE, AT_LIMIT, AT_RECORD, find_record_by_entries

BASE = 1 << 33

messages = st.fixed_dictionaries(
    {
        "keys": st.sampled_from([None, "a", "a a b", "Aa", "BB"]),
        "unique_key": st.sampled_from([None, "u1", "a"]),
        "tags": st.sampled_from([None, "TagA"]),
        "sys_flag": st.sampled_from([0, 4, 8, 12]),
    }
)


class Comparison:
    """A segment that starts at BASE, and entries in the order of their offsets."""

    def __init__(self, data: bytes, entries: list[tuple[int, int]], has_tags: bool = True) -> None:
        self.log, self.has_tags, self.number = Bytes(data), has_tags, 1
        packed = [
            oracles.packed(hashed, 4) + oracles.packed(offset, 8) + bytes(8)
            for hashed, offset in sorted(entries, key=lambda entry: entry[1])
        ]
        self.entries = Bytes(bytes(20) + b"".join(packed))

    def find(self, position: int, complete: bool, stop: int | None = None) -> tuple[int, int]:
        """Where the kernel stopped, and why."""
        stop = self.log.length if stop is None else stop
        found = find_record_by_entries(
            self.log.region, position, stop, self.log.length, BASE, BASE + self.log.length, self.entries.region,
            self.number, self.has_tags, complete,
        )  # fmt: skip
        self.number = found.number
        return found.position, found.reason


def log_of(plan: list[dict[str, object]]) -> bytes:
    return segment_at(BASE, *plan)[0]


@settings(max_examples=examples(40))
@given(st.lists(messages, max_size=8), st.booleans(), st.data())
def test_incomplete_and_complete_records_are_found_in_turn_as_the_oracle_tells_them(
    plan: list[dict[str, object]], has_tags: bool, data: st.DataObject
) -> None:
    log = log_of(plan)
    records = list(oracles.scan_segment(log, BASE))
    entries = [(oracles.index_hash(text), r.physical_offset) for r in records for text in oracles.index_keys(r)]
    entries = [entry for entry in entries if data.draw(st.integers(0, 3))]
    strays = data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(BASE - 50, BASE + 900)), max_size=4))
    entries += [stray for stray in strays if stray[1] not in {record.physical_offset for record in records}]
    comparison = Comparison(log, entries, has_tags)
    position, complete, found = 0, False, set()
    while True:
        position, why = comparison.find(position, complete)
        if why != AT_RECORD:
            break
        found.add((position, complete))
        complete = not complete
    lacking = [oracles.lacks_entry(record, entries, has_tags) for record in records]
    expected = {
        (record.physical_offset - BASE, not lacks)
        for record, lacks, before in zip(records, lacking, [False, *lacking], strict=False)
        if lacks != before
    }
    assert (position, why) == (len(log), AT_LIMIT)
    assert found == expected


@pytest.mark.parametrize("repeated", [False, True])
def test_of_many_keys_every_one_is_looked_for(repeated: bool) -> None:
    """Neither they nor the entries of an offset are gone through for each of the others."""
    keys = [f"k{number}" for number in range(2000)]
    log = log_of([{"keys": " ".join(keys * (1 + repeated)), "tags": "TagA"}])
    hashes = [oracles.index_hash(f"TopicTest#{key}") for key in keys]
    entries = [(hashed, BASE) for hashed in hashes]
    tag = (oracles.index_hash("TopicTest#T#TagA"), BASE)
    others = [(number, BASE) for number in range(-500, 500)]
    assert Comparison(log, [*entries, tag, *others]).find(0, False) == (len(log), AT_LIMIT)
    assert Comparison(log, entries, has_tags=False).find(0, False) == (len(log), AT_LIMIT)
    assert Comparison(log, entries).find(0, False) == (0, AT_RECORD)
    for missing in (0, 999, 1999):
        assert Comparison(log, [tag, *entries[:missing], *entries[missing + 1 :]]).find(0, False) == (0, AT_RECORD)


def test_damage_and_blanks_are_told_apart() -> None:
    log = log_of([{}])
    blank = (8).to_bytes(4, "big") + oracles.BLANK_MAGIC.to_bytes(4, "big")
    assert Comparison(log + blank, []).find(0, False) == (len(log), AT_BLANK)
    assert Comparison(log + bytes(200), []).find(0, False) == (len(log), AT_DAMAGE)
