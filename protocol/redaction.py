"""Texts without the secrets that this process was given: keys of object stores, tokens of catalogs, passwords in URLs.

Code that reads an option that may hold a secret hands it to `keep_secrets` first. From then on :func:`redacted`
replaces the value, whatever library spells it in whatever error; what goes to a terminal, a log, a report or a journal
passes it (:func:`protocol.printable.one_line`, the records of `logging`, and the trace of an error that nobody
expected).
"""

import base64
import json
import logging
import re
import string
import sys
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

HIDDEN: Final = "***"

SHORTEST: Final = 4
"""Characters of a secret; a shorter value is not replaced, because texts would hold it by chance."""

_SECRET: Final = re.compile(
    r"secret|token|passw|passphrase|credential|authorization|signature|private|(?:^|[._-])(?:sas|pass|pwd|auth)(?:$|[._-])"
    r"|(?:account|access|api|shared|master|encryption)[._-]?key|connection[._-]?string|^key$|^uri$",
    re.IGNORECASE,
)
"""Names of options whose values are secrets, or may contain one."""

_NAMES: Final = re.compile(r"://[^/?#\s:@]*:([^/?#\s]+)@")
"""A password in a URL."""

_PUBLIC: Final = re.compile(r"(?:sqlite|https?|thrift|hive|postgresql[^:]*|mysql[^:]*):(?://)?[^@]*", re.IGNORECASE)
"""A URI without a password, which is no secret."""

_spellings: dict[str, None] = {}
_has_begun = False


def keep_secrets(options: Mapping[str, Any]) -> None:
    """Note the secrets among some options, by their names; options within options too."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            keep_secrets(value)
        elif isinstance(value, str) and _SECRET.search(name) and _PUBLIC.fullmatch(value) is None:
            keep_secret(value)


def keep_secret(value: str) -> None:
    """Have one value appear nowhere, in any of the spellings in which it may be quoted."""
    found = re.search(_NAMES, value)
    for text in (value, *(found.groups() if found else ()), *(value.split(":", 1) if ":" in value else ())):
        if len(text) < SHORTEST:
            continue
        encoded = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
        in_url, in_query = _quoted(text, "/"), _quoted(text).replace("%20", "+")
        for each in (text, repr(text)[1:-1], in_url, in_query, _quoted(text)):
            _spellings[each] = None
        for each in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], encoded):
            _spellings[each] = None
    _begin()


def _quoted(text: str, safe: str = "") -> str:
    """The text as a URL has it."""
    bare = f"{string.ascii_letters}{string.digits}_.-~{safe}".encode()
    return "".join(chr(each) if each in bare else f"%{each:02X}" for each in text.encode("utf-8", "surrogatepass"))


def redacted(text: str) -> str:
    """The text without secrets: without those that were noted, and without passwords in URLs."""
    for each in sorted(_spellings, key=len, reverse=True):
        text = text.replace(each, HIDDEN)
    if "://" in text:
        text = _NAMES.sub(lambda found: found[0].replace(found[1], HIDDEN), text)
    return text


def _begin() -> None:
    """Have log records and traces pass here, from the first secret on."""
    global _has_begun
    if _has_begun:
        return
    _has_begun = True
    make = logging.getLogRecordFactory()

    def make_redacted(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = make(*arguments, **options)
        record.msg, record.args = redacted(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = redacted("".join(traceback.format_exception(*record.exc_info)).rstrip())
        return record

    logging.setLogRecordFactory(make_redacted)
    show = sys.excepthook

    def show_redacted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        lines = "".join(traceback.format_exception(kind, error, trace))
        if redacted(lines) == lines:
            show(kind, error, trace)
        else:
            sys.stderr.write(redacted(lines))

    sys.excepthook = show_redacted
