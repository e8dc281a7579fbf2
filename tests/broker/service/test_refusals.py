"""What is not answered, and with which words (remoting-protocol §1.7, §2.2)."""

from broker.service._refusals import POP_CODES, REASONS, WRITING_CODES
from broker.service.dispatcher import handled_methods
from broker.service.request_families import PROCESSORS
from protocol.codes import RequestCode


def test_a_code_is_refused_in_one_way_or_answered() -> None:
    answered = {code for family in PROCESSORS for code, _, _ in handled_methods(family)}
    assert not WRITING_CODES & REASONS.keys()
    assert not answered & (WRITING_CODES | REASONS.keys())
    assert REASONS.keys() >= POP_CODES
    assert all(code in set(RequestCode) for code in REASONS)
