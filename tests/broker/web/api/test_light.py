"""Light topics by their parent, as recorded brokers wrote them into the log."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from storage.store.light_topics import named_parent
from store_writer import StoreWriter
from web_questions import ApiOf


def test_a_parent_is_named_by_a_lite_topic_even_when_its_messages_have_expired(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    for number in range(60):
        name = "%LMQ%$orders$chat-1" if number < 10 else "%LMQ%plain"
        offset = number if number < 10 else number - 10
        light = {"INNER_MULTI_DISPATCH": name, "INNER_MULTI_QUEUE_OFFSET": str(offset)}
        writer.append("orders", b"x" * 300, properties=light)
    writer.consumer_offsets = {"%LMQ%plain@readers": {0: 45}, "%LMQ%plain@others": {0: 50}}
    writer.close()
    for segment in sorted((writer.root / "commitlog").iterdir())[:2]:
        segment.unlink()
    answer = ApiOf(writer.root).get("/light-topics", milliseconds=9000)
    assert (answer["lookedAt"], answer["total"], answer["cursor"]) == (2, 2, None)
    (line,) = answer["parents"]
    assert (line["parent"], line["count"], line["expired"], line["lag"]) == ("orders", 2, 1, 5)


@given(st.text(min_size=1, max_size=5), st.text(min_size=1, max_size=5))
def test_a_lite_topic_names_its_parent_up_to_the_first_separator(parent: str, lite: str) -> None:
    """As `LiteUtil.getParentTopic` of 5.5.1 does: the parent ends at the first `$` behind the prefix."""
    name = f"%LMQ%${parent}${lite}"
    before, _, behind = f"{parent}${lite}".partition("$")
    assert named_parent(name) == (before if before and behind else None)
    assert named_parent(f"%LMQ%{lite.lstrip('$')}") is None
