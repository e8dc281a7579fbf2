"""`rocketlens compact index` for spark-submit: `spark-submit spark_jobs/compact_index.py STORE …`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv = ["rocketlens", "compact", "index", *sys.argv[1:]]
    runpy.run_module("rocketlens", run_name="__main__")
