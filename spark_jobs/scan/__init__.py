"""The first part of every job: list the files, and scan their records for index entries and queue units."""
