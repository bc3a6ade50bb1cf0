#!/bin/sh
# Boots fresh Debian systems with systemd in QEMU, emulated, with the .deb that package.sh made: enables the agent's unit
# as an administrator does, and checks that it samples a service, says it is ready, reloads, answers, and leaves nothing
# behind when it is stopped; that it is restarted when the package is upgraded, and that it and its store go with the package.
# Three minutes a system.
# usage: try-unit.sh [SUITE...]   (default: bookworm trixie)
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- bookworm trixie
package=$(realpath "${CARGO_TARGET_DIR:-target}/package")
mirror=${FPPROF_DEBIAN_MIRROR:-http://deb.debian.org/debian}
limit=600

die() { echo "try-unit: $*" >&2; exit 1; }
[ "$(uname -m)" = x86_64 ] || die "it boots x86-64 systems, on x86-64"
deb=$(ls "$package"/fpprof_*_amd64.deb 2> /dev/null) || die "no $package/fpprof_*_amd64.deb: ./dev package x86_64"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What the machine does once it is up. The last line says that it came to its end.
cat > "$work/check" <<'EOF'
#!/bin/bash
exec > /dev/ttyS1 2>&1
fail() {
    echo "failed: $*"
    systemctl --no-pager status fpprof-agent
    journalctl --no-pager -u fpprof-agent
    systemctl poweroff --force
    exit
}
state() { systemctl show -P "$1" fpprof-agent; }
answer() { # PORT PATH: the answer of a server on this machine
    exec 3<> "/dev/tcp/127.0.0.1/$1" || return
    printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1:%s\r\n\r\n' "$2" "$1" >&3
    cat <&3
    exec 3<&-
}
until_true() { # SECONDS COMMAND...
    for _ in $(seq "$1"); do
        "${@:2}" && return
        sleep 1
    done
    return 1
}
n_files() { ls /var/lib/fpprof/stacks/*/*.parquet 2> /dev/null | wc -l; }
has_files() { [ "$(n_files)" -ge "$1" ]; }
has_page() { answer 7475 / 2> /dev/null | grep -q '<html'; }

[ "$(systemctl is-enabled fpprof-agent)" = disabled ] || fail "the unit is not disabled after the installation"
mkdir -p /etc/fpprof
printf 'rate = 99\ninterval = "10s"\n' > /etc/fpprof/agent.toml
systemctl enable --now fpprof-agent || fail "it does not start"
[ "$(state ActiveState) $(state Type)" = "active notify" ] || fail "it is not active"
until_true 60 has_files 2 || fail "no two files after a minute"
answer 7474 /-/healthy | grep -q '^HTTP/1.. 200' || fail "it is not healthy"
answer 7474 /metrics | grep -E '^fpprof_(samples_recorded|stacks_total.*"cfi".*"complete")'
echo "store: $(n_files) files, $(du -sk /var/lib/fpprof | cut -f1) kB"

before=$(n_files)
systemctl reload fpprof-agent || fail "it does not reload"
until_true 60 has_files $((before + 2)) || fail "no files after a reload"
[ "$(state NRestarts)" = 0 ] || fail "it was restarted"

# The page of the store, which only root may read.
fpprof serve 2> /dev/null &
until_true 30 has_page || fail "no page"
answer 7475 /api/facets | grep -q '"name":"busy.service","samples":[1-9]' || fail "busy.service is not in the store"
kill %1
wait

systemctl stop fpprof-agent || fail "it does not stop"
[ "$(state Result)" = success ] || fail "it ended with $(state Result)"
[ -z "$(pgrep fpprof)" ] || fail "processes are left: $(pgrep -a fpprof)"

systemctl start fpprof-agent || fail "it does not start again"
before=$(state MainPID)
dpkg -i /root/fpprof.deb > /dev/null || fail "the package cannot be upgraded"
[ "$(state ActiveState)" = active ] || fail "it does not run after an upgrade"
[ "$(state MainPID)" != "$before" ] || fail "the old program still runs after an upgrade"
dpkg -r fpprof > /dev/null || fail "the package cannot be removed"
[ -z "$(pgrep fpprof)" ] || fail "the agent still runs without its package"
[ -d /var/lib/fpprof/stacks ] || fail "the store is removed with the package"
[ ! -e /etc/systemd/system/multi-user.target.wants/fpprof-agent.service ] || fail "the unit is still enabled"
dpkg -P fpprof > /dev/null || fail "the package cannot be purged"
[ ! -e /var/lib/fpprof ] || fail "the store is left after a purge"
journalctl --no-pager -u fpprof-agent -o cat | sed 's/^/journal: /'
echo "done"
systemctl poweroff --force
EOF

cat > "$work/check.service" <<'EOF'
[Unit]
After=multi-user.target busy.service
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/check
EOF
cat > "$work/busy.service" <<'EOF'
[Service]
ExecStart=/bin/sh -c 'while :; do :; done'
EOF

for suite; do
    root=$work/$suite
    # shellcheck disable=SC2016 # expanded by mmdebstrap, and in the new system
    mmdebstrap --quiet --variant=minbase --include=systemd-sysv,procps "$suite" "$root" "$mirror" \
        --customize-hook='chroot "$1" sh -c "cd /tmp && apt-get -qq update && apt-get -qq download \
            \$(apt-cache depends linux-image-cloud-amd64 | sed -n \"s/.*Depends: \\(linux-image-[0-9].*\\)/\\1/p\")"' \
        --customize-hook='dpkg-deb --fsys-tarfile "$1"/tmp/linux-image-*.deb | tar -x -C "$1" ./boot' \
        --customize-hook='rm -rf "$1"/tmp/* "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/usr/share/locale/*'
    mv "$root"/boot/vmlinuz-* "$work/$suite.kernel"
    rm -rf "${root:?}"/boot/*
    cp "$deb" "$root/root/fpprof.deb"
    chroot "$root" dpkg -i /root/fpprof.deb > /dev/null
    install -m 755 "$work/check" "$root/usr/local/sbin/check"
    cp "$work/check.service" "$work/busy.service" "$root/etc/systemd/system"
    ln -s ../check.service ../busy.service "$root/etc/systemd/system/multi-user.target.wants"
    ln -sf lib/systemd/systemd "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) > "$work/$suite.initrd"
    rm -rf "$root"
    # QEMU 7.2 corrupts the flags in cmpxchg16b.
    timeout "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max,-cx16 -smp 2 -m 2048 -nodefaults -display none \
        -no-reboot -serial "file:$work/$suite.console" -serial "file:$work/$suite.out" -kernel "$work/$suite.kernel" \
        -initrd "$work/$suite.initrd" -append "console=ttyS0 loglevel=4 panic=-1 systemd.show_status=0" ||
        echo "try-unit: QEMU ended with $?" >&2
    sed "s/^/$suite: /" "$work/$suite.out"
    tail -n 1 "$work/$suite.out" | grep -q '^done' ||
        { tail -n 30 "$work/$suite.console" >&2; die "$suite: the unit does not work"; }
    rm "$work/$suite.initrd"
done
