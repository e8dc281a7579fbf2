"""`rocketlens rebuild index` for spark-submit: `spark-submit spark_jobs/rebuild_index.py STORE …`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv = ["rocketlens", "rebuild", "index", *sys.argv[1:]]
    runpy.run_module("rocketlens", run_name="__main__")
