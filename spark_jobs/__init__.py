"""Spark jobs that rebuild and compact IndexFiles and ConsumeQueues in bulk from CommitLog segments.

Imports `storage` and `protocol`, never `broker`; needs the extra `rocketlens[spark]`.
"""

from rocketlens.origins import require_own_packages

require_own_packages()
