"""SQL92 expressions over the properties of a message, compiled to steps and evaluated without making an object.

A step computes a condition from properties and constants and lays its outcome on a stack, or works on what lies there:

| step | what it does |
|---|---|
| CONSTANT | lays an outcome on the stack |
| TRUTH | a property where a condition is wanted: unknown where it is missing, else false |
| COMPARE | compares two sides, of which some lie on the stack |
| SEARCH | looks for a text in one: anywhere, at its start, at its end |
| LOOK_UP | whether a property is one of several texts |
| NEGATE | turns the uppermost outcome round |
| FORGET | makes the uppermost outcome unknown |
| ASK_UNKNOWN | whether the uppermost outcome is unknown |
| JOIN_ALL, JOIN_ANY | joins the uppermost to the one below, and goes to another step once that is decided |

What the types of both sides decide, and what nulls lead to, is described in filters §2.4–§2.6. Texts are compared as
bytes: whatever well-formed UTF-8 a constant is, no other bytes stand for it. Only U+FFFD is what malformed bytes of a
property are decoded to; where a constant has it, or two properties are compared, they are decoded as Java does.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from protocol.errors import FilterEvaluationError, quote
from protocol.java_hash import decode_java
from protocol.kernels.java_string cimport REPLACEMENT, Character, decode_sequence
from storage.kernels.java_numbers cimport BEYOND_RANGE, INTEGER_READ, double_order, read_double, read_integer
from storage.kernels.records cimport (
    SEPARATORS_WIDE,
    Property,
    PropertyWalk,
    Text,
    begin_properties,
    next_property,
    text_of,
)
from storage.kernels.region cimport Column, Region, Room, region_of, take
from storage.kernels.text_sets cimport place_in

_OUTCOMES = ("FALSE", "TRUE", "UNKNOWN")
_STANDS = {BELOW: "<", SAME: "=", ABOVE: ">", BELOW | SAME: "<=", SAME | ABOVE: ">=", BELOW | ABOVE: "<>"}
_PLACES = ("CONTAINS", "STARTSWITH", "ENDSWITH")

# Java's String.trim cuts every character up to the blank, not what Unicode calls white space.
TRIMMED: Final[str] = "".join(map(chr, range(0x21)))


# --- Values of properties ---


cdef inline Text constant(const Expression *expression, const Span *span) noexcept nogil:
    """One of the constant texts."""
    cdef Text text
    text.start, text.length = expression.constants + span.position, span.length
    return text


cdef inline void find_values(Evaluation *evaluation, const Text *properties) noexcept nogil:
    """Find the properties that the expression names; of several of one name the last counts."""
    cdef const Expression *expression = evaluation.expression
    cdef PropertyWalk walk
    cdef Property each
    cdef int64_t name
    for name in range(expression.names.count):
        evaluation.values[name].start = NULL
    begin_properties(&walk, properties)
    while next_property(&walk, &each):
        if expression.name_lengths >> (each.name.length & 63) & 1:
            name = place_in(&expression.names, &each.name)
            if name >= 0:
                evaluation.values[name] = each.value


cdef void decode(Text *text, uint8_t *room) noexcept nogil:
    """Let a text be what Java makes of it, in UTF-8: three bytes for each one that it has at most."""
    cdef const uint8_t *at = text.start
    cdef const uint8_t *end = at + text.length
    cdef uint8_t *to = room
    cdef Character character
    while at < end:
        if at[0] < 0x80:
            to[0] = at[0]
            at += 1
            to += 1
            continue
        character = decode_sequence(at, end - at)
        if character.point == REPLACEMENT:
            memcpy(to, b"\xef\xbf\xbd", 3)
            to += 3
        else:
            memcpy(to, at, character.length)
            to += character.length
        at += character.length
    text.start, text.length = room, to - room


# --- Comparisons ---


cdef struct Value:  # A side of a comparison for one message.
    int kind  # As that of its operand, TEXT for a property.
    bint is_null
    Text text
    int64_t integer  # Or an outcome.
    double real


cdef inline void read_value(
    Evaluation *evaluation, const Operand *operand, uint8_t outcome, Value *value
) noexcept nogil:
    value.kind, value.is_null = operand.kind, False
    if operand.kind == PROPERTY:
        value.kind, value.text = TEXT, evaluation.values[operand.name]
        value.is_null = value.text.start == NULL
    elif operand.kind == TEXT:
        value.text = constant(evaluation.expression, &operand.text)
    elif operand.kind == OUTCOME:
        value.integer, value.is_null = outcome, outcome == UNKNOWN
    else:
        value.integer, value.real = operand.integer, operand.real


cdef inline int stand_of(int64_t left, int64_t right) noexcept nogil:
    return BELOW if left < right else SAME if left == right else ABOVE


cdef int fail(Evaluation *evaluation, int failure, const Text *culprit) noexcept nogil:
    evaluation.failure, evaluation.culprit = failure, culprit[0]
    return -1


cdef int as_integer(Evaluation *evaluation, Value *value, int kind) noexcept nogil:
    """Read a text as an integer; below 0 for what is none."""
    cdef int read
    if value.kind != TEXT:
        return 0
    read = read_integer(&value.text, 32 if kind == INT32 else 64, &value.integer)
    if read == INTEGER_READ:
        return 0
    if kind == INT32:
        return fail(evaluation, BEYOND_INT32 if read == BEYOND_RANGE else NO_INT32, &value.text)
    return fail(evaluation, BEYOND_INT64 if read == BEYOND_RANGE else NO_INT64, &value.text)


cdef int as_double(Evaluation *evaluation, Value *value) noexcept nogil:
    """Read a text as a double, or make one of an integer; below 0 for what is none."""
    if value.kind == TEXT:
        return 0 if read_double(&value.text, &value.real) else fail(evaluation, NO_DOUBLE, &value.text)
    if value.kind != DOUBLE:
        value.real = <double>value.integer
    return 0


cdef int compare_numbers(Evaluation *evaluation, Value *left, Value *right) noexcept nogil:
    """How two values stand as numbers, of the kind that the other side of a text is of; below 0 if one is none."""
    cdef int kind = left.kind if right.kind == TEXT else right.kind if left.kind == TEXT else max(left.kind, right.kind)
    if kind == TEXT or kind == DOUBLE:
        if as_double(evaluation, left) < 0 or as_double(evaluation, right) < 0:
            return -1
        return stand_of(double_order(left.real), double_order(right.real))
    if as_integer(evaluation, left, kind) < 0 or as_integer(evaluation, right, kind) < 0:
        return -1
    return stand_of(left.integer, right.integer)


cdef inline bint are_same(const Text *left, const Text *right) noexcept nogil:
    return left.length == right.length and memcmp(left.start, right.start, left.length) == 0


cdef bint says_true(const Text *text) noexcept nogil:
    """Whether a text is "true" in whatever case."""
    cdef int position
    if text.length != 4:
        return False
    for position in range(4):
        if text.start[position] | 0x20 != b"true"[position]:
            return False
    return True


cdef int compare_equal(Evaluation *evaluation, const Step *step, Value *left, Value *right) noexcept nogil:
    """SAME for equal values, something else for others; below 0 where they cannot be compared."""
    if left.kind == TEXT and right.kind == TEXT:
        if are_same(&left.text, &right.text):
            return SAME
        if not step.decodes:
            return ABOVE
        if step.left.kind == PROPERTY:
            decode(&left.text, evaluation.decoded)
        if step.right.kind == PROPERTY:
            decode(&right.text, evaluation.decoded + 3 * evaluation.longest)
        return SAME if are_same(&left.text, &right.text) else ABOVE
    if right.kind == OUTCOME:
        if left.kind == TEXT:
            return SAME if says_true(&left.text) == (right.integer == TRUE) else ABOVE
        return SAME if left.kind == OUTCOME and left.integer == right.integer else ABOVE
    if left.kind == OUTCOME:
        return ABOVE if right.kind != TEXT else fail(evaluation, NO_TRUTH_VALUE, &right.text)
    return compare_numbers(evaluation, left, right)


cdef int compare(Evaluation *evaluation, const Step *step, uint8_t left_outcome, uint8_t right_outcome) noexcept nogil:
    """The outcome of a comparison."""
    cdef bint is_equality = step.stands == SAME or step.stands == BELOW | ABOVE
    cdef Value left, right
    cdef int stands
    read_value(evaluation, &step.left, left_outcome, &left)
    read_value(evaluation, &step.right, right_outcome, &right)
    if left.is_null:
        if not (is_equality and right.is_null):
            return UNKNOWN
        stands = SAME
    elif right.is_null:
        if not is_equality:
            return UNKNOWN
        stands = ABOVE
    elif is_equality:
        stands = compare_equal(evaluation, step, &left, &right)
    else:
        stands = compare_numbers(evaluation, &left, &right)
    if stands < 0:
        return FAILED
    return TRUE if step.stands & stands else FALSE


cdef bint is_found(const Text *text, const Text *wanted, int where) noexcept nogil:
    cdef int64_t rest = text.length - wanted.length
    if rest < 0:
        return False
    if where == ANYWHERE:
        return memmem(text.start, text.length, wanted.start, wanted.length) != NULL
    return memcmp(text.start + (rest if where == AT_END else 0), wanted.start, wanted.length) == 0


cdef int search(Evaluation *evaluation, const Step *step) noexcept nogil:
    """The outcome of a search; it is false for a property that is missing, be it negated or not."""
    cdef Value value
    cdef Text wanted = constant(evaluation.expression, &step.right.text)
    read_value(evaluation, &step.left, UNKNOWN, &value)
    if value.is_null:
        return FALSE
    if step.decodes and step.left.kind == PROPERTY:
        decode(&value.text, evaluation.decoded)
    return TRUE if is_found(&value.text, &wanted, step.where) != step.is_negated else FALSE


cdef int look_up(Evaluation *evaluation, const Step *step) noexcept nogil:
    cdef Value value
    read_value(evaluation, &step.left, UNKNOWN, &value)
    if value.is_null:
        return UNKNOWN
    if step.decodes:
        decode(&value.text, evaluation.decoded)
    return TRUE if (place_in(&step.texts, &value.text) >= 0) != step.is_negated else FALSE


# --- Evaluation ---


cdef int run(Evaluation *evaluation) noexcept nogil:
    """The outcome of an expression for the values that were found."""
    cdef const Expression *expression = evaluation.expression
    cdef const Step *step
    cdef uint8_t *top = evaluation.outcomes  # Behind the uppermost.
    cdef int64_t at = 0
    cdef int outcome
    cdef uint8_t left, right
    while at < expression.count:
        step = &expression.steps[at]
        at += 1
        if step.operation == COMPARE:
            left = right = UNKNOWN
            if step.right.kind == OUTCOME:
                top -= 1
                right = top[0]
            if step.left.kind == OUTCOME:
                top -= 1
                left = top[0]
            outcome = compare(evaluation, step, left, right)
        elif step.operation == JOIN_ALL or step.operation == JOIN_ANY:
            top -= 2
            outcome = top[1]
            if outcome == (FALSE if step.operation == JOIN_ALL else TRUE):
                at = step.following
            elif outcome != UNKNOWN:
                outcome = top[0]
        elif step.operation == CONSTANT:
            outcome = step.outcome
        elif step.operation == SEARCH:
            outcome = search(evaluation, step)
        elif step.operation == LOOK_UP:
            outcome = look_up(evaluation, step)
        elif step.operation == TRUTH:
            outcome = UNKNOWN if evaluation.values[step.left.name].start == NULL else FALSE
        else:
            top -= 1
            outcome = top[0]
            if step.operation == NEGATE:
                outcome = UNKNOWN if outcome == UNKNOWN else 1 - outcome
            elif step.operation == ASK_UNKNOWN:
                outcome = (outcome == UNKNOWN) != step.is_negated
            else:
                outcome = UNKNOWN
        if outcome == FAILED:
            return FAILED
        top[0] = <uint8_t>outcome
        top += 1
    return evaluation.outcomes[0]


# --- Programs ---


# Before the bytes of half a character. No property has 0x02, as none can have half a character; nor is it trimmed here.
_HALF = b"\xff\x02"


cdef bytes encoded(str text):
    """A text's UTF-8. Half a character becomes bytes that no property has."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return b"".join(
            _HALF + each.encode("utf-8", "surrogatepass") if "\ud800" <= each <= "\udfff" else each.encode()
            for each in text
        )


