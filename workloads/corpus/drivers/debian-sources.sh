#!/bin/sh
# Leaves the upstream source of a Debian package, and the headers of others, in the current directory:
#   debian-sources.sh SOURCE [HEADERS-PACKAGE…]  →  ./SOURCE/ and ./sysroot/
# Works beside apt's own lists and needs no root: sources come from wherever this system's packages come from.
set -eu
source=$1
shift
here=$PWD
mkdir -p apt/lists/partial apt/archives/partial sysroot
apt-get indextargets 'Created-By: Packages' --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' | sort -u >apt/found
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ ! -e "$keyring" ] || sed -i "s|^deb-src |deb-src [signed-by=$keyring] |" apt/found
grep -E '/debian/? ' apt/found >apt/sources.list || { echo "error: this is no Debian: no sources of $source" >&2; exit 1; }
apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$here/apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$here/apt/lists" \
        -o Dir::Cache::archives="$here/apt/archives" -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache= -o APT::Sandbox::User= "$@"
}
apt update
apt source --download-only "$source"
mkdir "$source"
rm -f "$source"_*.asc
tar -xf "$source"_*.orig.tar.* --strip-components=1 -C "$source"
for package in "$@"; do
    apt-get -qq -o APT::Sandbox::User= download "$package"
    dpkg -x "$package"_*.deb sysroot
done
