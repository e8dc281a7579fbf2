"""`rocketlens export` for spark-submit: `spark-submit spark_jobs/export_store.py STORE …`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv = ["rocketlens", "export", *sys.argv[1:]]
    runpy.run_module("rocketlens", run_name="__main__")
