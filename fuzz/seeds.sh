#!/bin/sh
# Real files for the fuzzers to start from: fuzz/seeds.sh FPPROF SEEDS DIR
set -eu
fpprof=$(realpath "$1")
seeds=$(realpath "$2")
mkdir -p "$3"
dir=$(cd "$3" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for target in eh_frame eh_frame_hdr debug_frame sframe expression stack elf core_dump perf_map jitdump recording perf_data perf_pipe demangle; do
    mkdir -p "$dir/$target"
done

cd "$work"
cat >program.cc <<'SOURCE'
extern "C" void abort();
template <typename T> struct Box { T value; __attribute__((noinline)) T twice(T more) { return value + more; } };
static inline int inlined(int n) { return n * 3; }
__attribute__((noinline)) int thrower(int n) {
#ifdef __EXCEPTIONS
    if (n > 5) throw n;
#endif
    return inlined(n);
}
int main(int count, char **arguments) {
    Box<int> box{count};
    int sum = 0;
    for (int n = 0; n < 10; n++) {
#ifdef __EXCEPTIONS
        try { sum += thrower(n) + box.twice(n); } catch (int caught) { sum += caught; }
#else
        sum += thrower(n) + box.twice(n);
#endif
    }
    if (arguments[0][0] == 0) abort();
    return sum == 0;
}
SOURCE
n=0
while read -r options; do
    # shellcheck disable=SC2086
    g++ -nostdlib -Wl,--unresolved-symbols=ignore-all -O1 $options program.cc -o "$dir/elf/$n" 2>warnings || { cat warnings >&2; exit 1; }
    n=$((n + 1))
done <<'OPTIONS'
-g
-g -gz
-gdwarf-4 -no-pie
-gdwarf-3 -m32
-g1 -Wl,--no-eh-frame-hdr
-fno-asynchronous-unwind-tables -fno-exceptions -g
-gsplit-dwarf
-s
-g -fdebug-types-section
-Wa,--gsframe
OPTIONS
cp /bin/true "$dir/elf/true"
# What Go's linker leaves: the head of its table of functions, a name, one function and where it ends, its details.
word() { printf '%b\0\0\0\0\0\0' "$1"; }
{
    printf '\361\377\377\377\0\0\1\10'
    for value in '\01\0' '\0\0' '\0\020' '\0110\0' '\0\0' '\0\0' '\0\0' '\0130\0'; do word "$value"; done
    printf 'runtime.goexit\0\0\0\0\0\0\014\0\0\0\0\4\0\0\0\0\0\0\0\0\0\0'
} >gopclntab
objcopy --add-section .gopclntab=gopclntab --add-section .go.buildinfo=gopclntab "$dir/elf/7" "$dir/elf/go"

number=0
for file in /bin/true /lib/x86_64-linux-gnu/libc.so.6 /lib64/ld-linux-x86-64.so.2 "$dir"/elf/*; do
    number=$((number + 1))
    for section in eh_frame eh_frame_hdr debug_frame sframe; do
        rm -f section
        objcopy --dump-section ".$section=section" "$file" /dev/null 2>/dev/null || continue
        # The beginning is enough of a large one.
        [ ! -s section ] || head -c 8192 section >"$dir/$section/$number"
    done
done
# rsp + 8 + (rip & 15 >= 11) * 8, as for stubs of the PLT; the register saved at an offset; a loop; a dereference.
printf '\167\010\200\000\077\032\073\052\063\044\042' >"$dir/expression/stub"
printf '\167\020\006\043\010' >"$dir/expression/dereference"
printf '\061\057\375\377' >"$dir/expression/loop"

printf '%s\n' _ZN3BoxIiE5twiceEi _ZNSt6vectorIiSaIiEE9push_backEOi _RNvCs1234_7mycrate3foo \
    _ZN4core3fmt9Formatter3pad17h0123456789abcdefE _ZZ4mainENKUliE_clEi >"$dir/demangle/few"
nm -D --defined-only /usr/lib/x86_64-linux-gnu/libstdc++.so.6 | cut -d' ' -f3 | awk 'NR % 100 == 1' >"$dir/demangle/many"
printf '100000 40 first\n100040 80 second;name\n0x1000c0 1 \033[1mthird\nnonsense\n' >"$dir/perf_map/few"
"$seeds" jitdump "$dir/jitdump/few"

cat >spin.c <<'SOURCE'
#include <stdlib.h>
#include <time.h>
int deep(int n) { volatile int sum = 0; if (n) return deep(n - 1) + 1; for (int i = 0; i < 100000; i++) sum += i; return sum; }
int main(int count, char **arguments) {
    clock_t start = clock();
    int sum = 0;
    while (clock() - start < CLOCKS_PER_SEC / 20) sum += deep(3);
    if (count > 1) abort();
    return arguments[0][0] + sum == 0;
}
SOURCE
gcc -O0 -g spin.c -o spin
gcc -O0 -static -nostdlib -e crash -x c - -o tiny <<'SOURCE'
void crash(void) { *(volatile int *)0 = 1; }
SOURCE
for mode in fp dwarf,4096 both,4096 cfi,4096; do
    "$fpprof" record --quiet --call-graph "$mode" -F 199 -o "$mode.fpprof" -- ./spin
done
"$fpprof" record --quiet --call-graph both:1/4,4096 -F 199 -o one_in_four.fpprof -- ./spin
"$fpprof" record --quiet --call-graph cfi,4096,verify=10 --aggregate -F 999 -o aggregated.fpprof -- ./spin
"$fpprof" record --quiet --off-cpu -F 99 -o off.fpprof -- sh -c './spin; sleep 0.01'
"$seeds" recordings "$dir/recording" ./*.fpprof
gdb -q -batch -ex run -ex 'generate-core-file core' ./tiny >/dev/null 2>&1
mv core "$dir/core_dump/tiny"

n=0
while read -r options; do
    # shellcheck disable=SC2086
    perf record -q -F 99 -o "$dir/perf_data/$n" $options -- ./spin >/dev/null 2>&1
    # shellcheck disable=SC2086
    perf record -q -F 99 -o - $options -- ./spin 2>/dev/null >"$dir/perf_pipe/$n"
    n=$((n + 1))
done <<'OPTIONS'
-e cpu-clock
-e cpu-clock -g
-e cpu-clock --call-graph dwarf,2048
-e cpu-clock -g -z
-e {cpu-clock,task-clock}:S -g
-e cpu-clock,task-clock -g
OPTIONS
