#!/bin/sh
# The agent at twelve times its usual rate, beside programs that start, end, replace their files and make threads, one with 3,000
# modules, a store that goes away and a disk that fills up: its memory, descriptors and threads once a minute, and at the end
# whether the memory grew and whether every tick is accounted for.
# usage: soak.sh FPPROF [MINUTES]
set -eu
fpprof=$1
minutes=${2:-120}
# The mounts go with the namespace.
[ -n "${FPPROF_SOAK-}" ] || exec env FPPROF_SOAK=1 unshare -m sh "$0" "$@"
work=$(mktemp -d)
mkdir "$work/disk"
mount -t tmpfs -o size=64M soak "$work/disk"
store=$work/disk/store
# The programs beside the agent, in a process group each, and the agent.
pids=
end() {
    for pid in $pids; do kill -KILL -- "-$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true; done
    umount -l "$work/disk"
    # What was killed may still write a last file.
    for _ in 1 2 3 4 5 6 7 8 9; do rm -rf "$work" 2>/dev/null && return; sleep 1; done
    echo "soak: cannot remove $work" >&2
}
trap end EXIT
trap 'exit 1' INT TERM

beside() { # SCRIPT: runs until the end
    setsid sh -c "$1" sh "$work" >/dev/null 2>&1 &
    pids="$pids $!"
}

cat >"$work/agent.toml" <<EOF
rate = 228
interval = "5s"
[store]
path = "$store"
keep = "1h"
max-size = "40M"
[http]
listen = "127.0.0.1:7475"
[limits]
cpu-percent = 100.0
memory = "8G"
EOF

