"""Topics, groups and offsets that a broker keeps in RocksDB, as the objects that its JSON files would hold.

With `storeType=defaultRocksDB` each table is a database of its own, whose keys are names and whose values are the JSON
of one entry. With `configManagerVersion=v2` all tables are in one, `config/rdb`, whose keys begin with

KEY
offset  size  type   field        meaning
0       1     u8     prefix       1
1       2     i16    table        1 consumer offsets, 2 pull offsets, 3 topics, 4 subscription groups
3       1     u8     record_type  1 the table's version, 2 an entry

and whose values are, for the version of a table,

DATA_VERSION
offset  size  type   field          meaning
0       8     i64    state_version  of the broker's state machine
8       8     i64    timestamp      of the last change, ms
16      8     i64    counter        changes

Source: store-format §9.2, other-formats §7. The library that reads a database writes a file into its directory, so it
is shown a directory of links to the database's files instead.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

from protocol.errors import RocketLensError, StoreError
from protocol.fastjson import parse_fastjson
from storage.extras import install_line
from storage.files.hollow_files import hollow_content, is_undated
from storage.files.mapped_file import FileIdentity, cannot_be_seen, list_directory, open_read_only

if TYPE_CHECKING:
    from rocksdict import RdictIter

EXTRA: Final = "rocksdb"
"""What makes databases readable."""

ALL_TABLES: Final = "rdb"
"""The database that has all tables (`configManagerVersion=v2`)."""

KEY: Final = Struct(">BhB")
_PREFIX: Final = 1
_VERSION, _ENTRY = 1, 2
_CONSUMER, _PULL, _TOPICS, _GROUPS = 1, 2, 3, 4
_NAME_LENGTH: Final = Struct(">H")
_QUEUE_ID: Final = Struct(">i")
_OFFSET: Final = Struct(">q")
DATA_VERSION: Final = Struct(">qqq")
_JSON: Final = 1
_SEPARATOR: Final = b"\x01"
_LEFT_ALONE: Final = ("LOCK", "LOG")
"""Files of a database that say nothing about its content, and that a reader would write."""

_LONGEST_NAME: Final = 4096
"""Bytes of CURRENT and IDENTITY, which the library reads as a whole, and each of which holds one name."""
_LONG: Final = 1 << 30
"""Bytes from which on a file must be there for the most part: the library reads through holes, a terabyte for hours."""

Table = dict[object, object]
Rows = Mapping[bytes, bytes]


class NoReader(StoreError):
    """There is no library that reads RocksDB."""


def can_read_databases() -> bool:
    """Whether there is a library that reads databases."""
    return find_spec("rocksdict") is not None


def database_of(directory: Path, name: str, file: Path) -> Path | None:
    """The database in a directory of configuration that has a table, the one written last if there are two.

    None where `file`, which has the same table, was written later, or there is no database.
    """
    # os.path, since Path.is_dir raises where a directory may not be entered.
    there = [path for path in (directory / ALL_TABLES, directory / name) if os.path.isdir(path)]
    if not there:
        return None
    newest = max(there, key=_modified_ns)
    try:
        written = os.stat(file).st_mtime_ns
    except OSError:
        return newest
    return newest if _modified_ns(newest) >= written else None


def is_undated_beside(directory: Path, name: str, file: Path) -> bool:
    """Whether a file and a database have the same table, and it is not known when each of them was written."""
    database = database_of(directory, name, file)
    if database is None or not os.path.exists(file):
        return False
    try:
        return is_undated(file) or any(is_undated(database / each) for each, _ in _files(database))
    except StoreError:
        return False


def state_of(database: Path) -> tuple[FileIdentity | None, ...]:
    """What changes with a database; raises StoreError where it cannot be looked at."""
    return tuple(identity for _, identity in _files(database))


def _modified_ns(database: Path) -> int:
    try:
        return max((identity.modified_ns for _, identity in _files(database)), default=0)
    except StoreError:
        return 0


def read_topics(database: Path) -> Table:
    """What `topics.json` would hold; raises StoreError where the database cannot be read."""
    if database.name == ALL_TABLES:
        return _entries_of_all(database, _TOPICS, "topicConfigTable")
    families = _read(database)
    return {"topicConfigTable": _entries(database, families["default"]), **_version(database, families)}


def read_groups(database: Path) -> Table:
    """What `subscriptionGroup.json` would hold; raises StoreError where the database cannot be read."""
    if database.name == ALL_TABLES:
        return _entries_of_all(database, _GROUPS, "subscriptionGroupTable")
    families = _read(database)
    groups = {"subscriptionGroupTable": _entries(database, families["default"]), **_version(database, families)}
    return groups | {"forbiddenTable": _entries(database, families.get("forbidden", {}))}


def read_offsets(database: Path) -> Table:
    """What `consumerOffset.json` would hold; raises StoreError where the database cannot be read."""
    if database.name == ALL_TABLES:
        rows = _read(database)["default"]
        version = _versions(rows).get(_CONSUMER, {})
        consumer, pull = _offsets(database, rows, _CONSUMER), _offsets(database, rows, _PULL)
        tables: Table = {"offsetTable": consumer, "dataVersion": version}
        return {**tables, "pullOffsetTable": pull} if pull else tables
    families = _read(database)
    entries = _entries(database, families["default"])
    tables = {name: value.get("offsetTable") if isinstance(value, dict) else value for name, value in entries.items()}
    return {"offsetTable": tables, **_version(database, families)}


def _entries(database: Path, rows: Rows) -> Table:
    return {key.decode("utf-8", "replace"): _parsed(database, value) for key, value in rows.items()}


def _version(database: Path, families: Mapping[str, Rows]) -> Table:
    found = families.get("kvDataVersion", {}).get(b"kvDataVersionKey")
    return {} if found is None else {"dataVersion": _parsed(database, found)}


def _parsed(database: Path, text: bytes) -> object:
    try:
        return parse_fastjson(text)
    except RocketLensError as error:
        raise StoreError(database, what=f"holds an entry that is no JSON: {error}") from error


def _entries_of_all(database: Path, table: int, name: str) -> Table:
    rows = _read(database)["default"]
    found: Table = {}
    for rest, value in _of_table(rows, table):
        length = _number(database, _NAME_LENGTH, rest)
        if value[:1] != bytes([_JSON]):
            raise StoreError(
                database, what=f"holds an entry of {name} that is not JSON: its first byte is {value[:1]!r}"
            )
        found[rest[_NAME_LENGTH.size : _NAME_LENGTH.size + length].decode("utf-8", "replace")] = _parsed(
            database, value[1:]
        )
    return {name: found, "dataVersion": _versions(rows).get(table, {})}


def _of_table(rows: Rows, table: int) -> Iterator[tuple[bytes, bytes]]:
    """The entries of one of the tables: what follows the head of the key, and the value."""
    head = KEY.pack(_PREFIX, table, _ENTRY)
    return ((key[KEY.size :], value) for key, value in rows.items() if key.startswith(head))


def _versions(rows: Rows) -> dict[int, Table]:
    """The versions of the tables."""
    found: dict[int, Table] = {}
    for table in (_CONSUMER, _PULL, _TOPICS, _GROUPS):
        head = KEY.pack(_PREFIX, table, _VERSION)
        value = next((value for key, value in rows.items() if key.startswith(head)), b"")
        if len(value) == DATA_VERSION.size:
            state, timestamp, counter = DATA_VERSION.unpack(value)
            found[table] = {"stateVersion": state, "timestamp": timestamp, "counter": counter}
    return found


def _offsets(database: Path, rows: Rows, table: int) -> Table:
    """Offsets by `topic@group` and queue id; a key is group, topic and queue id."""
    found: dict[object, Table] = {}
    for rest, value in _of_table(rows, table):
        group, rest = _name(database, rest)
        topic, rest = _name(database, rest)
        offsets = found.setdefault(f"{topic}@{group}", {})
        offsets[str(_number(database, _QUEUE_ID, rest))] = _number(database, _OFFSET, value)
    return dict(found)


def _name(database: Path, rest: bytes) -> tuple[str, bytes]:
    """The name at the front, and what follows the separator behind it."""
    start = _NAME_LENGTH.size
    stop = start + _number(database, _NAME_LENGTH, rest)
    return rest[start:stop].decode("utf-8", "replace"), rest[stop + len(_SEPARATOR) :]


def _number(database: Path, layout: Struct, content: bytes) -> int:
    """The number at the front of a key or a value; raises StoreError where it is cut."""
    if len(content) < layout.size:
        raise StoreError(database, what=f"holds an entry that is cut: {content[: layout.size]!r}")
    number: int = layout.unpack_from(content)[0]
    return number


def _files(database: Path) -> list[tuple[str, FileIdentity]]:
    """The files of a database and their states, by name; raises StoreError where it cannot be looked at."""
    found: list[tuple[str, FileIdentity]] = []
    for entry in sorted(list_directory(database), key=lambda entry: entry.name):
        if entry.name.startswith(_LEFT_ALONE):
            continue
        try:
            found.append((entry.name, FileIdentity.of(entry.stat())))
        except FileNotFoundError:  # a broker deletes files that it has merged
            continue
        except OSError as error:
            raise cannot_be_seen(entry.path, error) from error
    return found


def _read(database: Path) -> dict[str, dict[bytes, bytes]]:
    """All rows of a database by column family. Raises StoreError, naming it, for one that cannot be read."""
    try:
        # An optional extra, needed for no other store.
        from rocksdict import AccessType, Options, Rdict
    except ImportError:
        what = f"is a RocksDB, which is read where a library is installed: {install_line(EXTRA)}"
        raise NoReader(database, what=what) from None
    names = [name for name, _ in _files(database)]
    if "CURRENT" not in names:
        raise StoreError(database, what="is no whole RocksDB: CURRENT is missing")
    _refuse_giants(database, names)
    for name in names:
        if hollow_content(database / name) is not None:
            os.close(open_read_only(database / name))  # all of it is there then, for the library
    with tempfile.TemporaryDirectory(prefix="rocketlens-") as links:
        for name in names:
            os.symlink(os.path.abspath(database / name), os.path.join(links, name))
        try:
            options = Options(raw_mode=True)
            families = Rdict.list_cf(links, options)
            known = {family: Options(raw_mode=True) for family in families}
            opened = Rdict(links, options, column_families=known, access_type=AccessType.read_only(False))
            try:
                _check_manifest(database, names, {str(each["name"]).lstrip("/") for each in opened.live_files()})
                return {family: dict(_rows(opened.get_column_family(family).iter())) for family in families}
            finally:
                opened.close()
        except StoreError:
            raise
        except Exception as error:  # the library has one type for all that RocksDB reports
            text = str(error).replace(links, str(database))
            raise StoreError(database, what=f"is a RocksDB that cannot be read: {text}") from error


def _refuse_giants(database: Path, names: list[str]) -> None:
    """Raise StoreError for a file that claims to be far longer than it can be: memory and time would go by that."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(database / name)
            size = status.st_size
            there = status.st_blocks * 512 if hollow_content(database / name) is None else size
            if size > (_LONGEST_NAME if name in ("CURRENT", "IDENTITY") else max(_LONG, 2 * there)):
                what = f"claims to be {size:,} bytes long, of which {there:,} are there: the RocksDB is not read"
                raise StoreError(database / name, what=what)


