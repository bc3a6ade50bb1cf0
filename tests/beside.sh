#!/bin/sh
# Runs test programs for `cargo test`, which starts one when the one before has ended. The command-line tests take long and
# run beside the others: `beside.sh --wait` waits for them, prints their output, and fails if they failed.
set -eu
# A program that takes so long hangs: it is ended, and its output shows in which test. What the caller ignores, such as SIGHUP
# under nohup, is not ignored by the programs under test.
run="timeout --foreground --verbose --kill-after=10s 30m env --default-signal=HUP,INT,QUIT"
beside="${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/beside"

if [ "$1" = --wait ]; then
    [ -e "$beside/lock" ] || { echo "beside.sh: the command-line tests were not started" >&2; exit 1; }
    flock "$beside/lock" cat "$beside/output"
    exit "$(cat "$beside/status")"
fi
case ${1##*/} in
cli-*)
    mkdir -p "$beside"
    echo 1 >"$beside/status"
    echo "runs beside the others; its output comes last"
    # The lock is held by descriptor 9 before this returns.
    exec 9>"$beside/lock"
    flock 9
    # A shell lets what runs in the background ignore SIGINT.
    {
        status=0
        $run "$@" 9>&- || status=$?
        echo "$status" >"$beside/status"
    } >"$beside/output" 2>&1 </dev/null &
    ;;
*) exec $run "$@" ;;
esac
