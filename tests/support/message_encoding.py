"""Records built from their fields, as a broker would store them."""

from collections.abc import Mapping

from protocol.host_address import HostAddress
from store_files import pack_record, property_bytes, with_host_bits

_NUMBERS = """queue_id queue_offset physical_offset flag sys_flag born_timestamp store_timestamp reconsume_times
    prepared_transaction_offset"""
_NOWHERE = HostAddress("127.0.0.1", 0)


def encode_message(*, topic, body=b"", properties=b"", born_host=_NOWHERE, store_host=_NOWHERE, body_crc=None, **more):
    block = property_bytes(properties) if isinstance(properties, Mapping) else bytes(properties)
    fields = dict.fromkeys(_NUMBERS.split(), 0) | more
    hosts = {"born_host": (born_host.ip, born_host.port), "store_host": (store_host.ip, store_host.port)}
    fields["sys_flag"] = with_host_bits(fields["sys_flag"], *hosts.values())
    texts = {"topic_bytes": topic.encode("utf-8", "replace"), "body": bytes(body), "properties_bytes": block}
    return pack_record(**texts, **hosts, crc=body_crc, **fields)
