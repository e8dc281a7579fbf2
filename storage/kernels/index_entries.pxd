"""What becomes of index entries beside the log."""


cpdef enum:
    # What becomes of the entries of a record.
    KEEP = 0
    NO_RECORD = 1
    LEFT_OUT = 2
