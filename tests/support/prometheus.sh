#!/bin/sh
# Unpacks Prometheus and promtool of Debian's package into a folder, once. Nothing is installed: the package would start a service.
# The folder is made under another name and renamed when it is complete.
set -eu

target=${1:?usage: prometheus.sh FOLDER}
making="$target.making.$$"

if [ -x "$target/usr/bin/promtool" ]; then
    exit 0
fi
mkdir -p "$making/package"
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
(
    cd "$making/package"
    # The lists of a fresh machine are empty or old.
    apt-get download -qq -o APT::Sandbox::User=root prometheus >../log 2>&1 || { apt-get update -qq >>../log 2>&1 && apt-get download -qq -o APT::Sandbox::User=root prometheus >>../log 2>&1; } || {
        echo "prometheus.sh: apt-get download prometheus failed; check apt's sources, and run apt-get update as root:" >&2
        cat ../log >&2
        exit 1
    }
    dpkg-deb -x prometheus_*.deb ..
)
rm -rf "$making/package" "$making/log" "$making/usr/share" "$making/etc" "$making/lib"
mv -T "$making" "$target"
