"""Patterns in conditions and in this source: each ends in time, in a process of its own."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asked_patterns import recorded
from planted import imported, plant
from protocol.errors import ConfigError
from storage.child_process import child_environment, python_command
from storage.patterns import _pattern_process, processes
from storage.patterns._json_path import JsonCondition
from storage.patterns._literal import required_literal
from storage.patterns.condition import PatternCondition

SLOW_TO_COMPILE = "(?i)" + "[\u0100-\uffff]" * 500


@given(st.sampled_from(["abc", r"\w+@", "(a|b)+c", "^$", "消"]), st.lists(st.text("abc@消\n", max_size=8), max_size=5))
def test_a_regular_expression_finds_what_re_finds(pattern: str, texts: list[str]) -> None:
    condition = PatternCondition("regex", pattern, None)
    expected = [re.search(pattern, text) is not None for text in texts]
    assert condition.matches([text.encode() for text in texts]) == expected
    assert condition.matches([], texts) == expected
    in_gbk = PatternCondition("regex", pattern, "gbk")
    assert in_gbk.matches([text.encode("gbk") for text in texts], texts) == expected * 2


@pytest.mark.parametrize(("kind", "condition", "words"), [
    ("regex", "(", "is no regular expression: missing \\)"),
    ("json_path", "$.a", "is no JSONPath=VALUE: there is no = in it"),
    ("json_path", "$[?@.a =~ /(/]=1", "is no JSONPath=VALUE"),
    ("regex", SLOW_TO_COMPILE, "takes too long to compile as a regular expression"),
])  # fmt: skip
def test_what_is_none_is_refused(kind: str, condition: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PatternCondition(kind, condition, None)  # type: ignore[arg-type]


def test_nobody_waits_while_it_is_compiled() -> None:
    with pytest.raises(processes.PatternsStopped):
        PatternCondition("regex", SLOW_TO_COMPILE, None, lambda: True)


def test_one_body_without_end_is_a_limit_for_all_that_are_asked_together() -> None:
    condition = PatternCondition("regex", "(a+)+$b", None)
    with recorded() as asked:
        for number in range(10):
            with pytest.raises(processes.PatternLimit):
                condition.matches([b"a" * 60 + b"%d" % number])
        assert condition.matches([b"short"]) == [False]
        with pytest.raises(processes.PatternLimit):
            condition.for_one_run().matches([b"a" * 60])
    assert (asked.patient, asked.brief) == (_pattern_process.PATIENCE + 1, 10 - _pattern_process.PATIENCE)
    with pytest.raises(processes.PatternLimit):
        condition.matches([b"x", b"a" * 60])
    assert condition.matches([b"x", b"aab"]) == [False, False]


BODY = json.dumps({
    "id": 5, "text": "5", "ok": True, "one": 1, "nil": None,
    "a": [{"b": "x=y", "p": 5, "c": "消息"}, {"b": "z", "p": 6}],
}).encode()  # fmt: skip


def test_a_path_and_a_value_are_told_apart_and_compared() -> None:
    for text, matches in [
        ("$.id=5", True), ("$.id=5.0", True), ("$.text=5", True), ("$.id=6", False), ("$.ok=true", True),
        ("$.one=true", False), ("$.ok=1", False), ("$.nil=null", True), ("$.missing=null", False),
        ("$.a[0].b=x=y", True), ("$..b=z", True), ("$.a[?@.p==6].b=z", True), ("$.a[?@.p==6].b=x=y", False),
        ("$..c=消息", True), ('$.a[1]={"b":"z","p":6}', True),
    ]:  # fmt: skip
        assert JsonCondition(text).matches(BODY) is matches


@given(
    # Numbers of any size, as texts: what a double or 64 bits do not hold is legal JSON too.
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,30})?", fullmatch=True),
    st.booleans(),
)
def test_no_number_and_no_mark_hides_the_rest_of_a_body(number: str, has_mark: bool) -> None:
    body = b"\xef\xbb\xbf" * has_mark + f'{{"x":{number},"id":7,"y":"4711"}}'.encode()
    assert JsonCondition("$.id=7").matches(body)
    assert JsonCondition("$.y=4711").matches(body)
    assert JsonCondition(f"$.x={number}").matches(body)
    assert not JsonCondition("$.id=8").matches(body)


@pytest.mark.untraced  # at the end of the stack a tracer fails itself
@pytest.mark.parametrize("body", [b"", b"no json", b"\xff\xfe", b"[" * 5000, b"NaN"])
def test_what_is_no_json_does_not_match(body: bytes) -> None:
    assert not JsonCondition("$..a=1").matches(body)


def test_the_longest_text_that_must_be_there_is_known() -> None:
    # The bytes that must be there unless escaped are known.
    for text, literal in [
        ("$.a=order-7", b"order-7"), ("$.a=x/order", b"order"), ("$.order.id=5", b"order"),
        ("$..orderId=5", b"orderId"), ("$.a=5", None), ("$['abc','def']=5", None), ("$.*=true", None),
    ]:  # fmt: skip
        assert JsonCondition(text).literal == literal
    # The longest text is taken that must be there.
    for pattern, literal in [
        (r"order-\d+", b"order-"), (r"^order$", b"order"), (r"(?:foo)+barbaz?", b"barba"), (r"x{0,3}yyyy", b"yyyy"),
        (r"[ab]cdef", b"cdef"), (r"消息\d", "消息".encode()), (r"a(?=bcd)", None), (r"(?!abcd)x", None),
        (r"abc|abd", None), (r"(?i)abcdef", None), (r"(?i:abcdef)gh", None), (r"(abcd)?", None), (r"\d+", None),
        ("\ud800abc", None),
    ]:  # fmt: skip
        assert required_literal(pattern) == literal


ENDLESS = _pattern_process.MaskQuestion(("/(a+)+b/",), [], [b"a" * 60])
QUESTION = _pattern_process.MaskQuestion(("/a/",), [b"bab"], [])
ANSWER = _pattern_process.MaskAnswer([b"b***b"], [])
DEADLINE_SECONDS = 60.0


def test_a_question_without_end_ends_the_child_that_answers_and_no_python_is_started_anew() -> None:
    asked = processes.PatternProcesses()
    assert asked.ask(QUESTION, _pattern_process.MaskAnswer) == ANSWER
    (process,) = asked._idle
    for _ in range(3):
        with pytest.raises(processes.PatternLimit):
            asked.ask(ENDLESS, _pattern_process.MaskAnswer)
        assert (asked.ask(QUESTION, _pattern_process.MaskAnswer), asked._idle) == (ANSWER, [process])
    asked.close()


def ticks_of_children(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[13]) + int(fields[14])


@pytest.mark.parametrize("is_brief", [pytest.param(False, marks=pytest.mark.soak), True])
def test_it_is_the_cpu_time_of_the_process_that_counts(is_brief: bool) -> None:
    """So that an answer is the same on a busy machine: time alone, while it stands still, ends nothing."""
    asked = processes.PatternProcesses()
    asked.ask(QUESTION, _pattern_process.MaskAnswer)
    (process,) = asked._idle
    group = process._process.pid
    before = ticks_of_children(group)
    stop = threading.Timer(0.02, os.killpg, (group, signal.SIGSTOP))
    go_on = threading.Timer(2 * _pattern_process.LEAST_SECONDS, os.killpg, (group, signal.SIGCONT))
    stop.start(), go_on.start()
    with pytest.raises(processes.PatternLimit):
        asked.ask(msgspec.structs.replace(ENDLESS, is_brief=is_brief), _pattern_process.MaskAnswer)
    used = (ticks_of_children(group) - before) / os.sysconf("SC_CLK_TCK")
    least = _pattern_process.BRIEF_LEAST_SECONDS if is_brief else _pattern_process.LEAST_SECONDS
    assert least / 2 - 0.01 <= used <= least + 0.2, "ticks are coarse"
    stop.join(), go_on.join()
    asked.close()


def test_threads_ask_at_the_same_time() -> None:
    asked, barrier = processes.PatternProcesses(), threading.Barrier(4)

    def ask(_number):
        barrier.wait()
        return [asked.ask(QUESTION, _pattern_process.MaskAnswer) for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [[ANSWER] * 5] * 4
    assert 1 <= len(asked._idle) <= processes.MOST_IDLE
    asked.close()


def test_one_that_does_not_start_is_an_error_and_hides_nothing_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(processes.PatternsUnavailable, match=r"does not start \(exit code 1\)"):
        processes.PatternProcesses().ask(QUESTION, _pattern_process.MaskAnswer)


def test_it_imports_nothing_from_where_somebody_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    asked = processes.PatternProcesses()
    assert asked.ask(QUESTION, _pattern_process.MaskAnswer) == ANSWER
    question, answer = _pattern_process.CheckQuestion("json_path", "$.a=1"), _pattern_process.CheckAnswer
    assert asked.ask(question, answer) == answer()
    asked.close()
    assert imported(tmp_path) == {}


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = python_command(code)
    ours = child_environment()
    done = subprocess.run(command, env=ours, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS)
    assert not done.stderr
    return done


BEGIN = """
import os, signal
from storage.patterns.mask import mask_of
from storage.patterns.processes import PROCESSES
mask = mask_of(('/a/',))
assert mask.text('bab') == 'b***b'
pid = PROCESSES._idle[0]._process.pid

