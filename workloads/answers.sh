#!/bin/sh
# What a user asks of four real programs: how many stacks each mode breaks, why, what chunk size would do, what it costs.
# Prints Markdown. Needs nbdkit, fio, python3, gcc, cargo and rustc, and the sources of this workspace's dependencies.
# usage: answers.sh FPPROF [PROGRAM...]     programs: nbdkit-fio python rustc cc1; all by default
set -eu
fpprof=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The folder of a dependency's sources, by its name.
sources() {
    manifest=$(cargo metadata --format-version 1 --manifest-path "$here/../Cargo.toml" |
        grep -o "\"manifest_path\":\"[^\"]*/$1-[0-9][^\"/]*/Cargo.toml\"" | head -n 1 | cut -d '"' -f 4)
    [ -n "$manifest" ] || { echo "answers: no sources of $1" >&2; exit 1; }
    dirname "$manifest"
}

# answer TITLE BYTES COMMAND...: records the command in both ways at once, and once more in each of two modes for the cost.
answer() {
    title=$1 bytes=$2
    shift 2
    printf '## %s\n\n' "$title"
    "$fpprof" record --quiet --call-graph "both,$bytes" -o both.fpprof -- "$@" >output.txt 2>&1 ||
        { cat output.txt >&2; exit 1; }
    printf '```text\n'
    "$fpprof" report both.fpprof --strategies fp,dwarf@8K,dwarf@64K,dwarf | sed '/^Hottest functions/,/^$/d'
    printf '```\n\nWhat a mode costs, from a run of its own:\n\n```text\n'
    for mode in fp dwarf,8192 dwarf,65536; do
        "$fpprof" record --stats --call-graph "$mode" -o mode.fpprof -- "$@" >output.txt 2>&1 || { cat output.txt >&2; exit 1; }
        printf '%s\n' "$mode"
        grep -E '^(balance|volume|own cost|overhead|written) ' output.txt | sed 's/^/  /'
    done
    printf '```\n\n'
}

nbdkit_fio() {
    cp "$here/nbdkit-fio.sh" "$here/nbd.fio" .
    answer "nbdkit and fio" 65536 ./nbdkit-fio.sh 4
}

python() {
    cat >parse.py <<'END'
import ast, pathlib, sys, time
end = time.monotonic() + 4
files = sorted(pathlib.Path(ast.__file__).parent.glob("*.py"))
while time.monotonic() < end:
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
        sum(1 for _ in ast.walk(tree))
        if time.monotonic() >= end:
            break
END
    answer "Python: parsing its own library" 262144 python3 parse.py
}

rustc() {
    cp -r "$(sources regex-syntax)" crate
    answer "rustc: compiling the crate regex-syntax" 1048576 \
        rustc --crate-name regex_syntax --crate-type lib --edition 2021 -O --cap-lints allow --cfg 'feature="std"' \
        --cfg 'feature="unicode"' -o libcrate.rlib crate/src/lib.rs
}

cc1() {
    cp -r "$(sources zstd-sys)/zstd/lib" zstd
    answer "cc1: compiling zstd_compress.c with -O3" 1048576 \
        gcc -O3 -Izstd -Izstd/common -c -o zstd.o zstd/compress/zstd_compress.c
}

cd "$work"
cat <<'END'
# Four real programs, one recording each

Printed by `just answers`. Each program was recorded once with both kinds of stack in every sample, and that recording
answers: how many stacks each way breaks, why, which size of chunk would do, and what that takes. What a mode costs stands
beneath, from a run of its own.

END
printf 'On %s CPUs, Linux %s.\n\n' "$(nproc)" "$(uname -r)"
[ $# -gt 0 ] || set -- nbdkit-fio python rustc cc1
for program in "$@"; do
    case $program in
    nbdkit-fio) nbdkit_fio ;;
    python | cc1 | rustc) "$program" ;;
    *) echo "answers: unknown program $program" >&2; exit 2 ;;
    esac
done
