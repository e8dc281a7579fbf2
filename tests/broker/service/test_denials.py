"""What accounts lacked is kept within bounds, counted once among workers, and logged when it is new."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.service.denials import AGAIN_SECONDS, MORE, MOST_KEPT, Denials, Want
from still_clock import StillClock

ORDERS = Want("reader-key", "SUB of topic orders", "topicPerms: - orders=SUB")


def test_a_line_of_the_log_names_the_account_and_what_to_add_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    clock = StillClock()
    denials = Denials(clock_seconds=clock)
    with caplog.at_level(logging.WARNING):
        for seconds in (0, 1, AGAIN_SECONDS - 2, 1):
            clock.seconds += seconds
            denials.note(ORDERS)
    assert [record.getMessage() for record in caplog.records] == [
        "--acl: a request was refused: account reader-key lacks SUB of topic orders; to give it, add to "
        "plain_acl.yml: topicPerms: - orders=SUB"
    ] * 2
    assert [(each.want, each.count) for each in denials.all()] == [(ORDERS, 4)]


def test_whatever_an_account_asks_for_no_more_than_so_many_wants_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    denials = Denials()
    for number in range(3 * MOST_KEPT):
        denials.note(ORDERS._replace(lacks=f"SUB of topic {number}"))
    kept = {each.want: each.count for each in denials.all()}
    assert len(kept) == len(caplog.records) == MOST_KEPT + 1
    assert kept[Want("reader-key", MORE)] == 2 * MOST_KEPT


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"))))
def test_workers_that_report_count_for_all_what_each_was_asked(asked: list[tuple[int, str]]) -> None:
    owner, workers = Denials(logs=False), [Denials(logs=False) for _ in range(3)]
    for number, name in asked:
        workers[number].note(Want(name, "x"))
        if name == "c":
            owner.take((list(want), count) for want, count in workers[number].settle())
    for worker in workers:
        owner.take((list(want), count) for want, count in worker.settle())
        assert not worker.all()
    names = [name for _, name in asked]
    assert {each.want.account: each.count for each in owner.all()} == {name: names.count(name) for name in names}
