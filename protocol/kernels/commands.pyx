"""Commands of headers that were read (heads.pyx): their fields stay where they lie until it is known what for.

They become texts, for who asks for all of them, or the typed header of a request by its plan.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int8_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from protocol.kernels.heads cimport (
    A_BOOLEAN,
    AN_I32,
    CODE,
    EXT_FIELDS,
    FLAG,
    FOLLOWED,
    HIDDEN,
    KNOWN_FIELDS,
    LANGUAGE,
    MALFORMED,
    MEMBERS,
    NESTED,
    NO_OBJECT,
    OPAQUE,
    OTHER,
    READ,
    REMARK,
    SOME_TEXT,
    UNKNOWN,
    VERSION,
    Field,
    FieldWalk,
    Head,
    What,
    name_of,
    next_field,
    oddity_of,
    read_binary_head,
    read_head,
    text_of,
)
from protocol.kernels.json_members cimport A_NULL, A_TEXT, AN_OBJECT, AN_ODD_TEXT, Value, enter
from protocol.kernels.memory cimport Text

from protocol.errors import BadCommand
from protocol.kernels import heads


# --- Fields of a request, and its typed header ---


cdef dict texts_of(const uint8_t *start, const uint8_t *stop, bint is_binary):
    """Fields as texts, those that are null left out; of several of one name the last counts."""
    cdef Value name, value
    cdef FieldWalk fields
    cdef dict texts = {}
    fields.is_binary, fields.walk.at, fields.walk.stop = is_binary, start, stop
    if not is_binary:
        enter(&fields.walk, start, stop)
    while next_field(&fields, &name, &value) > 0:
        key, text = name_of(&name), text_of(&value)
        if text is not None:
            texts[key] = text
        else:
            texts.pop(key, None)
    return texts


cdef inline bint is_called(const Text *text, const char *wanted, int64_t length) noexcept:
    return text.length == length and memcmp(text.start, wanted, length) == 0


@cython.final
cdef class _FieldOfHeader:
    """A field of a typed header."""

    cdef bytes name
    cdef Text text
    cdef int known
    cdef What what
    cdef bint is_required
    cdef object default

    def __cinit__(self, str name, str kind, bint is_required, default):
        self.name, self.is_required, self.default = name.encode(), is_required, default
        self.text.start, self.text.length = <const uint8_t *><char *>self.name, len(self.name)
        self.known, self.what = heads.NUMBER_OF_FIELD.get(name, UNKNOWN), heads.WHAT_OF_KIND.get(kind, OTHER)


@cython.final
cdef class HeaderPlan:
    """How a typed header is made of fields."""

    cdef object _header_type
    cdef tuple _fields

    def __init__(self, header_type: type[Any], fields: Iterable[tuple[str, str, bool, object]]) -> None:
        """Its fields in order: wire name, kind, whether it must be there, and what it is where it is absent.

        Kinds are ``i32``, ``i64`` and ``boolean``, nothing for a text, and any other for what is converted elsewhere.
        """
        self._header_type, self._fields = header_type, tuple([_FieldOfHeader(*field) for field in fields])


@cython.final
cdef class Fields:
    """The fields of one request, as they lie in its header; equal to others, and to a dict, with the same texts."""

    cdef object _header  # The bytes in which they lie.
    cdef const uint8_t *_start
    cdef const uint8_t *_stop
    cdef bint _is_binary
    cdef bint _is_whole  # Whether each is found by its name.
    cdef uint64_t _met
    cdef int8_t _places[KNOWN_FIELDS]
    cdef int _count
    cdef Field *_fields
    cdef dict _texts

    def __dealloc__(self):
        PyMem_Free(self._fields)

    def __eq__(self, other):
        return self.texts() == (other.texts() if isinstance(other, Fields) else other)

    def __repr__(self):
        return repr(self.texts())

    cdef const Field *find(self, int known, const Text *name) noexcept:
        """A field by its name, and its number if it is a known one; NULL where it is absent."""
        cdef const Field *field
        cdef int i
        if known != UNKNOWN:
            return &self._fields[self._places[known]] if self._met >> known & 1 else NULL
        for i in range(self._count - 1, -1, -1):
            field = &self._fields[i]
            if field.known == UNKNOWN and field.name.length == name.length and (
                memcmp(field.name.start, name.start, name.length) == 0
            ):
                return field
        return NULL

    def texts(self) -> dict[str, str]:
        """All fields as texts as Java sees them, those that are null left out; the same each time.

        Bytes that are no UTF-8 become U+FFFD, halves of characters `?`.
        """
        if self._texts is None:
            self._texts = texts_of(self._start, self._stop, self._is_binary)
        return self._texts

    def text(self, str name not None) -> str | None:
        """One field as a text; None where it is absent or null."""
        cdef Text called
        cdef const Field *field
        cdef bytes written
        if not self._is_whole:
            return self.texts().get(name)
        written = name.encode()
        called.start, called.length = <const uint8_t *><char *>written, len(written)
        field = self.find(heads.NUMBER_OF_FIELD.get(name, UNKNOWN), &called)
        return None if field == NULL else text_of(&field.value)

    def header(self, HeaderPlan plan not None) -> Any | None:
        """The typed header of a plan; None where a field is missing or is not written as Java's clients write it."""
        cdef const Field *field
        cdef _FieldOfHeader wanted
        cdef list values
        if not self._is_whole:
            return None
        values = []
        for wanted in plan._fields:
            field = self.find(wanted.known, &wanted.text)
            if field == NULL or field.value.kind == A_NULL:
                if wanted.is_required:
                    return None
                values.append(wanted.default)
            elif wanted.what == SOME_TEXT:
                values.append(text_of(&field.value))
            elif wanted.what == A_BOOLEAN:
                if is_called(&field.value.text, b"true", 4):
                    values.append(True)
                elif is_called(&field.value.text, b"false", 5):
                    values.append(False)
                else:
                    return None
            elif wanted.what != OTHER and oddity_of(&field.value, wanted.what) == 0:
                values.append(field.value.integer)
            else:
                return None
        return plan._header_type(*values)


