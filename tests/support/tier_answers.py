"""What the official broker answered about recorded stores with tiered files (`tests/golden/g2/g2-tier…`)."""

import base64
import json
import lzma
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from golden_store import GOLDEN
from protocol.codes import RequestCode


@dataclass(frozen=True)
class Exchange:
    """A question that the broker was asked about a topic with tiered files, and its answer."""

    code: int
    fields: dict[str, str]
    answer: dict[str, Any]
    body: bytes

    @property
    def topic(self) -> str:
        return self.fields["topic"]


def exchanges_of(name: str) -> list[Exchange]:
    text = lzma.decompress((GOLDEN / "g2" / name / "answers.jsonl.xz").read_bytes())
    lines = [json.loads(line) for line in text.splitlines()]
    found = [
        Exchange(asked["code"], asked["extFields"], answer["header"], base64.b64decode(answer["body"]))
        for asked, answer in zip((line["header"] for line in lines[::2]), lines[1::2], strict=True)
        if asked.get("extFields", {}).get("topic", "").startswith("Tier")
    ]
    assert len(found) > 500
    return found


def records_in(body):
    while body:
        size = int.from_bytes(body[:4])
        yield body[:size]
        body = body[size:]


def pulls_of(exchanges):
    """What the broker gave of each queue by each filter, in order."""
    found = defaultdict(list)
    for each in exchanges:
        if each.code == RequestCode.PULL_MESSAGE:
            fields = each.fields
            key = each.topic, fields["queueId"], fields["expressionType"], fields["subscription"]
            found[key] += records_in(each.body)
    return found
