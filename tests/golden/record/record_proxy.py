"""Records what the official proxy answers to the calls of tests/support/grpc_cases.py, in front of our server."""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "support"), str(HERE.parents[2])]

from grpc_cases import record  # noqa: E402
from interop.other_clients import official_proxy  # noqa: E402
from interop.stages import our_stage  # noqa: E402
from interop.stored import stored  # noqa: E402


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name in ("store", "stage", "proxy"):
            (work / name).mkdir()
        store = stored("g1", work / "store")
        with our_stage(store.root, work / "stage") as stage, official_proxy(work / "proxy", stage.name_server) as proxy:
            record(proxy.grpc)


if __name__ == "__main__":
    main()
