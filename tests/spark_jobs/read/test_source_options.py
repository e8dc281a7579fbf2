"""The data source's options as they are read."""

import re

import pytest

from protocol.errors import ConfigError, FilterSyntaxError
from spark_jobs.read.source_options import DataSourceOptions, read_options
from storage.columns.wanted import HIGHEST, Wanted


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
    wanted = Wanted(
        topics=frozenset({b"a", b"b"}), tags=frozenset({b"X", b"Y"}), queue_ids=frozenset({3}), times=(5, 9),
        queue_offsets=(8, HIGHEST), physical_offsets=(4, 17), where="a > 1",
    )  # fmt: skip
    assert options == DataSourceOptions(
        path="s3://b/s", wanted=wanted, columns=("body", "topic"), mode="failfast", table="damage",
        commit_log=("/x", "/y"), storage='{"anon": true}', starting_offset="77", most_segments=2,
        most_bytes=99_999_999_999, most_records=5,
    )  # fmt: skip
    assert options.fails_fast


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


def test_a_mask_is_rules_and_a_file_of_rules(tmp_path) -> None:
    (tmp_path / "masks").write_text("# more\n/1[3-9]{2,3}/\n")
    options = {"path": "/s", "mask": "keys\n$.a.b", "maskFile": str(tmp_path / "masks")}
    assert read_options(options).masked == ("keys", "$.a.b", "/1[3-9]{2,3}/")
    for more in ({"mask": ""}, {"mask": "kez"}, {"tag": "199"}, {"where": "a = 1"}, {"where": "KEYS = 'k'"}):
        with pytest.raises(ConfigError, match="mask"):
            read_options(options | more)
