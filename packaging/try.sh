#!/bin/sh
# Installs what package.sh made for this machine in a fresh Debian 11, 12 and 13, the .deb and the tarball, and the .rpm
# with rpm's own database; in each from there to a flame graph, which may take ten seconds. The kernel is this machine's.
# usage: try.sh [SUITE...]
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- bullseye bookworm trixie
package=$(realpath "${CARGO_TARGET_DIR:-target}/package")
mirror=${FPPROF_DEBIAN_MIRROR:-http://deb.debian.org/debian}

die() { echo "try: $*" >&2; exit 1; }
for file in "$package"/fpprof_*_"$(dpkg --print-architecture)".deb "$package"/fpprof-*-"$(uname -m)"-linux.tar.xz; do
    [ -e "$file" ] || die "no $file: just package $(uname -m)"
done

# What is done with an installed fpprof, from within. The program has frames enough to see.
script='set -eu
install=$1
shift
begun=$(date +%s%N)
"$@"
fpprof --version > /dev/null
cd /tmp
fpprof record -q -o r -- sh -c "i=0; while [ \$i -lt 1000000 ]; do i=\$((i+1)); done"
fpprof flamegraph r -o r.svg 2> /dev/null
fpprof export r --format parquet -o r.parquet 2> /dev/null
grep -q "</svg>" r.svg
ended=$(date +%s%N)
fpprof report --json r | grep -q "\"ended_in_order\": true"
prefix=/usr
[ "$install" != tarball ] || prefix=/usr/local
[ -e $prefix/share/man/man1/fpprof-record.1.gz ]
[ -e $prefix/share/bash-completion/completions/fpprof ]
[ -e $prefix/share/fish/vendor_completions.d/fpprof.fish ]
[ -e $prefix/share/zsh/site-functions/_fpprof ] || [ -e $prefix/share/zsh/vendor-completions/_fpprof ]
ls $prefix/share/doc/fpprof | grep -q LICENSE.GPL-2.0
grep -q "^ExecStart=$prefix/bin/fpprof agent$" $prefix/lib/systemd/system/fpprof-agent.service
# Names of hosts, where nsswitch.conf names a plugin that a static program cannot load.
grep -q "^hosts:.*myhostname" /etc/nsswitch.conf
DEBUGINFOD_URLS=http://no-such-host.invalid fpprof export r --debuginfod 2>&1 > /dev/null | grep -q "it is not asked again"
fpprof agent --check --config $prefix/share/doc/fpprof/agent.toml 2> /dev/null
[ "$install" != deb ] || fpprof query --store r.parquet "SELECT sum(samples) FROM stacks" > /dev/null
. /etc/os-release
ms=$(((ended - begun) / 1000000))
printf "%-22s %-8s %4s ms to a flame graph\n" "$PRETTY_NAME" "$install" $ms
[ $ms -le 10000 ] || { echo "try: more than ten seconds" >&2; exit 1; }'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for suite; do
    root=$work/$suite
    mmdebstrap --quiet --variant=minbase --include=libnss-myhostname,rpm,xz-utils "$suite" "$root.tar" "$mirror"
    for install in deb tarball rpm; do
        mkdir "$root"
        tar -xf "$root.tar" -C "$root"
        cp "$package"/*.deb "$package"/*.tar.xz "$package"/*.rpm "$root/root"
        case $install in
        deb) # And the debug information, which belongs to that very program, and fpprof-query.
            set -- dpkg -i "/root/fpprof*_$(dpkg --print-architecture).deb" ;;
        tarball) set -- tar -C /usr/local --strip-components=1 -xf "/root/fpprof-[0-9]*-$(uname -m)-linux.tar.xz" ;;
        rpm) # Until Debian 12 rpm installs nothing without that option; later ones do not know it.
            file="/root/fpprof-[0-9]*.$(uname -m).rpm"
            set -- rpm --install --nodeps --force-debian "$file" '2> /dev/null ||' rpm --install --nodeps "$file" ;;
        esac
        # The mounts go with the namespace.
        unshare -m sh -ec 'mount --rbind /proc "$1/proc"; mount --rbind /sys "$1/sys"; root=$1; shift; exec chroot "$root" "$@"' \
            sh "$root" sh -c "$script" sh "$install" sh -c "$* > /dev/null"
        rm -rf "$root"
    done
done
