#!/bin/sh
# fio against an nbdkit server that holds nothing, over a Unix socket in a directory of its own that nbdkit removes.
# Prints one line: "fio: 123456 IOPS" (reads and writes together). Runs in any directory and leaves no file behind.
# usage: nbdkit-fio.sh [SECONDS]     default: $FPPROF_WORKLOAD_SECONDS, or else 8
set -eu
seconds=${1:-${FPPROF_WORKLOAD_SECONDS:-8}}
job=$(cd "$(dirname "$0")" && pwd)/nbd.fio

fail() { printf 'nbdkit-fio: %s\n' "$*" >&2; exit 1; }
case $seconds in
'' | *[!0-9]* | 0*) printf 'usage: nbdkit-fio.sh [SECONDS], a whole number from 1 on\n' >&2; exit 2 ;;
esac
for program in nbdkit fio; do
    command -v "$program" >/dev/null || fail "$program not found: install the package $program"
done
fio --enghelp 2>/dev/null | grep -qw nbd || fail "this fio is built without the engine nbd: install one with libnbd"
export seconds job

# nbdkit passes the status of the command on. In fio's terse output, version 3, field 5 is the error, 8 and 49 are the
# operations per second of reads and of writes (fio(1), TERSE OUTPUT).
# shellcheck disable=SC2016 # expanded by the shell that nbdkit starts, which knows $uri
exec nbdkit -U - null 1G --run '
    export uri
    terse=$(fio --output-format=terse --terse-version=3 "$job") || exit
    printf "%s\n" "$terse" | awk -F ";" "
        \$1 == 3 && \$5 == 0 { printf \"fio: %d IOPS\\n\", \$8 + \$49; found = 1 }
        END { if (!found) { print \"nbdkit-fio: no result in the output of fio\" > \"/dev/stderr\"; exit 1 } }"
'