cdef bint is_decoded(str text):
    """Whether malformed bytes may stand for some of the text."""
    return "\ufffd" in text


def in_order(text: str) -> tuple[int, bytes]:
    """The key by which texts are ordered where they are looked up: shorter ones first."""
    cdef bytes data = encoded(text)
    return len(data), data


cdef void *with_room(Block block, int64_t count, int64_t item_bytes) except NULL:
    """Make room for one more item than so many; where the items are then."""
    if (count + 1) * item_bytes > block.size and not block.grow((2 * count + 4) * item_bytes):
        raise MemoryError
    return block.items


@cython.final
cdef class Program:
    """A compiled expression; shared by threads once it is finished."""

    def __cinit__(self, names: Iterable[str]) -> None:
        """Begin a program over properties of these names, which are ASCII."""
        self.collected = bytearray()
        self.step_block, self.span_block, self.text_block = Block(), Block(), Block()
        self.numbers = {}
        for name in sorted(names, key=in_order):
            self.numbers[name] = len(self.numbers)
            self.add_text(name.encode())
            self.expression.name_lengths |= <uint64_t>1 << (len(name.encode()) & 63)
        self.expression.names.count = self.text_count

    def constant(self, int outcome) -> None:
        """Lay an outcome on the stack."""
        if not FALSE <= outcome <= UNKNOWN:
            raise ValueError(f"{outcome} is no outcome of a condition")
        self.append(CONSTANT, 0).outcome = outcome

    def truth(self, str name not None) -> None:
        """Lay there whether a property is a truth value: UNKNOWN where it is missing, else FALSE."""
        cdef Operand operand
        self.read_operand(&operand, PROPERTY, name)
        self.append(TRUTH, 0).left = operand

    def compare(self, int stands, int left_kind, left: Any, int right_kind, right: Any) -> None:
        """Compare two sides: TRUE where the left one stands to the right one as said.

        Those of kind OUTCOME are taken from the stack, where the right one lies above the left one.
        """
        cdef Operand left_operand, right_operand
        cdef Step *step
        self.read_operand(&left_operand, left_kind, left)
        self.read_operand(&right_operand, right_kind, right)
        step = self.append(COMPARE, (left_kind == OUTCOME) + (right_kind == OUTCOME))
        step.stands, step.left, step.right = stands, left_operand, right_operand
        step.decodes = (
            (left_kind == PROPERTY or left_kind == TEXT and is_decoded(left))
            and (right_kind == PROPERTY or right_kind == TEXT and is_decoded(right))
        )
        self.expression.decodes |= step.decodes

    def search(self, int where, int kind, subject: str, str wanted not None, bint is_negated) -> None:
        """Look for a text in another, or in a property; FALSE where that is missing."""
        cdef Operand left, right
        cdef Step *step
        self.read_operand(&left, kind, subject)
        self.read_operand(&right, TEXT, wanted)
        if kind != PROPERTY and kind != TEXT:
            raise ValueError("only texts are searched")
        step = self.append(SEARCH, 0)
        step.where, step.left, step.right, step.is_negated = where, left, right, is_negated
        step.decodes = is_decoded(wanted)
        self.expression.decodes |= step.decodes

    def look_up(self, str name not None, texts: Iterable[str], bint is_negated) -> None:
        """Whether a property is one of some texts; UNKNOWN where it is missing."""
        cdef Operand operand
        cdef int64_t first = self.text_count
        cdef Step *step
        self.read_operand(&operand, PROPERTY, name)
        different = set(texts)
        for text in sorted(different, key=in_order):
            self.add_text(encoded(text))
        step = self.append(LOOK_UP, 0)
        step.left, step.first, step.texts.count, step.is_negated = operand, first, self.text_count - first, is_negated
        step.decodes = any(is_decoded(text) for text in different)
        self.expression.decodes |= step.decodes

    def negate(self) -> None:
        """Turn the uppermost outcome round."""
        self.append(NEGATE, 1)

    def forget(self) -> None:
        """Make the uppermost outcome UNKNOWN."""
        self.append(FORGET, 1)

    def ask_unknown(self, bint is_negated) -> None:
        """Lay whether the uppermost outcome is UNKNOWN in its place."""
        self.append(ASK_UNKNOWN, 1).is_negated = is_negated

    def join(self, bint is_any) -> int:
        """Join the two uppermost outcomes by AND, or by OR; the number of the step, for :meth:`land`."""
        cdef Step *step = self.append(JOIN_ANY if is_any else JOIN_ALL, 2)
        step.following = self.expression.count
        step.depth = self.depth
        return self.expression.count - 1

    def land(self, int64_t join) -> None:
        """Let the step that follows be the next one where the outcome of a join is decided."""
        cdef Step *step
        if not 0 <= join < self.expression.count:
            raise ValueError(f"there is no step {join}")
        step = &self.steps[join]
        if step.operation != JOIN_ALL and step.operation != JOIN_ANY or step.depth != self.depth:
            raise ValueError(f"step {join} does not lead to here")
        step.following = self.expression.count

    def finish(self) -> None:
        """Add no more steps; raises ValueError unless one outcome lies on the stack."""
        cdef int64_t number
        if self.depth != 1 or self.is_done:
            raise ValueError(f"{self.depth} outcomes, expected one")
        self.constants = bytes(self.collected)
        self.expression.steps, self.expression.constants = self.steps, text_of(self.constants).start
        self.texts = <Text *>with_room(self.text_block, self.text_count, sizeof(Text))
        for number in range(self.text_count):
            self.texts[number] = constant(&self.expression, &self.spans[number])
        self.expression.names.texts = self.texts
        for number in range(self.expression.count):
            if self.steps[number].operation == LOOK_UP:
                self.steps[number].texts.texts = self.texts + self.steps[number].first
        self.is_done = True

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """What the expression says of a message: None for UNKNOWN. Raises FilterEvaluationError where it fails."""
        cdef Evaluation evaluation
        cdef dict values = {}
        cdef bytes data
        cdef int outcome
        for name, number in self.numbers.items():
            value = properties.get(name)
            if value is not None:
                values[number] = value.encode("utf-8", "surrogatepass")
        blocks = open_evaluation(&evaluation, self, max(map(len, values.values()), default=0))
        for number in range(self.expression.names.count):
            evaluation.values[number].start = NULL
        for number, data in values.items():
            evaluation.values[number] = text_of(data)
        outcome = run(&evaluation)
        if outcome == FAILED:
            raise failed(&evaluation)
        return None if outcome == UNKNOWN else outcome == TRUE

    def decide(self, properties: ReadableBuffer) -> int:
        """What it says of a message with this block of properties: FALSE, TRUE, UNKNOWN or FAILED."""
        cdef Region region = region_of(properties)
        cdef Evaluation evaluation
        cdef Text text
        cdef int outcome
        cdef list held = []
        cdef uint8_t *room = <uint8_t *>take(held, SEPARATORS_WIDE + region.size, sizeof(uint8_t))
        text.start, text.length = room + SEPARATORS_WIDE, region.size
        memset(room, 0, SEPARATORS_WIDE)
        memcpy(room + SEPARATORS_WIDE, region.data, region.size)
        blocks = open_evaluation(&evaluation, self, region.size)
        return decide(&evaluation, &text)

    # --- For people ---

    def listing(self) -> list[str]:
        """Return the steps as people read them, a line each; `^` is what lies on the stack."""
        return [f"{number} {self.described(&self.steps[number])}" for number in range(self.expression.count)]

    cdef str described(self, const Step *step):
        cdef str left = self.side(&step.left), right = self.side(&step.right), negated = "NOT " * step.is_negated
        if step.operation == CONSTANT:
            return f"CONSTANT {_OUTCOMES[step.outcome]}"
        if step.operation == TRUTH:
            return f"TRUTH {left}"
        if step.operation == COMPARE:
            return f"COMPARE {left} {_STANDS[step.stands]} {right}"
        if step.operation == SEARCH:
            return f"SEARCH {left} {negated}{_PLACES[step.where]} {right}"
        if step.operation == LOOK_UP:
            spans = [self.kept(&self.spans[step.first + number]) for number in range(step.texts.count)]
            return f"LOOK_UP {left} {negated}IN ({', '.join(spans)})"
        if step.operation == JOIN_ALL or step.operation == JOIN_ANY:
            return f"{'JOIN_ALL' if step.operation == JOIN_ALL else 'JOIN_ANY'} ^ ^, to {step.following} once decided"
        return "NEGATE ^" if step.operation == NEGATE else "FORGET ^" if step.operation == FORGET else f"{negated}ASK_UNKNOWN ^"

    cdef str side(self, const Operand *operand):
        if operand.kind == PROPERTY:
            return list(self.numbers)[operand.name]
        if operand.kind == TEXT:
            return self.kept(&operand.text)
        if operand.kind == OUTCOME:
            return "^"
        return repr(operand.real) if operand.kind == DOUBLE else f"{operand.integer}{'L' * (operand.kind == INT64)}"

    cdef str kept(self, const Span *span):
        return repr(self.collected[span.position : span.position + span.length].decode(errors="replace"))

    # --- Growing ---

    cdef Step *append(self, int operation, int64_t taken) except NULL:
        """A step that takes so many outcomes from the stack, and lays one there."""
        cdef Step *step
        if self.is_done or self.depth < taken:
            raise ValueError(f"no step that takes {taken} outcomes can follow here")
        self.steps = <Step *>with_room(self.step_block, self.expression.count, sizeof(Step))
        step = &self.steps[self.expression.count]
        memset(step, 0, sizeof(Step))
        step.operation = operation
        self.expression.count += 1
        self.depth += 1 - taken
        self.expression.deepest = max(self.expression.deepest, self.depth)
        return step

    cdef Span keep(self, bytes text):
        cdef Span kept
        kept.position, kept.length = len(self.collected), len(text)
        self.collected += text
        return kept

    cdef int add_text(self, bytes text) except -1:
        self.spans = <Span *>with_room(self.span_block, self.text_count, sizeof(Span))
        self.spans[self.text_count] = self.keep(text)
        self.text_count += 1
        return 0

    cdef int read_operand(self, Operand *operand, int kind, value) except -1:
        memset(operand, 0, sizeof(Operand))
        operand.kind = kind
        if kind == PROPERTY:
            operand.name = self.numbers[value]
        elif kind == TEXT:
            operand.text = self.keep(encoded(value))
        elif kind == INT32 or kind == INT64:
            operand.integer = value
        elif kind == DOUBLE:
            operand.real = value
        elif kind != OUTCOME:
            raise ValueError(f"{kind} is no kind of operand")
        return 0


