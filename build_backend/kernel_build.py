"""The build backend of RocketLens: setuptools', with what compiling the kernels needs besides.

Every `.pyx` under `protocol/kernels`, `storage/kernels` and `broker/kernels` is an extension module of its own. Where
neither gcc nor clang is found (nor $CC names another one), the package `ziglang` is asked for as a requirement of the
build, and compiles.
"""

import multiprocessing
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools import Extension, build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from setuptools.command.build_ext import build_ext

import compilers
import derived

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": False,
    "annotation_typing": False,  # they are for type checkers
    "auto_pickle": False,
    "autotestdict": False,
}
C_OPTIONS = ["-O3", "-g0", "-fwrapv", "-fvisibility=hidden", "-Wno-unused-function"]
ZIG_OPTIONS = ["-mcpu=baseline", "-fno-sanitize=undefined"]
"""Without these options, zig compiles for the processor that it runs on, and traps overflows."""


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What building a wheel needs besides pyproject.toml's requirements: a compiler, where there is none."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *compiler_requirements()]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    """As for a wheel."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *compiler_requirements()]


def compiler_requirements() -> list[str]:
    """The package that compiles, where nothing else does."""
    return [] if compilers.find_compiler() else [compilers.ZIG]


def extensions(*, is_limited: bool = False, judge: str = "") -> list[Extension]:
    """The extension modules, one for each `.pyx`; all are compiled again when a shared source changes.

    Those that are limited to CPython's stable interface of 3.11 run on every later one. Those for a judge are compiled
    as it wants them, and one with planted faults beside them.
    """
    derived.derive()
    shared = map(str, compilers.sources("*.pxd", "*.pxi", "*.h"))
    builders = ("compilers", "kernel_build", "judges") if judge else ("compilers", "kernel_build")
    depends = [*shared, *(f"build_backend/{name}.py" for name in builders)]
    settings: dict[str, Any] = {
        "extra_compile_args": C_OPTIONS,
        "define_macros": [("Py_LIMITED_API", "0x030B0000")] if is_limited else [],
        "py_limited_api": is_limited,
    }
    named = {".".join(path.with_suffix("").parts): path for path in compilers.sources("*.pyx")}
    if judge:
        from judges import JUDGES, PLANTED, QUICKLY  # who only builds from a source distribution has none

        settings, named = JUDGES[judge], {**named, PLANTED.stem: PLANTED}
        if os.environ.get("ROCKETLENS_KERNELS"):
            settings = {**settings, "extra_compile_args": [*settings["extra_compile_args"], QUICKLY]}
    return [
        Extension(name, [str(path)], include_dirs=list(map(str, compilers.KERNELS)), depends=depends, **settings)
        for name, path in named.items()
    ]


class BuildKernels(build_ext):
    """Turns the sources into C and the C into modules, with the compiler that there is."""

    def run(self) -> None:
        """Compile; in place, nothing is done again where all is newer than its sources."""
        if (self.inplace or self.editable_mode) and _is_current(self.extensions):
            self.extensions = []
        if not (self.inplace or self.editable_mode):
            wanted = os.environ.get("ROCKETLENS_KERNELS", "").split()  # as judges.py asks for; else all
            self.extensions = [
                extension
                for extension in self.extensions
                if not extension.name.startswith("benchmarks.") and (not wanted or extension.name in wanted)
            ]
        super().run()

    def build_extensions(self) -> None:
        """Compile all modules, as many at once as there are processors."""
        missing = compilers.missing_header()
        if missing:
            raise SystemExit(missing)
        command = compilers.find_compiler()
        if command is None:
            zig = [sys.executable, "-m", compilers.ZIG, "cc", *ZIG_OPTIONS]
            self.compiler.set_executables(compiler=zig, compiler_so=[*zig, "-fPIC"], linker_so=[*zig, "-shared"])
        elif command not in (os.environ.get("CC"), sysconfig.get_config_var("CC")):
            self.compiler.set_executables(compiler_so=[command, "-fPIC"], linker_so=[command, "-shared"])
        names = ", ".join(extension.name.rpartition(".")[2] for extension in self.extensions)
        print(f"compiling the kernels ({names}) with {command or compilers.ZIG}", file=sys.stderr, flush=True)
        self._write_c()
        self.parallel = os.cpu_count()
        super().build_extensions()

    def _write_c(self) -> None:
        """Turn all sources into C, in several processes where these need not run setup.py again."""
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError

        directory = str(Path(self.build_temp) / "cython")
        try:
            written = cythonize(
                self.extensions,
                build_dir=directory,
                compiler_directives=DIRECTIVES,
                emit_linenums=os.environ.get("ROCKETLENS_KERNELS_FOR") == "sanitizers",  # which name lines
                quiet=True,
                nthreads=(os.cpu_count() or 0) if multiprocessing.get_start_method() == "fork" else 0,
            )
        except CompileError as error:  # Cython has shown what and where
            raise SystemExit(f"{error} could not be turned into C") from None
        for extension, source in zip(self.extensions, written, strict=True):
            extension.sources = source.sources


def _is_current(extensions: list[Extension]) -> bool:
    """Whether the modules beside the sources are newer than all that they are made of."""
    made = [path.stat().st_mtime if path.exists() else 0.0 for path in compilers.modules()]
    sources = {source for extension in extensions for source in (*extension.sources, *extension.depends)}
    return min(made) >= max(Path(source).stat().st_mtime for source in sources)
