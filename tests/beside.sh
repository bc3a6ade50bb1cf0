#!/bin/sh
# Runs a test program for `cargo test`, which runs one after the other. The longest that needs no machine to itself runs
# beside the others; `beside.sh --wait` waits for it, prints what it printed, and fails if it failed.
set -eu
beside="${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/beside"

if [ "$1" = --wait ]; then
    flock "$beside/lock" cat "$beside/output"
    exit "$(cat "$beside/status")"
fi
case ${1##*/} in
cli-*)
    mkdir -p "$beside"
    echo 1 >"$beside/status"
    echo "runs beside the others; what it prints follows in the end"
    # The lock is held by descriptor 9 before this returns.
    exec 9>"$beside/lock"
    flock 9
    # A shell lets what runs in the background ignore SIGINT.
    { status=0; env --default-signal=INT,QUIT "$@" 9>&- || status=$?; echo "$status" >"$beside/status"; } >"$beside/output" 2>&1 </dev/null &
    ;;
*) exec "$@" ;;
esac
