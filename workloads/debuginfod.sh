#!/bin/sh
# A recording of a stripped program, and a store of `fpprof agent`, with the names from elfutils' own debuginfod server, which runs
# in a network namespace of its own: it listens on all addresses. Needs root.
# usage: debuginfod.sh FPPROF
set -eu
fpprof=$1
if [ -z "${2:-}" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cat >"$work/program.c" <<'EOF'
static __attribute__((noinline)) void inner(volatile long *n) { for (int i = 0; i < 1000; i++) ++*n; }
int main(void) { volatile long n = 0; while (n < 600000000) inner(&n); return 0; }
EOF
    gcc -O2 -g -Wl,--build-id -o "$work/program" "$work/program.c"
    mkdir "$work/served"
    objcopy --only-keep-debug "$work/program" "$work/served/program.debug"
    objcopy --strip-all "$work/program" "$work/served/program"
    mv "$work/served/program" "$work/program"
    "$fpprof" record -q --call-graph dwarf -o "$work/run.fpprof" -- "$work/program"
    mv "$work/program" "$work/served"
    unshare --net sh "$0" "$fpprof" "$work"
    exit
fi

work=$2
ip link set lo up
debuginfod -d :memory: -F -p 8002 "$work/served" >"$work/log" 2>&1 &
server=$!
agent=
program=
trap 'kill $server $agent $program' EXIT
export DEBUGINFOD_URLS=http://127.0.0.1:8002 DEBUGINFOD_CACHE_PATH="$work/cache"
# It has the files once it has looked through the directory.
tries=0
until curl -sf http://127.0.0.1:8002/metrics | grep -q 'thread_work_total{role="traverse"} [1-9]'; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ]; then
        echo "debuginfod: the server does not start: $(tail -n 3 "$work/log")" >&2
        exit 1
    fi
    sleep 0.1
done
sleep 1
"$fpprof" export "$work/run.fpprof" --lines --debuginfod >"$work/folded"
grep 'main (program.c:2);inner (program.c:1)' "$work/folded"
DEBUGINFOD_CACHE_PATH=$work/none "$fpprof" export "$work/run.fpprof" --lines | grep inner && exit 1

# Of the program alone there are no names; the agent has them once it has fetched them.
cat >"$work/agent.toml" <<EOF
rate = 99
interval = "1s"
[store]
path = "$work/store"
[http]
enabled = false
[debuginfod]
urls = ["$DEBUGINFOD_URLS"]
[limits]
cpu-percent = 100.0
EOF
while :; do "$work/served/program"; done &
program=$!
"$fpprof" agent --config "$work/agent.toml" &
agent=$!
tries=0
until "$fpprof" export "$work/store" --comm program 2>/dev/null | grep ';main;inner'; do
    tries=$((tries + 1))
    if [ $tries -gt 60 ]; then
        echo "debuginfod: the agent has no names" >&2
        exit 1
    fi
    sleep 1
done
kill $agent
wait $agent
agent=
echo "ok: the program and its debug information came from the server"
