"""The numbers of the record layout, as the format's reference states them."""

import zlib
from ipaddress import ip_address

import pytest

from protocol import message_layout as layout
from protocol.message_layout import fixed_struct, locate
from store_files import pack_record
from strategies import TOPICS


def test_magic_numbers_and_sizes_are_those_of_the_reference() -> None:
    signed = [magic - 2**32 for magic in (layout.V1_MAGIC, layout.V2_MAGIC, layout.BLANK_MAGIC)]
    assert signed == [-626843481, -626843477, -875286124]
    assert layout.MINIMUM_SIZE == 91
    assert (layout.PHYSICAL_OFFSET_POSITION, layout.SYS_FLAG_POSITION, layout.BORN_HOST_POSITION) == (28, 36, 48)


def test_each_ipv6_host_makes_the_fixed_part_twelve_bytes_longer() -> None:
    for sys_flag, size in [(0, 88), (0x10, 100), (0x20, 100), (0x30, 112), (-1, 112), (~0x30, 88)]:
        assert fixed_struct(sys_flag).size == size


@pytest.mark.parametrize(
    ("born_ip", "store_ip"), [("1.2.3.4", "::1"), ("::1", "1.2.3.4"), ("::1", "::2"), ("1.1.1.1", "2.2.2.2")]
)
@pytest.mark.parametrize("magic", [layout.V1_MAGIC, layout.V2_MAGIC])
def test_all_parts_are_found_whatever_the_hosts(born_ip: str, store_ip: str, magic: int) -> None:
    sys_flag = 0x10 * (":" in born_ip) + 0x20 * (":" in store_ip)
    for topic in TOPICS:
        record = pack_record(
            topic_bytes=topic.encode(), body=b"the body", properties_bytes=b"a\x01b\x02", queue_id=1, flag=2,
            queue_offset=3, physical_offset=4, sys_flag=sys_flag,
            born_timestamp=5, born_host=(born_ip, 6), store_timestamp=7, store_host=(store_ip, 8), reconsume_times=9,
            prepared_transaction_offset=10, magic=magic,
        )  # fmt: skip
        places = locate(record)
        assert record[places.body : places.body + places.body_length] == b"the body"
        assert record[places.topic : places.topic + places.topic_length].decode() == topic
        assert record[places.properties : places.total_size] == b"a\x01b\x02"
        assert places.fixed.unpack_from(record) == (
            len(record), magic, zlib.crc32(b"the body") & 0x7FFFFFFF, 1, 2, 3, 4, sys_flag, 5,
            ip_address(born_ip).packed, 6, 7, ip_address(store_ip).packed, 8, 9, 10, len(b"the body"),
        )  # fmt: skip
