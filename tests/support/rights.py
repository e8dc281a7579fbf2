"""Being a user whom the rights of files bind, which root is not."""

import contextlib
import os
from collections.abc import Iterator

from read_only_guard import NOBODY


@contextlib.contextmanager
def as_user(uid: int = NOBODY) -> Iterator[None]:
    """Run a block as another user, in no group but one of its number; only root becomes one.

    It is the whole process that does, with all its threads, and it can go back. What that user is to reach lies in a
    `read_only.reachable_directory`.
    """
    if os.geteuid():
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
