"""Messages sent again by `rocketlens replay`, beside the official Java producer: one broker, one core for who sends.

    python -m benchmarks.replay
    python -m benchmarks.replay --memory 10000000

Both send to an official broker 5.5.0 with as many messages a batch and requests in flight, in turns; medians. In the
order of queues, as by default, each queue has one request in flight, which the producer does not wait for. The
producer makes its messages in memory, and has sent a tenth of them before it is timed. Of `replay` two times are given:
of the sending, from its first message to the end of the command, in which it reads the store, compares with the plan
and notes each message in its account; and of the whole command, which starts Python and makes the plan before. Its CPU
is that of the whole command. With `--memory` it alone sends so many messages, of the store that benchmarks.make_store
makes, and its memory is printed as it goes.
"""

import json
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import java_broker
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.report import machine
from benchmarks.store_plan import StoreParameters
from tests.interop.jars import compiled, jars, tool
from tests.interop.official_broker import OfficialPair, official_broker, official_name_server
from tests.interop.wire import ask
from tests.support.store_writer import StoreWriter

SOURCE = Path(__file__).with_name("Send.java")
OURS, ORDERED, JAVA = "rocketlens replay --order none", "rocketlens replay", "Java producer"
QUEUES = 8
_UPDATE_TOPIC = 17


@dataclass(frozen=True)
class Load:
    """What is sent: messages with bodies of `size` bytes, `batch` a request, `in_flight` requests."""

    count: int
    size: int
    batch: int
    in_flight: int


@dataclass(frozen=True)
class Sent:
    """One sending; `whole_seconds` are those of a command that does more."""

    seconds: float
    cpu_seconds: float
    whole_seconds: float


def write_source(root: Path, load: Load) -> None:
    """The store whose messages are sent again."""
    writer = StoreWriter(
        root, segment_size=1 << 30, index_slots=5_000_000, index_entries=20_000_000, queue_file_size=6_000_000
    )
    for number in range(load.count):
        properties = {"a": str(number), "region": "hz"}
        writer.append(
            "Big",
            bytes(load.size),
            unique_key=f"C{number:031X}",
            queue_id=number % QUEUES,
            keys=f"k{number}",
            tags="T",
            properties=properties,
        )
    writer.close()


@contextmanager
def official_pair(work: Path) -> Iterator[OfficialPair]:
    """A broker as it comes, but for topics, which are not made by sending."""
    properties = {"autoCreateTopicEnable": "false", "brokerFastFailureEnable": "false"}
    with (
        official_name_server(work) as name_server,
        official_broker(work / "store", work, properties=properties, name_server=name_server) as broker,
    ):
        yield OfficialPair(name_server, broker)


def make_topic(pair: OfficialPair, name: str) -> None:
    """A topic with as many queues as the source has."""
    fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    ask(pair.broker.address, _UPDATE_TOPIC, {name: str(value) for name, value in fields.items()})
    time.sleep(1)  # until the name server has it


def by_java(pair: OfficialPair, topic: str, load: Load, work: Path) -> Sent:
    """What the official producer takes."""
    class_path = f"{jars()}/*:{compiled(jars(), SOURCE)}"
    numbers = (load.count, load.size, load.batch, load.in_flight)
    command = ["taskset", "-c", "0", tool("java"), "-Xms256m", "-Xmx512m", f"-Duser.home={work}", "-cp", class_path]
    outcome = subprocess.run(
        [*command, "Send", pair.name_server.text_address, topic, *map(str, numbers)], capture_output=True, text=True
    )
    line = next((line for line in outcome.stdout.splitlines() if line.startswith("{")), None)
    if line is None:
        raise RuntimeError(f"the producer ended: {outcome.stderr[-2000:]}")
    said = json.loads(line)
    if said["failed"]:
        raise RuntimeError(f"{said['failed']} requests failed")
    return Sent(said["seconds"], said["cpu"], said["seconds"])


def replay_command(pair: OfficialPair, topic: str, load: Load, source: Path, account: Path) -> list[str]:
    """The command that sends the messages of a store to one topic."""
    command = [sys.executable, "-m", "rocketlens", "replay", str(source), "--account", str(account), "--go", "--json"]
    command += ["--since", "0", "--to", pair.name_server.text_address, "--to-topic", topic]
    return [*command, "--batch", str(load.batch), "--in-flight", str(load.in_flight)]


