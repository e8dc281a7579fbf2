"""The record that a table keeps of a commit, read back: what is none is named with the place of the table."""

import pytest

from protocol.errors import StoreError
from spark_jobs.tables._files_table import FilesCommit
from spark_jobs.tables._table import TableCommit, read_commit


@pytest.mark.parametrize("form", [TableCommit, FilesCommit])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no JSON", "has no commit of RocketLens"),
        ('{"version": 1}', "has no commit of RocketLens: Object missing required field"),
        ('{"version": 2, "run": "r"}', "was written by another version: version 2, expected 1"),
    ],
)
def test_what_is_no_commit_is_refused(form: type[TableCommit], text: str, said: str) -> None:
    with pytest.raises(StoreError) as refused:
        read_commit(text, "s3://bucket/table", form)
    assert "s3://bucket/table" in str(refused.value)
    assert said in str(refused.value)
