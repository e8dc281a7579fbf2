"""How often a secret may be guessed, and that this locks nobody else out."""

from broker.security import _failed_attempts
from broker.security._failed_attempts import MOST_KEYS, MOST_KNOWN, OF_ADDRESS, OF_NAME, FailedAttempts

HERE, THERE = "198.51.100.7", "203.0.113.9"


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def guesses(attempts: FailedAttempts, address: str | None, name: str, count: int) -> int:
    """How many of so many different secrets may be tried at once."""
    tried = 0
    for number in range(count):
        if attempts.wait_seconds(address, name):
            break
        tried += attempts.note_failed(address, name, f"{address} guesses {number}".encode())
    return tried


def test_a_name_has_ten_attempts_and_one_more_every_six_seconds() -> None:
    clock = Clock()
    attempts = FailedAttempts(clock)
    assert guesses(attempts, HERE, "reader", 1000) == OF_NAME.attempts == 10
    assert 5.9 < attempts.wait_seconds(HERE, "reader") <= 6.0
    clock.now += 5.9
    assert attempts.wait_seconds(HERE, "reader") > 0
    clock.now += 0.2
    assert guesses(attempts, HERE, "reader", 1000) == 1
    clock.now += 3600
    assert guesses(attempts, HERE, "reader", 1000) == 10


def test_another_address_and_another_name_are_not_kept_out() -> None:
    attempts = FailedAttempts(Clock())
    guesses(attempts, HERE, "reader", 1000)
    assert attempts.wait_seconds(HERE, "reader") > 0
    assert attempts.wait_seconds(THERE, "reader") == 0
    assert attempts.wait_seconds(HERE, "operator") == 0


def test_an_address_that_tries_many_names_is_refused_all_but_those_that_logged_in_from_it() -> None:
    attempts = FailedAttempts(Clock())
    attempts.note_success(HERE, "operator")
    made = sum(guesses(attempts, HERE, f"name {number}", 3) for number in range(1000))
    assert made == OF_ADDRESS.attempts
    assert attempts.wait_seconds(HERE, "reader") > 0
    assert attempts.wait_seconds(HERE, "operator") == 0
    assert guesses(attempts, HERE, "operator", 1000) == OF_NAME.attempts, "and its own secret is no easier to guess"


def test_the_same_wrong_secret_again_is_no_guess() -> None:
    attempts = FailedAttempts(Clock())
    assert attempts.note_failed(HERE, "reader", b"old")
    assert not any(attempts.note_failed(HERE, "reader", b"old") for _ in range(1000))
    assert attempts.wait_seconds(HERE, "reader") == 0
    assert guesses(attempts, HERE, "reader", 1000) == OF_NAME.attempts - 1


def test_the_addresses_of_one_network_of_ipv6_are_one_client() -> None:
    attempts = FailedAttempts(Clock())
    made = sum(guesses(attempts, f"2001:db8::{number:x}", "reader", 1) for number in range(1, 100))
    assert made == OF_NAME.attempts
    assert attempts.wait_seconds("2001:db8:0:1::1", "reader") == 0
    assert guesses(attempts, "::ffff:198.51.100.7", "a", 1000) == 10
    assert attempts.wait_seconds(HERE, "a") > 0


def test_a_crowd_of_addresses_takes_bounded_memory_and_does_not_forget_who_guessed() -> None:
    clock = Clock()
    attempts = FailedAttempts(clock)
    guesses(attempts, HERE, "reader", 1000)
    attempts.note_success(THERE, "operator")
    made = sum(guesses(attempts, f"10.{number >> 8}.{number & 255}.1", "reader", 1) for number in range(20_000))
    assert len(attempts) <= MOST_KEYS + 2
    assert made <= MOST_KEYS
    assert attempts.wait_seconds(HERE, "reader") > 0
    assert attempts.wait_seconds("10.200.200.1", "reader") > 0, "further ones share an allowance"
    assert attempts.wait_seconds(THERE, "operator") == 0, "who logged in of late is not kept out"
    clock.now += OF_ADDRESS.seconds + OF_NAME.seconds
    assert attempts.wait_seconds("10.200.200.1", "reader") == 0
    assert len(attempts) <= 2, "what is full again is forgotten"


def test_clients_that_logged_in_are_remembered_up_to_a_bound() -> None:
    attempts = FailedAttempts(Clock())
    for number in range(MOST_KNOWN + 10):
        attempts.note_success(HERE, f"name {number}")
    assert len(attempts._known) == MOST_KNOWN


def test_nothing_that_is_kept_is_a_secret_or_the_digest_of_one() -> None:
    first, second = FailedAttempts(Clock()), FailedAttempts(Clock())
    for attempts in (first, second):
        attempts.note_failed(HERE, "reader", b"almost right")
    kept = [debt.last for debt in first._debts.values()]
    assert any(kept)
    assert kept != [debt.last for debt in second._debts.values()]
    assert _failed_attempts.ALL == b""
