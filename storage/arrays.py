"""NumPy, loaded by the first array that is made.

To look up a few messages takes none, and loading NumPy takes longer than the look-up. So modules that every look-up
imports take it from here, as if by `lazy import numpy as np` (PEP 810): their annotations are not evaluated, and what
arrays hold is written in lists that NumPy takes for a dtype. Modules that handle many rows alone import it as usual.
"""

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["np", "npt"]


class _Later:
    """A module that is loaded when something of it is needed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        """Look an attribute up in the module, and keep it: the next time it is found without this method."""
        found = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, found)
        return found


if TYPE_CHECKING:  # this is what is not loaded before it is needed
    import numpy as np
    import numpy.typing as npt
else:
    np, npt = _Later("numpy"), _Later("numpy.typing")
