"""Put asterisks in the place of what a reader of columns may not see (:mod:`protocol.mask`).

Keys, tag and unique key are properties too, so each of them is masked in both places, and masking all properties masks
them too. Masking the body masks its CRC, by which it could be guessed.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol import mask as rules
from protocol.mask import Mask
from protocol.properties import KEYS
from protocol.system_properties import PLACES
from protocol.system_topics import Stage, origin_of, stage_of
from storage.columns.message_columns import Column, Columns, python_values
from storage.columns.names import PROPERTIES_OF
from storage.columns.texts import AnyTexts, RepeatedTexts, TextLists, TextMaps, TextPlaces, Texts
from storage.patterns.mask import BoundedMask

MASKED: Final = rules.MASKED.encode()

_OF_REPORTS: Final = ("topic", "body", "properties")
"""Columns that say whether a message is a report about others."""
_WITH_KEYS: Final = frozenset({"keys", "properties"})


class ColumnMask:
    """A mask for columns."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._columns = mask.fields | ({"body_crc"} if mask.changes_bodies else set())

    @property
    def hidden_whole(self) -> int:
        """As of :class:`BoundedMask`; 0 for a mask that is none."""
        return self._mask.hidden_whole if isinstance(self._mask, BoundedMask) else 0

    def reading(self, names: Sequence[str]) -> tuple[str, ...]:
        """Some columns, and those without which it is not known what of them is to be masked."""
        needed: tuple[str, ...] = ()
        if self._mask.changes and rules.BODY not in self._mask.fields and not {"body", "body_crc"}.isdisjoint(names):
            needed = (*_OF_REPORTS, "sys_flag")
        elif self._hides_keys_of_reports(names):
            needed = _OF_REPORTS
        return (*names, *(name for name in needed if name not in names))

    def _hides_keys_of_reports(self, names: Iterable[str]) -> bool:
        mask = self._mask
        return mask.hides_keys(is_report=True) and "keys" not in mask.fields and not _WITH_KEYS.isdisjoint(names)

    def apply(self, columns: Columns, names: Sequence[str] | None = None) -> Columns:
        """Columns that were read as :meth:`reading` says, with asterisks; `names` of them, by default all.

        What is not there stays so.
        """
        shown = {name: columns[name] for name in (columns if names is None else names)}
        for name in shown:
            if name in ("body", "body_crc"):
                continue
            if name in self._columns and name != rules.PROPERTIES:
                shown[name] = _hidden(shown[name])
            elif name in PROPERTIES_OF or name == rules.PROPERTIES:
                shown[name] = self._with_patterns(name, shown[name])
        hides_keys = self._hides_keys_of_reports(shown)
        hides_bodies = self._mask.changes and not {"body", "body_crc"}.isdisjoint(shown)
        reports = np.zeros(columns.count, np.bool_)
        if hides_keys or (hides_bodies and rules.BODY not in self._mask.fields):
            reports = _reports(columns)
        if hides_bodies:
            self._hide_bodies(columns, shown, reports)
        keys, properties = shown.get("keys"), shown.get("properties")
        if hides_keys and isinstance(keys, TextLists):
            rows = np.flatnonzero(np.repeat(reports, np.diff(keys.offsets))).tolist()
            shown["keys"] = TextLists(keys.offsets, _with(keys.texts, rows, [MASKED] * len(rows)))
        if isinstance(properties, TextMaps) and self._mask.changes:
            shown["properties"] = self._without(properties, reports if hides_keys else None)
        return Columns(columns.count, shown, columns.bodies)

    def _hide_bodies(self, columns: Columns, shown: dict[str, Column], reports: npt.NDArray[np.bool_]) -> None:
        mask, body = self._mask, shown.get("body")
        if rules.BODY in mask.fields:
            whole = np.ones(columns.count, np.bool_)
        else:
            pairs = zip(python_values("sys_flag", columns["sys_flag"]), reports.tolist(), strict=True)
            whole = np.array([mask.hides_body(flags, is_report=is_report) for flags, is_report in pairs], np.bool_)
        if isinstance(body, Texts):
            shown["body"] = _hidden(body) if whole.all() else self._with_bodies(body, whole)
        if "body_crc" in shown:
            crc = np.array(shown["body_crc"])
            crc[whole if "body_crc" not in self._columns else slice(None)] = 0
            shown["body_crc"] = crc

    def _with_bodies(self, bodies: Texts, whole: npt.NDArray[np.bool_]) -> Texts:
        rows, texts = np.flatnonzero(whole).tolist(), [MASKED] * int(whole.sum())
        if self._mask.changes_bodies:
            values = python_values("body", bodies)
            there = [row for row, body in enumerate(values) if body is not None and not whole[row]]
            for row, made in zip(there, self._mask.bodies([values[row] for row in there]), strict=True):
                if made is not values[row]:
                    rows.append(row)
                    texts.append(bytes(made))
        return _with(bodies, rows, texts)

    def _with_patterns(self, name: str, column: Column) -> Column:
        """Keys, tags or unique keys, or the values of properties, without what patterns match of them."""
        if not self._mask.property_patterns:
            return column
        if isinstance(column, TextLists):
            rows, texts = [], []
            every = _texts(column.texts)
            spans = list(itertools.pairwise(column.offsets.tolist()))
            each_shown = self._mask.texts(every, _rows(column.offsets, len(every)))
            # A pattern may match where one key ends and the next one begins.
            joined_keys = [" ".join(every[start:stop]) for start, stop in spans]
            together = self._mask.texts(joined_keys, range(len(spans)))
            for (start, stop), joined in zip(spans, together, strict=True):
                is_apart = joined == " ".join(each_shown[start:stop])
                for row in range(start, stop):
                    if not is_apart or each_shown[row] != every[row]:
                        rows.append(row)
                        texts.append(each_shown[row].encode() if is_apart else MASKED)
            return TextLists(column.offsets, _with(column.texts, rows, texts))
        if isinstance(column, TextMaps):
            rows_of = _rows(column.offsets, len(column.values))
            shown = self._texts_with_patterns(column.values, column.names, rows_of)
            return TextMaps(column.offsets, column.names, shown)
        if isinstance(column, Texts | RepeatedTexts):
            return self._texts_with_patterns(column.spread() if isinstance(column, RepeatedTexts) else column)
        raise AssertionError(f"{name} is no column of texts")

    def _texts_with_patterns(
        self, texts: Texts, names: AnyTexts | None = None, owners: Sequence[int] | None = None
    ) -> Texts:
        values = python_values("tags", texts)
        of = [None] * len(values) if names is None else python_values("tags", names)
        asked = [
            row
            for row, (name, value) in enumerate(zip(of, values, strict=True))
            if value is not None and name not in PLACES
        ]
        owned = asked if owners is None else [owners[row] for row in asked]
        shown = self._mask.texts([values[row] for row in asked], owned)
        made = [(row, text) for row, text in zip(asked, shown, strict=True) if text != values[row]]
        return _with(texts, [row for row, _ in made], [shown.encode() for _, shown in made])

    def _without(self, maps: TextMaps, reports: npt.NDArray[np.bool_] | None) -> TextMaps:
        """Maps with asterisks for the values of the properties that are hidden, and for the keys of some rows."""
        if rules.PROPERTIES in self._mask.fields:
            masked = ~_named(maps.names, PLACES - self._mask.properties)
        else:
            masked = _named(maps.names, self._mask.properties)
        if reports is not None:
            masked |= _named(maps.names, (KEYS,)) & np.repeat(reports, np.diff(maps.offsets))
        rows = np.flatnonzero(masked).tolist()
        return TextMaps(maps.offsets, maps.names, _with(maps.values, rows, [MASKED] * len(rows)))


