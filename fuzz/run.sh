#!/bin/sh
# Fuzzes each parser from real files, and prints what that found: fuzz/run.sh FPPROF SECONDS [TARGET...]
set -eu
fpprof=$1
seconds=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
work=$root/target/fuzz
# One file may cost 2 s and 256 MB; a fuzzer's own memory and a busy machine come on top.
limits="-timeout=10 -rss_limit_mb=512 -malloc_limit_mb=256"

command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz not found: cargo install cargo-fuzz" >&2; exit 1; }
cargo build --quiet --release --manifest-path "$root/fuzz/seeds/Cargo.toml" --target-dir "$work"
# Without a sanitizer: what is fuzzed is safe Rust, and limits of memory are then those of the program.
cargo +nightly fuzz build --fuzz-dir "$root/fuzz" --target-dir "$work" --sanitizer none --release
[ -d "$work/seeds" ] || sh "$root/fuzz/seeds.sh" "$fpprof" "$work/release/fpprof-fuzz-seeds" "$work/seeds"
# shellcheck disable=SC2046 # names without spaces
[ $# -gt 0 ] || set -- $(cargo fuzz list --fuzz-dir "$root/fuzz")

failed=0
echo "target         seconds  executions  edges  files  most memory  result"
for target in "$@"; do
    corpus=$work/corpus/$target
    mkdir -p "$corpus" "$work/found/$target" "$work/seeds/$target"
    log=$work/$target.log
    result=passed
    begun=$(date +%s)
    # shellcheck disable=SC2086
    "$work/x86_64-unknown-linux-gnu/release/$target" "$corpus" "$work/seeds/$target" $limits -max_total_time="$seconds" \
        -print_final_stats=1 -artifact_prefix="$work/found/$target/" >"$log" 2>&1 || result="FAILED, see $log"
    [ "$result" = passed ] || failed=1
    value() { sed -n "s/^stat::$1: *//p" "$log"; }
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    printf '%-13s %8s %11s %6s %6s %9s MB  %s\n' "$target" "$seconds" "$(value number_of_executed_units)" "$edges" \
        "$(find "$corpus" -type f | wc -l)" "$(value peak_rss_mb)" "$result"
    # A line for each target that was run, ever: target, seconds, executions, passed or failed. `just reliability` adds them up.
    executions=$(value number_of_executed_units)
    [ "$result" = passed ] && outcome=passed || outcome=failed
    echo "$target $(($(date +%s) - begun)) ${executions:-0} $outcome" >>"$work/totals"
done
exit $failed
