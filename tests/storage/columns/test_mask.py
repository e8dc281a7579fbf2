"""What is masked is nowhere in the columns any more, and the rest is as it was."""

from pathlib import Path
from typing import Any

import pytest

from column_rows import rows_of
from protocol.errors import ConfigError
from storage.columns.mask import read_mask
from storage.columns.message_columns import gather
from storage.columns.names import KINDS
from storage.columns.rows import RowReader
from storage.columns.wanted import Wanted
from storage.log.log_window import LocalFile, LogWindow
from store_writer import StoreWriter


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    writer = StoreWriter(tmp_path)
    writer.append("T", b"secret", tags="A", keys="k l", unique_key="u", properties={"card": "4111", "cart": "x"})
    writer.append("T", b"", properties={"cart": "y"})
    writer.close()
    return writer


def masked(writer: StoreWriter, *fields: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    (segment,) = writer.log.segments.values()
    with LogWindow(LocalFile(segment), 0) as window:
        for rows in RowReader(window, Wanted(), names=True).read(0, writer.log.end):
            (columns,) = gather(rows, tuple(KINDS))
            return rows_of(columns), rows_of(read_mask(fields).apply(columns))
    raise AssertionError


def changes(writer: StoreWriter, *fields: str) -> list[dict[str, Any]]:
    """What is different in each row."""
    before, after = masked(writer, *fields)
    return [
        {name: value for name, value in new.items() if value != old[name]}
        for old, new in zip(before, after, strict=True)
    ]


def test_a_body_goes_with_its_crc(writer: StoreWriter) -> None:
    assert changes(writer, "body") == [{"body": b"***", "body_crc": 0}, {"body": b"***"}]


def test_keys_and_their_like_go_from_the_properties_too(writer: StoreWriter) -> None:
    first, second = masked(writer, "keys", "tags", "properties.UNIQ_KEY")[1]
    assert (first["keys"], first["tags"], first["unique_key"]) == (["***", "***"], "***", "***")
    expected = {"card": "4111", "cart": "x", "KEYS": "***", "UNIQ_KEY": "***", "TAGS": "***"}
    assert first["properties"] == expected
    assert (second["keys"], second["tags"], second["properties"]) == ([], None, {"cart": "y"})


def test_one_property_goes_alone(writer: StoreWriter) -> None:
    (first, second) = changes(writer, "properties.card")
    assert first["properties"]["card"] == "***"
    assert first["properties"]["cart"] == "x"
    assert second == {}


def test_all_properties_go_with_the_columns_made_of_them_and_their_names_stay(writer: StoreWriter) -> None:
    rows = masked(writer, "properties")[1]
    assert [set(row["properties"].values()) for row in rows] == [{"***"}, {"***"}]
    assert [(row["keys"], row["tags"], row["unique_key"]) for row in rows] == [
        (["***", "***"], "***", "***"),
        ([], None, None),
    ]


def test_hosts_go(writer: StoreWriter) -> None:
    assert changes(writer, "hosts")[0] == {"born_host": "***", "store_host": "***"}


@pytest.mark.parametrize("field", ["topic", "properties.", "queue_id", ""])
def test_what_is_no_field_to_mask_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match="to mask: expected body, keys"):
        read_mask([field])
