"""What an account says of a run is what the target holds, whatever goes wrong on the way."""

import json
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocketlens
from examples import examples
from protocol.codes import RequestCode
from protocol.errors import ConfigError
from rocketlens.arguments import never
from rocketlens.replay import ORDERS, sending
from rocketlens.replay.account import AccountError, ReplayAccount, SendState, Verification
from rocketlens.replay.choice import LinesChoice, SourceChoice
from rocketlens.replay.replay import ReplayEnding, ReplayRequest, ReplayWatcher, name_servers_of, replay
from rocketlens.replay.resent import ORIGIN, ResendManner
from rocketlens.replay.sending import SendSpeed
from store_writer import StoreWriter
from taking_broker import Fault, TakingBroker

COUNT = 40
ONE = SendSpeed(batch=1, in_flight=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("replay") / "store"
    writer = StoreWriter(root)
    for number in range(COUNT):
        topic, unique_key = "Orders" if number % 4 else "Payments", f"AC1100010000000000000000{number:08X}"
        named = {"keys": f"order-{number % 7}", "tags": f"Tag{number % 3}", "unique_key": unique_key}
        writer.append(topic, b"body %d" % number, **named, queue_id=number % 3)
    writer.close()
    return root


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a broker that fails in a moment again."""
    monkeypatch.setattr(sending, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(sending, "LONGEST_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(sending, "LAST_ANSWERS_SECONDS", 0.1)


def send(choice, broker, account, watching=None, cluster="old", **options):
    manner = ResendManner(cluster=cluster)
    request = ReplayRequest(choice, name_servers_of(broker.address), manner, "test", go=True, **options)
    return replay(request, account, watching or ReplayWatcher())


def run(root, broker, account, *, topics=("Orders", "Payments"), **options):
    with rocketlens.open(root) as opened:
        return send(SourceChoice(opened, topics), broker, account, **options)


def send_lines(file, broker, should_stop=never, **options):
    with ReplayAccount(file.with_name("account")) as account:
        watching = ReplayWatcher(should_stop=should_stop)
        return send(LinesChoice(file), broker, account, watching, "", speed=ONE, **options)


def keys_of(log) -> Counter[str]:
    return Counter(taken.properties["UNIQ_KEY"] for taken in log)


@pytest.mark.parametrize("order", ORDERS)
def test_all_that_is_planned_arrives_once_as_it_was(store: Path, order: str) -> None:
    with TakingBroker({"Orders": 3, "Payments": 3}).serving() as broker, ReplayAccount(None) as account:
        report = run(store, broker, account, order=order, verify=True)
        assert report.is_whole
        assert report.outcomes[Verification.VERIFIED] == COUNT == len(broker.log)
    with rocketlens.open(store) as opened:
        sources = [message for topic in ("Orders", "Payments") for message in opened.search(topic=topic)]
    by_key = {taken.properties["UNIQ_KEY"]: taken for taken in broker.log}
    for source in sources:
        taken = by_key[source.unique_key or ""]
        kept = {name: value for name, value in taken.properties.items() if name != ORIGIN}
        assert (taken.topic, taken.body, kept) == (source.topic, source.body, source.properties)
        times = f"{source.born_timestamp} {source.store_timestamp}"
        assert taken.properties[ORIGIN] == f"{source.offset_message_id} {times} old"


def test_a_queue_keeps_its_order_in_the_queue_of_its_number(store: Path) -> None:
    with TakingBroker({"Orders": 3, "Payments": 3}).serving() as broker, ReplayAccount(None) as account:
        run(store, broker, account, speed=SendSpeed(batch=2))
    by_queue = defaultdict(list)
    for taken in broker.log:
        by_queue[taken.topic, taken.queue_id].append(taken.body)
    with rocketlens.open(store) as opened:
        for (topic, queue_id), bodies in by_queue.items():
            expected = [message.body for message in opened.search(topic=topic) if message.queue_id == queue_id]
            assert bodies == expected


LOST = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.BUSY, Fault.FLUSH, Fault.NONE)


@settings(max_examples=examples(7), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    faults=st.lists(st.sampled_from(LOST), max_size=30),
    order=st.sampled_from(ORDERS),
    batch=st.integers(1, 5),
    most_failures=st.integers(1, 4),
)
def test_nothing_is_lost_or_sent_twice_by_answers_that_are_lost(store, faults, order, batch, most_failures) -> None:
    broker = TakingBroker({"Orders": 3, "Payments": 2})
    broker.fault = lambda number: faults[number - 1] if number <= len(faults) else Fault.NONE
    with broker.serving(), ReplayAccount(None) as account:
        speed = SendSpeed(batch=batch, most_failures=most_failures)
        for _ in range(COUNT):  # the same command goes on
            report = run(store, broker, account, order=order, speed=speed)
            assert sum(report.states.values()) == COUNT
            assert report.states[SendState.SENT] <= len(keys_of(broker.log))
            if report.ending is ReplayEnding.DONE:
                break
            assert report.ending is ReplayEnding.GAVE_UP
            assert f"{most_failures} failures in a row" in report.reason
        assert report.is_whole
    # The target answers truly what it has, so that here nothing is double either.
    assert set(keys_of(broker.log).values()) == {1}
    assert len(broker.log) == COUNT


def test_what_the_target_refuses_is_not_counted_as_sent(store: Path) -> None:
    broker = TakingBroker({"Orders": 3, "Payments": 3})
    broker.fault = lambda number: Fault.ILLEGAL if number == 1 else Fault.NONE
    with broker.serving(), ReplayAccount(None) as account:
        report = run(store, broker, account, order="none", speed=ONE)
        assert report.states[SendState.REFUSED] == 1
        assert report.states[SendState.SENT] == COUNT - 1 == len(broker.log)
        ((reason, count, _),) = account.reasons(SendState.REFUSED)
        assert "MESSAGE_ILLEGAL" in reason
        assert count == 1
        assert not report.is_whole


@pytest.mark.parametrize("stopped_at", [17])
def test_a_run_that_is_stopped_goes_on(store: Path, tmp_path: Path, stopped_at: int) -> None:
    with TakingBroker({"Orders": 3, "Payments": 3}).serving() as broker:
        watching = ReplayWatcher(should_stop=lambda: len(broker.log) >= stopped_at)
        with ReplayAccount(tmp_path / "account") as account:
            first = run(store, broker, account, watching=watching, speed=ONE)
            assert first.ending is ReplayEnding.STOPPED
        with ReplayAccount(tmp_path / "account") as account:
            assert run(store, broker, account).is_whole
    assert set(keys_of(broker.log).values()) == {1}
    assert len(broker.log) == COUNT


def test_what_a_killed_run_had_not_noted_is_asked_for(store: Path, tmp_path: Path) -> None:
    with TakingBroker({"Orders": 3, "Payments": 3}).serving() as broker:
        with ReplayAccount(tmp_path / "account") as account:
            run(store, broker, account, topics=["Orders"])
            sent = [each.number for each in account.sent(SendState.SENT)]
            account.begin((number, number) for number in sent)
            account._base.execute("DELETE FROM sent")  # as if nothing had been noted of the answers
            del broker.log[3:5]  # and two had not arrived
        with ReplayAccount(tmp_path / "account") as account:
            report = run(store, broker, account, topics=["Orders"], verify=True)
            assert report.is_whole
            assert report.outcomes[Verification.VERIFIED] == len(sent) == len(broker.log)


@pytest.mark.parametrize("after", [7])
def test_a_full_disk_ends_a_run_which_goes_on_when_there_is_room(store: Path, tmp_path: Path, after: int) -> None:
    with TakingBroker({"Orders": 3, "Payments": 3}).serving() as broker:
        with ReplayAccount(tmp_path / "account") as account:

            def fill_up() -> bool:
                """From a moment on let all that is noted need a page, and have none."""
                if len(broker.log) >= after:
                    account._base.execute("PRAGMA max_page_count = 1")
                    account._base.execute(
                        "CREATE TEMP TRIGGER IF NOT EXISTS grows AFTER INSERT ON main.sent "
                        "BEGIN INSERT INTO missing VALUES (hex(randomblob(9000))); END"
                    )
                return False

            watching = ReplayWatcher(should_stop=fill_up)
            try:
                reason = run(store, broker, account, watching=watching, speed=ONE).reason
            except AccountError as error:
                reason = str(error)
            assert "disk is full" in reason
        with ReplayAccount(tmp_path / "account") as account:
            assert run(store, broker, account).states[SendState.SENT] == COUNT
    assert (len(broker.log), set(keys_of(broker.log).values())) == (COUNT, {1})


def test_a_run_that_is_stopped_waits_for_no_answer_that_does_not_come(store: Path, tmp_path: Path) -> None:
    broker = TakingBroker({"Orders": 3, "Payments": 3})
    broker.fault = lambda number: Fault.SILENT if number == 2 else Fault.NONE
    with broker.serving():
        watching = ReplayWatcher(should_stop=lambda: broker.requests > 1)
        with ReplayAccount(tmp_path / "account") as account:
            report = run(store, broker, account, watching=watching, speed=ONE)
            assert (report.ending, report.states[SendState.UNKNOWN]) == (ReplayEnding.STOPPED, 1)
        with ReplayAccount(tmp_path / "account") as account:
            report = run(store, broker, account)
            assert report.is_whole
            assert "goes on with the plan of" in (report.plan.notes[-1] if report.plan else "")
    assert set(keys_of(broker.log).values()) == {1}


@given(number=st.integers(0, 39), field=st.sampled_from(["body", "topic", "uniqueKey"]), shifts=st.booleans())
@settings(max_examples=examples(7), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_that_are_edited_between_two_runs_are_not_sent_as_others(number: int, field: str, shifts: bool) -> None:
    lines = [
        {"topic": "Orders", "body": f"{index}", "uniqueKey": f"K{index}", "properties": {"UNIQ_KEY": f"K{index}"}}
        for index in range(COUNT)
    ]
    with tempfile.TemporaryDirectory() as root, TakingBroker({"Orders": 3, "Payments": 3}).serving() as broker:
        file = Path(root, "lines.jsonl")

        def sent(should_stop=never):
            file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            return send_lines(file, broker, should_stop, verify=True)

        sent(lambda: len(broker.log) >= 20)
        if shifts:
            del lines[number]
        else:
            lines[number][field] = "Payments"
            if field == "uniqueKey":
                lines[number]["properties"] = {"UNIQ_KEY": "Payments"}
        report = sent()
        # What was sent is what was planned, once; all others are said.
        assert report.outcomes[Verification.VERIFIED] == report.states[SendState.SENT] == len(broker.log)
        assert set(keys_of(broker.log).values()) == {1}
        assert all(taken.body.decode() == taken.properties["UNIQ_KEY"][1:] for taken in broker.log)
        assert report.states[SendState.SENT] + report.states[SendState.REFUSED] == COUNT


def test_what_is_double_different_or_missing_is_named(store: Path, tmp_path: Path) -> None:
    with TakingBroker({"Orders": 3, "Payments": 3}).serving() as broker, ReplayAccount(None) as account:
        run(store, broker, account)
        first, second, third = broker.log[:3]
        broker.log.append(broker.log[0])
        assert first.record != second.record
        report = run(store, broker, account, verify=True)
        assert report.outcomes[Verification.VERIFIED] == COUNT  # one record, found twice, is one message
        broker._store({"b": first.topic, "e": "0", "f": "0", "g": "0", "j": "0"}, 0, first.body, _text(first))
        broker._store({"b": second.topic, "e": "0", "f": "0", "g": "0", "j": "0"}, 0, b"another", _text(second))
        broker.log.remove(third)
        report = run(store, broker, account, verify=True)
        assert report.outcomes[Verification.DOUBLE] == 1
        assert report.outcomes[Verification.DIFFERENT] == 1
        assert report.outcomes[Verification.MISSING] == 1
        named = {key: outcome for key, _, outcome in account.named(*Verification)}
        assert named[first.properties["UNIQ_KEY"]] is Verification.DOUBLE
        assert named[third.properties["UNIQ_KEY"]] is Verification.MISSING


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.QUERY_MESSAGE])
def test_a_target_that_dies_while_it_is_asked_leaves_what_it_said(store: Path, tmp_path: Path, code: int) -> None:
    class Dying(TakingBroker):
        """One that answers so many questions for messages, and forgot where its queues ended where it is asked by
        key."""

        asked, most = 0, 1000

        def _answer(self, asked, *rest):
            self.asked += asked == code
            return None if self.asked > self.most else super()._answer(asked, *rest)

    with Dying({"Orders": 3, "Payments": 3}).serving() as broker, ReplayAccount(tmp_path / "account") as account:
        assert run(store, broker, account).is_whole
        assert isinstance(broker, Dying)
        if code == RequestCode.QUERY_MESSAGE:
            account._base.execute("DELETE FROM queue_end")  # as an earlier version leaves it
        broker.asked, broker.most = 0, 2
        report = run(store, broker, account, verify=True)
        assert (report.ending, report.states[SendState.SENT]) == (ReplayEnding.GAVE_UP, COUNT)
        left = COUNT - report.outcomes[Verification.VERIFIED]
        assert left > COUNT // 2
        assert f"{left} messages could not be asked for: " in report.reason
        broker.most = 1000
        assert run(store, broker, account, verify=True).is_whole


def _text(taken) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in taken.properties.items())


@pytest.mark.parametrize("there", [{"Orders": 3}])
def test_a_topic_that_is_made_after_the_plan_gets_its_messages(store, tmp_path, there) -> None:
    with TakingBroker(dict(there)).serving() as broker:
        for _ in range(2):
            with ReplayAccount(tmp_path / "account") as account:
                report = run(store, broker, account)
                assert report.states[SendState.REFUSED] == COUNT - len(broker.log)
        broker.topics |= {"Orders": 3, "Payments": 3}
        with ReplayAccount(tmp_path / "account") as account:
            assert run(store, broker, account).is_whole
            assert not account.closed_topics()
    assert (len(broker.log), set(keys_of(broker.log).values())) == (COUNT, {1})


def test_an_account_is_of_one_run(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "account"
    with TakingBroker({"Orders": 3}).serving() as broker, ReplayAccount(path) as account:
        run(store, broker, account)
        with pytest.raises(ConfigError, match="another replay uses it"), ReplayAccount(path):
            pass
        account.say(choosing="another")
        with pytest.raises(ConfigError, match="one of another replay"):
            run(store, broker, account)
    (tmp_path / "other").write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigError, match="is no account of a replay"), ReplayAccount(tmp_path / "other"):
        pass
    assert (tmp_path / "other").exists()


def test_a_topic_that_went_since_the_plan_stops_the_run_until_it_is_back(store: Path, tmp_path: Path) -> None:
    with TakingBroker({"Orders": 3, "Payments": 3}).serving() as broker:
        watching = ReplayWatcher(should_stop=lambda: len(broker.log) >= 3)
        with ReplayAccount(tmp_path / "account") as account:
            run(store, broker, account, watching=watching, speed=ONE)
        queues = broker.topics.pop("Orders")
        with ReplayAccount(tmp_path / "account") as account:
            report = run(store, broker, account)
            assert (report.ending, report.states[SendState.REFUSED]) == (ReplayEnding.GAVE_UP, 0)
            assert "topic Orders does not exist there" in report.reason
        broker.topics["Orders"] = queues
        broker.fault = lambda _number: Fault.FORBIDDEN
        with ReplayAccount(tmp_path / "account") as account:
            report = run(store, broker, account)
            assert (report.ending, report.states[SendState.REFUSED]) == (ReplayEnding.GAVE_UP, 0)
        broker.fault = lambda _number: Fault.NONE
        with ReplayAccount(tmp_path / "account") as account:
            assert run(store, broker, account).is_whole
    assert set(keys_of(broker.log).values()) == {1}


def test_a_message_that_went_from_the_source_is_not_sent(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shrinking(SourceChoice):
        reads = 0

        def pieces(self, *arguments):
            self.reads += 1
            for number, piece in enumerate(super().pieces()):
                yield list(piece)[5:] if self.reads == 2 and number == 0 else piece

    with (
        TakingBroker({"Orders": 3, "Payments": 3}).serving() as broker,
        ReplayAccount(None) as account,
        rocketlens.open(store) as opened,
    ):
        choice = Shrinking(opened, ["Orders"])
        plans = []
        watching = ReplayWatcher(planned=plans.append, should_stop=lambda: bool(plans))
        stopped = send(choice, broker, account, watching)
        assert (stopped.ending, len(broker.log)) == (ReplayEnding.STOPPED, 0)
        monkeypatch.setattr(ReplayAccount, "has_sent_nothing", False)  # else all is planned anew
        report = send(choice, broker, account)
        lost = COUNT * 3 // 4 - len(broker.log)
        assert lost
        assert report.states[SendState.REFUSED] == lost
        assert "the source does not have it any more" in account.reasons(SendState.REFUSED)[0][0]
