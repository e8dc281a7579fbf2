"""What is not answered, and with which words (remoting-protocol §1.7, §2.2)."""

import pytest

from broker.service.dispatcher import handled_methods
from broker.service.refusals import POP_CODES, REASONS, WRITING_CODES, refusal
from broker.service.request_families import PROCESSORS
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response

WRITES = [10, 310, 320, 324, 325, 36, 37, 370, 17, 18, 25, 100, 102, 200, 207, 215, 216, 217, 222, 225, 314, 318, 205,
          327, 353, 902, 903, 1002, 1009, 1011, 5001, 5002, 5003, 200056, 200079]  # fmt: skip


@pytest.mark.parametrize("code", WRITES)
def test_a_code_that_writes_is_refused_because_this_broker_is_read_only(code: int) -> None:
    assert refusal(code) == Response(ResponseCode.NO_PERMISSION, remark="this broker is read-only")


@pytest.mark.parametrize("code", [*range(200050, 200056), 200070, 200151])
def test_a_code_that_pops_is_refused_saying_what_works_instead(code: int) -> None:
    """A Java client raises an exception with this code and remark from its call to pop."""
    remark = f" request type {code} not supported; this broker is read-only and keeps no account of popped messages: "
    assert refusal(code) == Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"{remark}consume by pulling")


@pytest.mark.parametrize("code", [52, 354, 355, 1005, 1006, 1010, 3004, 3005, 3009, 3010, *range(200074, 200079)])
def test_a_code_without_a_meaning_for_a_store_is_refused_saying_why(code: int) -> None:
    answer = refusal(code)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (answer.remark or "").startswith(f" request type {code} not supported; ")
    assert len(answer.remark or "") > 60


def test_an_unknown_code_is_refused_in_a_brokers_words() -> None:
    assert refusal(4711) == Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 4711 not supported")


def test_no_code_of_the_read_side_counts_as_writing() -> None:
    reading = {11, 12, 14, 21, 26, 28, 29, 30, 31, 32, 33, 34, 35, 38, 41, 42, 46, 105, 106, 201, 202, 203, 204, 206,
               208, 224, 300, 304, 305, 307, 309, 315, 317, 319, 321, 328, 351, 361, 907}  # fmt: skip
    assert not reading & WRITING_CODES


def test_a_code_is_refused_in_one_way_or_answered() -> None:
    answered = {code for family in PROCESSORS for code, _, _ in handled_methods(family)}
    assert not WRITING_CODES & REASONS.keys()
    assert not answered & (WRITING_CODES | REASONS.keys())
    assert REASONS.keys() >= POP_CODES
    assert all(code in set(RequestCode) for code in REASONS)