class _Named(NamedTuple):
    """The fields of a record that show its origin."""

    topic: str
    properties: dict[str, str]


def _reports(columns: Columns) -> npt.NDArray[np.bool_]:
    """Which messages may say something of messages of others."""
    topics, bodies = (python_values(name, columns[name]) for name in ("topic", "body"))
    origins: list[str | None] = topics
    if any(stage_of(topic) is not Stage.DELIVERED for topic in {*topics}):
        properties = python_values("properties", columns["properties"])
        origins = [origin_of(_Named(*each)).topic for each in zip(topics, properties, strict=True)]
    return np.array([rules.may_be_report(*each) for each in zip(origins, bodies, strict=True)], np.bool_)


def _rows(offsets: npt.NDArray[np.integer], count: int) -> list[int]:
    """The rows of the first texts that lists or maps consist of."""
    rows: list[int] = (np.searchsorted(offsets, np.arange(count), "right") - 1).tolist()
    return rows


def read_mask(texts: Iterable[str]) -> ColumnMask:
    """The mask of some rules; raises ConfigError."""
    return ColumnMask(BoundedMask(texts))


def _hidden(column: Column) -> Column:
    """Asterisks for each text that is there, and 0 for each number."""
    if isinstance(column, TextLists):
        return TextLists(column.offsets, _masked(column.texts))
    if isinstance(column, Texts | RepeatedTexts):
        return _masked(column)
    assert not isinstance(column, TextMaps)
    return np.zeros_like(column)


def _masked(texts: AnyTexts) -> Texts:
    if isinstance(texts, RepeatedTexts):
        texts = texts.spread()
    there = np.ones(len(texts), np.int64) if texts.present is None else texts.present.astype(np.int64)
    offsets = np.zeros(len(texts) + 1, np.int32)
    offsets[1:] = np.cumsum(there * len(MASKED))
    data = np.tile(np.frombuffer(MASKED, np.uint8), int(there.sum()))
    return Texts(offsets, data, texts.present)


def _with(texts: Texts, rows: Sequence[int], others: Sequence[bytes]) -> Texts:
    """Replace some texts, unless they are missing."""
    if not rows:
        return texts
    places = TextPlaces.of(texts)
    places.put(list(rows), list(others))
    if texts.present is not None:
        places.lengths[~texts.present] = -1
    return places.gather()


def _texts(texts: Texts) -> list[str]:
    data = texts.data.tobytes()
    return [data[start:stop].decode() for start, stop in itertools.pairwise(texts.offsets.tolist())]


def _named(texts: AnyTexts, names: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Which texts are one of some names."""
    found = np.zeros(len(texts), np.bool_)
    for name in names:
        found |= _equal(texts, name.encode("utf-8", "replace"))
    return found


def _equal(texts: AnyTexts, wanted: bytes) -> npt.NDArray[np.bool_]:
    """Which texts are one."""
    if isinstance(texts, RepeatedTexts):
        return _equal(texts.words, wanted)[texts.codes]
    starts = texts.offsets[:-1].astype(np.int64)
    equal: npt.NDArray[np.bool_] = np.equal(np.diff(texts.offsets), len(wanted))
    rows = np.flatnonzero(equal)
    if rows.size and wanted:
        taken = texts.data[starts[rows][:, None] + np.arange(len(wanted))]
        equal[rows] = (taken == np.frombuffer(wanted, np.uint8)).all(axis=1)
    return equal
