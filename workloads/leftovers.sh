#!/bin/sh
# Runs a command and says what it left behind: BPF programs, maps and links, processes with perf events open, and
# processes of ours. Ends with status 1 if anything is there that was not there before. Whatever others start meanwhile
# is taken for ours, so it wants a machine of its own.
#   sh workloads/leftovers.sh COMMAND...
set -eu
[ $# -gt 0 ] || { echo "usage: leftovers.sh COMMAND..." >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM

look() {
    for kind in prog map link; do
        bpftool "$kind" show | sed -n "s/^\([0-9][0-9]*\): \([^ ]*\)\( *name [^ ]*\)\{0,1\}.*/BPF $kind \1 \2\3/p"
    done
    for process in /proc/[0-9]*; do
        name=$(cat "$process/comm" 2>/dev/null) || continue
        case $(ls -l "$process/fd" 2>/dev/null) in
        *perf_event*) echo "perf events of process ${process#/proc/} $name" ;;
        esac
        case $(readlink "$process/exe" 2>/dev/null) in
        */fpprof | */nbdkit | */fio | "${CARGO_TARGET_DIR:-$PWD/target}"/* | "${TMPDIR:-/tmp}"/.tmp*)
            echo "process ${process#/proc/} $name" ;;
        esac
    done
}

look | sort >"$dir/before"
status=0
"$@" || status=$?
# The kernel takes BPF objects apart in its own time.
tries=0
while look | sort >"$dir/after"; do
    comm -13 "$dir/before" "$dir/after" >"$dir/left"
    tries=$((tries + 1))
    if [ ! -s "$dir/left" ] || [ $tries -ge 10 ]; then break; fi
    sleep 0.5
done
echo "leftovers: $(wc -l <"$dir/left") things were not there before (of $(wc -l <"$dir/after") there are)"
cat "$dir/left"
if [ -s "$dir/left" ]; then exit 1; fi
exit "$status"
