"""Configuration on which a broker starts: files of a new store's `config/` that are no JSON are exchanged.

A broker that finds one damaged takes its `.bak`, and does not start where that is damaged too (store-format §9). Here a
damaged file becomes its `.bak`, or else what of it is complete in front; what is damaged beyond that is left out.
"""

import json
import os
from pathlib import Path
from typing import Final

from protocol.errors import ProtocolError, StoreError
from protocol.fastjson import leading_part, parse_fastjson
from spark_jobs.run.work_directory import write_whole
from storage.files.mapped_file import read_small_file
from storage.layout.store_config import LONGEST_FILE

_JSON: Final = ".json"
_BACKUP: Final = ".bak"


def mend_config(directory: Path) -> list[str]:
    """Exchange what is damaged in a `config/` that is our own; a sentence for each that was not as it should be."""
    names = sorted({name.removesuffix(_BACKUP) for name in os.listdir(directory)})
    return [note for name in names if name.endswith(_JSON) and (note := _mend(directory / name))]


def _mend(path: Path) -> str:
    old = path.with_name(path.name + _BACKUP)
    text, old_text = _read(path), _read(old)
    is_sound, is_old_sound = _is_sound(text), _is_sound(old_text)
    if not is_old_sound:
        old.unlink(missing_ok=True)
    if is_sound:
        return ""
    what = f"config/{path.name} {'was no whole JSON' if path.exists() else 'is missing'}"
    if is_old_sound and old_text is not None:
        write_whole(path, old_text)
        return f"{what}: {old.name} took its place; what was written since is not in it"
    for candidate in (text, old_text):
        part = None if candidate is None else leading_part(candidate)
        if isinstance(part, dict) and part:
            write_whole(path, json.dumps(part, ensure_ascii=False, indent="\t").encode("utf-8", "replace"))
            return f"{what}: what of it is complete in front was kept; what followed is lost"
    path.unlink(missing_ok=True)
    return f"{what}, and nothing of it or of {old.name} can be read: a broker starts without it"


def _read(path: Path) -> bytes | None:
    """What is in a file, None where there is none or where it is longer than any broker writes."""
    try:
        return read_small_file(path, LONGEST_FILE)
    except (FileNotFoundError, StoreError):
        return None


def _is_sound(text: bytes | None) -> bool:
    try:
        return text is not None and isinstance(parse_fastjson(text), dict)
    except ProtocolError:
        return False
