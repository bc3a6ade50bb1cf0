#!/bin/sh
# Fetches Python 3.13 of Debian 13 with its C library; DIRECTORY/python3.13 runs it. For x86-64. Nothing is installed, and
# apt's state on this machine does not change.
# usage: python.sh DIRECTORY
set -eu
mirror=${FPPROF_DEBIAN_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || { echo "python.sh: $keyring is missing: install debian-archive-keyring" >&2; exit 1; }

rm -rf "$1" "$1.part"
mkdir -p "$1.part/lists/partial" "$1.part/cache/archives/partial" "$1.part/tree"
work=$(realpath "$1.part")
echo "deb [arch=amd64 signed-by=$keyring] $mirror trixie main" >"$work/sources.list"
# These settings come after this machine's own configuration: its proxies apply, its hooks do not.
cat >"$work/apt.conf" <<END
#clear APT::Update;
#clear APT::Architectures;
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Default-Release "trixie";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::Cache "$work/cache";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "$work/lists";
Dir::State::status "/dev/null";
END
get() { (cd "$work" && apt-get -qq -c "$work/apt.conf" "$@"); }
get update
get download python3.13-minimal libpython3.13-minimal libc6 libexpat1 zlib1g
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/tree"; done

cat >"$work/tree/python3.13" <<'END'
#!/bin/sh
usr=${0%/*}/usr
libraries=$usr/lib/x86_64-linux-gnu
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$usr/bin/python3.13" "$@"
END
chmod +x "$work/tree/python3.13"
"$work/tree/python3.13" -c 'import faulthandler'
mv "$work/tree" "$1"
rm -r "$work"