def children(pid):
    return open(f"/proc/{pid}/task/{pid}/children").read().split()
"""


def is_there(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


def test_who_is_killed_leaves_no_process_behind() -> None:
    code = f"{BEGIN}\nprint(pid, *children(pid), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    done = run(code)
    pids, deadline = list(map(int, done.stdout.split())), time.monotonic() + DEADLINE_SECONDS
    assert len(pids) == 2
    while any(is_there(pid) for pid in pids):
        assert time.monotonic() < deadline, "one is still there"
        time.sleep(0.01)


def test_a_forked_child_asks_a_process_of_its_own_and_keeps_no_other_alive() -> None:
    code = f"""{BEGIN}
child = os.fork()
if not child:
    assert not PROCESSES._idle
    assert mask.text('cac') == 'c***c' and PROCESSES._idle[0]._process.pid != pid
    os._exit(0)
assert mask.text('dad') == 'd***d' and PROCESSES._idle[0]._process.pid == pid
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code).stdout == "0\n"


def test_what_is_asked_together_is_bounded_in_number_and_bytes() -> None:
    sizes = [1] * 100 + [processes.BYTES_AT_ONCE * 2, 1, processes.BYTES_AT_ONCE - 1, 1]
    groups = list(processes.in_groups(sizes, lambda size: size))
    assert [size for group in groups for size in group] == sizes
    assert all(
        len(group) <= processes.AT_ONCE and (len(group) == 1 or sum(group) <= processes.BYTES_AT_ONCE)
        for group in groups
    )
    assert len(groups) == 5


