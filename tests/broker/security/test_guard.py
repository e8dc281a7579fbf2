"""Which requests are admitted, why others are refused, and that handlers get the very fields that were checked."""

import base64
import hashlib
import hmac
import logging

import pytest

from acl_file import (
    ADMIN,
    ADMIN_SECRET,
    PLAIN_ACL,
    READER,
    READER_SECRET,
    SECRETS,
    set_age,
    signed_fields,
    signed_request,
    write_accounts,
)
from asking import FakeConnection
from broker.endpoint import Endpoint
from broker.security import _failed_attempts
from broker.security._failed_attempts import MOST_KEYS, MOST_KNOWN, OF_ADDRESS, OF_NAME, FailedAttempts
from broker.security.accounts import Permission, load_accounts, watched_accounts
from broker.security.guard import Guard
from broker.security.signature import is_signed, signature_of
from broker.security.watched_files import Watched
from broker.service.denials import MORE, MOST_KEPT, NO_KEY, UNKNOWN_KEY, Denials, Want
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, decode_command, decode_header, encode_request, ext_fields_of
from protocol.errors import BadCommand, ConfigError
from protocol.frame import FrameDecoder
from protocol.headers import QueryMessageRequestHeader
from still_clock import StillClock
from storage.files.waiting import finish

QUERY = {"topic": "TopicTest", "key": "hotkey", "maxNum": "3", "beginTimestamp": "0", "endTimestamp": "9" * 18}


PEER = FakeConnection(peer_address=Endpoint("198.51.100.7", 4711))


@pytest.fixture
def acl(tmp_path):
    return write_accounts(tmp_path / "plain_acl.yml")


@pytest.fixture
def guard(acl) -> Guard:
    return Guard(watched_accounts(acl))


def admit(guard: Guard, frame: bytes) -> object:
    (whole,) = FrameDecoder().feed(frame)
    return finish(guard.admit(decode_command(whole), PEER))


def is_admitted(guard: Guard, frame: bytes) -> bool:
    return not isinstance(admit(guard, frame), Response)


def test_a_refusal_says_why_and_is_noted_with_the_account_and_the_line_to_add(acl) -> None:
    query, route, group = QUERY, {"topic": "TopicTest"}, {"consumerGroup": "others"}
    codes = RequestCode
    for code, fields, (access_key, secret), remark, want in (
        (codes.QUERY_MESSAGE, query, ("", READER_SECRET), "username cannot be null.", NO_KEY),
        (codes.QUERY_MESSAGE, query, ("nobody-key", ADMIN_SECRET), "User:nobody-key is not found.", UNKNOWN_KEY),
        (codes.GET_ROUTEINFO_BY_TOPIC, route, (READER, ADMIN_SECRET), "check signature failed.",
         Want(READER, "a signature by its secretKey: the client has another one")),
        (codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicBatch"}, (READER, READER_SECRET), "",
         Want(READER, "SUB of topic TopicBatch", "topicPerms: - TopicBatch=SUB")),
        (codes.SEND_MESSAGE, {"topic": "TopicBatch"}, (READER, READER_SECRET), "",
         Want(READER, "PUB of topic TopicBatch", "topicPerms: - TopicBatch=PUB")),
        (codes.GET_CONSUMER_LIST_BY_GROUP, group, (READER, READER_SECRET), "",
         Want(READER, "SUB of group others", "groupPerms: - others=SUB")),
        (codes.GET_ALL_TOPIC_CONFIG, {}, (READER, READER_SECRET), "",
         Want(READER, f"what administrators may (request code {codes.GET_ALL_TOPIC_CONFIG})", "admin: true")),
    ):  # fmt: skip
        denials, frame = Denials(), signed_request(code, fields, access_key, secret)
        answer = admit(Guard(watched_accounts(write_accounts(acl)), denials=denials), frame)
        assert isinstance(answer, Response)
        assert (answer.code, remark in answer.remark) == (ResponseCode.NO_PERMISSION, True)
        assert [(each.want, each.count) for each in denials.all()] == [(want, 1)]
        member, _, line = want.add.partition(": - ")
        if access_key == READER and line:
            # The line that is named lets the request in.
            text = PLAIN_ACL.replace(f"    {member}:\n", f"    {member}:\n      - {line}\n", 1)
            assert text != PLAIN_ACL
            assert is_admitted(Guard(watched_accounts(write_accounts(acl, text))), frame)


