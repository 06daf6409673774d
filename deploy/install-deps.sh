#!/bin/sh
# Installs the Debian packages that are missing. Usage: deploy/install-deps.sh [build] [test] [lint] [generators] [browser] [check] [deploy] [package] [run]
#   build  what `make` needs          test  what `make test` and `make demo` need besides (default: build test)
#   lint   clang and its tools, and what makes the venv of ruff and mypy: `make lint`, `make asan CC=clang`, the fuzzers
#   generators   what makes clients of the API's description, for `make test-generators`
#   browser   Chromium, for `make test-browser`
#   check  valgrind and llvm's tools, for `make valgrind` and `make fuzz-coverage`
#   deploy systemd's checks, promtool and a bare Debian, for `make test-deploy`
#   package   what makes Debian packages, for `make deb`
#   run    what a binary that was built elsewhere needs, and nothing else
set -eu

packages_of() {
    case "$1" in
    build) echo "gcc libc6-dev make libmicrohttpd-dev libcurl4-openssl-dev libjansson-dev libsqlite3-dev libpq-dev libssl-dev libzstd-dev zlib1g-dev libxxhash-dev libseccomp-dev libopenblas-serial-dev python3 python3-yaml" ;;
    test) echo "postgresql faketime check libsubunit-dev python3-pytest python3-pytest-xdist python3-jsonschema python3-venv curl jq ca-certificates" ;;
    lint) echo "clang clang-format clang-tidy libclang-rt-14-dev python3-venv" ;;
    # Where others have installed node, java or go, Debian's are not needed.
    generators) echo "python3-venv $(command -v npm >/dev/null || echo nodejs npm) $(command -v javac >/dev/null || echo default-jdk-headless) $(command -v go >/dev/null || echo golang-go) golang-gopkg-validator.v2-dev" ;;
    browser) echo "chromium python3-venv" ;;
    check) echo "valgrind llvm" ;;
    deploy) echo "systemd binutils prometheus systemd-container mmdebstrap" ;;
    package) echo "dpkg-dev debhelper fakeroot lintian" ;;
    run) echo "libmicrohttpd12 libcurl4 libsqlite3-0 libpq5 libseccomp2 libzstd1 zlib1g libjansson4 libssl3 libopenblas0-serial" ;;
    *) echo "install-deps.sh: unknown group: $1 (build, test, lint, generators, browser, check, deploy, package, run)" >&2; exit 2 ;;
    esac
}

[ $# -gt 0 ] || set -- build test
missing=
for group in "$@"; do
    for package in $(packages_of "$group"); do
        status=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
        case "$status" in ii*) ;; *) missing="$missing $package" ;; esac
    done
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "install-deps.sh: run me as root: apt-get install$missing" >&2; exit 1; }
    as_root=sudo
fi
$as_root apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
