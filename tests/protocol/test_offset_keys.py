"""Keys of consumer offsets: of groups, and of clients that broadcast."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from golden_store import CASES, unpack
from protocol.fastjson import parse_fastjson
from protocol.offset_keys import is_broadcast_key, offset_key, split_offset_key

NAMES = st.text("abcAZ09_%-|", min_size=1, max_size=8)


@given(NAMES, NAMES)
def test_a_key_is_split_into_the_names_it_was_made_of(topic: str, group: str) -> None:
    assert split_offset_key(offset_key(topic, group)) == (topic, group)


def test_a_group_may_be_named_broadcast() -> None:
    assert split_offset_key("T@broadcast") == ("T", "broadcast")


def test_a_broker_wrote_both_kinds(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=CASES / "A1-A2-B1-pop")
    table = parse_fastjson((store / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert sorted(filter(None, map(split_offset_key, table))) == [
        ("%RETRY%g1_orders", "g1"),
        ("orders", "g1"),
        ("rmq_sys_REVIVE_LOG_DefaultCluster", "CID_RMQ_SYS_REVIVE_GROUP"),
    ]
    assert [key for key in table if is_broadcast_key(key)] == [
        "DefaultHeartBeatSyncerTopic@CID_DefaultHeartBeatSyncerTopic@broadcast"
    ]
