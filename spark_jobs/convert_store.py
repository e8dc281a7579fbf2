"""`rocketlens convert` for spark-submit: `spark-submit spark_jobs/convert_store.py STORE …`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv = ["rocketlens", "convert", *sys.argv[1:]]
    runpy.run_module("rocketlens", run_name="__main__")
