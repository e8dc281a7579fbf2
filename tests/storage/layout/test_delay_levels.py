"""Delay levels are read as a broker reads them; what it would choke on is refused."""

import pytest

from oracles import DEFAULT_DELAY_LEVELS as RECORDED_LEVELS
from oracles import delay_milliseconds
from protocol.errors import ConfigError
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels


def test_the_default_levels_are_rocketmqs() -> None:
    assert DEFAULT_DELAY_LEVELS == RECORDED_LEVELS
    levels = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    assert levels == tuple(delay_milliseconds(level) for level in range(1, 19))
    assert (levels[0], levels[4], levels[17]) == (1000, 60_000, 7_200_000)


def test_days_zero_signs_and_spaces_at_the_end_are_fine() -> None:
    assert parse_delay_levels("2d 0s +7m 007h  ") == (172_800_000, 0, 420_000, 25_200_000)


def test_junk_is_refused_with_its_level() -> None:
    for text, complaint in [
        ("", "level 1 is ''"),
        (" 1s", "level 1 is ''"),
        ("1s  5s", "level 2 is ''"),
        ("1s 5", "level 2 is '5'"),
        ("1s\t5s", r"level 1 is '1s\\t5s'"),
        ("1S", "level 1 is '1S'"),
        ("s", "level 1 is 's'"),
        ("1.5s", "level 1 is '1.5s'"),
        ("-1s", "level 1 is '-1s'"),
        ("1ms", "level 1 is '1ms'"),
        ("١s", "level 1 is '١s'"),
        ("9223372036854775s 9223372036854776s", "level 2 is '9223372036854776s'"),
        ("1" * 100 + "s", "level 1 is '1111"),
    ]:
        with pytest.raises(ConfigError, match=complaint):
            parse_delay_levels(text)
