"""Makes the recorded stores of tests/golden/g2 with an official broker; see README.md beside this file."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "support"), str(HERE.parents[2])]

from golden.record.questions import (  # noqa: E402
    BROKER_PORT,
    NAME_SERVER_PORT,
    Asker,
    ask_by_topics,
    ask_everything,
    ask_for_offsets,
    ask_for_retries,
)
from golden.record.records import Record, walk  # noqa: E402
from interop.jars import NEWEST_BROKER_VERSION, SERVER_VERSION, jars  # noqa: E402
from interop.official_broker import (  # noqa: E402
    STOCK_FLOW_CONTROL,
    STOCK_INTERVALS,
    official_broker,
    official_name_server,
)
from interop.proxy import recording_proxy  # noqa: E402
from interop.wire import ask  # noqa: E402
from needed_tools import tool  # noqa: E402

OUTPUT = HERE.parent / "g2"
LEFT_OUT = ("abort.bak", "compaction", "rocksdbstore", "tiered_index_file", "timerlog", "timerwheel")
"""Pieces of a store that say nothing about messages, and are large or of no format of ours."""


def settings(text):
    return dict(pair.split("=", 1) for pair in text.split())


SMALL_FILES = settings("""
    mappedFileSizeCommitLog=131072 mappedFileSizeConsumeQueue=2000 mapperFileSizeBatchConsumeQueue=460 maxHashSlotNum=97
    maxIndexNum=150 enablePropertyFilter=true mappedFileSizeTimerLog=131072 reviveQueueNum=1 reviveAckWaitMs=1000
    reviveScanTime=1000""") | {"messageDelayLevel": "1s 1s 1s 1s"}
LEDGER_PORT = 40911
DELETE_EXPIRED_COMMIT_LOG, CLEAN_EXPIRED_CONSUME_QUEUE = 329, 306
UNIT_BYTES = 20
WAIT_SECONDS = 240


@dataclass(frozen=True)
class Stage:
    """One run of the broker: where it listens, the host that its records name, what is sent meanwhile.

    Then it is asked, and its answers go to the file ``frames``, if there is one; those to views by all kinds of topics
    to ``views``. ``properties`` are those of this run, at whose end the broker is stopped, or killed if ``is_killed``.
    With ``expires`` all segments but the last ones are removed by the broker before, once the tier has its messages.
    """

    scenario: tuple[str, ...]
    bound: str = "127.0.0.1"
    advertised: str = "127.0.0.1"
    frames: str | None = None
    views: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    is_killed: bool = False
    expires: bool = False


@dataclass(frozen=True)
class Recording:
    """One store: the broker's properties beside `SMALL_FILES`, the runs, the commit log folders, what is asked.

    ``version`` is that of the broker; name server and clients are always of `SERVER_VERSION`. ``ledgers`` are the
    folders in which the log is DLedger's; ``tier`` is that of the tiered files, if there are any.
    """

    name: str
    stages: tuple[Stage, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    commit_logs: tuple[str, ...] = ("commitlog",)
    ledgers: tuple[str, ...] = ()
    ask: Callable[[Asker, Iterable[Record]], None] = ask_everything
    version: str = SERVER_VERSION
    tier: str | None = None


LEDGER = settings("enableDLegerCommitLog=true dLegerGroup=broker-a dLegerSelfId=n0")
LEDGER["dLegerPeers"] = f"n0-127.0.0.1:{LEDGER_PORT}"
"""A broker that is the only member of its DLedger group; so are the properties' names spelled."""
PATIENT = settings("mappedFileSizeCommitLog=16384 waitTimeMillsInSendQueue=30000 osPageCacheBusyTimeOutMills=30000")
"""Small segments, and no refusal of messages where a slow machine stores them late."""
TIER = settings("""
    messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore
    tieredBackendServiceProvider=org.apache.rocketmq.tieredstore.provider.PosixFileSegment
    tieredStoreCommitLogMaxSize=8192 tieredStoreConsumeQueueMaxSize=400 tieredStoreIndexFileMaxHashSlotNum=97
    tieredStoreIndexFileMaxIndexNum=150 tieredStoreGroupCommitTimeout=100 tieredStoreFileReservedTime=1000000
    mappedFileSizeCommitLog=16384 mappedFileSizeConsumeQueue=400""")
