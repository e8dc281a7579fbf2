"""The process that patterns run in: it answers one question after the other, until nobody asks or it is killed.

Questions come on stdin and answers go to stdout, msgpack each with its length before. What a question may take is CPU
time, so that its answer is the same on a busy machine. Beyond that the kernel ends the process (SIGPROF); nothing in it
has to look at a clock, which a regular expression would not let it do.
"""

import functools
import re
import resource
import signal
import struct
import sys
from typing import BinaryIO, Final, Literal, TypeAlias

import msgspec

from protocol.body_content import text_with_replacements
from protocol.errors import ConfigError
from protocol.mask import Mask
from storage.patterns.json_path import JsonCondition
from storage.patterns.literal import required_literal

LENGTH: Final = struct.Struct(">I")
"""The bytes of what follows, in front of each question and answer."""

COMPILE_SECONDS: Final = 2.0
"""CPU time in which a condition is to be compiled. A mask is compiled for as long as it takes: it was before."""

LEAST_SECONDS: Final = 0.25
SECONDS_A_BYTE: Final = 1e-6
"""For each pattern or path, on top of the least: some 20 times of what the usual ones take."""
MOST_SECONDS: Final = 10.0

MEMORY_BYTES: Final = 1 << 30
"""Address space of the process: some ten times of what the largest body takes that is not made to take much."""

Kind: TypeAlias = Literal["regex", "json_path"]
"""A regular expression, or a JSONPath with a value (:mod:`storage.patterns.json_path`)."""

SURROGATES: Final = "surrogatepass"
"""How texts are written as UTF-8: those of Java may have lone surrogates."""


class MaskQuestion(msgspec.Struct, tag=True, frozen=True):
    """What some rules leave of bodies, and of texts in UTF-8."""

    rules: tuple[str, ...]
    bodies: list[bytes]
    texts: list[bytes]


class CheckQuestion(msgspec.Struct, tag=True, frozen=True):
    """Whether a condition can be compiled."""

    kind: Kind
    condition: str


class MatchQuestion(msgspec.Struct, tag=True, frozen=True):
    """Which of some bodies, of a charset, and of some texts, in UTF-8, meet a condition."""

    kind: Kind
    condition: str
    charset: str | None
    bodies: list[bytes]
    texts: list[bytes]


Question: TypeAlias = MaskQuestion | CheckQuestion | MatchQuestion


class MaskAnswer(msgspec.Struct, frozen=True):
    """Bodies and texts in the order of the question; None for those of which nothing is hidden."""

    bodies: list[bytes | None]
    texts: list[bytes | None]


class CheckAnswer(msgspec.Struct, frozen=True):
    """Why a condition is none, or the bytes that a body that meets it contains (of JSON unless escaped), if any are."""

    problem: str | None = None
    literal: bytes | None = None


class MatchAnswer(msgspec.Struct, frozen=True):
    """For each body, then for each text, whether it meets the condition."""

    matches: list[bool]


Answer: TypeAlias = MaskAnswer | CheckAnswer | MatchAnswer


def main() -> None:
    """Answer what comes on stdin; an empty frame says first that the process is there."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    decoder, encoder = msgspec.msgpack.Decoder(Question), msgspec.msgpack.Encoder()
    _write(answers, b"")
    while (data := _read(questions)) is not None:
        _write(answers, encoder.encode(_answer(decoder.decode(data))))


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH.size)
    return stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def _write(stream: BinaryIO, data: bytes) -> None:
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def _answer(question: Question) -> Answer:
    if isinstance(question, MaskQuestion):
        mask = _mask(question.rules)
        _allow(_seconds(question, mask.pattern_count))
        answer: Answer = _masked(mask, question)
    else:
        _allow(COMPILE_SECONDS)
        if isinstance(question, CheckQuestion):
            answer = _checked(question)
        else:
            condition = _condition(question.kind, question.condition)
            _allow(_seconds(question, 1))
            answer = _matched(condition, question)
    _allow(0)
    return answer


def _allow(seconds: float) -> None:
    """Have the kernel kill this process after so much more of its CPU time; 0 for never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _seconds(question: MaskQuestion | MatchQuestion, patterns: int) -> float:
    size = sum(map(len, question.bodies)) + sum(map(len, question.texts))
    return min(LEAST_SECONDS + size * max(patterns, 1) * SECONDS_A_BYTE, MOST_SECONDS)


@functools.lru_cache(maxsize=4)
def _mask(rules: tuple[str, ...]) -> Mask:
    return Mask(rules)


@functools.lru_cache(maxsize=4)
def _condition(kind: Kind, condition: str) -> re.Pattern[str] | JsonCondition:
    """Compile a condition; raises ConfigError."""
    if kind == "json_path":
        return JsonCondition(condition)
    try:
        return re.compile(condition)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{condition[:80]!r} is no regular expression: {error}") from error


def _masked(mask: Mask, question: MaskQuestion) -> MaskAnswer:
    bodies = [None if (shown := mask.body(body)) is body else bytes(shown) for body in question.bodies]
    texts: list[bytes | None] = []
    for data in question.texts:
        text = str(data, errors=SURROGATES)
        shown_text = mask.text(text)
        texts.append(None if shown_text == text else shown_text.encode(errors=SURROGATES))
    return MaskAnswer(bodies, texts)


def _checked(question: CheckQuestion) -> CheckAnswer:
    try:
        condition = _condition(question.kind, question.condition)
    except ConfigError as error:
        return CheckAnswer(problem=str(error))
    if isinstance(condition, JsonCondition):
        return CheckAnswer(literal=condition.literal)
    return CheckAnswer(literal=required_literal(question.condition))


def _matched(condition: re.Pattern[str] | JsonCondition, question: MatchQuestion) -> MatchAnswer:
    if isinstance(condition, JsonCondition):
        charset = question.charset
        bodies = (
            body if charset is None else text_with_replacements(body, charset).encode() for body in question.bodies
        )
        return MatchAnswer([condition.matches(body) for body in bodies])
    texts = (
        *(text_with_replacements(body, question.charset) for body in question.bodies),
        *(str(text, errors=SURROGATES) for text in question.texts),
    )
    return MatchAnswer([condition.search(text) is not None for text in texts])
