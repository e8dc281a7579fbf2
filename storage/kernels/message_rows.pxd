"""Rows of records: see message_rows.pyx."""

from libc.stdint cimport int64_t


cpdef enum:
    # Why a run ended, besides what records.pxd has.
    NEED_MORE = 10  # the record at its end is not there as a whole


cdef struct Row:  # Of positions and lengths of one record; ROW in message_rows.pyx is the same for NumPy.
    int64_t position
    int64_t size
    int64_t body
    int64_t body_length
    int64_t topic
    int64_t topic_length
    int64_t properties
    int64_t properties_length
    int64_t keys
    int64_t keys_length  # −1 where there is none, or nobody asked.
    int64_t tags
    int64_t tags_length
    int64_t unique_key
    int64_t unique_key_length
    int64_t born_host
    int64_t store_host
    int64_t inner  # Number of a message in its batch; −1 for what is a record of its own.
