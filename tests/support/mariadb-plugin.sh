#!/bin/sh
# Provides a plugin of Debian's MariaDB as a file, for a test that loads it.
#
# It lies in mariadb-server, which is not installed because it would add a system service and start it: so it is taken from the archive
# of that package, in the version of the programs. The file is written under another name and renamed when it is complete.
set -eu

target=${1:?usage: mariadb-plugin.sh FOLDER/PLUGIN.so}
inside="usr/lib/mysql/plugin/$(basename "$target")"
making="$target.making.$$"

mkdir -p "$(dirname "$target")" "$making"
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
if [ -f "/$inside" ]; then
    cp "/$inside" "$making/plugin"
else
    download() { (cd "$making" && apt-get download -qq -o APT::Sandbox::User=root "$1"); }
    version=$(dpkg-query --show --showformat '${Version}' mariadb-server-core)
    # an archive keeps the newest version only; that of the next patch fits, too
    download "mariadb-server=$version" 2>/dev/null || { apt-get update -qq && download mariadb-server; }
    dpkg-deb --fsys-tarfile "$making"/*.deb | tar -xO "./$inside" >"$making/plugin"
fi
mv "$making/plugin" "$target"
