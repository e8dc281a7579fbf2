"""Send messages of any source to a running cluster again, with an account of what became of each.

A run chooses messages (`choice`), says of each how it is sent (`resent`), asks the target what it has (`target`) and
what it would not take (`plan`), sends (`sending`), and asks for what it sent (`verifying`). All that is known of each
message stands in one SQLite file (`account`), from which a run that was stopped goes on. `replay` runs these in turn.
"""

from typing import Final

ORDERS: Final = ("queue", "key", "none")
"""What may keep its order: the messages of each queue, those of each key, or nothing."""
