#!/usr/bin/env bash
# What make needs before it can run anything. Five steps, each quick when there is nothing to do:
#
#   tests/setup.sh venv LOCK    a virtual environment in $VENV (default .venv) with exactly what LOCK pins, and RocketLens itself,
#                               its kernels compiled (again when a source of theirs changed)
#   tests/setup.sh java         a JDK 17 or later and Maven: checked, and installed where we can (root on Debian or Ubuntu)
#   tests/setup.sh clients      Node.js with npm, and Go, for the clients that are not Java: checked and installed alike
#   tests/setup.sh browser      Chromium and its driver, for the page: checked and installed alike
#   tests/setup.sh python       prints the Python that a new virtual environment would use
#
# PYTHON=... chooses the interpreter; otherwise the first of python3, python3.13, python3.12, python3.11 that is new enough.
# INSTALL=no keeps it from installing programs on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv}

fail() { # every line of the message on its own, and the exit code of make is not 0
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

can_install() { [ "${INSTALL:-}" != no ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    echo "setup: installing $* with apt-get" >&2
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"; } </dev/null >&2
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is no Python 3.11 or later"
        echo "$PYTHON"
        return
    fi
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or later among python3, python3.13, python3.12, python3.11" \
        "install one, or name it: make PYTHON=/path/to/python3.12 ..."
}

make_venv() {
    local python version
    python=$(find_python)
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then # Debian packs venv apart from Python
        if can_install; then apt_install "python$version-venv"; fi
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            fail "$python has no venv module; on Debian or Ubuntu: apt-get install python$version-venv"
    fi
    # An environment of another Python, or one whose Python is gone, or that was moved, is made anew.
    if [ "$("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.prefix)' 2>/dev/null)" \
        != "$version $(realpath -m "$VENV")" ]; then
        echo "setup: making $VENV with Python $version" >&2
        rm -rf "$VENV"
        "$python" -m venv "$VENV"
    fi
}

# One stamp holds what is installed: the lock's checksum and, since the dev lock contains the runtime lock, which of them.
install_lock() {
    local lock=$1 stamp="$VENV/installed" wanted
    [ -f "$lock" ] || fail "no lock file $lock"
    make_venv
    wanted=$(wanted_with "$lock")
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
    if [ "$lock" = requirements.lock ] && [ "$(cat "$stamp" 2>/dev/null)" = "$(wanted_with requirements-dev.lock)" ]; then
        return # what the tests need holds all that the demo needs
    fi
    echo "setup: installing $lock into $VENV" >&2
    rm -f "$stamp"
    install_pinned -r requirements-build.lock
    prepare_compiler
    # Each takes a core for a minute. What compiles is there, and pip leaves it as it is: the locks are made together.
    compile_kernels prepared &
    local compiling=$!
    (install_pinned -r "$lock") || { wait "$compiling" || true; exit 1; }
    wait "$compiling" || exit 1
    pip_install --no-deps --no-build-isolation --editable .
    echo "$wanted" >"$stamp"
}

wanted_with() { echo "$1 $(cat "$1" requirements-build*.lock requirements-install.lock pyproject.toml | cksum)"; }

# In place, so that the sources run. The stamp holds the checksum of all that they are compiled from, and what came of it.
# `compile_kernels prepared` where the compiler is known to be there.
compile_kernels() {
    local stamp="$VENV/compiled" sources modules
    sources=$(cat setup.py build_backend/*.py protocol/message_layout.py protocol/sys_flag.py */kernels/*.pyx */kernels/*.pxd */kernels/*.h | cksum)
    if [ -f "$stamp" ]; then
        mapfile -t modules <"$stamp"
        if [ "${modules[0]}" = "$sources" ] && [ "${#modules[@]}" -gt 1 ] && are_there "${modules[@]:1}"; then return; fi
    fi
    rm -f "$stamp"
    if [ "${1:-}" != prepared ]; then prepare_compiler; fi
    echo "setup: compiling the kernels; this takes some seconds, once" >&2
    "$VENV/bin/python" setup.py -q build_ext --inplace >&2 || fail "the kernels could not be compiled (see above)"
    { echo "$sources" && "$VENV/bin/python" build_backend/compilers.py modules; } >"$stamp"
}

prepare_compiler() {
    check_header
    if [ -z "$("$VENV/bin/python" build_backend/compilers.py compiler)" ]; then
        echo "setup: neither gcc nor clang is here: installing ziglang, which compiles C (100 MB)" >&2
        install_pinned -r requirements-build-zig.lock
    fi
}

are_there() {
    local path
    for path in "$@"; do [ -f "$path" ] || return 1; done
}

check_header() { # Debian packs Python.h apart from Python
    local missing version
    missing=$("$VENV/bin/python" build_backend/compilers.py header)
    if [ -z "$missing" ]; then return; fi
    version=$("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if can_install; then apt_install "python$version-dev" || true; fi
    missing=$("$VENV/bin/python" build_backend/compilers.py header)
    [ -z "$missing" ] || fail "$missing"
}

# With uv, which needs a third of pip's CPU; where uv cannot (a package index that only pip's settings name), with pip. A lock
# names everything, so neither has anything to choose: left to choose, pip before 23.3 takes the newest release of what is asked
# for with an extra, whatever the lock says, and then refuses it because it has no hash.
install_pinned() { # -r LOCK
    pip_install --no-deps --require-hashes -r requirements-install.lock
    # Packages that come as sources (PySpark) become a wheel that nobody keeps: packed, not compressed.
    DIST_EXTRA_CONFIG=$PWD/tests/support/uncompressed_wheels.cfg "$VENV/bin/uv" pip install --quiet --python "$VENV/bin/python" --native-tls \
        --no-deps --no-build-isolation --require-hashes "$@" </dev/null ||
        # Python compiles what it imports; most of twelve thousand modules never are.
        pip_install --no-compile --no-deps --require-hashes "$@"
}

pip_install() {
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$VENV/bin/python" -m pip install --quiet --no-input "$@" </dev/null ||
        fail "pip could not install: $* (see above)"
}

java_release() { # 17 for "17.0.15", 0 where there is no javac
    local found
    found=$("${JAVA_HOME:+$JAVA_HOME/bin/}javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p') || true
    echo "${found:-0}"
}

java_is_ready() { [ "$(java_release)" -ge 17 ] && command -v mvn >/dev/null; }

check_java() {
    if java_is_ready; then return; fi
    if can_install; then
        local packages=() jdk
        if [ "$(java_release)" -lt 17 ]; then
            [ -n "${JAVA_HOME:-}" ] && fail "JAVA_HOME=$JAVA_HOME is no JDK 17 or later: unset it or point it at one"
            apt-get update -qq </dev/null >&2 || true
            for jdk in openjdk-17-jdk-headless openjdk-21-jdk-headless openjdk-25-jdk-headless; do
                if apt-cache policy "$jdk" 2>/dev/null | grep 'Candidate: [0-9]' >/dev/null; then packages=("$jdk"); break; fi
            done
        fi
        command -v mvn >/dev/null || packages+=(maven)
        apt_install "${packages[@]}" || true
    fi
    java_is_ready || fail "the tests run the official RocketMQ jars and need a JDK 17 or later (javac: $(java_release)) and Maven ($(command -v mvn || echo none))" \
        "on Debian or Ubuntu: sudo apt-get install openjdk-17-jdk-headless maven" \
        "on Fedora: sudo dnf install java-21-openjdk-devel maven;  on macOS: brew install openjdk@17 maven"
}

node_release() { node --version 2>/dev/null | sed -n 's/^v\([0-9]*\).*/\1/p' | grep . || echo 0; } # 20 for "v20.20.2"

go_release() { go version 2>/dev/null | sed -n 's/.* go1\.\([0-9]*\).*/\1/p' | grep . || echo 0; } # 22 for "go1.22.4"

clients_are_ready() { [ "$(node_release)" -ge 18 ] && command -v npm >/dev/null && [ "$(go_release)" -ge 18 ]; }

check_clients() {
    if clients_are_ready; then return; fi
    if can_install; then
        local packages=()
        command -v node >/dev/null || packages+=(nodejs)
        command -v npm >/dev/null || packages+=(npm)
        command -v go >/dev/null || packages+=(golang-go)
        [ "${#packages[@]}" = 0 ] || apt_install "${packages[@]}" || true
    fi
    clients_are_ready || fail "the tests run clients of other languages and need Node.js 18 or later (found: $(node_release)), npm ($(command -v npm || echo none)) and Go 1.18 or later (found: 1.$(go_release))" \
        "on Debian or Ubuntu: sudo apt-get install nodejs npm golang-go" \
        "on Fedora: sudo dnf install nodejs npm golang;  on macOS: brew install node go"
}

browser_is_ready() { command -v chromium >/dev/null && command -v chromedriver >/dev/null; }

check_browser() {
    if browser_is_ready; then return; fi
    if can_install; then
        local packages=()
        if ! command -v chromium >/dev/null; then
            packages=(chromium)
            # The tests take it where it is: it draws no window around the page, and needs a quarter less CPU.
            apt-get update -qq </dev/null >&2 || true
            if apt-cache policy chromium-headless-shell | grep 'Candidate: [0-9]' >/dev/null; then packages+=(chromium-headless-shell); fi
        fi
        command -v chromedriver >/dev/null || packages+=(chromium-driver)
        apt_install "${packages[@]}" || true
    fi
    browser_is_ready || fail "the page is tested in a real browser and needs Chromium ($(command -v chromium || echo none)) and its driver ($(command -v chromedriver || echo none))" \
        "on Debian: sudo apt-get install chromium chromium-driver" \
        "on Fedora: sudo dnf install chromium chromedriver;  elsewhere: put chromium and chromedriver of one version on the PATH"
}

case "${1:-}" in
venv)
    install_lock "${2:?usage: tests/setup.sh venv LOCK}"
    compile_kernels
    ;;
java) check_java ;;
clients) check_clients ;;
browser) check_browser ;;
python) find_python ;;
*) fail "usage: tests/setup.sh venv LOCK | java | clients | browser | python" ;;
esac
