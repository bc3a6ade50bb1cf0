#!/bin/sh
# Builds Debian's glibc in the current directory: glibc.sh CC FLAGS…  →  ./lib/
# Programs use it by `-Wl,--dynamic-linker=DIR/lib/ld-linux-x86-64.so.2 -Wl,-rpath,DIR/lib`; other libraries are the
# system's.
set -eu
cc=$1
shift
drivers=$(cd "$(dirname "$0")" && pwd)
for tool in bison gawk make patch python3; do
    command -v $tool >/dev/null || { echo "error: glibc needs $tool: install it" >&2; exit 1; }
done
sh "$drivers/debian-sources.sh" glibc
tar -xf glibc_*.debian.tar.* -C glibc
sed 's/#.*//; s/ .*//; /^$/d' glibc/debian/patches/series | while read -r patch; do
    patch -s -p1 -d glibc <"glibc/debian/patches/$patch"
done
mkdir build lib
cd build
../glibc/configure CC="$cc" CFLAGS="$*" --prefix=/usr --disable-werror --disable-nscd --disable-profile --enable-stack-protector=strong
make -s -j"$(nproc)"
cp elf/ld-linux-x86-64.so.2 libc.so.6 math/libm.so.6 dlfcn/libdl.so.2 nptl/libpthread.so.0 rt/librt.so.1 resolv/libresolv.so.2 ../lib
cd ..
rm -rf build glibc apt
