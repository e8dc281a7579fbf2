"""`rocketlens doctor` for spark-submit: `spark-submit spark_jobs/doctor_store.py STORE --deep …`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv = ["rocketlens", "doctor", *sys.argv[1:]]
    runpy.run_module("rocketlens", run_name="__main__")