def memory_of_replay(pair: OfficialPair, topic: str, load: Load, source: Path, work: Path) -> list[tuple[int, int]]:
    """Its own memory in MB, beside the seconds since it began: each second, what it maps of files left out."""
    process = subprocess.Popen(replay_command(pair, topic, load, source, work / "account"), stdout=subprocess.DEVNULL)
    status, started = Path(f"/proc/{process.pid}/status"), time.perf_counter()
    found: list[tuple[int, int]] = []
    while process.poll() is None:
        lines = [line for line in status.read_text().splitlines() if line.startswith("RssAnon:")]
        found += [(round(time.perf_counter() - started), int(line.split()[1]) // 1000) for line in lines]
        time.sleep(1)
    if process.returncode:
        raise RuntimeError("the replay did not send all")
    return found


def by_replay(pair: OfficialPair, topic: str, load: Load, source: Path, work: Path, order: str) -> Sent:
    """What the command takes, from its start to its end."""
    account = work / f"{topic}.sqlite"
    command = ["taskset", "-c", "0", *replay_command(pair, topic, load, source, account), "--order", order]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    outcome = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    seconds, ended, after = time.perf_counter() - started, time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    if outcome.returncode:
        raise RuntimeError(outcome.stderr)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with closing(sqlite3.connect(account)) as base:
        ((first,),) = base.execute("SELECT value FROM run WHERE name = 'started'")
    return Sent(ended - int(first) / 1000, used, seconds)


def markdown(sent: dict[str, Sequence[Sent]], load: Load) -> str:
    """The table."""
    where = machine()
    lines = [
        f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}, Python {where['python']}. "
        f"{load.count:,} messages of {load.size} bytes, {load.batch} a batch, {load.in_flight} requests in flight.",
        "",
        "| sent by | sending, messages/s | the whole command | CPU of who sends, µs a message |",
        "|---|---|---|---|",
    ]
    for name, each in sent.items():
        seconds, whole = (statistics.median(getattr(one, of) for one in each) for of in ("seconds", "whole_seconds"))
        cpu = statistics.median(one.cpu_seconds for one in each)
        rates = f"{load.count / seconds:,.0f} | {load.count / whole:,.0f}"
        lines.append(f"| {name} | {rates} | {cpu / load.count * 1e6:.1f} |")
    ours, java = (statistics.median(one.seconds for one in sent[name]) for name in (OURS, JAVA))
    return "\n".join(
        [*lines, "", f"Rate {java / ours:.2f} times the producer's (≥ 1: {'met' if ours <= java else 'NOT met'})"]
    )


@click.command()
@click.option("--count", default=200_000, show_default=True, help="Messages.")
@click.option("--size", default=500, show_default=True, help="Bytes of a body.")
@click.option("--batch", default=32, show_default=True)
@click.option("--in-flight", default=16, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--memory", default=0, help="Have `replay` alone send so many messages, and print its memory.")
def main(count: int, size: int, batch: int, in_flight: int, rounds: int, memory: int) -> None:
    """Have both send, and print the table."""
    java_broker.find_jars(None)
    load = Load(memory or count, size, batch, in_flight)
    work = Path(tempfile.mkdtemp(prefix="replay-"))
    try:
        if memory:
            parameters = StoreParameters(count=memory)
            source = make_store(DEFAULT_STORE_DIRECTORY, parameters, None)
            with official_pair(work) as pair:
                make_topic(pair, "Ours")
                found = memory_of_replay(pair, "Ours", load, source, work)
            some = found[:: max(1, len(found) // 20)]
            print("\n".join(f"{seconds} s {size} MB" for seconds, size in [*some, found[-1]]))
            print(f"at most {max(size for _, size in found)} MB")
            return
        write_source(work / "source", load)
        sent: dict[str, list[Sent]] = {OURS: [], ORDERED: [], JAVA: []}
        with official_pair(work) as pair:
            for number in range(rounds):
                for place, name in enumerate(sent) if number % 2 else reversed(list(enumerate(sent))):
                    topic = f"Topic{number}of{place}"
                    make_topic(pair, topic)
                    if name == JAVA:
                        sent[name].append(by_java(pair, topic, load, work))
                    else:
                        order = "none" if name == OURS else "queue"
                        sent[name].append(by_replay(pair, topic, load, work / "source", work, order))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(markdown(dict(sent), load))


if __name__ == "__main__":
    main()