def test_every_code_that_needs_no_right_of_a_consumer_is_for_administrators(guard: Guard) -> None:
    """What is in no table is refused to all others, so that a new code is open to nobody by mistake."""
    open_to_all = {RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE}
    foreign = dict.fromkeys(("topic", "consumerGroup", "group", "producerGroup", "b", "a"), "unheard")
    heartbeat = b'{"clientID":"c","consumerDataSet":[{"groupName":"unheard","subscriptionDataSet":[]}]}'
    lock = b'{"consumerGroup":"unheard","clientId":"c","mqSet":[]}'
    assignment = b'{"topic":"unheard","consumerGroup":"unheard","messageModel":"CLUSTERING"}'
    check = b'{"subscriptionData":{"topic":"unheard"}}'
    codes = RequestCode
    bodies = {codes.HEART_BEAT: heartbeat, codes.QUERY_ASSIGNMENT: assignment, codes.CHECK_CLIENT_CONFIG: check}
    bodies |= dict.fromkeys((codes.LOCK_BATCH_MQ, codes.UNLOCK_BATCH_MQ), lock)
    for code in sorted(RequestCode):
        frame = signed_request(code, foreign, READER, READER_SECRET, bodies.get(code, b""))
        assert is_admitted(guard, frame) == (code in open_to_all), code
        assert is_admitted(guard, signed_request(code, foreign, ADMIN, ADMIN_SECRET, bodies.get(code, b""))), code


def test_a_body_is_signed_too(guard: Guard) -> None:
    lock = b'{"consumerGroup":"readers","clientId":"c","mqSet":[]}'
    good = signed_request(RequestCode.LOCK_BATCH_MQ, {}, READER, READER_SECRET, lock)
    assert is_admitted(guard, good)
    assert not is_admitted(guard, good.replace(b'"c"', b'"d"'))
    with pytest.raises(BadCommand):
        admit(guard, signed_request(RequestCode.LOCK_BATCH_MQ, {}, READER, READER_SECRET, b"{"))


def test_a_handler_gets_the_fields_that_were_checked(guard: Guard) -> None:
    fields = signed_fields(QUERY, READER, READER_SECRET)
    escaped = b'"topic":"TopicTest"', b'"\\u0074opic":"TopicTest"'
    frame = encode_request(RequestCode.QUERY_MESSAGE, fields, opaque=1).replace(*escaped)
    frame = (len(frame) - 4).to_bytes(4) + (len(frame) - 8).to_bytes(4) + frame[8:]
    (whole,) = FrameDecoder().feed(frame)
    command = decode_command(whole)
    assert not isinstance(finish(guard.admit(command, PEER)), Response)
    assert ext_fields_of(command) == fields
    assert decode_header(command, QueryMessageRequestHeader).topic == fields["topic"]


def test_accounts_change_with_their_file(guard, acl, caplog) -> None:
    frame = signed_request(RequestCode.QUERY_MESSAGE, QUERY, READER, READER_SECRET)
    assert is_admitted(guard, frame)
    with caplog.at_level(logging.INFO):
        write_accounts(acl, "accounts: [\n", 50)
        guard._accounts.refresh()
        assert is_admitted(guard, frame)
        write_accounts(acl, PLAIN_ACL.replace(READER_SECRET, "another-secret"), 40)
        guard._accounts.refresh()
    assert not is_admitted(guard, frame)
    # The last one is about the request that was refused.
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "WARNING"]


