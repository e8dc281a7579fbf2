"""Patterns that somebody writes, run over texts that somebody else stored: in a process that can be killed.

A regular expression or a JSONPath may take for ever on a text that fits it badly, and nothing can stop it in the
process that runs it; Python's `re` even keeps the interpreter's lock. So none runs over stored texts but in a process
of its own (:mod:`storage.patterns._pattern_process`), whose CPU time for each question the kernel bounds. The modules
of this folder ask that process; a call of theirs looks like a plain one.

It is `re` itself that runs there: a pattern hides what it always hid. A linear engine instead would have to read
each pattern as `re` does: RE2 has no `\\b` of Unicode, so that even the pattern of docs/security.md would need the
process too.
"""