# --- Evaluations ---


cdef list open_evaluation(Evaluation *evaluation, Program program, int64_t longest):
    """Get ready for evaluating an expression for messages of so many bytes of properties at most.

    The evaluation is of use as long as the caller holds what is returned.
    """
    cdef list blocks = []
    cdef const Expression *expression = &program.expression
    if not program.is_done:
        raise ValueError("a program that is not finished")
    evaluation.expression, evaluation.longest = expression, longest
    evaluation.values, evaluation.outcomes, evaluation.decoded = evaluation.few_values, evaluation.few_outcomes, NULL
    if expression.names.count > FEW_NAMES:
        evaluation.values = <Text *>take(blocks, expression.names.count, sizeof(Text))
    if expression.deepest > FEW_OUTCOMES:
        evaluation.outcomes = <uint8_t *>take(blocks, expression.deepest, sizeof(uint8_t))
    if expression.decodes:
        evaluation.decoded = <uint8_t *>take(blocks, 6 * longest, sizeof(uint8_t))
    return blocks


cdef int decide(Evaluation *evaluation, const Text *properties) noexcept nogil:
    """The outcome of an expression for the message with some properties, of which none but TRUE delivers it.

    As for a walk over properties, SEPARATORS_WIDE bytes before their end must be readable.
    """
    find_values(evaluation, properties)
    return run(evaluation)


