"""One budget for all registries: what does not fit is refused, what is given back can be had again."""

import threading

import pytest

from broker.service.registry_budget import BudgetSpent, RegistryBudget, room_apart


def test_what_does_not_fit_is_refused_and_counts_nothing() -> None:
    room = RegistryBudget(1000).room("groups", 1)
    assert room.take(600)
    assert not room.take(401)
    assert room.take(400)
    assert (room.used, room.fits(0), room.fits(1)) == (1000, True, False)


def test_no_room_takes_more_than_its_part_nor_all_together_more_than_the_whole() -> None:
    budget = RegistryBudget(1000)
    first, second, third = (budget.room(what, 2) for what in ("groups", "filters", "offsets"))
    assert not first.take(501)
    assert first.take(500)
    assert second.take(400)
    assert not third.take(101)
    assert third.take(100)
    assert budget.used == 1000


def test_the_sentence_names_what_there_is_too_much_of_and_the_limit() -> None:
    with pytest.raises(BudgetSpent, match=r"locks of all clients hold as many bytes .* registry_bytes=77"):
        raise RegistryBudget(77).room("locks", 1).spent


def test_threads_that_take_and_give_back_leave_nothing_over() -> None:
    room = room_apart("groups")

    def work() -> None:
        for size in range(2000):
            assert room.take(size)
            room.give_back(size)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert room.used == 0
