"""The process that patterns run in: it answers one question after the other, until nobody asks or it is killed.

Questions come on stdin and answers go to stdout, msgpack each with its length before; an empty answer says that there
was no end. What a question may take is CPU time, so that its answer is the same on a busy machine. Beyond that the
kernel ends the process (SIGPROF); nothing in it has to look at a clock, which a regular expression would not let it do.

It is a child that answers, forked from one that has read the first question and compiled its mask: where the kernel
ends the child, the next is there in a millisecond, and a thousand messages that each take their time up do not cost the
start of a thousand Pythons.
"""

import functools
import os
import re
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import BinaryIO, Final, Literal, NoReturn, TypeAlias, TypeVar

import msgspec

from protocol.body_content import text_with_replacements
from protocol.errors import ConfigError
from protocol.mask import Mask
from storage.patterns._json_path import JsonCondition, load_library
from storage.patterns._literal import required_literal

LENGTH: Final = struct.Struct(">I")
"""The bytes of what follows, in front of each question and answer."""

COMPILE_SECONDS: Final = 2.0
"""CPU time in which a condition is to be compiled. A mask is compiled for as long as it takes: it was before."""

LEAST_SECONDS: Final = 0.25
SECONDS_A_BYTE: Final = 1e-6
"""For each pattern or path, on top of the least: some 20 times of what the usual ones take."""
MOST_SECONDS: Final = 10.0

BRIEF_LEAST_SECONDS: Final = 0.005
BRIEF_SECONDS_A_BYTE: Final = SECONDS_A_BYTE / 4
"""The same for a question that is to be brief, and for one that is not slow: a hundred times of what a short text
usually takes."""

PATIENCE: Final = 4
"""Questions of one run that were slow, or had no end, behind which all further ones are to be brief.

A run is a request, a command, a task of a job or a piece of a search: what is looked at one after the other, so that
counting gives the same on a busy machine.
"""

MEMORY_BYTES: Final = 1 << 30
"""Address space of the process: some ten times of what the largest body takes that is not made to take much."""

Kind: TypeAlias = Literal["regex", "json_path"]
"""A regular expression, or a JSONPath with a value (:mod:`storage.patterns._json_path`)."""

SURROGATES: Final = "surrogatepass"
"""How texts are written as UTF-8: those of Java may have lone surrogates."""


class MaskQuestion(msgspec.Struct, tag=True, frozen=True):
    """What some rules leave of bodies, and of texts in UTF-8."""

    rules: tuple[str, ...]
    bodies: list[bytes]
    texts: list[bytes]
    is_brief: bool = False


class CheckQuestion(msgspec.Struct, tag=True, frozen=True):
    """Whether a condition can be compiled."""

    kind: Kind
    condition: str


class MatchQuestion(msgspec.Struct, tag=True, frozen=True):
    """Which of some bodies, of a charset, and of some texts, in UTF-8, meet a condition.

    With `wants_spans`, which is for regular expressions, also where each is matched first.
    """

    kind: Kind
    condition: str
    charset: str | None
    bodies: list[bytes]
    texts: list[bytes]
    is_brief: bool = False
    wants_spans: bool = False


Question: TypeAlias = MaskQuestion | CheckQuestion | MatchQuestion


class MaskAnswer(msgspec.Struct, frozen=True):
    """Bodies and texts in the order of the question; None for those of which nothing is hidden."""

    bodies: list[bytes | None]
    texts: list[bytes | None]
    is_slow: bool = False


class CheckAnswer(msgspec.Struct, frozen=True):
    """Why a condition is none, or the bytes that a body that meets it contains (of JSON unless escaped), if any are."""

    problem: str | None = None
    literal: bytes | None = None


class MatchAnswer(msgspec.Struct, frozen=True):
    """For each body, then for each text, whether it meets the condition; and from where to where, in characters."""

    matches: list[bool]
    is_slow: bool = False
    spans: list[tuple[int, int] | None] = []


Answer: TypeAlias = MaskAnswer | CheckAnswer | MatchAnswer
Bounded = TypeVar("Bounded", MaskAnswer, MatchAnswer)


def main() -> None:
    """Answer what comes on stdin; an empty frame says first that the process is there."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    _write(answers, b"")
    while (question := _next(questions)) is not None:
        _prepare(question)
        child = os.fork()
        if not child:
            _serve(question, questions, answers)
        if os.waitpid(child, 0)[1] == 0:
            return
        _write(answers, b"")


def _serve(question: Question | None, questions: BinaryIO, answers: BinaryIO) -> NoReturn:
    """Answer a question, and those behind it; end this process where no more come."""
    try:
        while question is not None:
            _write(answers, msgspec.msgpack.encode(_answer(question)))
            question = _next(questions)
        os._exit(0)
    finally:
        os._exit(1)


def _prepare(question: Question) -> None:
    """Do once what each child would have to do anew, and what no message can hold up."""
    if isinstance(question, MaskQuestion):
        _mask(question.rules)
    elif question.kind == "json_path":
        load_library()


def _next(questions: BinaryIO) -> Question | None:
    data = _read(questions)
    return None if data is None else msgspec.msgpack.decode(data, type=Question)


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH.size)
    return stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def _write(stream: BinaryIO, data: bytes) -> None:
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def _answer(question: Question) -> Answer:
    if isinstance(question, MaskQuestion):
        mask = _mask(question.rules)
        answer: Answer = _bounded(question, mask.pattern_count, lambda: _masked(mask, question))
    else:
        _allow(COMPILE_SECONDS)
        if isinstance(question, CheckQuestion):
            answer = _checked(question)
        else:
            condition = _condition(question.kind, question.condition)
            answer = _bounded(question, 1, lambda: _matched(condition, question))
    _allow(0)
    return answer


def _allow(seconds: float) -> None:
    """Have the kernel kill this process after so much more of its CPU time; 0 for never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _bounded(question: MaskQuestion | MatchQuestion, patterns: int, answer: Callable[[], Bounded]) -> Bounded:
    """An answer that some patterns or paths are run for, if it comes within the CPU time that the question may take."""
    size = (sum(map(len, question.bodies)) + sum(map(len, question.texts))) * max(patterns, 1)
    brief = min(BRIEF_LEAST_SECONDS + size * BRIEF_SECONDS_A_BYTE, MOST_SECONDS)
    _allow(brief if question.is_brief else min(LEAST_SECONDS + size * SECONDS_A_BYTE, MOST_SECONDS))
    before = time.process_time()
    answered = answer()
    return msgspec.structs.replace(answered, is_slow=time.process_time() - before > brief)


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
    found = [condition.search(text) for text in texts]
    spans = [None if each is None else each.span() for each in found] if question.wants_spans else []
    return MatchAnswer([each is not None for each in found], spans=spans)
