#!/bin/sh
# Makes a tarball, a .deb and an .rpm for each architecture, with the debug information beside them, in target/package.
# usage: package.sh [x86_64] [aarch64]   (default: both)
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- x86_64 aarch64

target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target_dir/package
version=$(cargo pkgid --quiet | sed 's/.*[#@]//')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

die() { echo "package: $*" >&2; exit 1; }

# The prefix of the cross binutils and compiler, or nothing for this machine's own architecture.
prefix() { [ "$1" = "$(uname -m)" ] || echo "$1-linux-gnu-"; }

build() { # ARCH: static programs; fpprof with its debug information
    target=$1-unknown-linux-gnu
    [ -d "$(rustc --print target-libdir --target "$target")" ] ||
        die "Rust has no library for $target: rustup target add $target"
    name=CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')
    flags="-C target-feature=+crt-static -C link-arg=-Wl,--build-id=sha1"
    flags="$flags --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/cargo --remap-path-prefix=$PWD=/fpprof"
    # A static program finds no getrandom(2) in its C library at run time, and may open no /dev/urandom where it parses.
    flags="$flags --cfg getrandom_backend=\"linux_getrandom\""
    cross=$(prefix "$1")
    [ -z "$cross" ] || export "${name}_LINKER=${cross}gcc"
    env "${name}_RUSTFLAGS=$flags" cargo build --quiet --release -p fpprof --target "$target"
    env "${name}_RUSTFLAGS=$flags" cargo build --quiet --release --manifest-path query/Cargo.toml --target "$target" \
        --target-dir "$target_dir/query"
}

stage() { # ARCH STAGE DEBUG: what goes below /usr, and what goes below /usr/lib/debug
    built=$target_dir/$1-unknown-linux-gnu/release/fpprof
    objcopy=$(prefix "$1")objcopy
    expect_static "$1" "$built"
    mkdir -p "$2/bin" "$2/share/doc/fpprof"
    id=$(file_build_id "$1" "$built")
    debug=$3/.build-id/$(echo "$id" | cut -c1-2)
    mkdir -p "$debug"
    "$objcopy" --only-keep-debug --compress-debug-sections "$built" "$debug/$(echo "$id" | cut -c3-).debug"
    "$objcopy" --strip-all "$built" "$2/bin/fpprof"
    cargo run --quiet --release --example manual -- "$2/share"
    gzip -9n "$2"/share/man/man1/*
    mkdir -p "$2/lib/systemd/system"
    cp packaging/fpprof-agent.service "$2/lib/systemd/system"
    cp packaging/agent.toml packaging/alerts.yml README.md AGENT.md LIMITS.md LICENSE-APACHE LICENSE-MIT collector/src/bpf/LICENSE.* "$2/share/doc/fpprof"
    cargo run --quiet --release --example notices -- "$1-unknown-linux-gnu" > "$2/share/doc/fpprof/THIRD-PARTY"
    chmod 644 "$debug"/*
    chmod -R u=rwX,go=rX "$2" "$3"
}

stage_query() { # ARCH STAGE: the program of `fpprof query`, which cargo has stripped
    built=$target_dir/query/$1-unknown-linux-gnu/release/fpprof-query
    expect_static "$1" "$built"
    doc=$2/share/doc/fpprof-query
    mkdir -p "$2/bin" "$doc"
    cp "$built" "$2/bin"
    cp LICENSE-APACHE LICENSE-MIT "$doc"
    cargo run --quiet --release --example notices -- "$1-unknown-linux-gnu" query/Cargo.toml > "$doc/THIRD-PARTY"
    chmod -R u=rwX,go=rX "$2"
}

expect_static() { # ARCH FILE
    needed=$("$(prefix "$1")readelf" -d "$2" | sed -n 's/.*(NEEDED).*\[//p')
    [ -z "$needed" ] || die "$2 is not static, it needs $needed"
}

file_build_id() { # ARCH FILE
    id=$("$(prefix "$1")readelf" -n "$2" | sed -n 's/^ *Build ID: //p')
    [ -n "$id" ] || die "$2 has no build id"
    echo "$id"
}

# The packages of debug information get a LEVEL of 0: their sections are compressed already.
pack_tar() { # NAME FOLDER [LEVEL]: the folder becomes NAME in NAME.tar.xz
    tar -C "$2" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        --transform "s,^\.,$1," -I "xz -${3-6}" -cf "$out/$1.tar.xz" .
}

pack_deb() { # PACKAGE ARCH FOLDER SUMMARY [LEVEL]: the folder is the root of the package
    case $2 in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; esac
    mkdir -p "$3/DEBIAN"
    cat > "$3/DEBIAN/control" <<EOF
Package: $1
Version: $version
Architecture: $arch
Maintainer: $(git log -1 --format='%an <%ae>')
Section: devel
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$3" | cut -f1)
Description: $4
EOF
    (cd "$3" && find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
    dpkg-deb --root-owner-group -Zxz "-z${5-6}" --build "$3" "$out/${1}_${version}_$arch.deb" > /dev/null
}

pack() { # ARCH
    work=$out/work-$1
    rm -rf "$work"
    stage "$1" "$work/stage" "$work/debug"
    stage_query "$1" "$work/query"
    cp -a "$work/stage" "$work/tar"
    sed -i 's,=/usr/bin/,=/usr/local/bin/,' "$work/tar/lib/systemd/system/fpprof-agent.service"
    pack_tar "fpprof-$version-$1-linux" "$work/tar"
    pack_tar "fpprof-$version-$1-linux-debug" "$work/debug" 0
    pack_tar "fpprof-query-$version-$1-linux" "$work/query"

    mkdir -p "$work/deb" "$work/deb-debug/usr/lib/debug"
    cp -a "$work/stage" "$work/deb/usr"
    mkdir "$work/deb/DEBIAN"
    install -m 755 packaging/deb/* "$work/deb/DEBIAN"
    mv "$work/deb/usr/share/zsh/site-functions" "$work/deb/usr/share/zsh/vendor-completions"
    mv "$work/deb/usr/share/doc/fpprof/THIRD-PARTY" "$work/deb/usr/share/doc/fpprof/copyright"
    pack_deb fpprof "$1" "$work/deb" 'profiler that compares frame pointers with DWARF unwinding'
    cp -a "$work/debug/." "$work/deb-debug/usr/lib/debug"
    mkdir -p "$work/deb-query"
    cp -a "$work/query" "$work/deb-query/usr"
    mv "$work/deb-query/usr/share/doc/fpprof-query/THIRD-PARTY" "$work/deb-query/usr/share/doc/fpprof-query/copyright"
    pack_deb fpprof-query "$1" "$work/deb-query" 'SQL on the stores of fpprof (fpprof query)'
    pack_deb fpprof-dbgsym "$1" "$work/deb-debug" 'debug information for fpprof' 0

    rpmbuild --quiet -bb --target "$1-linux" --define "_topdir $work/rpm" --define "version $version" \
        --define "stage $work/stage" --define "debug $work/debug" --define "query $work/query" packaging/fpprof.spec
    mv "$work"/rpm/RPMS/*/*.rpm "$out"
    rm -rf "$work"
}

rm -rf "$out"
mkdir -p "$out"
for arch; do
    case $arch in x86_64 | aarch64) ;; *) die "no packages for '$arch': x86_64 or aarch64" ;; esac
    build "$arch"
    pack "$arch"
done
(cd "$out" && sha256sum -- * > SHA256SUMS && ls -l)
