"""How a log grows, and what a broker's configuration makes of it."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.errors import ConfigError, StoreError
from storage.space.broker_settings import BrokerSettings, read_broker_settings
from storage.space.forecast import DAY_MS, Forecast, make_forecast
from storage.space.measure import measure
from storage.space.scan_space import HOUR_MS
from storage.space.tally import Tally
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import START_TIMESTAMP, StoreWriter

NOW = START_TIMESTAMP + 10 * DAY_MS
DISK = SimpleNamespace(total=1_000_000, used=500_000, free=400_000)


def growing_store(root: Path, hours: int, ahead: int | None = None) -> MessageStore:
    """A message of the same size each hour, the first one on the hour; that of hour `ahead` says 30 days later."""
    writer = StoreWriter(root, segment_size=4096)
    first = START_TIMESTAMP - START_TIMESTAMP % HOUR_MS
    for hour in range(hours + 1):
        said = hour + 30 * 24 if hour == ahead else hour
        writer.append("T", b"x" * 100, store_timestamp=first + said * HOUR_MS)
    writer.close()
    return MessageStore.open(root, StoreOptions(scan_budget=0, check_budget=0, keeps_state=False))


def forecast_of(store: MessageStore, tally: Tally, settings: BrokerSettings | None = None) -> Forecast:
    forecast = make_forecast(store.commit_log, tally, settings or BrokerSettings(), NOW)
    assert forecast is not None
    return forecast


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: DISK)


def test_growth_is_that_of_the_last_day(tmp_path: Path) -> None:
    store = growing_store(tmp_path / "store", 48)
    tally = measure(store.commit_log)
    size = tally.size // tally.messages
    forecast = forecast_of(store, tally)
    # 24 messages in the 23 hours from the first to the last of them.
    assert forecast.growth_hours == 23
    assert forecast.growth == 24 * size * 24 // 23
    growth = forecast.growth
    assert forecast.full_timestamp == NOW + 400_000 * DAY_MS // growth
    assert forecast.crowded_timestamp == NOW + 250_000 * DAY_MS // growth
    assert forecast.kept_size == growth * 3
    assert forecast.is_full_first is False
    oldest = store.commit_log.segments[0].file.path
    assert forecast.expiry_timestamp == os.stat(oldest).st_mtime_ns // 1_000_000 + 72 * HOUR_MS


def test_one_message_of_a_clock_ahead_does_not_change_the_growth(tmp_path: Path) -> None:
    store = growing_store(tmp_path / "store", 48, ahead=5)
    tally = measure(store.commit_log)
    forecast = forecast_of(store, tally)
    assert forecast.growth_hours == 23
    assert forecast.growth == 24 * (tally.size // tally.messages) * 24 // 23


def test_a_segment_that_is_deleted_after_it_was_counted_costs_just_the_expiry(tmp_path: Path) -> None:
    store = growing_store(tmp_path / "store", 48)
    tally = measure(store.commit_log)
    before = forecast_of(store, tally)
    assert before.expiry_timestamp is not None
    store.commit_log.segments[0].file.path.unlink()
    after = forecast_of(store, tally)
    assert after.expiry_timestamp is None
    assert (after.growth, after.kept_size) == (before.growth, before.kept_size)


def test_a_gap_behind_what_was_counted_leaves_growth_unsaid(tmp_path: Path) -> None:
    store = growing_store(tmp_path / "store", 48)
    assert len(store.commit_log.segments) > 2
    store.commit_log.segments[1].file.path.unlink()
    forecast = forecast_of(store, measure(store.commit_log))
    assert (forecast.growth, forecast.full_timestamp, forecast.kept_size) == (None, None, None)
    assert forecast.expiry_timestamp is not None


def test_a_brokers_configuration_is_read_and_the_rest_assumed(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("# a comment\nbrokerName = a\nfileReservedTime= 48 \n\n!diskMaxUsedSpaceRatio=1\n")
    assert read_broker_settings(path) == BrokerSettings(48, 75, frozenset({"diskMaxUsedSpaceRatio"}))
    path.write_text("diskMaxUsedSpaceRatio=99\n")
    assert read_broker_settings(path) == BrokerSettings(72, 95, frozenset({"fileReservedTime"}))


@pytest.mark.parametrize("line", ["fileReservedTime: 48", "fileReservedTime 48", "  fileReservedTime\t=48"])
def test_every_separator_of_java_properties_is_read(tmp_path: Path, line: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        f"# fileReservedTime: 1\n! fileReservedTime 2\nfileReservedTime\n{line}\nother: fileReservedTime 3\n"
    )
    assert read_broker_settings(path).reserved_hours == 48


@pytest.mark.parametrize("line", ["fileReservedTime=soon", "fileReservedTime=-1", "diskMaxUsedSpaceRatio=101"])
def test_a_configuration_that_cannot_be_is_refused_by_name(tmp_path: Path, line: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(line)
    with pytest.raises(ConfigError, match=line.partition("=")[0]):
        read_broker_settings(path)
    with pytest.raises(StoreError, match="nowhere"):
        read_broker_settings(tmp_path / "nowhere")
