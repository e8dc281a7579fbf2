"""The tables: ours, Java's, the ratio, and the aim beside each figure that has one."""

import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import JAVA, MANY, ONE, OURS, TIMED_WORKLOADS, median_of
from storage.kernels.records import CRC32_PATH

# Server CPU a request, ours as a share of Java's.
CPU_AIMS = {"view": 1 / 6, "key": 1 / 4, "unique": 1 / 3.5, "hot": 1 / 4}
ONE_BY_ONE_P50_AIM = 0.6
FIRST_ANSWER_AIM_SECONDS = 1.0
PRIVATE_MEMORY_AIM_MB = 150.0
UNLUCKY_P99_AIM_MS = 5.0
_NAMES = {"view": "view", "key": "key", "unique": "unique key", "hot": "hot key (32 hits)"}

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Aim:
    """One aim and what was reached; both are upper bounds and values in ``unit``."""

    name: str
    bound: float
    reached: float
    unit: str

    @property
    def is_met(self) -> bool:
        """Whether what was reached is within the bound."""
        return self.reached <= self.bound

    def verdict(self) -> str:
        """For a table's cell."""
        return f"≤ {self.bound:.3g}{self.unit}: {'met' if self.is_met else 'NOT met'}"


def machine() -> dict[str, str]:
    """CPU model, cores, memory, kernel, Python, and how checksums are made on it."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = Path("/proc/meminfo").read_text().split()[1]
    return {
        "cpu": f"{model[0].partition(': ')[2]}, {len(model)} cores" if model else platform.machine(),
        "memory": f"{int(memory) / 1e6:.0f} GB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "checksums": CRC32_PATH,
    }


def aims(results: Results) -> list[Aim]:
    """Every aim with what this run reached."""
    rounds, unlucky = results["rounds"], results["unlucky"][OURS]
    found = [
        Aim(f"CPU, {_NAMES[w]}, ours / Java", bound, _ratio(rounds[w][MANY], "server_cpu_us"), "")
        for w, bound in CPU_AIMS.items()
    ]
    found += [
        Aim(f"p50 1 x 1, {_NAMES[w]}, ours / Java", ONE_BY_ONE_P50_AIM, _ratio(rounds[w][ONE], "p50_us"), "")
        for w in TIMED_WORKLOADS
    ]
    starts = {kind: _median_start(results["starts"][OURS][kind]) for kind in ("cold", "warm")}
    found += [
        Aim(f"first answer, {kind} state directory", FIRST_ANSWER_AIM_SECONDS, seconds, " s")
        for kind, seconds in starts.items()
    ]
    found.append(Aim("RssAnon", PRIVATE_MEMORY_AIM_MB, results["memory"][OURS]["RssAnon"], " MB"))
    found.append(Aim("p99 of the unlucky key", UNLUCKY_P99_AIM_MS, unlucky["alone"]["p99_us"] / 1000, " ms"))
    return found


def markdown(results: Results) -> str:
    """The whole report."""
    by_name = {aim.name: aim for aim in aims(results)}
    parts = [
        _heading(results),
        _load_table(results, MANY, by_name),
        _load_table(results, ONE, by_name),
        _other_table(results, by_name),
        _correctness(results),
    ]
    return "\n".join(parts)


def _heading(results: Results) -> str:
    where, sizes = results["machine"], results["sizes"]
    return (
        f"Store: {results['parameters']['count']:,} messages, index and queues built by the official broker 5.5.0.\n"
        f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}, Python {where['python']}; "
        f"{results['java']}, heap {results['java_heap']}.\n"
        f"Command: `{results['command']}`. Medians of {sizes['rounds']} interleaved rounds; "
        f"Java warmed up for {results['warm_up_seconds'][JAVA]:.0f} s, "
        f"RocketLens for {results['warm_up_seconds'][OURS]:.0f} s. "
        "Cells are RocketLens / Java.\n"
    )


def _load_table(results: Results, mode: str, by_name: Mapping[str, Aim]) -> str:
    lines = [
        f"| {mode} | server CPU, µs a request | ratio | requests/s | p50, µs | ratio | p99, µs | aim |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for workload in TIMED_WORKLOADS:
        reports = results["rounds"][workload][mode]
        name = (
            f"CPU, {_NAMES[workload]}, ours / Java" if mode == MANY else f"p50 1 x 1, {_NAMES[workload]}, ours / Java"
        )
        cells = [
            _NAMES[workload],
            _pair(reports, "server_cpu_us", ".1f"),
            f"{_ratio(reports, 'server_cpu_us'):.3f}",
            _pair(reports, "requests_per_second", ",.0f"),
            _pair(reports, "p50_us", ",.0f"),
            f"{_ratio(reports, 'p50_us'):.2f}",
            _pair(reports, "p99_us", ",.0f"),
            ("CPU ratio " if mode == MANY else "p50 ratio ") + by_name[name].verdict(),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _other_table(results: Results, by_name: Mapping[str, Aim]) -> str:
    starts, memory, unlucky = results["starts"], results["memory"], results["unlucky"]
    java_start = _median_start(starts[JAVA])
    rows = [
        (f"start to first answer, {kind} state directory, s", _median_start(starts[OURS][kind]), java_start, 2, aim)
        for kind, aim in ((kind, f"first answer, {kind} state directory") for kind in ("cold", "warm"))
    ]
    ours, java = _median_wait(starts[OURS]["warm"]), _median_wait(starts[JAVA])
    rows.append(("of that with the port open already, s", ours, java, 3, ""))
    rows.append(("private memory (RssAnon), MB", memory[OURS]["RssAnon"], memory[JAVA]["RssAnon"], 0, "RssAnon"))
    rows.append(("resident memory, mapped files too, MB", memory[OURS]["VmRSS"], memory[JAVA]["VmRSS"], 0, ""))
    for label, run, figure, aim in (
        ("unlucky key alone, p50, ms", "alone", "p50_us", ""),
        ("unlucky key alone, p99, ms", "alone", "p99_us", "p99 of the unlucky key"),
        ("unlucky key beside views, p99, ms", "beside_views", "p99_us", ""),
        ("views, nothing beside, p50, ms", "views_quiet", "p50_us", ""),
        ("views, unlucky keys beside, p50, ms", "views_beside", "p50_us", ""),
        ("views, nothing beside, p99, ms", "views_quiet", "p99_us", ""),
        ("views, unlucky keys beside, p99, ms", "views_beside", "p99_us", ""),
    ):
        rows.append((label, unlucky[OURS][run][figure] / 1000, unlucky[JAVA][run][figure] / 1000, 3, aim))
    lines = ["| | RocketLens | Java | aim |", "|---|---|---|---|"]
    for label, ours, java, digits, aim in rows:
        verdict = by_name[aim].verdict() if aim else ""
        lines.append(f"| {label} | {ours:,.{digits}f} | {java:,.{digits}f} | {verdict} |")
    return "\n".join(lines) + "\n"


def _correctness(results: Results) -> str:
    lines = [
        f"{entry['workload']}: {entry['requests']:,} answers compared byte for byte with Java's, "
        f"{entry['differing']} differ ({entry['filtered']} of Java's held others too, which clients drop)."
        for entry in results["comparisons"]
    ]
    return "\n".join([*lines, f"Errors under load: {results['errors']}."]) + "\n"


def _median_wait(starts: Sequence[Mapping[str, float]]) -> float:
    return statistics.median(start["answered_seconds"] - start["port_opened_seconds"] for start in starts)


def _ratio(reports: Mapping[str, Any], figure: str) -> float:
    return median_of(reports[OURS], figure) / median_of(reports[JAVA], figure)


def _pair(reports: Mapping[str, Any], figure: str, form: str) -> str:
    return f"{median_of(reports[OURS], figure):{form}} / {median_of(reports[JAVA], figure):{form}}"


def _median_start(starts: Sequence[Mapping[str, float]]) -> float:
    return statistics.median(start["answered_seconds"] for start in starts)
