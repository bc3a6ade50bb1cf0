#!/bin/sh
# The experiment that started the project, on this machine: nbdkit and fio under every mode, perf beside us.
# usage: demo.sh FPPROF [OPTIONS OF compare]
set -eu
fpprof=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
report=${FPPROF_DEMO_REPORT:-fpprof-demo}
seconds=${FPPROF_DEMO_SECONDS:-1}

if [ -e "$report" ]; then
    rm -rf "$report.old"
    mv "$report" "$report.old"
fi
begun=$(date +%s)
status=0
"$fpprof" compare --output "$report" \
    --modes none,none-again,fp,dwarf:4K,dwarf:8K,dwarf:16K,dwarf:32K,dwarf:64K,both:64K,perf:fp,perf:dwarf:4K,perf:dwarf:8K,perf:dwarf:16K,perf:dwarf:32K,perf:dwarf:64K \
    --repeat "${FPPROF_DEMO_REPEAT:-3}" --metric '([0-9.]+) IOPS' --metric-name IOPS \
    "$@" -- "$here/nbdkit-fio.sh" "$seconds" || status=$?
echo "demo: the experiment took $(($(date +%s) - begun)) s" >&2
exit $status
