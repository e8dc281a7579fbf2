"""The page's API over a store with its tier: browsing one queue over both parts, and what is refused."""

import pytest

from golden_store import GOLDEN, unpack
from web_questions import ApiOf

QUEUES = {0: 87, 1: 95}


@pytest.fixture(scope="module", params=[False, True], ids=["joined", "alone"])
def tiered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ApiOf:
    root = unpack("store", tmp_path_factory.mktemp("tier"), archives=GOLDEN / "g2" / "g2-tier")
    return ApiOf(root / "tiered") if request.param else ApiOf(root, tier=root / "tiered")


@pytest.mark.parametrize("order", ["oldest", "newest"])
@pytest.mark.parametrize("queue_id", QUEUES)
def test_one_queue_is_browsed_over_both_parts_page_by_page(tiered: ApiOf, queue_id: int, order: str) -> None:
    pages = tiered.pages("/messages", topic="TierTopic", queueId=queue_id, order=order, limit=7)
    assert len(pages) > 10
    found = [each["queueOffset"] for page in pages for each in page["messages"]]
    wanted = list(range(QUEUES[queue_id]))
    assert found == (wanted if order == "oldest" else wanted[::-1])
    assert all(page["total"] == QUEUES[queue_id] for page in pages)


def test_several_queues_of_a_tier_have_no_common_order(tiered: ApiOf) -> None:
    answer = tiered.ask("/messages", topic="TierTopic")
    assert answer.status == 400
    assert "name one queue" in str(answer.json)
    assert len(tiered.get("/messages", topic="Tier-old")["messages"]) == 3


@pytest.mark.parametrize("part", ["old", "new"])
def test_the_box_finds_what_either_part_has(tiered: ApiOf, part: str) -> None:
    (message,) = tiered.get("/find", text=f"{part}-7")["messages"]
    assert (message["topic"], message["keys"], message["foundBy"]) == (
        "TierTopic",
        [f"{part}-7", "shared", part],
        "key",
    )
