"""The kernel that finds a message by its queue and queue offset."""

import numpy as np
import pytest

from kernel_memory import record_at
from storage.kernels.find_message import ANY_OFFSET, NOT_FOUND, find_message


@pytest.fixture
def log() -> tuple[np.ndarray, list[int]]:
    data, starts = b"", []
    for number in range(6):
        starts.append(len(data))
        data += record_at(len(data), keys=f"k{number}", sys_flag=(0, 0x30)[number % 2])
    return np.frombuffer(data + bytes(200), np.uint8).copy(), starts


def find(
    log: np.ndarray, start: int, stop: int, queue_offset: int, topic: bytes = b"TopicTest", queue_id: int = 1
) -> int:
    name = np.frombuffer(topic, np.uint8).copy()
    size = log.size
    return int(
        find_message(log.ctypes.data, start, stop, size, 0, name.ctypes.data, len(topic), queue_id, queue_offset)
    )


def test_the_first_record_of_the_queue_is_found_from_any_start(log: tuple[np.ndarray, list[int]]) -> None:
    data, starts = log
    for start in starts:
        assert find(data, start, data.size, ANY_OFFSET) == start
    assert find(data, starts[2] + 1, data.size, ANY_OFFSET) == starts[3]


def test_another_topic_queue_or_offset_is_not_found(log: tuple[np.ndarray, list[int]]) -> None:
    data, _ = log
    assert find(data, 0, data.size, ANY_OFFSET, b"TopicTes") == NOT_FOUND
    assert find(data, 0, data.size, ANY_OFFSET, queue_id=0) == NOT_FOUND
    assert find(data, 0, data.size, 10**6) == NOT_FOUND
    assert find(data, 0, data.size, 7) == 0


def test_damage_is_stepped_over_and_nothing_behind_the_stop_is_found(log: tuple[np.ndarray, list[int]]) -> None:
    data, starts = log
    data[starts[1] + 4] = 0
    assert find(data, starts[1], data.size, ANY_OFFSET) == starts[2]
    assert find(data, starts[1], starts[2], ANY_OFFSET) == NOT_FOUND
    data[: data.size] = 0xFF
    assert find(data, 0, data.size, ANY_OFFSET) == NOT_FOUND
