"""After any sequence of steps a store that is followed answers as one that is opened then."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from growing_store import Followed, hurry


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


steps = st.lists(
    st.sampled_from(
        ["add", "add", "add", "other", "big", "prepared", "batch", "torn", "mend", "flush", "flush", "poll", "poll",
         "watch", "roll", "advance", "expire", "index", "lose index", "queues", "refresh", "many"]
    ),
    max_size=40,
)  # fmt: skip


class TestAnySequence:
    """After any sequence of steps the answers are those of a store that is opened then."""

    @settings(
        max_examples=examples(16), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    )
    @given(
        steps,
        st.sampled_from(["5.5", "5.3"]),
        st.sampled_from([1024, 4096]),
        st.sampled_from([3, 20, 1000]),
        st.sampled_from([20, 100, 2000]),
    )
    def test_following_is_as_good_as_opening(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        taken: list[str],
        profile: str,
        segment_size: int,
        index_entries: int,
        queue_file_size: int,
    ) -> None:
        followed = Followed(
            tmp_path_factory.mktemp("steps") / "store",
            profile=profile,
            segment_size=segment_size,
            index_entries=index_entries,
            queue_file_size=queue_file_size,
        )
        for step in taken:
            if followed.growing.is_torn and step not in ("mend", "poll", "watch"):
                followed.growing.mend()
            STEPS[step](followed)
        followed.growing.mend()
        followed.growing.flush()
        followed.settle()
        followed.store.finish_scan()
        followed.check()


def _many(followed: Followed) -> None:
    for number in range(15):
        followed.growing.add(queue_id=number % 3)


def _lose_index(followed: Followed) -> None:
    shutil.rmtree(followed.growing.root / "index", ignore_errors=True)


STEPS: dict[str, Callable[[Followed], Any]] = {
    "add": lambda followed: followed.growing.add(queue_id=len(followed.growing.writer.written) % 2),
    "other": lambda followed: followed.growing.add("Other", keys="all Aa", tags=None),
    "big": lambda followed: followed.growing.add(body=b"x" * 700),
    "prepared": lambda followed: followed.growing.add(sys_flag=4),
    "batch": lambda followed: followed.growing.writer.append_inner_batch("Batch", [(b"1", {}), (b"2", {})], keys="b"),
    "torn": lambda followed: followed.growing.add_torn(0.6),
    "mend": lambda followed: followed.growing.mend(),
    "flush": lambda followed: followed.growing.flush(),
    "poll": lambda followed: followed.follower.poll(),
    "watch": lambda followed: followed.follower.watch(),
    "roll": lambda followed: followed.growing.writer.roll(),
    "advance": lambda followed: followed.growing.make_segment_in_advance(),
    "expire": lambda followed: followed.growing.expire(),
    "index": lambda followed: followed.growing.exchange_index(),
    "lose index": _lose_index,
    "queues": lambda followed: followed.growing.flush() or followed.growing.exchange_queues(),
    "refresh": lambda followed: followed.store.refresh(),
    "many": _many,
}
