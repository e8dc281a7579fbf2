"""The log on stderr: lines for people, or one JSON object a line for programs (`serve --log-format json`)."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

TEXT: Final = "text"
JSON: Final = "json"
FORMATS: Final = (TEXT, JSON)

_TEXT_LINE: Final = "%(asctime)s %(levelname)s %(message)s"


class JsonFormatter(logging.Formatter):
    """A record as an object: time (UTC), level, logger, process, message, `exception` where there is one.

    What the caller gave as `extra={"fields": {...}}` stands beside them.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line without a line break in it."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def configured_format() -> str:
    """The format in which this process logs."""
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    return JSON if any(isinstance(each, JsonFormatter) for each in formatters) else TEXT


def configure_logging(log_format: str, stream: TextIO | None = None) -> None:
    """Log to `stream` from now on, None means stderr; level INFO."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == JSON else logging.Formatter(_TEXT_LINE))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
