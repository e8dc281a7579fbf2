"""The bounds by their names."""

import pytest

from broker.limits import Limits
from protocol.errors import ConfigError


def test_limits_are_changed_by_name() -> None:
    changed = Limits().changed(("connections=5", "header_bytes=4096"))
    assert (changed.connections, changed.header_bytes, changed.ext_fields) == (5, 4096, Limits().ext_fields)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("connections", "expected connections=NUMBER"),
        ("connections=", "expected connections=NUMBER"),
        ("connections=-1", "expected connections=NUMBER"),
        ("connections=1e3", "expected connections=NUMBER"),
        ("connections=0", "expected 1 or more"),
        ("unsent_bytes=5", "expected 1048576 or more"),
        ("received_bytes=999999999999999999999", "expected received_bytes=NUMBER"),
        ("speed=1", "no limit 'speed', only header_bytes"),
        ("", "no limit ''"),
    ],
)
def test_a_limit_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Limits().changed((text,))
    assert says in str(caught.value)
