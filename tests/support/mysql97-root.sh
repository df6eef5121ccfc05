#!/bin/sh
# Makes a folder that holds MySQL 9.7, for tests that start it by chroot.
#
# Debian 12 has no MySQL package and MySQL's own need a foreign repository; Debian's unstable release has it, but its libraries are
# too new for this system. So a minimal unstable system is unpacked into a folder of its own, from the mirror that apt uses anyway.
# Its data dictionary is initialised here once (3 s) and copied for each server (0.2 s). The folder is made under another name and
# renamed when it is complete, so an interruption leaves nothing that looks usable.
set -eu

target=${1:?usage: mysql97-root.sh FOLDER}
making="$target.making.$$"

if [ -x "$target/usr/sbin/mysqld" ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "mysql97-root.sh: run by user $(id -un), needs root for debootstrap and chroot; run it as root" >&2
    exit 1
fi

codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $codename" "Component: main" | head -n 1)
if [ -z "$mirror" ]; then
    echo "mysql97-root.sh: apt lists no mirror for $codename main, needs one; check apt's sources and run apt-get update" >&2
    exit 1
fi

mkdir -p "$(dirname "$target")"
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
if ! debootstrap --variant=minbase --include=mysql-server-core,mysql-client-core sid "$making" "$mirror" >"$target.log" 2>&1; then
    echo "mysql97-root.sh: debootstrap failed; the end of $target.log:" >&2
    tail -n 20 "$target.log" >&2
    exit 1
fi
mkdir "$making/servers"
chroot "$making" mysqld --no-defaults --user=root --datadir=/template --initialize-insecure --disable-log-bin \
    --innodb-redo-log-capacity=64M >>"$target.log" 2>&1
# The server's identity; each copy makes its own.
rm "$making/template/auto.cnf"
rm -rf "$making"/var/cache/apt/archives/*.deb "$making/var/lib/apt/lists"
mv -T "$making" "$target"
