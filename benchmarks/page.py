"""How soon the page is there: what a browser needs for its first paint, on a store of 100 segments and 1,000 queues.

    python -m benchmarks.page

The document, its style, its scripts and the first two answers of the API are fetched one after the other over one
connection, as a browser with a single one would: the sum is what the server takes, aim 100 ms. The first round of a
server that has answered nothing yet is listed apart. Where Chromium and its driver are there, the browser's own figures
stand beside it: first contentful paint, and when the first line of the list was there.
"""

import http.client
import json
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from benchmarks.measure import ROOT
from benchmarks.report import machine
from benchmarks.server_process import ServerProcess, free_port, rocketlens_command

sys.path.insert(0, str(ROOT / "tests" / "support"))

TOPICS, QUEUES, SEGMENTS = 125, 8, 100
SEGMENT_BYTES = 128 * 1024
BODY = b"x" * 4000
AIM_MS = 100.0
FIRST = ("/", "/page/page.css", "/page/theme.js", "/page/main.js")
ANSWERS = ("/api/v1/store", "/api/v1/topics?limit=100")
VIEW = (
    "view_topics.js",
    "messages.js",
    "links.js",
    "choices.js",
    "complete.js",
    "save.js",
    "router.js",
    "keyboard.js",
    "login.js",
    "format.js",
    "dom.js",
    "api.js",
    "work.js",
)


def make_store(root: Path) -> None:
    """Write a store of 100 segments, and 1,000 queues in 125 topics."""
    from store_writer import StoreWriter

    writer = StoreWriter(root, segment_size=SEGMENT_BYTES, index_slots=5000, index_entries=20_000)
    number = 0
    while len(writer.log.segments) < SEGMENTS:
        topic, queue_id = number % TOPICS, number // TOPICS % QUEUES
        writer.append(f"topic-{topic:03}", BODY, keys=f"k{number}", tags="Tag", queue_id=queue_id)
        number += 1
    writer.close()
    click.echo(f"{number:,} messages, {len(writer.log.segments)} segments, {len(writer.queues):,} queues")


@contextmanager
def serving(store: Path, scratch: Path) -> Iterator[int]:
    """The port of a page over a store, whose server has just started."""
    port, page = free_port(), free_port()
    command = [*rocketlens_command(store, port, scratch / "state"), "--http", f"127.0.0.1:{page}"]
    with ServerProcess(command, port, log=scratch / "server.log", directory=ROOT) as process:
        process.wait_until_open()
        # The port is open before the server has put its house in order.
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/healthz", timeout=30):
            yield page


def fetch_all(port: int) -> tuple[float, int]:
    """Milliseconds and bytes of all that the first paint needs."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    started, size = time.perf_counter(), 0
    for path in (*FIRST, *(f"/page/{name}" for name in VIEW), *ANSWERS):
        connection.request("GET", path)
        answer = connection.getresponse()
        size += len(answer.read())
        assert answer.status == 200, path
    elapsed = time.perf_counter() - started
    connection.close()
    return elapsed * 1000, size


def paint_in_browser(port: int, scratch: Path, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from the start of the navigation, as the browser reports them; a profile of its own each time."""
    from web_browser import Browser

    figures: dict[str, list[float]] = {"first contentful paint": [], "first line of the list": []}
    browser = Browser(scratch / "profile")
    try:
        for _ in range(rounds):
            browser.driver.execute_cdp_cmd("Network.clearBrowserCache", {})
            browser.server = f"http://127.0.0.1:{port}"
            browser.open("")
            browser.see(".topics tbody tr")
            entries: list[dict[str, Any]] = json.loads(
                browser.run("return JSON.stringify(performance.getEntriesByType('paint'))")
            )
            figures["first contentful paint"].append(entries[-1]["startTime"])
            answered = (
                "performance.getEntriesByType('resource').find((each) => each.name.includes('topics?')).responseEnd"
            )
            figures["first line of the list"].append(float(browser.run(f"return {answered}")))
    finally:
        browser.close()
    return figures


@click.command()
@click.option("--rounds", default=30, show_default=True, help="Rounds after the first.")
@click.option("--browser/--no-browser", default=True, help="Ask Chromium too, where it is installed.")
def main(rounds: int, browser: bool) -> None:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory(prefix="page-") as name:
        scratch = Path(name)
        make_store(scratch / "store")
        with serving(scratch / "store", scratch) as port:
            first, size = fetch_all(port)
            times = sorted(fetch_all(port)[0] for _ in range(rounds))
            rows = [
                ("server, first of all", first, first),
                ("server", statistics.median(times), times[-1]),
            ]
            if browser and shutil.which("chromium") and shutil.which("chromedriver"):
                for label, found in paint_in_browser(port, scratch, min(rounds, 10)).items():
                    rows.append((f"Chromium, {label}", statistics.median(found), max(found)))
    where = machine()
    click.echo(f"{where['cpu']}, kernel {where['kernel']}, Python {where['python']}; {size:,} bytes in all")
    click.echo("| first paint | median, ms | worst, ms |\n|---|---|---|")
    for label, median, worst in rows:
        click.echo(f"| {label} | {median:.1f} | {worst:.1f} |")
    click.echo(f"aim of the server ≤ {AIM_MS:.0f} ms: {'met' if rows[1][1] <= AIM_MS else 'NOT met'}")


if __name__ == "__main__":
    main()