"""A broker that copies the messages of topics that are not its own into files of each queue, small ones."""
TIERED_TOPICS = ("TierTopic", "Tier-old", "Tier-new", "TierDelay")
LIGHT = settings("enableLmq=true enableMultiDispatch=true")
ROCKSDB = PATIENT | LIGHT | settings("storeType=defaultRocksDB flushConsumerOffsetInterval=500")
DOUBLE = PATIENT | LIGHT | settings("rocksdbCQDoubleWriteEnable=true combineCQUseRocksdbForLmq=true")
EXT = settings("enableConsumeQueueExt=true enableCalcFilterBitMap=true")
FRAMES = "frames.jsonl.xz"
VIEWS = "views.jsonl.xz"
ANSWERS = "answers.jsonl.xz"
"""Not replayed: a broker with such a configuration answers by topics that it has written nowhere."""


def in_rocksdb(name, properties, half="RMQ_SYS_TRANS_OP_HALF_TOPIC", frames=FRAMES, version=SERVER_VERSION, **stage):
    scenario = ("rocksdb", {"g2-rocksdb": "clean"}.get(name, name.removeprefix("g2-rocksdb-")), half)
    return Recording(name, (Stage(scenario, frames=frames, **stage),), properties, ask=ask_for_offsets, version=version)


def tiered(name, *, is_killed):
    old = Stage(("tier", "old"), properties={"fileReservedTime": "0"}, expires=True)
    return Recording(name, (old, Stage(("tier", "new"), frames=ANSWERS, is_killed=is_killed)), TIER, tier="tiered")


ONLY_LEDGER = Stage(("ledger", "only"), frames=FRAMES, properties=LEDGER)
LATER_LEDGER = Stage(("ledger", "ledger"), frames=FRAMES, properties=LEDGER, is_killed=True)
FILTERS = Stage(("filters",), frames="pulls.jsonl.xz")
RETRIES = Stage(("nothing",), frames="pulls-retry.jsonl.xz", properties={"filterSupportRetry": "true"})
QUEUES_OF_5_5_1 = Stage(("queues",), frames=FRAMES, views=VIEWS)
RECORDINGS = (
    Recording(
        "g2-hosts",
        (
            Stage(("hosts", "v6v6", "true"), bound="::1", advertised="::1"),
            Stage(("hosts", "v6v4", "false"), bound="::1", advertised="127.0.0.1"),
            Stage(("hosts", "v4v6", "false"), bound="127.0.0.1", advertised="::1", frames=FRAMES),
        ),
        settings("maxHashSlotNum=50 maxIndexNum=60 mappedFileSizeCommitLog=16384"),
    ),
    Recording("g2-queues", (Stage(("queues",), frames=FRAMES),), LIGHT),
    Recording("g2-queues-5.5.1", (QUEUES_OF_5_5_1,), LIGHT, version=NEWEST_BROKER_VERSION),
    Recording(
        "g2-ext",
        (Stage(("ext",), frames=FRAMES),),
        EXT
        | settings("mappedFileSizeConsumeQueueExt=2048 enabledAppendPropCRC=true mappedFileSizeCommitLog=16384")
        | settings("maxHashSlotNum=31 maxIndexNum=400"),
        ("commitlog-a", "commitlog-b"),
    ),
    Recording(
        "g2-filters",
        (FILTERS, RETRIES),
        EXT | settings("mappedFileSizeConsumeQueueExt=8192 maxIndexNum=4000"),
        ask=ask_for_retries,
    ),
    Recording("g2-dledger", (ONLY_LEDGER,), PATIENT, ledgers=("dledger-n0/data",)),
    Recording("g2-dledger-mixed", (Stage(("ledger", "plain")), LATER_LEDGER), PATIENT, ledgers=("dledger-n0/data",)),
    tiered("g2-tier", is_killed=False),
    tiered("g2-tier-killed", is_killed=True),
    in_rocksdb("g2-rocksdb", ROCKSDB),
    in_rocksdb(
        "g2-rocksdb-killed",
        ROCKSDB | settings("transRocksDBEnable=true transWriteOriginTransHalfEnable=false"),
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        is_killed=True,
    ),
    in_rocksdb("g2-rocksdb-v2", ROCKSDB | {"configManagerVersion": "v2"}, frames=ANSWERS, is_killed=True),
    in_rocksdb("g2-rocksdb-double", DOUBLE),
    in_rocksdb(
        "g2-rocksdb-selective", DOUBLE | {"rocksdbCQSelectiveDoubleWriteEnable": "true"}, version=NEWEST_BROKER_VERSION
    ),
)


