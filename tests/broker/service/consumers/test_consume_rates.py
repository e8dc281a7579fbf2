"""Rates of consumption, from commits alone."""

import random

from broker.service.consumers.consume_rates import DAY, HOUR, MINUTE, PAIRS_LIMIT, SPANS, ConsumeRates, Rate
from still_clock import StillClock


def test_what_was_consumed_before_a_span_is_not_in_it(clock: StillClock) -> None:
    rates = ConsumeRates(clock)
    rates.add("G", "T", 50)
    clock.seconds += 5
    rates.add("G", "T", 20)
    clock.seconds += MINUTE
    assert [rate.total for rate in rates.rates("G", "T")] == [0, 70, 70]
    rates.add("G", "T", 3)
    assert [rate.total for rate in rates.rates("G", "T")] == [3, 73, 73]
    clock.seconds += HOUR
    assert [rate.total for rate in rates.rates("G", "T")] == [0, 0, 73]
    clock.seconds += DAY
    assert rates.rates("G", "T") == (Rate(), Rate(), Rate())


def test_a_span_is_told_as_exactly_as_its_samples_are_close(clock: StillClock) -> None:
    rates, chance, told = ConsumeRates(clock), random.Random(7), []
    for _ in range(300):
        clock.seconds += chance.choice((0.1, 3, 9, 40, 700))
        count = chance.randrange(1, 100)
        rates.add("G", "T", count)
        told.append((clock.seconds, count))
        for rate, (span, step) in zip(rates.rates("G", "T"), SPANS, strict=True):
            at_least = sum(count for when, count in told if when > clock.seconds - span)
            at_most = sum(count for when, count in told if when > clock.seconds - span - step)
            assert at_least <= rate.total <= at_most


def test_made_up_groups_take_no_memory(clock: StillClock) -> None:
    rates = ConsumeRates(clock)
    for number in range(PAIRS_LIMIT + 10):
        rates.add(f"G{number}", "T", 1)
    assert rates.rates(f"G{PAIRS_LIMIT + 1}", "T")[2].total == 0
    assert rates.rates("G1", "T")[2].total == 1
