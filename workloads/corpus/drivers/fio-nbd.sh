#!/bin/sh
# A rebuilt fio against this system's nbdkit, a fixed number of reads and writes: fio-nbd.sh FIO OPERATIONS
set -eu
fio=$(realpath "$1") operations=$2
export fio operations
# shellcheck disable=SC2016 # expanded by the shell that nbdkit starts, which knows $uri
exec nbdkit -U - null 1G --run '"$fio" --name=nbd --ioengine=nbd --uri="$uri" --size=1G --rw=randrw --bs=4k --iodepth=64 \
    --number_ios="$operations" --randseed=20261120 --thread --output-format=terse >/dev/null'
