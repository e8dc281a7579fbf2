"""What a query searched, as one sentence that an operator can act on."""

from pathlib import Path

from protocol.question import KeyKind, Question
from storage.query.search_report import SearchReport
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter

T0 = "2023-11-14T22:13:20"


def report(**changes: int) -> SearchReport:
    fields = {
        "files_searched": 3, "entries_walked": 12, "refused": 2, "bad_pointers": 0,
        "index_begin_timestamp": START_TIMESTAMP, "index_end_timestamp": START_TIMESTAMP + 5,
        "index_begin_physical_offset": 0, "index_end_physical_offset": 4000, "log_minimum": 0, "log_end": 5000,
        "log_beyond_index": 0, "unscanned": 0,
    }  # fmt: skip
    return SearchReport(**{**fields, **changes})


class TestSentence:
    def test_it_tells_what_was_searched_and_what_the_index_covers(self) -> None:
        assert report().sentence() == (
            "searched 3 index files, walked 12 entries, refused 2 hash hits; "
            f"index covers {T0}.000Z to {T0}.005Z, physical offsets 0 to 4000; the log holds 0 to 5000"
        )

    def test_one_of_a_kind_is_one(self) -> None:
        text = report(files_searched=1, entries_walked=1, refused=1, bad_pointers=1, log_beyond_index=1).sentence()
        assert text.startswith("searched 1 index file, walked 1 entry, refused 1 hash hit; met 1 bad pointer; ")
        assert text.endswith("; the log holds 0 to 5000, 1 byte of it beyond the index, scanned instead")

    def test_a_store_without_index_says_so(self) -> None:
        text = report(index_end_timestamp=0, index_begin_timestamp=0, log_beyond_index=5000).sentence()
        assert "there is no usable index file; the log holds 0 to 5000, 5000 bytes of it beyond the index" in text

    def test_what_is_still_to_be_scanned_is_said(self) -> None:
        text = report(log_beyond_index=900, unscanned=300).sentence()
        assert text.endswith("900 bytes of it beyond the index with 300 still to be scanned")


class TestOfAQuery:
    def test_an_empty_answer_tells_collisions_from_absence(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, index_slots=1, index_entries=100)
        for _ in range(3):
            writer.append("T", keys="BB")
        writer.close()
        search = MessageStore.open(tmp_path).query(Question("T", "Aa", KeyKind.KEY)).search
        # The first and the last record are scanned besides, as their keys may lie in files before and after.
        assert (search.files_searched, search.entries_walked, search.refused) == (1, 5, 5)
        absent = MessageStore.open(tmp_path).query(Question("T", "C", KeyKind.KEY)).search
        assert (absent.entries_walked, absent.refused) == (3, 0)

    def test_it_tells_the_span_of_the_index_and_how_far_the_log_reaches_beyond(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, index_entries=1000)
        for number in range(5):
            writer.append("T", keys="k", store_timestamp=START_TIMESTAMP + 1000 * number)
        indexed = writer.written[-1]
        beyond = writer.append("T", keys="k", index=False)
        writer.close()
        search = MessageStore.open(tmp_path).query(Question("T", "none")).search
        assert (search.index_begin_timestamp, search.index_end_timestamp) == (START_TIMESTAMP, START_TIMESTAMP + 4000)
        assert (search.index_begin_physical_offset, search.index_end_physical_offset) == (0, indexed.physical_offset)
        assert (search.log_minimum, search.log_end) == (0, writer.log.end)
        assert (search.log_beyond_index, search.unscanned) == (beyond.size, 0)