def _check_manifest(database: Path, names: list[str], live: set[str]) -> None:
    """Raise StoreError where rows have gone with the end of a MANIFEST; `live` are the files of rows that it names.

    RocksDB takes the end of a MANIFEST that was cut for that of a crash, and opens an older state. But a broker that
    died before it named a new file of rows has their write-ahead log too, which is older than the file.
    """
    newest = max(map(_file_number, live), default=-1)
    logs = [_file_number(name) for name in names if name.endswith(".log") and (database / name).stat().st_size]
    for name in names:
        number = _file_number(name)
        if name.endswith(".sst") and number > newest and not any(log < number for log in logs):
            raise StoreError(database, what=f"lacks rows: its MANIFEST does not name {name}, and was cut or is older")


def _file_number(name: str) -> int:
    """The number of a file, in which they were made; -1 for one without."""
    stem = name.partition(".")[0]
    return int(stem) if stem.isdecimal() and stem.isascii() else -1


def _rows(iterator: "RdictIter") -> Iterator[tuple[bytes, bytes]]:
    """All rows of a column family; raises what the library raises where a part of them cannot be read."""
    iterator.seek_to_first()
    while iterator.valid():
        yield bytes(iterator.key()), bytes(iterator.value())
        iterator.next()
    iterator.status()  # it ends at a damaged block, too
