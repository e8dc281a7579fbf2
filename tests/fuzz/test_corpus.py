"""Every input that the coverage-guided fuzzer kept: see `decoders.py`."""

from fuzz.decoders import CORPUS, feed_decoders

INPUTS = sorted(CORPUS.iterdir())


def test_there_are_inputs_of_every_kind() -> None:
    kinds = {path.read_bytes()[:1] for path in INPUTS}
    assert any(kind < b"\x80" for kind in kinds)
    assert any(b"\x80" <= kind < b"\xa0" for kind in kinds)
    assert any(b"\xa0" <= kind < b"\xd0" for kind in kinds)
    assert any(kind >= b"\xd0" for kind in kinds)


def test_an_input_raises_nothing_that_was_not_meant() -> None:
    for path in INPUTS:
        feed_decoders(path.read_bytes())
