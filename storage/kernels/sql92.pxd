"""Compiled SQL92 expressions and their evaluation: see sql92.pyx.

To evaluate one for many messages, open an evaluation once, and decide message after message::

    cdef Evaluation evaluation
    blocks = open_evaluation(&evaluation, program, LONGEST_PROPERTIES)  # Its memory.
    with nogil:
        ... decide(&evaluation, &record.properties) == TRUE ...

An evaluation belongs to one thread and is not to be moved in memory; a program is shared by any number.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from storage.kernels.records cimport Text
from storage.kernels.region cimport Block
from storage.kernels.text_sets cimport TextSet


cdef extern from "<string.h>" nogil:
    const void *memmem(const void *text, size_t length, const void *wanted, size_t wanted_length) noexcept


cpdef enum:
    # What an expression, or a condition in it, comes to for a message; only TRUE delivers it.
    FALSE = 0
    TRUE = 1
    UNKNOWN = 2
    FAILED = 3
    # Where the left side of a comparison may stand to the right one.
    BELOW = 1
    SAME = 2
    ABOVE = 4
    # Where a text is searched for.
    ANYWHERE = 0
    AT_START = 1
    AT_END = 2
    # What a side of a comparison is: of OUTCOME, what the steps before came to.
    PROPERTY = 0
    TEXT = 1
    INT32 = 2
    INT64 = 3
    DOUBLE = 4
    OUTCOME = 5
    # Bytes of the properties of a stored message at most.
    LONGEST_PROPERTIES = 32767

cdef enum:  # What a step does.
    CONSTANT
    TRUTH
    COMPARE
    SEARCH
    LOOK_UP
    NEGATE
    FORGET
    ASK_UNKNOWN
    JOIN_ALL
    JOIN_ANY

cdef enum:  # Why an expression fails for a message.
    NO_INT32
    NO_INT64
    BEYOND_INT32
    BEYOND_INT64
    NO_DOUBLE
    NO_TRUTH_VALUE

cdef enum:
    FEW_NAMES = 8
    FEW_OUTCOMES = 32


cdef struct Span:  # A text among the constants.
    int64_t position
    int64_t length

cdef struct Operand:
    int kind
    int64_t name  # Of a property: which of the names.
    Span text
    int64_t integer
    double real

cdef struct Step:
    int operation
    int outcome  # Of CONSTANT.
    int stands  # Of COMPARE: how the left side may stand to the right one for the outcome to be true.
    int where  # Of SEARCH.
    bint is_negated
    bint decodes  # The text that is asked for has a character that malformed bytes of a property stand for.
    Operand left
    Operand right  # Of SEARCH, the text.
    int64_t first  # Of LOOK_UP: which of the texts are looked through.
    TextSet texts
    int64_t following  # Of JOIN_ALL and JOIN_ANY: the step that follows where the outcome is decided,
    int64_t depth  # and how many outcomes lie on the stack then.

cdef struct Expression:
    const Step *steps
    int64_t count
    TextSet names  # Of properties.
    uint64_t name_lengths  # Bit n says whether a name has so many bytes, modulo 64.
    const uint8_t *constants  # The bytes of all texts.
    int64_t deepest  # Outcomes that wait on the stack at most.
    bint decodes

cdef struct Evaluation:
    const Expression *expression
    Text *values  # Of the names in the message that is decided; those that are missing start at NULL.
    uint8_t *outcomes  # The stack.
    uint8_t *decoded  # Room for two values of a property as Java decodes them, if any step asks for that.
    int64_t longest
    int failure  # Why it failed, and the text that is to blame.
    Text culprit
    Text few_values[FEW_NAMES]
    uint8_t few_outcomes[FEW_OUTCOMES]


@cython.final
cdef class Program:
    cdef Expression expression
    cdef Step *steps
    cdef Span *spans  # The names of properties, and the texts that are looked up,
    cdef Text *texts  # and where they lie once the constants are complete.
    cdef Block step_block  # In which these lie.
    cdef Block span_block
    cdef Block text_block
    cdef int64_t text_count
    cdef int64_t depth  # Of the stack behind the last step.
    cdef bytearray collected  # The constants as they grow,
    cdef bytes constants  # and once they are complete.
    cdef dict numbers  # Of the names.
    cdef bint is_done

    cdef str described(self, const Step *step)
    cdef str side(self, const Operand *operand)
    cdef str kept(self, const Span *span)
    cdef Step *append(self, int operation, int64_t taken) except NULL
    cdef Span keep(self, bytes text)
    cdef int add_text(self, bytes text) except -1
    cdef int read_operand(self, Operand *operand, int kind, value) except -1


cdef list open_evaluation(Evaluation *evaluation, Program program, int64_t longest)
cdef int decide(Evaluation *evaluation, const Text *properties) noexcept nogil
