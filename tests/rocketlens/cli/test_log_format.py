"""Each record of the log is one line, and in JSON one object."""

import contextlib
import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from rocketlens.cli.log_format import JsonFormatter, configure_logging


@contextlib.contextmanager
def bare_root() -> Iterator[None]:
    """The root logger without handlers, put back at the end."""
    logger = logging.getLogger()
    before, level = logger.handlers[:], logger.level
    logger.handlers.clear()
    try:
        yield
    finally:
        logger.handlers[:] = before
        logger.setLevel(level)


def record_of(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    record = logging.LogRecord("broker.x", logging.WARNING, "x.py", 1, message, arguments, None)
    record.__dict__.update(extra)
    return record


def test_a_record_is_an_object_with_the_fields_beside_it() -> None:
    line = JsonFormatter().format(record_of("Grüße %s\nzwei", "an alle", fields={"code": "X", "milliseconds": 1.5}))
    assert "\n" not in line
    told = json.loads(line)
    assert told["message"] == "Grüße an alle\nzwei"
    assert (told["level"], told["logger"], told["code"], told["milliseconds"]) == ("WARNING", "broker.x", "X", 1.5)
    assert told["time"].endswith("+00:00")


def test_an_exception_is_part_of_the_object() -> None:
    record = record_of("failed")
    try:
        raise ValueError("no\nway")
    except ValueError:
        record.exc_info = sys.exc_info()
    told = json.loads(JsonFormatter().format(record))
    assert told["exception"].splitlines()[0] == "Traceback (most recent call last):"
    assert "no\nway" in told["exception"]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_the_log_is_written_in_the_form_asked_for(log_format: str) -> None:
    stream = io.StringIO()
    with bare_root():
        configure_logging(log_format, stream)
        logging.getLogger("broker.y").info("told")
    line = stream.getvalue()
    if log_format == "json":
        assert json.loads(line)["message"] == "told"
    else:
        assert line.endswith(" INFO told\n")
