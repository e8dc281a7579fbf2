"""What a serving process holds of a store: files that it maps and has open, and its private memory."""

import os
import re
from pathlib import Path

DELETED = " (deleted)"


class Footprint:
    """Counts of one process, looked at again and again; `maps` and `descriptors` are those of files of the store."""

    def __init__(self, process_id: int, store: Path) -> None:
        self._process, self._store = Path("/proc") / str(process_id), store
        self.maps: list[int] = []
        self.descriptors: list[int] = []
        self.all_descriptors: list[int] = []
        self.private_mb: list[float] = []

    def look(self) -> None:
        """Count now."""
        self.maps.append(len(self._mapped()))
        targets = self._open()
        self.descriptors.append(len([target for target in targets if self._is_of_store(target)]))
        self.all_descriptors.append(len(targets))
        status = (self._process / "status").read_text()
        self.private_mb.append(int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) / 1000)

    def holds_what_is_gone(self) -> list[str]:
        """Files of the store that are no more, but mapped or open."""
        held = [*self._mapped(), *filter(self._is_of_store, self._open())]
        return [path for path in held if path.endswith(DELETED) or not Path(path).exists()]

    def _is_of_store(self, path: str) -> bool:
        return path.startswith(f"{self._store}/")

    def _mapped(self) -> list[str]:
        lines = [line.split(maxsplit=5) for line in (self._process / "maps").read_text().splitlines()]
        return [fields[5] for fields in lines if len(fields) == 6 and self._is_of_store(fields[5])]

    def _open(self) -> list[str]:
        """What the descriptors stand for."""
        targets: list[str] = []
        for descriptor in (self._process / "fd").iterdir():
            try:
                targets.append(os.readlink(descriptor))
            except FileNotFoundError:  # closed meanwhile
                continue
        return targets
