"""The picture of coverage, column by column."""

import pytest

from rocketlens.cli.coverage_picture import draw_coverage
from storage.doctor.examine import Coverage
from storage.ranges import Ranges


def picture(log: Ranges, queues: Ranges = (), index: Ranges = (), width: int = 28) -> list[str]:
    times = ((0, 1_700_000_000_000), (100, 1_700_000_100_000))
    return list(draw_coverage(Coverage(0, 200, log, queues, index, times), width, time_text))


def time_text(timestamp: int) -> str:
    return f"2023-11-14 {timestamp:08}"[:19]


def test_each_column_says_all_some_or_none() -> None:
    lines = picture(((0, 200),), ((0, 95),), ((50, 60), (190, 200)))
    assert lines[0] == "log     " + "█" * 20
    assert lines[1] == "queues  " + "█" * 9 + "▒" + "·" * 10
    assert lines[2] == "index   " + "·" * 5 + "█" + "·" * 13 + "█"
    assert lines[3] == "offset  " + "0" + " " * 16 + "200"


@pytest.mark.parametrize("width", [1, 28, 60, 80, 500])
def test_no_line_is_wider_than_the_terminal_or_the_narrowest_picture(width: int) -> None:
    lines = picture(((0, 200),), width=width)
    assert len(lines) == 5
    assert all(len(line) <= max(min(width, 128), 28) for line in lines)


def test_a_log_shorter_than_the_picture_is_drawn() -> None:
    lines = list(draw_coverage(Coverage(5, 7, ((5, 7),), (), (), ()), 40, time_text))
    assert lines[0] == "log     " + "█" * 32
    assert len(lines) == 4
