"""The data source's options as they are read."""

import re
from pathlib import Path

import pytest

from protocol.errors import ConfigError, FilterSyntaxError
from spark_jobs.read.source_options import DataSourceOptions, read_options
from storage.columns.names import KINDS
from storage.columns.wanted import HIGHEST, LOWEST, Wanted


def test_every_option_is_read_whatever_its_case() -> None:
    options = read_options(
        {
            "path": "s3://b/s", "Topic": "a, b", "tag": "X || Y", "QUEUE_ID": "3", "from": "5",
            "to": "9", "where": "a > 1", "queue_offset": "8-", "Physical_Offset": "4-17",
            "columns": "body,topic", "mode": "FailFast", "table": "damage", "commit_log": "/x,/y",
            "storage_options": '{"anon": true}', "startingOffset": "77", "maxSegmentsPerTrigger": "2",
            "maxBytesPerTrigger": "99999999999", "maxRecordsPerTrigger": "5",
        }
    )  # fmt: skip
    assert options == DataSourceOptions(
        path="s3://b/s",
        wanted=Wanted(
            topics=frozenset({b"a", b"b"}),
            tags=frozenset({b"X", b"Y"}),
            queue_ids=frozenset({3}),
            times=(5, 9),
            queue_offsets=(8, HIGHEST),
            physical_offsets=(4, 17),
            where="a > 1",
        ),
        columns=("body", "topic"),
        mode="failfast",
        table="damage",
        commit_log=("/x", "/y"),
        storage='{"anon": true}',
        starting_offset="77",
        most_segments=2,
        most_bytes=99_999_999_999,
        most_records=5,
    )
    assert options.fails_fast


def test_only_a_path_is_needed_and_every_tag_is_no_choice() -> None:
    assert read_options({"path": "/s"}) == DataSourceOptions(path="/s", wanted=Wanted(), columns=tuple(KINDS))
    assert read_options({"path": "/s", "tag": "*"}).wanted == Wanted()
    assert read_options({"path": "/s", "from": "0"}).wanted.times == (0, HIGHEST)
    assert read_options({"path": "/s", "to": "2024-05-31T08:30:00+00:00"}).wanted.times == (LOWEST, 1717144200000)


def test_times_may_be_as_a_person_writes_them_in_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.times.time.time_ns", lambda: 1717144200000 * 1_000_000)
    zone = {"timezone": "Asia/Shanghai"}
    given = {"from": "yesterday 16:30", "to": "2024-05-31 15:30"}
    day, hour = 24 * 3_600_000, 3_600_000
    assert read_options({"path": "/s", **given, **zone}).wanted.times == (1717144200000 - day, 1717144200000 - hour)
    assert read_options({"path": "/s", "from": "-1h", "to": "now"}).wanted.times == (
        1717144200000 - hour,
        1717144200000,
    )
    assert read_options({"path": "/s", **zone}).wanted == Wanted()


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"path": ""}, {"startingOffset": "soon"}, {"maxSegmentsPerTrigger": "0"}, {"table": "all"}),
        *({"queue_offset": ""}, {"queue_offset": "9-8"}, {"physical_offset": "1-2-3"}, {"push_filters": "true"}),
        *({"maxBytesPerTrigger": "1 MB"}, {"maxRecordsPerTrigger": "-1"}),
        *({"to": "never"}, {"topic": " , "}, {"queue_id": ""}, {"queue_id": "all"}),
        *({"from": "-1y"}, {"timezone": "Mars/Olympus"}, {"tag": "||"}),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str]) -> None:
    with pytest.raises((ConfigError, FilterSyntaxError)):
        read_options({"path": "/s", **options} if options and "path" not in options else options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "lax"}, "mode: 'lax', expected permissive or failfast"),
        ({"columns": "topic,boby"}, "no column 'boby'"),
        ({"queue_id": "x"}, "queue_id: 'x'"),
        ({"from": "soon"}, "from: 'soon' is neither"),
        ({"storage_options": "[1]"}, "expected a JSON object"),
    ],
)
def test_a_refusal_names_option_and_value(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_options({"path": "/s", **options})


def test_a_mask_is_rules_and_a_file_of_rules(tmp_path: Path) -> None:
    (tmp_path / "masks").write_text("# more\n/1[3-9]{2,3}/\n")
    options = {"path": "/s", "mask": "keys\n$.a.b", "maskFile": str(tmp_path / "masks")}
    assert read_options(options).masked == ("keys", "$.a.b", "/1[3-9]{2,3}/")
    for more in ({"mask": ""}, {"mask": "kez"}, {"tag": "199"}, {"where": "a = 1"}, {"where": "KEYS = 'k'"}):
        with pytest.raises(ConfigError, match="mask"):
            read_options(options | more)


def test_a_time_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^from 2024-05-31 is after to 1717000000000: no message"):
        read_options({"path": "/s", "from": "2024-05-31", "to": "1717000000000"})
    assert read_options({"path": "/s", "from": "7", "to": "7"}).wanted.times == (7, 7)
