"""Run scripts of jobs one after another in one Spark application: `spark-submit submitted_jobs.py WORK PIPE`.

Each line of the pipe is a JSON list, the path of a script of `spark_jobs` and its arguments; each is run as
spark-submit does, with the script's own folder first on `sys.path`. A line on stdout has its exit code and its texts.
"""

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path


def run(script: str, arguments: list[str]) -> dict[str, object]:
    printed, said, code = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO()), 0
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).parent)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
    return {"code": code, "printed": text_of(printed), "said": text_of(said)}


def text_of(written: io.TextIOWrapper) -> str:
    written.seek(0)
    return written.read()


def main() -> None:
    from spark_jobs.run.session import spark_context

    work, pipe = Path(sys.argv[1]), sys.argv[2]
    with spark_context("jobs", "", work), open(pipe) as lines:
        for line in lines:
            script, *arguments = json.loads(line)
            print(json.dumps(run(script, arguments)), flush=True)


if __name__ == "__main__":
    main()
