"""A bounded memory: what was used last stays, what fails is not remembered, and threads do not disturb it."""

import threading

import pytest

from storage.files.recently_used import RecentlyUsed


def test_the_value_not_used_for_longest_is_forgotten() -> None:
    memory: RecentlyUsed[int] = RecentlyUsed(2)
    memory.get("a", lambda: 1)
    memory.get("b", lambda: 1)
    memory.get("a", lambda: 2)
    memory.get("c", lambda: 1)
    assert [memory.get("a", lambda: 3), memory.get("b", lambda: 3)] == [1, 3]
    assert len(memory) == 2


def test_an_error_passes_through_and_is_not_remembered() -> None:
    memory: RecentlyUsed[int] = RecentlyUsed(2)
    with pytest.raises(ZeroDivisionError):
        memory.get("a", lambda: 1 // 0)
    assert memory.get("a", lambda: 5) == 5


def test_values_can_be_forgotten_down_to_a_number() -> None:
    memory: RecentlyUsed[int] = RecentlyUsed(9)
    for number in range(9):
        memory.get(("a", number), lambda: 1)
    memory.forget_to(4)
    assert len(memory) == 4
    assert memory.get(("a", 8), lambda: 2) == 1


def test_a_peek_loads_nothing_and_is_no_use() -> None:
    memory: RecentlyUsed[int] = RecentlyUsed(2)
    assert memory.peek("a") is None
    memory.put("a", 1)
    memory.put("b", 1)
    assert memory.peek("a") == 1
    memory.put("c", 1)
    assert memory.peek("a") is None


def test_many_threads_find_what_they_ask_for() -> None:
    memory: RecentlyUsed[int] = RecentlyUsed(7)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for step in range(3000):
            number = (step * seed) % 31
            if memory.get(("n", number), lambda number=number: number) != number:  # type: ignore[misc]
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 3, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(memory) <= 7
