"""What an account says of each message is what was noted of it, however ranges, outcomes and ends follow each other."""

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from rocketlens.replay.account import ReplayAccount, ReplayWay, SendState, Verification

COUNT: Final = 12
KINDS: Final = ("settle", "begin", "note", "end", "give up", "verify")
ID_LENGTHS: Final = (0, 32, 56)
"""Of none, as a target may say, and of messages at an IPv4 and an IPv6 address."""


class PlainAccount:
    """The same as one dict for each thing that is said of a message."""

    def __init__(self, refused: set[int]) -> None:
        self.states = {
            number: SendState.REFUSED if number in refused else SendState.PLANNED for number in range(1, COUNT + 1)
        }
        self.reasons = {number: "too large" if number in refused else "" for number in self.states}
        self.ids = dict.fromkeys(self.states, "")
        self.leaving: set[int] = set()

    def of(self, *states: SendState) -> list[int]:
        """The numbers of the messages in some states."""
        return [number for number, state in self.states.items() if state in states]

    def become(self, number: int, state: SendState, reason: str) -> None:
        """Note one message, of which it is known if it was sent."""
        if self.states[number] is not SendState.SENT:
            self.states[number], self.reasons[number] = state, reason


def ranges(numbers: list[int], draw: st.DrawFn) -> list[tuple[int, int]]:
    """Some of the numbers, in ranges of those that follow one another."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if not draw(st.booleans()):
            continue
        if found and found[-1][1] == number - 1 and draw(st.booleans()):
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def ids_of(first: int, last: int, draw: st.DrawFn) -> tuple[str, list[str]]:
    """What a target says of some messages, an id of each or one of all, and what it says of each."""
    length, count = draw(st.sampled_from(ID_LENGTHS)), last - first + 1
    each = [f"{number:X}".zfill(length)[:length] for number in range(first, last + 1)]
    each = each if draw(st.booleans()) else each[:1] * count
    return (each[0] if each[1:] == each[:-1] else ",".join(each)), each


def change(kind: str, account: ReplayAccount, plain: PlainAccount, draw: st.DrawFn) -> None:
    """Do something that a run does, to both."""
    if kind == "begin":
        leaving = ranges(plain.of(SendState.PLANNED), draw)
        account.begin(leaving)
        for number in (number for first, last in leaving for number in range(first, last + 1)):
            plain.states[number], plain.reasons[number] = SendState.SENDING, ""
            plain.leaving.add(number)
    elif kind in ("note", "settle"):
        doubtful = (SendState.SENDING, SendState.UNKNOWN) if kind == "settle" else (SendState.SENDING,)
        sent = []
        for first, last in ranges(plain.of(*doubtful), draw):
            said, ids = ids_of(first, last, draw)
            sent.append((first, last, said, "found"))
            for number, each in zip(range(first, last + 1), ids, strict=True):
                plain.states[number], plain.reasons[number], plain.ids[number] = SendState.SENT, "found", each
        states = st.sampled_from([SendState.PLANNED, SendState.REFUSED, SendState.UNKNOWN])
        # Some of those that were sent are noted once more, as where a request was given up after a part of it.
        others = [(number, draw(states), "why") for number in sorted(plain.leaving) if draw(st.booleans())]
        account.note(sent, others)
        for each in others:
            plain.become(*each)
    elif kind == "end":
        account.end_all()
        for number in plain.of(SendState.SENDING):
            plain.states[number] = SendState.PLANNED
        plain.leaving.clear()
    elif kind == "give up":
        account.give_up_planned("gone")
        for number in plain.of(SendState.PLANNED):
            plain.become(number, SendState.REFUSED, "gone")
    else:
        sent_now = plain.of(SendState.SENT)
        account.verify((number, Verification.VERIFIED, "") for number in sent_now)
        assert not account.sent(SendState.SENT, is_unverified=True)
        account.forget_verified()


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_an_account_says_of_each_message_what_was_noted_last(data: st.DataObject) -> None:
    draw = data.draw
    with ReplayAccount(None) as account:
        way = account.ways.number(ReplayWay("T", "10.0.0.1:10911", 3), "0A00000100002A9F")
        account.plan_plain([(way, f"K{number}", 100 * number, number, 7, 1, 2, 50, None) for number in range(COUNT)])
        refused = set(draw(st.lists(st.integers(1, COUNT), max_size=3)))
        account.refuse_sent("too large", ((number, "") for number in refused))
        plain = PlainAccount(refused)
        # In the order of a run, any of it left out: so in every order.
        for kind in (kind for kind in KINDS * 3 if draw(st.booleans())):
            change(kind, account, plain, draw)
            found = account._base.execute("SELECT number, state, reason, sent_id FROM message ORDER BY number")
            expected = [
                (number, state, plain.reasons[number], plain.ids[number]) for number, state in plain.states.items()
            ]
            assert found.fetchall() == expected
            assert account.states() == {state: len(plain.of(state)) for state in SendState}
            in_doubt = plain.of(SendState.SENT, SendState.UNKNOWN)
            assert account.has_sent_nothing == (not in_doubt and not plain.leaving)
            first = draw(st.integers(1, COUNT))
            last = draw(st.integers(first, COUNT))
            decided = {number for begin, end in account.decided(first, last) for number in range(begin, end + 1)} & set(
                range(first, last + 1)
            )
            assert decided == {
                number
                for number in range(first, last + 1)
                if plain.states[number] is not SendState.PLANNED or number in plain.leaving
            }
