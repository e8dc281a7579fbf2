"""What the processes that patterns run in are asked, and which questions take their time up."""

from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from storage.patterns._pattern_process import MaskQuestion, MatchQuestion
from storage.patterns.processes import PatternLimit, PatternProcesses


@dataclass
class Asked:
    """Questions that took long, or had no end: those with their whole time, and those that were to be brief."""

    patient: int = 0
    brief: int = 0
    questions: list[MaskQuestion | MatchQuestion] = field(default_factory=list)


@contextmanager
def recorded():
    asked, ask = Asked(), PatternProcesses.ask

    def note(question) -> None:
        name = "brief" if question.is_brief else "patient"
        setattr(asked, name, getattr(asked, name) + 1)

    def recording(self, question, answer, should_stop=lambda: False):
        if not isinstance(question, MaskQuestion | MatchQuestion):
            return ask(self, question, answer, should_stop)
        asked.questions.append(question)
        try:
            found = ask(self, question, answer, should_stop)
        except PatternLimit:
            note(question)
            raise
        if found.is_slow:
            note(question)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PatternProcesses, "ask", recording)
        yield asked