cdef object failed(const Evaluation *evaluation):
    """What is to be raised for an expression that failed."""
    cdef bytes culprit = evaluation.culprit.start[: evaluation.culprit.length]
    whole, *halves = culprit.split(_HALF)
    texts = [half[:3].decode("utf-8", "surrogatepass") + decode_java(half[3:]) for half in halves]
    return failure_of(evaluation.failure, decode_java(whole) + "".join(texts))


cdef object failure_of(int failure, str text):
    if failure == NO_DOUBLE:
        return FilterEvaluationError(f"{quote(text.strip(TRIMMED))} is no number")
    if failure == NO_TRUTH_VALUE:
        return FilterEvaluationError(f"{quote(text)} is no truth value: only the left side of = is read as one")
    kind = "32-bit integer" if failure == NO_INT32 or failure == BEYOND_INT32 else "64-bit integer"
    verb = "is no" if failure == NO_INT32 or failure == NO_INT64 else "is beyond a"
    return FilterEvaluationError(f"{quote(text)} {verb} {kind}")


def decide_records(
    Program program not None, Region region not None, positions: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64],
    outcomes: npt.NDArray[np.uint8],
) -> None:
    """What an expression says of each of some messages, whose blocks of properties lie in a region.

    Around a block a record must lie: ValueError is raised for one that does not lie in the region, or at its start.
    """
    cdef Column position_column = Column(positions, sizeof(int64_t)), length_column = Column(lengths, sizeof(int64_t))
    cdef Room room = Room(outcomes, sizeof(uint8_t))
    cdef const int64_t *starts = <const int64_t *>position_column.items
    cdef const int64_t *sizes = <const int64_t *>length_column.items
    cdef int64_t row = 0, count = position_column.count
    cdef Evaluation evaluation
    cdef Text text
    if length_column.count != count or room.count != count:
        raise ValueError(f"{length_column.count} lengths and room for {room.count} outcomes, expected {count}")
    blocks = open_evaluation(&evaluation, program, LONGEST_PROPERTIES)
    with nogil:
        while row < count:
            text.start, text.length = region.data + starts[row], sizes[row]
            # So many bytes before the end of a block are looked at together.
            if not 0 <= text.length <= LONGEST_PROPERTIES or starts[row] < 0 or starts[row] > region.size - text.length:
                break
            if starts[row] + text.length < SEPARATORS_WIDE and text.length:
                break
            (<uint8_t *>room.items)[row] = <uint8_t>decide(&evaluation, &text)
            row += 1
    if row < count:
        raise ValueError(
            f"block {row} of {sizes[row]} bytes at position {starts[row]} does not lie in a region of {region.size} "
            f"bytes with {SEPARATORS_WIDE} of them before its end"
        )


# --- Numbers alone ---


def integer_of(str text not None, int bits) -> int:
    """The number that `Integer.parseInt` reads, or for 64 bits `Long.parseLong`. Raises FilterEvaluationError."""
    cdef bytes data = text.encode("utf-8", "surrogatepass")
    cdef Text each = text_of(data)
    cdef int64_t number
    cdef int read = read_integer(&each, bits, &number)
    if read == INTEGER_READ:
        return number
    if bits == 32:
        raise failure_of(BEYOND_INT32 if read == BEYOND_RANGE else NO_INT32, text)
    raise failure_of(BEYOND_INT64 if read == BEYOND_RANGE else NO_INT64, text)


def double_of(str text not None) -> float:
    """The number that `Double.parseDouble` reads. Raises FilterEvaluationError."""
    cdef bytes data = text.encode("utf-8", "surrogatepass")
    cdef Text each = text_of(data)
    cdef double number
    if not read_double(&each, &number):
        raise failure_of(NO_DOUBLE, text)
    return number