# --- Commands ---


cdef Fields keep_fields(object header, const Head *head, bint is_binary):
    """The fields of a header that was read, which is kept with them."""
    cdef Fields fields = Fields.__new__(Fields)
    cdef const Text *text = &head.members[EXT_FIELDS].text
    fields._fields = <Field *>PyMem_Malloc(head.count * sizeof(Field))
    if fields._fields == NULL:
        raise MemoryError
    memcpy(fields._fields, head.fields, head.count * sizeof(Field))
    memcpy(fields._places, head.places, sizeof(fields._places))
    fields._header, fields._start, fields._stop = header, text.start, text.start + text.length
    fields._met, fields._count, fields._is_binary = head.fields_met, head.count, is_binary
    fields._is_whole = head.oddities & HIDDEN == 0
    return fields


cdef object fields_of(object header, const Head *head, bint is_binary):
    """What a command has of its fields: places, texts where these would not stay, or bytes where there is no object."""
    cdef const Value *value = &head.members[EXT_FIELDS]
    if not head.met >> EXT_FIELDS & 1 or value.kind == A_NULL:
        return {}
    if value.kind != AN_OBJECT:
        return value.text.start[:value.text.length]
    if type(header) is bytes and head.oddities & NESTED == 0:
        return keep_fields(header, head, is_binary) if head.count else {}
    try:
        return texts_of(value.text.start, value.text.start + value.text.length, is_binary)
    except RecursionError:
        return value.text.start[:value.text.length]


cdef inline int64_t integer_of(const Head *head, int member) noexcept:
    return head.members[member].integer if head.met >> member & 1 else 0


cdef object command_of(object header, const Head *head, bint is_binary, body, make):
    cdef const Value *language = &head.members[LANGUAGE]
    cdef bint is_number = language.kind != A_TEXT and language.kind != AN_ODD_TEXT and language.kind != A_NULL
    spoken = remark = None
    if head.met >> LANGUAGE & 1:
        spoken = language.integer if is_number else text_of(language)
    if head.met >> REMARK & 1:
        remark = text_of(&head.members[REMARK])
    return make(
        integer_of(head, CODE), integer_of(head, FLAG), integer_of(head, OPAQUE), integer_of(head, VERSION),
        spoken, remark, fields_of(header, head, is_binary), <int>is_binary, body,
    )


_REASONS = {NO_OBJECT: "the header is no object", MALFORMED: "malformed JSON", FOLLOWED: "something follows the object"}


cdef object read_whole(object header, const uint8_t *at, const uint8_t *stop, bint is_binary, body, make):
    cdef Head head
    cdef int ended
    if is_binary:
        read_binary_head(at, stop, &head)
        return command_of(header, &head, True, body, make)
    ended = read_head(at, stop, &head, False)
    if ended != READ:
        raise BadCommand(f"the header is no command: {_REASONS[ended]}")
    wrong = None
    if head.wrong != MEMBERS:
        what = "text" if head.wrong == REMARK else "32-bit integer"
        wrong = f"{heads.NAMES_OF_MEMBERS[head.wrong]} is no {what}"
    elif not head.met >> CODE & 1:
        wrong = "code is missing"
    if wrong is not None:
        raise BadCommand(f"the header is no command: {wrong}", integer_of(&head, OPAQUE))
    return command_of(header, &head, False, body, make)


def read_header(
    header: ReadableBuffer, bint is_binary, body: bytes,
    make: Callable[[int, int, int, int, str | int | None, str | None, Fields | dict[str, str] | bytes, int, bytes], _T],
) -> _T:
    """Make a command of what a header says: code, flag, opaque, version, language, remark and fields.

    `make` is called with them in this order, then the serialize type and the body. JSON in the place of the fields that
    is no object stays as it came, as bytes. Numbers may be in quotes, with a fraction of zero and with an exponent; of
    members with one name the last counts, if all are of the right type. Raises `BadCommand` for no command, and for a
    binary header in which a length is negative or reaches beyond what holds it (the header, or the block of fields).
    """
    cdef const uint8_t *at
    cdef Py_buffer export
    if type(header) is bytes:
        at = <const uint8_t *><char *><bytes>header
        return read_whole(header, at, at + len(<bytes>header), is_binary, body, make)
    PyObject_GetBuffer(header, &export, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>export.buf
        return read_whole(header, at, at + export.len, is_binary, body, make)
    finally:
        PyBuffer_Release(&export)
