"""A verification beside the official broker while a producer sends to it: nothing that it is writing is a finding."""

from pathlib import Path

import pytest

from blocking_client import eventually
from interop.official_broker import G1_PROPERTIES, official_pair
from interop.producing import producing
from verifying import assert_clean, verify_here

pytestmark = [pytest.mark.interop, pytest.mark.soak]
"""In each run: tests/spark_jobs, test_deep_live.py, with a broker that writes as this one."""


def test_what_a_broker_writes_while_it_runs_is_no_finding(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with (
        official_pair(store, tmp_path, properties=G1_PROPERTIES) as pair,
        producing(pair.name_server.text_address, tmp_path, 200) as producer,
    ):
        producer.send_to("Verified")
        for number in range(4):
            seen = len(producer.sent) + 100
            eventually(lambda seen=seen: len(producer.sent) > seen, "messages")
            report = verify_here(store, tmp_path / str(number))
            assert report.details.log.live
            assert_clean(report)
            assert report.messages >= seen
        producer.stop()
        assert producer.failure is None
    assert len(list((store / "index").iterdir())) > 2  # it rolled over meanwhile
