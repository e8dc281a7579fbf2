"""Addresses: text and packed form, for both families."""

from ipaddress import ip_address

import pytest
from hypothesis import given

from protocol.host_address import HostAddress
from strategies import hosts


@given(hosts)
def test_packing_and_unpacking_gives_the_address_back(host: tuple[str, int]) -> None:
    address = HostAddress(*host)
    packed = ip_address(host[0]).packed + host[1].to_bytes(4, "big", signed=True)
    assert address.pack() == packed
    assert HostAddress.unpack(packed).pack() == packed
    assert HostAddress.unpack(memoryview(packed)) == HostAddress.unpack(packed)


@pytest.mark.parametrize(
    ("address", "text"), [(HostAddress("10.0.0.1", 10911), "10.0.0.1:10911"), (HostAddress("::1", 9), "[::1]:9")]
)
def test_the_text_can_be_dialled(address: HostAddress, text: str) -> None:
    assert str(address) == text


def test_a_name_is_no_address() -> None:
    for ip in ["localhost", "1.2.3", "1.2.3.4.5", "", "::g", "256.1.1.1"]:
        with pytest.raises(ValueError, match="is no IP address"):
            HostAddress(ip, 1).pack()