# shellcheck disable=SC2016 # the shells that are started expand it
# Processes that last a moment, as fast as a shell starts them.
beside 'while :; do /bin/true; /bin/true; /bin/true; /bin/true; done'
# A program that is replaced and deleted while it runs.
# shellcheck disable=SC2016 # likewise
beside 'n=0; while :; do n=$((n + 1)); cp /usr/bin/perl "$1/program$n"; "$1/program$n" -e "alarm 1; while (1) {}"; rm -f "$1/program$n"; done'
# A program with 3,000 modules, again and again.
programs=$(dirname "$0")/../tests/programs
cc -O1 -o "$work/many" "$programs/many_modules.c" -ldl
cc -O1 -shared -fPIC -DLIBRARY -o "$work/libcall.so" "$programs/many_modules.c"
# shellcheck disable=SC2016 # likewise
beside 'while :; do rm -rf "$1/modules"; mkdir "$1/modules"; cp "$1/libcall.so" "$1/modules"; "$1/many" "$1/modules" 3000; done'
# Threads that come and go.
beside 'exec python3 -c "
import threading
def work(): sum(range(20000))
while True:
    threads = [threading.Thread(target=work) for _ in range(20)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"'

metric() { # NAME: over all labels
    curl -s http://127.0.0.1:7475/metrics | awk -v name="$1" 'index($1, name) == 1 && $1 ~ "^" name "({|$)" { sum += $2 } END { printf "%.0f", sum }'
}

"$fpprof" agent --config "$work/agent.toml" 2>"$work/log" &
agent=$!
pids="$pids $agent"
sleep 30
check() {
    kill -0 $agent 2>/dev/null || { echo "soak: the agent failed: $(cat "$work/log")" >&2; exit 1; }
}
check

pss() { # PID: a process's memory in kB; pages that it shares with others count in part
    awk '/^Pss:/ { print $2 }' "/proc/$1/smaps_rollup" 2>/dev/null || true
}

# Sets `own` to the agent's memory, `heap` to what of it is not of files and BPF maps, and `largest` to the most that it had
# together with its other processes, looking once a second for a minute: the process that unwinds an interval lives for a moment.
look() {
    own=0
    largest=0
    until=$(($(date +%s) + 60))
    while [ "$(date +%s)" -lt $until ]; do
        own=$(pss $agent)
        heap=$(awk '/^Pss_Anon:/ { print $2 }' /proc/$agent/smaps_rollup 2>/dev/null || true)
        all=${own:-0}
        for pid in $(pgrep -P $agent); do
            memory=$(pss "$pid")
            all=$((all + ${memory:-0}))
        done
        [ $all -le $largest ] || largest=$all
        sleep 1
    done
}

printf '%8s %9s %9s %9s %6s %8s %10s %10s %10s %9s\n' minute 'agent kB' 'heap kB' 'at most' files threads recorded stored discarded 'store kB'
minute=0
while [ $minute -lt "$minutes" ]; do
    minute=$((minute + 1))
    look
    check
    if [ $((minute % 10)) = 5 ]; then # The store is away for a minute.
        mv "$store/stacks" "$work/disk/away" && : >"$store/stacks"
    elif [ $((minute % 10)) = 6 ]; then
        rm -f "$store/stacks" && mv "$work/disk/away" "$store/stacks"
    elif [ $((minute % 10)) = 8 ]; then # The disk is full for a minute.
        dd if=/dev/zero of="$work/disk/fill" bs=64k 2>/dev/null || true
    elif [ $((minute % 10)) = 9 ]; then
        rm -f "$work/disk/fill"
    fi
    files=$(find "/proc/$agent/fd" -type l | wc -l)
    threads=$(find "/proc/$agent/task" -maxdepth 1 -mindepth 1 | wc -l)
    printf '%8s %9s %9s %9s %6s %8s %10s %10s %10s %9s\n' $minute "$own" "$heap" "$largest" "$files" "$threads" "$(metric fpprof_samples_recorded_total)" \
        "$(metric fpprof_samples_stored_total)" "$(metric fpprof_samples_discarded_total)" "$(du -sk "$store" | cut -f1)" |
        tee -a "$work/table"
done
# The table of rules is mapped only while it is needed, so the heap shows whether the agent grows: all else has a fixed size.
# Caches fill up at first, so the second half is also shown by itself. With each slope comes the range of 95 %, of independent minutes.
awk 'function slope(first,   n, x, y, xy, xx, yy, row, d, mb, error) {
        for (row = first; row <= NR; row++) { n++; x += row; y += kb[row]; xy += row * kb[row]; xx += row * row; yy += kb[row] * kb[row] }
        d = n * xx - x * x
        mb = (n * xy - x * y) / d
        error = sqrt((n * yy - y * y - mb * mb * d) / (n - 2) / d)
        return sprintf("%.1f ± %.1f MB", mb * 60 / 1000, 1.96 * error * 60 / 1000)
    }
    { kb[NR] = $3; if ($4 > most) most = $4 }
    END {
        printf "at most %.0f MB\n", most / 1000
        if (NR > 5) printf "heap of the agent, by least squares: %s an hour, %s in the second half\n", slope(1), slope(int(NR / 2) + 1)
    }' \
    "$work/table"
curl -s http://127.0.0.1:7475/metrics | awk '
    { name = $1; sub(/[{].*/, "", name); sum[name] += $2 }
    END {
        rest = sum["fpprof_samples_recorded_total"] + sum["fpprof_samples_lost_total"] + sum["fpprof_ticks_skipped_total"] \
            + sum["fpprof_samples_dropped_total"] + sum["fpprof_samples_unread"]
        print "fired", sum["fpprof_ticks_fired_total"] ", recorded + lost + skipped + dropped + unread", rest
        exit sum["fpprof_ticks_fired_total"] != rest
    }' || { echo "soak: ticks are unaccounted for" >&2; exit 1; }
stopped=$(date +%s%3N)
kill -TERM $agent
wait $agent || { echo "soak: the agent failed: $(cat "$work/log")" >&2; exit 1; }
echo "stopped in $(($(date +%s%3N) - stopped)) ms"
cat "$work/log"
