"""What pyproject.toml cannot say: the extension modules, and who compiles them (build_backend/kernel_build.py)."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent / "build_backend"))
from kernel_build import BuildKernels, extensions

setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernels})
