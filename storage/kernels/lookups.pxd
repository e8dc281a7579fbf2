"""One query, one call: walk the chains of a key in every index file, check each record, keep the newest hits."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from protocol.kernels.java_string cimport fold_hash, hash_utf8
from storage.kernels.records cimport Text
from storage.kernels.store_view cimport ColdBytes, File, Store


cpdef enum:
    # What a key is compared with: KEYS or the unique key, KEYS alone, the unique key alone, the tag.
    KIND_ANY = 0
    KIND_KEY = 1
    KIND_UNIQUE = 2
    KIND_TAG = 3
    # Why a search ended.
    FOUND = 0  # All was looked at that could hold one of the newest hits.
    STOPPED_COLD = -1  # At bytes that are not in memory.
    STOPPED_LONG = -2  # After as many entries as were allowed.
    # Most hits of one search.
    MAXIMUM_HITS = 512
    # Bytes of topic and key, and what stands between them, that no record exceeds.
    NEEDLE_BYTES = 65536
    # Most damaged records of one search that are kept apart.
    MOST_DAMAGED = 16


cdef struct Query:  # Which messages are wanted: the newest `maximum` of a topic that carry a key.
    Text topic
    Text key
    int kind
    int32_t key_hash  # See :c:func:`hash_query`.
    int64_t begin_timestamp  # In ms, both included; unique keys have no window.
    int64_t end_timestamp
    int64_t before_physical_offset  # Records start below it.
    int64_t maximum  # From 1 to MAXIMUM_HITS.
    int64_t maximum_bytes  # Of the records in all.
    bint tags_only  # Leave out index files that keep no tags.

cdef struct Hit:  # A record that was found.
    int64_t physical_offset
    const uint8_t *record
    int64_t size

cdef struct Lookup:  # What a search may do, and what came of it.
    Hit *hits  # Room for the query's maximum and one; the newest first.
    int64_t steps  # Entries that may still be walked.
    int64_t count
    # What remains for an answer, see :c:func:`limit_hits`.
    int64_t total_bytes
    bint more  # More match than were asked for,
    bint cut  # or fit.
    # What was looked at.
    int64_t files
    int64_t walked
    int64_t refused  # Entries with the hash whose record does not match.
    int64_t bad_pointers
    int64_t strays  # Entries with the hash that point into the log where no record starts, and no damage is known,
    const File *stray_file  # the last of them, if it is in an index file; else NULL.
    int64_t stray_offset
    int64_t damaged_count  # Records that match but for their checksums, MOST_DAMAGED at most,
    int64_t damaged[MOST_DAMAGED]  # and where they start.
    ColdBytes cold  # Where it stopped.


cdef inline int32_t hash_query(const Text *topic, const Text *key, int kind) noexcept nogil:
    """The hash under which an index keeps what a query asks for, of ``topic#key`` or ``topic#T#tag``."""
    cdef uint32_t number = hash_utf8(0, topic.start, topic.length) * 31 + c"#"
    if kind == KIND_TAG:
        number = (number * 31 + c"T") * 31 + c"#"
    return fold_hash(hash_utf8(number, key.start, key.length))


# Search what was scanned and every index file that could hold one of the newest hits: FOUND, or a STOPPED_ code. All of
# the lookup but `hits` and `steps` is set here. There may be one hit more than the query's maximum: more match then.
cdef int find_hits(const Store *store, const Query *query, int64_t tick, Lookup *lookup) noexcept nogil

# Leave the newest hits within the query's number and bytes, and say what was cut; `hits[count - 1]` is the oldest then,
# and its physical offset is where the next page ends.
cdef void limit_hits(const Query *query, Lookup *lookup) noexcept nogil

# Copy the records of the hits, ascending; `total_bytes` of them.
cdef void copy_hits(const Lookup *lookup, uint8_t *target) noexcept nogil
