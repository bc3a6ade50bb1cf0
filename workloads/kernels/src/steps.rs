//! The steps run in the guest, each by a shell in its own directory.

use crate::kernels::Expects;

/// A script; its results are in a directory of its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) script: &'static str,
}

const BEFORE: Step = Step { name: "before", script: "bpf_objects" };

/// Polls, because the kernel frees BPF objects asynchronously.
const AFTER: Step = Step {
    name: "after",
    script: "for try in 1 2 3 4 5 6 7 8 9 10; do
	bpf_objects >counted
	cmp -s counted /out/before/stdout && break
	sleep 1
done
cat counted
for exe in /proc/[0-9]*/exe; do readlink $exe; done >programs
true",
};

const EVERYTHING: &[Step] = &[
    Step { name: "doctor", script: "fpprof doctor" },
    Step { name: "fp", script: "fpprof record -F 199 --call-graph fp -- known 60 chain 120000" },
    Step { name: "dwarf", script: "fpprof record -F 199 --call-graph dwarf,65536 -- known 60 chain 120000" },
    Step { name: "both", script: "fpprof record -F 199 -- known 60 chain 120000" },
    Step { name: "one-in-four", script: "fpprof record -F 499 --call-graph both:1/4 -- known 60 chain 120000" },
    Step { name: "cfi", script: "fpprof record -F 999 --call-graph cfi,verify=4,fp -- known 60 chain 120000" },
    Step { name: "auto", script: "fpprof record -F 199 --call-graph auto -- known 60 chain 120000" },
    Step { name: "private", script: "fpprof record -F 199 -- known 60 private 120000" },
    Step {
        name: "attach",
        script: "known 600 threads 1000000000 &
fpprof record -F 199 -p $! --duration 1
status=$?
kill $!
exit $status",
    },
    Step { name: "all", script: "fpprof record -F 199 -a -- known 60 threads 20000" },
    Step { name: "off-cpu", script: "fpprof record -F 199 --off-cpu -- known 60 waits 300" },
    Step {
        name: "agent",
        script: "ifconfig lo up
# glibc's rows for its resolver of lazily bound functions are 16 bytes off on arm64 (_dl_runtime_resolve in 2.36), and a
# few stacks of the whole machine would be broken there.
export LD_BIND_NOW=1
settings() { printf 'rate = 199\\ninterval = \"1s\"\\ncall-graph = \"%s\"\\n[store]\\npath = \"/out/agent/store\"\\n[limits]\\ncpu-percent = 100.0\\n' $1 >agent.toml; }
# An emulated machine may be very slow.
until_is() { for _ in $(seq 120); do \"$@\" && return; sleep 1; done; exit 4; }
has_metric() { wget -q -O metrics http://127.0.0.1:7474/metrics && grep -q \"$1\" metrics; }
settings auto,fp
fpprof agent --config agent.toml &
agent=$!
until_is has_metric 'ticks_fired_total.* [1-9]'
known 60 chain 120000
until_is has_metric 'samples_stored_total [1-9][0-9][0-9]'
settings cfi
kill -HUP $agent
until_is grep -q configuration stderr
sleep 2
has_metric fired || exit 4
kill -TERM $agent
wait $agent",
    },
    Step { name: "report", script: "fpprof report --json --strategies dwarf /out/both/fpprof.fpprof" },
];

/// Recordings of a program that signs its return addresses, and whose leaf keeps its own in the link register.
const SIGNED: &[Step] = &[
    Step {
        name: "signed-fp",
        script: "grep -q ' paca ' /proc/cpuinfo || exit 3
fpprof record -F 199 --call-graph fp -- signed",
    },
    Step { name: "signed-both", script: "fpprof record -F 199 -- signed" },
];

const MANY_CPUS: &[Step] = &[Step {
    name: "both",
    script: "fpprof record -F 99 -- \
        sh -c 'cat /proc/$PPID/fdinfo/* >fdinfo; cat /proc/$PPID/maps >maps; known 60 chain 120000; true'",
}];

/// The steps for a kernel with these expectations.
pub(crate) fn steps(expects: Expects) -> impl Iterator<Item = &'static Step> {
    let (steps, more): (&[Step], &[Step]) = match expects {
        Expects::Ebpf | Expects::Realtime | Expects::PerfEvent => (EVERYTHING, &[]),
        Expects::SignedAddresses => (EVERYTHING, SIGNED),
        Expects::ManyCpus => (MANY_CPUS, &[]),
    };
    [&BEFORE].into_iter().chain(steps).chain(more).chain([&AFTER])
}
