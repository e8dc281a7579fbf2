"""Which entries a broker puts into the index for a message: the profiles, as options and requests name them.

Nothing is imported here: the command line reads its options by these names before it loads anything else.
"""

from typing import Final

TAGGED_PROFILE: Final = "5.5"
"""Unique key, keys and tag."""

CLASSIC_PROFILE: Final = "classic"
"""Unique key and keys, as up to 5.3."""

AUTO_PROFILE: Final = "auto"
"""As the index files show that there are, else as 5.5."""

PROFILES: Final = (AUTO_PROFILE, TAGGED_PROFILE, CLASSIC_PROFILE)
