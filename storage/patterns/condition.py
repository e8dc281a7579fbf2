"""A regular expression or a JSONPath that messages are searched by, in a process that can be killed."""

import copy
from collections.abc import Sequence
from typing import Final, Self

from protocol.errors import ConfigError
from storage.patterns._pattern_process import (
    PATIENCE,
    SURROGATES,
    CheckAnswer,
    CheckQuestion,
    Kind,
    MatchAnswer,
    MatchQuestion,
)
from storage.patterns.processes import PROCESSES, PatternLimit, Stop

NAMES: Final = {"regex": "regular expression", "json_path": "JSONPath"}


class PatternCondition:
    """A condition on bodies and texts; ``literal`` is in each that meets it, of JSON unless escaped, if it is known."""

    def __init__(self, kind: Kind, condition: str, charset: str | None, should_stop: Stop = lambda: False) -> None:
        """Compile it; ``charset`` is that of bodies. Raises ConfigError, PatternsStopped where ``should_stop``."""
        self._kind, self._condition, self._charset, self._should_stop = kind, condition, charset, should_stop
        self._slow = 0
        try:
            checked = PROCESSES.ask(CheckQuestion(kind, condition), CheckAnswer, should_stop)
        except PatternLimit:
            raise ConfigError(f"{condition[:80]!r} takes too long to compile as a {NAMES[kind]}") from None
        if checked.problem is not None:
            raise ConfigError(checked.problem)
        self.literal = checked.literal

    def for_one_run(self) -> Self:
        """Copy the condition for one run, with its whole patience (`PATIENCE`)."""
        condition = copy.copy(self)
        condition._slow = 0
        return condition

    def matches(self, bodies: Sequence[bytes | memoryview], texts: Sequence[str] = ()) -> list[bool]:
        """Decide which of some bodies, and behind them which of some texts, meet it.

        Raises PatternLimit where it does not come to an end with all of them.
        """
        return self._asked(bodies, texts).matches

    def spans(self, texts: Sequence[str]) -> list[tuple[int, int] | None]:
        """Find where a regular expression matches each of some texts first, in characters; None where nowhere.

        Raises PatternLimit where it does not come to an end with all of them.
        """
        return self._asked((), texts, wants_spans=True).spans

    def _asked(
        self, bodies: Sequence[bytes | memoryview], texts: Sequence[str], *, wants_spans: bool = False
    ) -> MatchAnswer:
        if not bodies and not texts:
            return MatchAnswer([])
        question = MatchQuestion(
            kind=self._kind,
            condition=self._condition,
            charset=self._charset,
            bodies=list(map(bytes, bodies)),
            texts=[text.encode(errors=SURROGATES) for text in texts],
            is_brief=self._slow >= PATIENCE,
            wants_spans=wants_spans,
        )
        try:
            answer = PROCESSES.ask(question, MatchAnswer, self._should_stop)
        except PatternLimit:
            self._slow += 1
            raise
        self._slow += answer.is_slow
        return answer
