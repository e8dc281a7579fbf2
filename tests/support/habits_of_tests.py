"""What a test must not do, as far as its syntax shows it: whatever is found here has no good reason, or is listed.

A file is walked once, for all habits together.
"""

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from protocol.codes import RequestCode, ResponseCode

TESTS = Path(__file__).parents[1]
LEAST_CODE = 10
"""Lower codes may be exit codes of a command; no request has one of them."""
CODES = {int(code) for kind in (RequestCode, ResponseCode) for code in kind if code >= LEAST_CODE}
BESIDE_AN_OBJECT = CODES - {200}
"""Codes of answers, but for the status of HTTP that stands beside a JSON object as codes stand beside header fields."""
ASKING = frozenset({"ask", "send", "signed_request", "encode_request", "Command", "Response", "Answer"})
"""Functions and classes whose first argument is a code, or whose `code` is one."""
CATCH_ALL = frozenset({"", "Exception", "BaseException", "AssertionError"})
SKIPPING = frozenset({"skip", "skipif", "importorskip", "xfail"})


@dataclass(frozen=True, order=True)
class Found:
    """One habit at one place: `what` is "cannot fail", "swallows", "sleeps", "skips" or "number for a code"."""

    path: str
    line: int
    what: str


def habits_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and habit of each thing that is found in a module."""
    polling: list[tuple[int, int]] = []
    sleeping: list[int] = []
    for node in ast.walk(tree):
        match node:
            case ast.While():
                polling.append((node.lineno, node.end_lineno or node.lineno))
            case ast.Assert() if _cannot_fail(node.test):
                yield node.lineno, "cannot fail"
            case ast.ExceptHandler() if _swallows(node):
                yield node.lineno, "swallows"
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="pytest"), attr="mark")):
                if node.attr in SKIPPING:
                    yield node.lineno, "skips"
            case ast.Call():
                name = _dotted(node.func)
                if name in ("pytest.skip", "pytest.importorskip", "pytest.xfail"):
                    yield node.lineno, "skips"
                if name in ("time.sleep", "asyncio.sleep") and not _is_number(node.args[0], {0}):
                    sleeping.append(node.lineno)
                if name.endswith("suppress") and any(_dotted(each) in CATCH_ALL for each in node.args):
                    yield node.lineno, "swallows"
        if isinstance(node, ast.Call | ast.For | ast.Compare | ast.Tuple):
            yield from ((line, "number for a code") for line in _numbered(node))
    for line in sleeping:
        if not any(first <= line <= last for first, last in polling):
            yield line, "sleeps"


def habits_in(paths: Iterable[Path], root: Path = TESTS.parent) -> list[Found]:
    """All that is found in modules, in order."""
    return sorted(
        {
            Found(str(path.relative_to(root)), line, what)
            for path in paths
            for line, what in habits_of(ast.parse(path.read_bytes()))
        }
    )


def _dotted(node: ast.expr) -> str:
    """A name as it is written, with dots; of what is called or indexed the part behind it."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def _is_code(node: ast.expr) -> bool:
    """Whether the code of a command or an answer is meant."""
    match node:
        case ast.Attribute(attr="code") | ast.Subscript(slice=ast.Constant(value="code")):
            return True
    return False


def _is_number(node: ast.expr | None, values: Set[int]) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value in values


def _cannot_fail(test: ast.expr) -> bool:
    """Whether a condition is true whatever happens: a constant, one of several that any may be, a thing and itself."""
    match test:
        case ast.Constant() | ast.Lambda() | ast.JoinedStr() | ast.GeneratorExp():
            return not isinstance(test, ast.Constant) or bool(test.value)
        case ast.Tuple() | ast.List():
            return len(test.elts) > 0
        case ast.BoolOp(op=ast.Or()):
            return any(map(_cannot_fail, test.values))
        case ast.Compare(left=ast.Name() as left, ops=[ast.Eq() | ast.Is() | ast.LtE() | ast.GtE()]):
            return ast.dump(left) == ast.dump(test.comparators[0])
        case ast.Compare(left=ast.Call(func=ast.Name(id="len")), ops=[ast.GtE()]):
            return _is_number(test.comparators[0], {0})
    return False


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether nobody hears of an assertion that fails."""
    caught = "" if handler.type is None else ast.unparse(handler.type)
    return caught in CATCH_ALL and all(isinstance(each, ast.Pass | ast.Continue) for each in handler.body)


def _numbered(node: ast.AST) -> Iterator[int]:
    """Lines with the number of a code: given to what asks or answers, or compared, or beside header fields."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in ASKING:
            given = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "code")]
            yield from (each.lineno for each in given if _is_number(each, CODES))
        case ast.Call(args=[ast.Constant(value="code"), ast.List(elts=each_of)]) if "parametrize" in ast.dump(
            node.func
        ):
            yield from (each.lineno for each in each_of if _is_number(each, CODES))
        case ast.For(target=ast.Name(id="code"), iter=ast.Tuple(elts=each_of) | ast.List(elts=each_of)):
            yield from (each.lineno for each in each_of if _is_number(each, CODES))
        case ast.Compare(left=left, comparators=[right]):
            for one, other in ((left, right), (right, left)):
                yield from _compared(one, other)
        case ast.Tuple(elts=[first, ast.Dict(keys=[ast.Constant(value=str()), *_]) | ast.Dict(keys=[]), *_]):
            if _is_number(first, BESIDE_AN_OBJECT):
                yield first.lineno


def _compared(one: ast.expr, other: ast.expr) -> Iterator[int]:
    if isinstance(one, ast.Tuple) and isinstance(other, ast.Tuple):
        for left, right in zip(one.elts, other.elts, strict=False):
            yield from _compared(left, right)
    elif _is_code(one):
        each_of = other.elts if isinstance(other, ast.Tuple | ast.Set | ast.List) else [other]
        yield from (each.lineno for each in each_of if _is_number(each, CODES))
