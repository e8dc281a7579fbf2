"""Java consumers on queues whose first messages expired: they go on at the first message left, and do not loop."""

from functools import partial

import pytest

from blocking_client import eventually
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.java_client import Subscription
from interop.stages import our_stage
from store_writer import StoreWriter

pytestmark = pytest.mark.interop

TOPIC = "Expired"
FIRST, NEXT = 1_000_000, 1_000_050
"""Queue 0 begins and ends here; queue 1 has all its messages from 0 on, queue 2 none any more."""
PLACES = [(0, offset) for offset in range(FIRST, NEXT)] + [(1, offset) for offset in range(50)]
KINDS = ("push", "orderly", "lite")
MOST_PULLS = 30
"""Of one consumer: two pulls a queue would do, a consumer that goes round makes hundreds."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    root = tmp_path_factory.mktemp("expired") / "store"
    writer = StoreWriter(root, segment_size=1 << 16)
    writer.append(TOPIC, bytes(1 << 15), queue_id=2)
    writer.roll()
    for number in range(50):
        writer.append(TOPIC, b"here", queue_id=0, queue_offset=FIRST + number)
        writer.append(TOPIC, b"here", queue_id=1)
    writer.close()
    min((root / "commitlog").iterdir()).unlink()
    with our_stage(root, tmp_path_factory.mktemp("stage")) as running:
        yield running


@pytest.mark.parametrize("version", [pytest.param(SERVER_VERSION, marks=pytest.mark.soak), OLD_CLIENT_VERSION])
def test_consumers_get_what_is_left(version, stage, java) -> None:
    client = java(version, "JSON")
    consumers = {kind: Subscription(kind, f"CG_{kind}_{version}".replace(".", "-"), TOPIC) for kind in KINDS}
    client.consume(stage.name_server, consumers)
    ends = {0: NEXT, 1: 50, 2: 1}
    for one in consumers.values():
        eventually(partial(stage.has_asked_for_more, one.group, TOPIC, ends), f"{one.group} at the end of its queues")
    ended = client.end(*consumers)
    for kind, one in consumers.items():
        assert sorted(ended[kind].places) == PLACES
        assert {queue_id: stage.committed(one.group, TOPIC, queue_id) for queue_id in (0, 1)} == {0: NEXT, 1: 50}
        assert len(stage.pulls(one.group)) < MOST_PULLS
