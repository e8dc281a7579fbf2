"""What pyproject.toml cannot say: the extension modules, and who compiles them (build_backend/kernel_build.py)."""

import os
import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent / "build_backend"))
from kernel_build import BuildKernels, extensions

# `make wheels` names the platform, and wants one wheel for every Python from 3.11 on (build_backend/wheels.py).
platform = os.environ.get("ROCKETLENS_WHEEL_FOR")
wheel = {"bdist_wheel": {"py_limited_api": "cp311", "plat_name": platform}} if platform else {}
judge = os.environ.get("ROCKETLENS_KERNELS_FOR", "")  # who judges them (build_backend/judges.py), no user of them
setup(
    ext_modules=extensions(is_limited=bool(platform), judge=judge), cmdclass={"build_ext": BuildKernels}, options=wheel
)
