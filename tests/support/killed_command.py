"""A command that kills itself: `python killed_command.py PHASE NUMBER export STORE …`.

It dies in a phase, at the NUMBER-th answer of a task, counted from 0. There is no hook in the product: what the driver
calls is wrapped here. Exits as usual where there are not so many answers.
"""

import os
import signal
import sys


def main() -> None:
    phase, left = sys.argv[1], int(sys.argv[2])
    sys.argv[1:] = sys.argv[3:]
    from rocketlens.cli.main import main as command_line
    from spark_jobs.run import local_engine, work_directory

    enter, take_result, entered = work_directory.WorkDirectory.enter, local_engine._result, ""

    def enter_and_note(work, name) -> None:
        nonlocal entered
        enter(work, name)
        entered = name

    def take_result_or_die(*arguments):
        nonlocal left
        if entered == phase:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return take_result(*arguments)

    work_directory.WorkDirectory.enter = enter_and_note  # type: ignore[method-assign]
    local_engine._result = take_result_or_die
    command_line()


if __name__ == "__main__":
    main()