ROOT = Path(__file__).parents[3]
PACKAGES = ("broker", "protocol", "rocketlens", "spark_jobs", "storage")
RULES = "protocol/mask.py"

FUNCTIONS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}


def sources(words):
    """Modules in whose text a pattern is: to parse all others takes seconds, and they have nothing to find."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text("utf-8")
            if re.search(words, text):
                yield str(path.relative_to(ROOT)), ast.parse(text)


def calls(tree):
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def is_of_ours(pattern: ast.expr) -> bool:
    """Whether a pattern is written out in the source, perhaps with names of our constants."""
    if isinstance(pattern, ast.JoinedStr):
        names = (part.value for part in pattern.values if isinstance(part, ast.FormattedValue))
        return all(isinstance(name, ast.Name | ast.Attribute) for name in names)
    return isinstance(pattern, ast.Constant) or (isinstance(pattern, ast.Name) and pattern.id.isupper())


def test_no_pattern_that_is_not_in_the_source_is_compiled_elsewhere() -> None:
    functions = [
        (name, inner)
        for name, tree in sources(r"\bre\b")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in calls(node)
    ]
    found = {
        name
        for name, call in functions
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "re"
        and call.func.attr in FUNCTIONS
        and not is_of_ours(call.args[0])
    }
    assert found == {RULES, "storage/patterns/_literal.py", "storage/patterns/_pattern_process.py"}


def test_paths_and_patterns_are_compiled_and_masks_applied_by_the_process_alone() -> None:
    inner = {"storage.patterns._json_path", "storage.patterns._literal"}
    paths, makers, importing = set[str](), set[str](), set[str]()
    for name, tree in sources(r"jsonpath|_json_path|_literal|\bMask\b"):
        for node in ast.walk(tree):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            paths |= {name for each in names if each.split(".")[0] == "jsonpath"}
            importing |= {name for each in names if each in inner}
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Mask":
                makers.add(name)
    assert paths == {RULES, "storage/patterns/_json_path.py"}
    assert makers == {RULES, "storage/patterns/_pattern_process.py"}
    assert importing == {"storage/patterns/_pattern_process.py"}
