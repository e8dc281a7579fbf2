"""Tables read back by the libraries of their formats, or as directories of files, and by nothing of ours.

Late imports: these libraries take a second, and every process that collects tests has this module.
"""

from datetime import UTC
from urllib.parse import unquote

import msgspec

from exported_files import rows_of_table
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.tables._files_table import FilesCommit
from spark_jobs.tables._table import TableCommit

TIMES = ("store_timestamp", "born_timestamp")
NAME = "rocketmq.messages"


def iceberg_options(storage: str) -> dict[str, str]:
    known = msgspec.json.decode(storage or "{}")
    names = {"s3.endpoint": "endpoint_url", "s3.access-key-id": "key", "s3.secret-access-key": "secret"}
    return {name: known[each] for name, each in names.items()} | {"s3.region": "us-east-1"} if known else {}


def delta_options(storage: str) -> dict[str, str]:
    known = msgspec.json.decode(storage or "{}")
    names = {"AWS_ENDPOINT_URL": "endpoint_url", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    more = {"AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    return {name: known[each] for name, each in names.items()} | more if known else {}


class Lake:
    """One table, as others see it; `catalog` are the properties of Iceberg's catalog, if it is no file beside it."""

    def __init__(self, format_: str, place: OutputPlace, catalog: dict[str, str] | None = None) -> None:
        self.format, self.place, self.catalog = format_, place, catalog or {}

    @property
    def is_of_files(self) -> bool:
        return self.format not in ("iceberg", "delta")

    @property
    def options(self):
        return {"format": self.format, "catalog": self.catalog}

    def iceberg(self):
        from pyiceberg.catalog import load_catalog

        directory = self.place.url.removeprefix("file://")
        uri = {"uri": f"sqlite:///{directory}/catalog.db"}
        catalog = load_catalog("default", **(uri | self.catalog | iceberg_options(self.place.storage)))
        try:
            return catalog.load_table(NAME)
        finally:
            catalog.close()

    def delta(self):
        from deltalake import DeltaTable

        return DeltaTable(self.place.url, storage_options=delta_options(self.place.storage))

    def arrow(self):
        if self.format == "iceberg":
            return self.iceberg().scan().to_arrow()
        return self.delta().to_pyarrow_table()

    def rows(self):
        if self.is_of_files:
            rows = rows_of_table(self.place, self.format)
            return [{name: value for name, value in row.items() if name != "date"} for row in rows]
        found = self.arrow().to_pylist(maps_as_pydicts="strict")
        for row in found:
            row.pop("date", None)
            for name in TIMES:
                if row.get(name) is not None:
                    row[name] = milliseconds(row[name])
        return sorted(found, key=lambda row: int(row["physical_offset"]))

    def commits(self):
        if self.is_of_files:
            names = sorted(self.place.objects("_rocketlens/commits"))
            return [msgspec.json.decode(self.place.read(name) or b"", type=FilesCommit) for name in names]
        if self.format == "iceberg":
            snapshots = sorted(self.iceberg().metadata.snapshots, key=lambda each: each.sequence_number or 0)
            texts = [each.summary.additional_properties.get("rocketlens.commit") for each in snapshots if each.summary]
        else:
            texts = [each.get("rocketlens.commit") for each in reversed(self.delta().history())]
        return [msgspec.json.decode(text, type=TableCommit) for text in texts if text is not None]

    def files(self) -> set[str]:
        """The data files that the table names, relative to its place; of a table of files all that lie there."""
        if self.is_of_files:
            return set(self.place.objects("data"))
        if self.format == "iceberg":
            return self._relative(task.file.file_path for task in self.iceberg().scan().plan_files())
        return self._relative(self.delta().file_uris())

    def unnamed_files(self) -> set[str]:
        return set(self.place.objects("data")) - self.files()

    def left_of_runs(self) -> set[str]:
        return set(self.place.objects("_rocketlens/_attempts" if self.is_of_files else "_rocketlens"))

    def never_named_files(self) -> set[str]:
        """Data files that lie there, and that no snapshot or version of the table has ever had."""
        if self.is_of_files:
            return set()
        if self.format == "iceberg":
            named = self._relative(self.iceberg().inspect.all_data_files()["file_path"].to_pylist())
        else:
            logs = [self.place.read(name) or b"" for name in self.place.objects("_delta_log") if name.endswith(".json")]
            actions = [msgspec.json.decode(line) for log in logs for line in log.splitlines()]
            named = {unquote(each["add"]["path"]) for each in actions if "add" in each}
        assert named
        return set(self.place.objects("data")) - named

    def _relative(self, paths):
        start = self.place.url.removeprefix("file://")
        return {path.removeprefix("file://").removeprefix(start).lstrip("/") for path in paths}


def milliseconds(time):
    """A time as ms since 1970; it has to be a whole number of them, and of UTC."""
    assert time.utcoffset() == UTC.utcoffset(None), time
    assert time.microsecond % 1000 == 0, time
    return round(time.timestamp() * 1000)


def with_moto(objects, name):
    return OutputPlace(f"{objects.root}/{name}", objects.options)