def test_no_secret_is_in_a_repr_or_an_error(acl, guard) -> None:
    texts = [repr(load_accounts(acl)), repr(guard._accounts.current)]
    bad_members = ("admin: maybe", "secretKey: 1.5", "topicPerms: [x=EVERYTHING]", "defaultTopicPerm: X")
    for bad in (*bad_members, "whiteRemoteAddress: 1.2"):
        acl.write_text(f"accounts:\n  - accessKey: {READER}\n    secretKey: {READER_SECRET}\n    {bad}\n")
        with pytest.raises(ConfigError) as caught:
            load_accounts(acl)
        texts.append(str(caught.value))
    acl.write_text(f"accounts:\n  - secretKey: {READER_SECRET}\n  : {{\n")
    with pytest.raises(ConfigError) as caught:
        load_accounts(acl)
    texts.append(str(caught.value))
    assert not any(secret in text for secret in SECRETS for text in texts)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "expected accounts"),
        ("[]", "expected accounts"),
        ("accounts: {}", "accounts is not a list"),
        ("accounts: [5]", "account 1 is not a mapping"),
        ("accounts: [{accessKey: short, secretKey: longenough}]", "7 characters"),
        ("accounts: [{accessKey: longenough}]", "7 characters"),
        ("accounts:\n- {accessKey: one-key, secretKey: 12345678}\n- {accessKey: one-key, secretKey: abcdefg}", "twice"),
        ("globalWhiteRemoteAddresses: [10.0.0]", "'10.0.0' is not an IP address"),
        ("globalWhiteRemoteAddresses: ['10.0.0.{1,300}']", "is not an IP address"),
        ("globalWhiteRemoteAddresses: ['10.0.9-2.*']", "is not an IP address"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(acl, content, says) -> None:
    acl.write_text(content + "\n")
    with pytest.raises(ConfigError) as caught:
        load_accounts(acl)
    assert says in str(caught.value)
    assert str(acl) in str(caught.value)


ADMINISTRATOR = f"""accounts:
  - accessKey: {ADMIN}
    secretKey: {ADMIN_SECRET}
    admin: true
    topicPerms:
      - TopicTest=SUB
    groupPerms:
      - readers=SUB
"""
"""One who may read one topic: what is cut off behind `admin: true` was everything to a broker 4.x."""


def rights_of(path) -> set[tuple[str, str]]:
    """Each right that a file gives for some topics and groups, and whether it gives those of an administrator.

    Topics and groups that a DENY takes out of a default are left out: a file that was cut before the DENY, at the end
    of a line, and was not written to since looks like a whole one (docs/port.md).
    """
    resources = ("TopicTest", "both", "mine", "unheard", "%RETRY%readers", "%RETRY%oldReaders", "%RETRY%others")
    return {
        (key, what)
        for key, account in load_accounts(path).by_access_key.items()
        for what in (
            *(f"{right.name} {name}" for name in resources for right in Permission if account.permits(name, right)),
            *["admin"] * account.is_admin,
            *["everything"] * account.is_unbounded,
        )
    }


@pytest.mark.parametrize("text", [ADMINISTRATOR, PLAIN_ACL])
def test_no_cut_of_a_file_gives_a_right_that_the_whole_lacks(acl, text) -> None:
    acl.write_text(text)
    whole, taken = rights_of(acl), 0
    assert whole
    for length in range(len(text)):
        acl.write_text(text[:length])
        try:
            rights = rights_of(acl)
        except ConfigError:
            continue
        taken += 1
        assert rights <= whole, text[:length]
    assert taken, "every cut was refused, which shows nothing of lists that were cut off"


def test_a_file_is_not_taken_while_it_is_written(acl, caplog) -> None:
    text = ADMINISTRATOR
    write_accounts(acl, f"accounts:\n  - accessKey: {READER}\n    secretKey: {READER_SECRET}\n")
    accounts = watched_accounts(acl)
    before = accounts.current
    for length in range(len(text)):
        acl.write_text(text[:length])
        accounts.refresh()
        assert accounts.current is before
    assert not caplog.records
    write_accounts(acl, text)
    accounts.refresh()
    assert ADMIN in accounts.current.by_access_key


def test_an_administrator_without_lists_has_all_rights_if_that_is_asked_for_and_one_with_lists_only_those(
    acl, caplog
) -> None:
    acl.write_text(f"accounts:\n  - {{accessKey: {ADMIN}, secretKey: {ADMIN_SECRET}, admin: true}}\n")
    assert load_accounts(acl, admin_has_all=True).by_access_key[ADMIN].is_unbounded
    assert not caplog.records
    sample = f"accounts:\n  - {{accessKey: {ADMIN}, secretKey: {ADMIN_SECRET}, admin: false}}\n"
    for text in (ADMINISTRATOR, sample):
        acl.write_text(text)
        with_all, without = (load_accounts(acl, admin_has_all=each).by_access_key[ADMIN] for each in (True, False))
        for name in ("is_admin", "default_topic", "default_group", "permissions"):
            assert getattr(with_all, name) == getattr(without, name)


# ------------------------ signatures

SECRET = b"12345678"


def hmac_of(text: bytes) -> bytes:
    return base64.b64encode(hmac.new(SECRET, text, hashlib.sha1).digest())


def test_a_signature_is_good_over_all_fields_or_those_that_a_client_signed() -> None:
    # U+1F511 begins with a surrogate, which comes before U+FF5E in UTF-16 and after it by code point.
    assert signature_of({"\uff5e": "2", "\U0001f511": "1"}, b"", SECRET) == hmac_of(b"12")
    fields = {"AccessKey": "ak", "SecurityToken": "t", "_UNIQUE_KEY_QUERY": "true", "__ZONE_NAME": "z", "topic": "T"}
    for text in (b"akttruezT", b"aktzT", b"akttrueT", b"aktT", b"aktruezT"):
        assert is_signed(fields | {"Signature": hmac_of(text).decode()}, b"", SECRET), text
    for wrong in ("", "é", hmac_of(b"akT").decode(), hmac_of(b"aktT").decode()[:-1], "\ud800"):
        assert not is_signed(fields | {"Signature": wrong}, b"", SECRET)


# ------------------------ guessing

HERE, THERE = "198.51.100.7", "203.0.113.9"


def guesses(attempts: FailedAttempts, address: str | None, name: str, count: int) -> int:
    tried = 0
    for number in range(count):
        if attempts.wait_seconds(address, name):
            break
        tried += attempts.note_failed(address, name, f"{address} guesses {number}".encode())
    return tried


def test_a_name_has_ten_attempts_and_one_more_every_six_seconds() -> None:
    clock = StillClock()
    attempts = FailedAttempts(clock)
    assert guesses(attempts, HERE, "reader", 1000) == OF_NAME.attempts == 10
    assert 5.9 < attempts.wait_seconds(HERE, "reader") <= 6.0
    others = attempts.wait_seconds(THERE, "reader"), attempts.wait_seconds(HERE, "operator")
    assert others == (0, 0), "another address and another name are not kept out"
    clock.seconds += 5.9
    assert attempts.wait_seconds(HERE, "reader") > 0
    clock.seconds += 0.2
    assert guesses(attempts, HERE, "reader", 1000) == 1
    clock.seconds += 3600
    assert guesses(attempts, HERE, "reader", 1000) == 10


def test_an_address_that_tries_many_names_is_refused_all_but_those_that_logged_in_from_it() -> None:
    attempts = FailedAttempts(StillClock())
    attempts.note_success(HERE, "operator")
    made = sum(guesses(attempts, HERE, f"name {number}", 3) for number in range(1000))
    assert made == OF_ADDRESS.attempts
    assert attempts.wait_seconds(HERE, "reader") > 0
    assert attempts.wait_seconds(HERE, "operator") == 0
    assert guesses(attempts, HERE, "operator", 1000) == OF_NAME.attempts, "and its own secret is no easier to guess"


def test_the_same_wrong_secret_again_is_no_guess() -> None:
    attempts = FailedAttempts(StillClock())
    assert attempts.note_failed(HERE, "reader", b"old")
    assert not any(attempts.note_failed(HERE, "reader", b"old") for _ in range(1000))
    assert attempts.wait_seconds(HERE, "reader") == 0
    assert guesses(attempts, HERE, "reader", 1000) == OF_NAME.attempts - 1


def test_the_addresses_of_one_network_of_ipv6_are_one_client() -> None:
    attempts = FailedAttempts(StillClock())
    made = sum(guesses(attempts, f"2001:db8::{number:x}", "reader", 1) for number in range(1, 100))
    assert made == OF_NAME.attempts
    assert attempts.wait_seconds("2001:db8:0:1::1", "reader") == 0
    assert guesses(attempts, "::ffff:198.51.100.7", "a", 1000) == 10
    assert attempts.wait_seconds(HERE, "a") > 0


def test_a_crowd_of_addresses_takes_bounded_memory_and_does_not_forget_who_guessed() -> None:
    clock = StillClock()
    attempts = FailedAttempts(clock)
    guesses(attempts, HERE, "reader", 1000)
    attempts.note_success(THERE, "operator")
    made = sum(guesses(attempts, f"10.{number >> 8}.{number & 255}.1", "reader", 1) for number in range(20_000))
    assert len(attempts) <= MOST_KEYS + 2
    assert made <= MOST_KEYS
    assert attempts.wait_seconds(HERE, "reader") > 0
    assert attempts.wait_seconds("10.200.200.1", "reader") > 0, "further ones share an allowance"
    assert attempts.wait_seconds(THERE, "operator") == 0, "who logged in of late is not kept out"
    clock.seconds += OF_ADDRESS.seconds + OF_NAME.seconds
    assert attempts.wait_seconds("10.200.200.1", "reader") == 0
    assert len(attempts) <= 2, "what is full again is forgotten"


def test_clients_that_logged_in_are_remembered_up_to_a_bound() -> None:
    attempts = FailedAttempts(StillClock())
    for number in range(MOST_KNOWN + 10):
        attempts.note_success(HERE, f"name {number}")
    assert len(attempts._known) == MOST_KNOWN


# ------------------------ watched files


def load(path) -> str:
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read") from error
    if text == "bad":
        raise ConfigError("it is bad")
    return text


def test_a_bad_or_missing_file_leaves_the_last_good_state(tmp_path, caplog) -> None:
    path = tmp_path / "file"
    path.write_text("good")
    watched = Watched("the file", [path], lambda: load(path))
    with caplog.at_level(logging.INFO):
        path.write_text("bad")
        watched.refresh()
        watched.refresh()
        path.unlink()
        watched.refresh()
        assert watched.current == "good"
        path.write_text("better")
        watched.refresh()
    assert watched.current == "better"
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "INFO"]
    assert "it is bad" in caplog.records[0].getMessage()


