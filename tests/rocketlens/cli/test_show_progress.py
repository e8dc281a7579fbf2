"""What a person sees while a job runs."""

import io
import re

from rocketlens.cli.show_progress import LINE_SECONDS, PhaseMeter, ProgressBar, ProgressLines, progress_on


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_meter_tells_share_messages_rate_and_what_is_left() -> None:
    clock = Clock()
    meter = PhaseMeter("scan", 4_000_000_000, "bytes", clock)
    meter.update(0, 0)
    assert meter.state() == "0 of 4 GB"
    clock.now += 2
    meter.update(1_000_000_000, 2_000_000)
    assert meter.state() == "1 of 4 GB · 2,000,000 messages · 500 MB/s · 0:00:06 left"
    clock.now += 8
    meter.update(4_000_000_000, 8_000_000)
    assert meter.state() == "4 of 4 GB · 8,000,000 messages · 400 MB/s"
    assert meter.outcome() == "4 GB · 8,000,000 messages · 10.0 s · 400 MB/s"


def test_what_an_earlier_run_did_is_no_speed() -> None:
    clock = Clock()
    meter = PhaseMeter("scan", 4_000, "bytes", clock)
    meter.update(3_000, 30)
    clock.now += 10
    meter.update(4_000, 40)
    assert (meter.rate, meter.mean_rate) == (100, 100)


def test_without_a_terminal_there_is_a_line_now_and_then_and_one_at_the_end() -> None:
    clock, stream = Clock(), io.StringIO()
    lines = ProgressLines(stream, clock)
    lines.begin("scan", 2_000_000, "bytes")
    for done in range(0, 2_000_001, 50_000):
        lines.update(done, done // 100)
        clock.now += 0.25 if done < 2_000_000 else 0
    lines.end()
    assert LINE_SECONDS == 5
    assert stream.getvalue().splitlines() == [
        "rocketlens: scan: 1 of 2 MB · 10,000 messages · 200 kB/s · 0:00:05 left",
        "rocketlens: scan: 2 of 2 MB · 20,000 messages · 200 kB/s",
        "rocketlens: scan: 2 MB · 20,000 messages · 10.0 s · 200 kB/s",
    ]


def test_notes_are_lines_and_nothing_in_them_reaches_a_terminal() -> None:
    stream = io.StringIO()
    ProgressLines(stream).note("a\x1b[2J\nb")
    assert stream.getvalue() == "rocketlens: a\\x1b[2J b\n"


def test_a_terminal_gets_a_bar_and_notes_above_it() -> None:
    stream, clock = Terminal(), Clock()
    bar = progress_on(stream)
    assert isinstance(bar, ProgressBar)
    bar = ProgressBar(stream, clock)
    bar.begin("scan", 1_000_000, "bytes")
    bar.update(0, 0)
    clock.now += 1
    bar.update(500_000, 5_000)
    bar.note("[bold]one[/bold] \x1b[2J")
    bar.end()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "rocketlens: [bold]one[/bold] \\x1b[2J" in shown
    last = shown.splitlines()[-1]
    assert last.startswith("scan")
    assert "━" in last
    assert " 50%" in last
    assert last.rstrip().endswith("500 kB · 5,000 messages · 1.0 s · 500 kB/s")


def test_a_phase_with_nothing_to_do_is_full_at_once() -> None:
    stream = Terminal()
    bar = ProgressBar(stream, Clock())
    bar.begin("build", 0, "entries")
    bar.update(0, 0)
    bar.end()
    assert "100%" in stream.getvalue()
