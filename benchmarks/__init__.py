"""Speed, beside the official Java broker, on the same store, in the same run.

``python -m benchmarks.serve_query`` is the whole measurement; ``python -m benchmarks.make_store`` only makes its
store; ``python -m benchmarks.load`` is the load generator alone. How it measures, and what each figure means:
docs/benchmarks.md.
"""

import sys
from pathlib import Path

# Some start brokers and clients as the tests do, whose helpers import one another by their own names.
sys.path += [str(Path(__file__).parents[1] / "tests" / folder) for folder in ("", "support")]
