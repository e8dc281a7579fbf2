"""`rocketlens rescue` for spark-submit: `spark-submit spark_jobs/rescue_store.py STORE …`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv = ["rocketlens", "rescue", *sys.argv[1:]]
    runpy.run_module("rocketlens", run_name="__main__")
