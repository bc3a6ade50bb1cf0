# Every recipe of the project. `./dev RECIPE` installs what is missing first.

features := "libdw,libunwind"
programs := env("CARGO_TARGET_DIR", justfile_directory() / "target") / "release"
fpprof := programs / "fpprof"
# Builds a program with the features that the whole workspace has in tests: nothing is compiled a second time.
build_program := "cargo build --release --workspace --features " + features + " --bin"

# List the recipes.
default:
    @just --list

# Build everything in release.
build:
    {{build_program}} fpprof

# Build fpprof for aarch64, in target/aarch64-unknown-linux-gnu/release.
build-arm64:
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc cargo build --quiet --release --target aarch64-unknown-linux-gnu

# Build the program of `fpprof query` beside fpprof, and test it. It is not in the workspace: half an hour of CPU time at first.
query: build
    FPPROF_BIN={{fpprof}} cargo test --release --manifest-path query/Cargo.toml --target-dir {{programs}}/../query
    cp {{programs}}/../query/release/fpprof-query {{programs}}

# The main job on real nbdkit + fio: every mode, perf beside it, one report.
demo *ARGS:
    begun=$(date +%s); cargo build --release && echo "demo: the build took $(($(date +%s) - begun)) s" >&2
    sh workloads/demo.sh {{fpprof}} {{ARGS}}

# How many stacks each mode breaks, why, what chunk size would do, what it costs: four real programs, as Markdown.
answers *ARGS: build
    sh workloads/answers.sh {{fpprof}} {{ARGS}}

# A tarball, a .deb and an .rpm for x86_64 and aarch64, or for those that are named, in target/package.
package *ARCHITECTURES:
    sh packaging/package.sh {{ARCHITECTURES}}

# Install the packages of this machine's architecture in fresh Debian 11, 12 and 13, and draw a flame graph in each.
package-try *SUITES:
    sh packaging/try.sh {{SUITES}}

# Boot fresh Debian 12 and 13 with systemd, emulated, and have the unit of the .deb profile them for a minute each.
unit-try *SUITES:
    sh packaging/try-unit.sh {{SUITES}}

# Formatting, lints, and all tests that leave the machine as it is: unit, golden and live ones. Needs root.
test: check
    rm -rf "${CARGO_TARGET_DIR:-target}/beside"
    cargo --config 'target."cfg(all())".runner = "tests/beside.sh"' test --release --workspace --features {{features}} --no-fail-fast; \
        status=$?; tests/beside.sh --wait && exit $status

# Tests that change the machine while they run and put it back: CPUs, core names, process numbers, control groups, users' rights.
test-host:
    cargo test --release --workspace --features {{features}} --no-fail-fast --test host

# Tests that take some hours: known programs, ten real ones, the balance a hundred times, threads that exit, every ELF file, crashes, fuzzers, other kernels.
test-long: truth verify-ten viewers balance exits unwind-sweep crash (fuzz "30")
    {{just_executable()}} kernels

# The balance with recorders that are stopped, and with CPUs that go off and come on: a hundred recordings of each, 5 minutes.
balance:
    FPPROF_BALANCE_ROUNDS=100 cargo test --release --workspace --features {{features}} --test live -- --nocapture a_stopped_recorder
    FPPROF_BALANCE_ROUNDS=100 cargo test --release --workspace --features {{features}} --test host -- --nocapture every_tick

# Processes whose threads exit while they are recorded: ten recordings of each kind, some ten minutes.
exits:
    FPPROF_EXITS_ROUNDS=10 cargo test --release --workspace --features {{features}} --test live -- --nocapture threads_that_exit

# Recorders that are killed, recordings that are cut and damaged, disks that fail: up to an hour.
crash:
    cargo test --release --workspace --features {{features}} --no-fail-fast --test crash -- --nocapture --test-threads 1

# What fpprof withstands, as one table: all goals or those named, `just reliability R8 S1`. In target/reliability/table.md.
reliability *ARGS: build
    {{build_program}} fpprof-reliability
    {{programs}}/fpprof-reliability {{ARGS}}

# Fuzz each parser of foreign bytes for so many seconds, or those named: `just fuzz 600 elf recording`. In target/fuzz.
fuzz SECONDS="60" *TARGETS: build
    sh fuzz/run.sh {{fpprof}} {{SECONDS}} {{TARGETS}}

# All live tests, and what they leave in the kernel and among the processes: nothing. Wants the machine for itself.
leftovers:
    cargo test --release --workspace --features {{features}} --no-run
    sh workloads/leftovers.sh cargo test --quiet --release --workspace --features {{features}} --test live --test host --test leftovers --test clean_world

