"""Show how far a search or a count is, in one line on stderr that is removed again; only on a terminal."""

import contextlib
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Protocol, Self

SHOWN_EVERY_SECONDS: Final = 0.1


class Progress(Protocol):
    """How far something is."""

    def sentence(self) -> str:
        """It all, for people."""
        ...


class SearchProgress:
    """Shows the line inside a `with` block; does nothing if stderr is no terminal."""

    def __init__(self) -> None:
        self._live: Any = None
        self._shown = 0.0

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=sys.stderr), transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def is_shown(self) -> bool:
        """Whether anybody sees the line."""
        return self._live is not None

    def show(self, progress: Progress) -> None:
        """Show how far it is, some times a second."""
        now = time.monotonic()
        if self._live is not None and now - self._shown >= SHOWN_EVERY_SECONDS:
            from rich.text import Text

            self._shown = now
            self._live.update(Text(progress.sentence(), no_wrap=True, overflow="ellipsis"), refresh=True)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Take the line away while something is written to a terminal, which may be the same."""
        is_in_the_way = self._live is not None and sys.stdout.isatty()
        if is_in_the_way:
            self._live.stop()
        yield
        if is_in_the_way:
            sys.stdout.flush()
            self._live.start()