def record(recording: Recording, work: Path) -> None:
    store, output = work / recording.name, OUTPUT / recording.name
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    known: dict[int, Record] = {}
    for stage in recording.stages:
        # A name server of its own: one that remembers the broker under its former address refuses the new one.
        with official_name_server(work, port=NAME_SERVER_PORT) as name_server:
            _run(recording, stage, name_server, work, known)
    _pack(store, output / "store.tar.xz")
    folders = [*recording.commit_logs, *recording.ledgers]
    commit_logs = [name for name in folders if (store / name).is_dir()]
    description = {"commit_logs": commit_logs, "properties": SMALL_FILES | dict(recording.properties)}
    description |= {} if recording.tier is None else {"tier": recording.tier}
    (output / "store.json").write_text(json.dumps(description, indent=2) + "\n")


def _run(recording, stage, name_server, work, known) -> None:
    store, output = work / recording.name, OUTPUT / recording.name
    folders = [store / name for name in recording.commit_logs]
    named = f"[{stage.advertised}]" if ":" in stage.advertised else stage.advertised
    properties = STOCK_INTERVALS | STOCK_FLOW_CONTROL | SMALL_FILES | recording.properties | stage.properties
    properties |= {"brokerIP1": named, "storePathCommitLog": ",".join(map(str, folders))}
    properties |= {} if recording.tier is None else {"tieredStoreFilePath": str(store / recording.tier)}
    with ExitStack() as stack:
        where = {"host": stage.bound, "port": BROKER_PORT, "version": recording.version}
        served = official_broker(store, work, properties=properties, name_server=name_server, **where)
        broker = stack.enter_context(served)
        if stage.advertised != stage.bound:
            stack.enter_context(recording_proxy(broker.address, (stage.advertised, BROKER_PORT)))
        _produce(name_server.text_address, output, stage.scenario, work)
        known |= {one.physical_offset: one for one in walk([*folders, *(store / name for name in recording.ledgers)])}
        if recording.tier is not None:
            _wait_for_tier(store / recording.tier, known)
        if stage.expires:
            _expire(broker.address, folders[0])
        for file, put in ((stage.frames, recording.ask), (stage.views, ask_by_topics)):
            if file is not None:
                asker = Asker({NAME_SERVER_PORT: name_server.address[0], BROKER_PORT: stage.bound})
                put(asker, known.values())
                asker.close()
                asker.save(output / file)
        if stage.is_killed:
            broker.kill()
        else:
            broker.stop()


def _wait_for_tier(tier: Path, known: Mapping[int, Record]) -> None:
    wanted = sum(record.topic in TIERED_TOPICS for record in known.values()) * UNIT_BYTES

    def has_all() -> bool:
        return sum(path.stat().st_size for path in tier.glob("*/*/Tier*/*/CONSUME_QUEUE/*")) >= wanted

    _wait_until("the tier has all messages", has_all)


def _expire(broker: tuple[str, int], commit_log: Path) -> None:
    """Has a broker remove all segments but the last one and the one made in advance, and the queues' files of them."""
    ask(broker, DELETE_EXPIRED_COMMIT_LOG)
    _wait_until("the old segments are gone", lambda: len([*commit_log.iterdir()]) <= 2)
    ask(broker, CLEAN_EXPIRED_CONSUME_QUEUE)


def _wait_until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {WAIT_SECONDS} s it is not so that {what}")
        time.sleep(0.5)


def _produce(name_server: str, output: Path, scenario: tuple[str, ...], work: Path) -> None:
    command = [tool("java"), f"-Duser.home={work}", "-cp", f"{jars()}/*", str(HERE / "Recorder.java")]
    command += [name_server, str(output), *scenario]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if outcome.returncode != 0:
        raise RuntimeError(f"Recorder {' '.join(scenario)} failed:\n{outcome.stdout[-2000:]}{outcome.stderr[-4000:]}")


def _pack(store: Path, archive: Path) -> None:
    command = ["tar", "--create", "--sparse", "--sort=name", "--owner=root", "--group=root", "--format=gnu"]
    command += [f"--exclude={store.name}/{piece}" for piece in LEFT_OUT]
    command += ["-I", "xz -9e", "-f", str(archive), "-C", str(store.parent), store.name]
    subprocess.run(command, check=True)


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as work:
        for recording in RECORDINGS:
            if not names or recording.name in names:
                folder = Path(work) / f"work-{recording.name}"
                folder.mkdir()
                record(recording, folder)
                print(f"recorded {OUTPUT / recording.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