# Formatting, lints and the documentation of the published crates; warnings are errors.
check:
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --all --check
    cargo metadata --quiet --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
    cargo fmt --manifest-path tests/outside/Cargo.toml --check
    cargo fmt --manifest-path query/Cargo.toml --check
    clang-format --dry-run -Werror collector/src/bpf/*.c collector/src/bpf/*.h
    shellcheck --severity=warning dev .ci/run fuzz/*.sh packaging/*.sh packaging/deb/* tests/*.sh workloads/*.sh
    cargo clippy --quiet --release --workspace --all-targets --features {{features}} -- -D warnings
    RUSTDOCFLAGS='-D warnings' cargo doc --quiet --release --no-deps -p fpprof-prefetch -p fpprof-unwind -p fpprof-recording
    cargo clippy --quiet --release --workspace --features {{features}} --test crash --test host --test truth --test verify_many --test verify_ten --test viewers -- -D warnings

# Package the crates that others can use, and build what is in the packages; wants cargo 1.90 or newer.
crates:
    cargo package --quiet --allow-dirty -p fpprof-prefetch -p fpprof-unwind -p fpprof-recording

# The structure in figures: lines by crate, cycles between files, copies of ten lines and more, the longest files.
shape:
    cargo test --quiet --release --workspace --features {{features}} --test tidy -- --nocapture files_need_each_other

# Every row of every ELF file below /usr/lib and /usr/bin against gimli's, with the most time and memory a file takes.
unwind-sweep *PATHS="/usr/lib /usr/bin":
    cargo run --quiet --release -p fpprof-unwind --example sweep -- {{PATHS}}

# Walks from every address of the given ELF files, by the unwinder's rules of eight bytes, against gimli's rows.
unwind-rows +PATHS:
    FPPROF_ROWS_OF="$(echo {{PATHS}} | tr ' ' :)" cargo test --quiet --release -p fpprof-unwind --test it -- --nocapture rows_of_mapped

# The unwinder's one line of unsafe code under Miri, with a nightly toolchain that has it.
miri:
    cargo +nightly miri test -p fpprof-prefetch

# Measure `unwind` (beside framehop, libdw, libunwind, perf), `collect` (beside perf, bpftrace, samply), `overhead` and `agent` (beside perf, lightswitch, the OpenTelemetry profiler), or `rules`.
bench WHAT *ARGS: build
    {{build_program}} {{ if WHAT =~ "collect|overhead|agent|rules" { "fpprof-bench-collect" } else { "fpprof-bench" } }}
    {{programs}}/{{ if WHAT =~ "collect|overhead|agent|rules" { "fpprof-bench-collect" } else { "fpprof-bench" } }} {{WHAT}} --fpprof {{fpprof}} {{ARGS}}

# Boot other kernels in QEMU and check fpprof in each: all, or those named (5.10 6.1 6.1-64cpus 6.12 6.12-rt 7.3 arm64).
kernels *ARGS: build
    case " {{ARGS}} " in '  ' | *' arm64 '*) {{just_executable()}} build-arm64 ;; esac
    {{build_program}} fpprof-kernels
    {{programs}}/fpprof-kernels {{ARGS}}

# Programs of known stacks, and 80 of many languages, under every strategy: tables in target/truth and target/verify-many.
truth:
    cargo test --quiet --release --workspace --features {{features}} --no-fail-fast --test truth --test verify_many -- --nocapture

# Ten real programs against their true stacks, ours beside libdw and libunwind: one table, in target/verify-ten.
verify-ten:
    cargo test --quiet --release --workspace --features {{features}} --test verify_ten -- --nocapture

# Exports read by the viewers' own importers: Firefox Profiler, speedscope, OpenTelemetry Collector; wants npm and Go 1.21 or newer.
viewers:
    npm ci --prefix tests/viewers --ignore-scripts
    cargo test --quiet --release --workspace --features {{features}} --test viewers

# The profiles of five agents in DuckDB, ClickHouse's engine, a Spark cluster, `fpprof query`, an OpenTelemetry Collector, Grafana Pyroscope and MinIO: the same totals; wants pip, Go, a JDK and 4 GB.
engines: query
    python3 -m venv target/tools/engines
    target/tools/engines/bin/pip install --quiet --disable-pip-version-check -r workloads/engines/requirements.txt
    [ -x target/tools/otelcol/otelcol ] || { \
        GOBIN="$PWD/target/tools" go install go.opentelemetry.io/collector/cmd/builder@v0.161.0 && \
        target/tools/builder --config workloads/engines/collector.yaml --skip-strict-versioning; }
    [ -x target/tools/pyroscope/pyroscope ] || sh workloads/engines/pyroscope.sh target/tools/pyroscope
    [ -x target/tools/minio ] || GOBIN="$PWD/target/tools" CGO_ENABLED=0 go install -ldflags='-s -w' github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
    rm -rf target/engines
    target/tools/engines/bin/python workloads/engines/engines.py {{fpprof}} target/tools/otelcol/otelcol target/tools/pyroscope/pyroscope target/tools/minio target/engines

# What questions to many machines' tables cost, by those of `engines`, copied: for workloads/results/fleet.md.
fleet:
    target/tools/engines/bin/python workloads/engines/fleet.py target/engines/store target/fleet

# A stripped program with the debug information of elfutils' debuginfod server; wants the package debuginfod.
debuginfod: build
    sh workloads/debuginfod.sh {{fpprof}}

# The agent beside programs that come and go and a store that fails, for so many minutes: does its memory grow?
soak MINUTES="120": build
    sh workloads/soak.sh {{fpprof}} {{MINUTES}}

# Rewrite the golden files from what is printed now; read the diff before you commit it.
bless:
    FPPROF_BLESS=1 cargo test --release -p fpprof-reports

# Bundle the script and style of the HTML pages again, from reports/page; wants node and npm, which nothing else does.
assets:
    npm ci --prefix reports/page --ignore-scripts
    node reports/page/build.mjs

# Check that the committed bundle is what its sources give, byte by byte.
assets-check:
    npm ci --prefix reports/page --ignore-scripts
    node reports/page/build.mjs target/assets
    diff -r reports/assets target/assets

# Format Rust and BPF C.
fmt:
    cargo fmt --all
    clang-format -i collector/src/bpf/*.c collector/src/bpf/*.h

# Build flags on three programs, in some ten minutes on a quiet machine; resumable.
flags-quick: build
    setsid -w {{fpprof}} flags run workloads/corpus/quick.toml -o target/flags-quick

# A slow-down of 3 % planted in three programs: is it found? Some ten minutes; resumable.
flags-planted: build
    setsid -w {{fpprof}} flags run workloads/corpus/planted.toml -o target/flags-planted

# Build flags on the whole corpus, which takes hours; resumable.
flags-full: build
    setsid -w {{fpprof}} flags run workloads/corpus/full.toml -o target/flags-full