def test_what_changes_while_it_is_read_is_not_taken(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    set_age(path, 60)
    writes = iter(["", "two and a half", ""])

    def read() -> str:
        text = path.read_text()
        if more := next(writes):
            path.write_text(more)
            set_age(path, 40)
        return text

    watched = Watched("the file", [path], read, settle_seconds=2.0)
    path.write_text("two")
    set_age(path, 50)
    watched.refresh()
    assert watched.current == "one"
    watched.refresh()
    assert watched.current == "two and a half"


# ------------------------ what accounts lacked

ORDERS = Want("reader-key", "SUB of topic orders", "topicPerms: - orders=SUB")


def test_whatever_an_account_asks_for_no_more_than_so_many_wants_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    denials = Denials()
    for number in range(3 * MOST_KEPT):
        denials.note(ORDERS._replace(lacks=f"SUB of topic {number}"))
    kept = {each.want: each.count for each in denials.all()}
    assert len(kept) == len(caplog.records) == MOST_KEPT + 1
    assert kept[Want("reader-key", MORE)] == 2 * MOST_KEPT


def test_nothing_that_is_kept_is_a_secret_or_the_digest_of_one() -> None:
    first, second = FailedAttempts(StillClock()), FailedAttempts(StillClock())
    for attempts in (first, second):
        attempts.note_failed(HERE, "reader", b"almost right")
    kept = [debt.last for debt in first._debts.values()]
    assert any(kept)
    assert kept != [debt.last for debt in second._debts.values()]
    assert _failed_attempts.ALL == b""


def test_it_is_made_anew_only_when_a_file_has_changed(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    made: list[str] = []

    def note() -> str:
        made.append(load(path))
        return made[-1]

    watched = Watched("the file", [path], note)
    watched.refresh()
    assert made == ["one"]
    path.write_text("three")
    watched.refresh()
    watched.refresh()
    assert (made, watched.current) == (["one", "three"], "three")


def test_a_file_exchanged_behind_a_link_is_noticed(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    watched = Watched("the file", [link], link.read_text)
    (tmp_path / "new").symlink_to(tmp_path / "b")
    (tmp_path / "new").replace(link)
    watched.refresh()
    assert watched.current == "b"


def test_a_start_waits_until_a_file_is_left_alone(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text("half")
    pauses: list[float] = []

    def finish(seconds: float) -> None:
        pauses.append(seconds)
        path.write_text("whole")
        set_age(path, 60)

    assert Watched("the file", [path], path.read_text, settle_seconds=2.0, sleep=finish).current == "whole"
    assert len(pauses) == 1


def test_a_start_gives_up_on_a_file_that_is_written_to_all_the_time(tmp_path, monkeypatch) -> None:
    path = tmp_path / "file"
    path.write_text("half")
    now = 1000.0
    monkeypatch.setattr("broker.security.watched_files.time.monotonic", lambda: now)

    def write_on(_seconds: float) -> None:
        nonlocal now
        now += 1.0
        path.write_text(f"half {now}")

    with pytest.raises(ConfigError, match="being written to for 10 s already"):
        Watched("the file", [path], path.read_text, settle_seconds=2.0, sleep=write_on)


def test_a_file_of_the_future_counts_once_it_looked_the_same_for_long_enough(tmp_path, monkeypatch) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    set_age(path, 60)
    now = 1000.0
    monkeypatch.setattr("broker.security.watched_files.time.monotonic", lambda: now)
    watched = Watched("the file", [path], path.read_text, settle_seconds=2.0)
    path.write_text("two")
    set_age(path, -3600)
    for seconds, expected in ((1001.0, "one"), (1002.5, "one"), (1003.5, "two")):
        now = seconds
        watched.refresh()
        assert watched.current == expected
