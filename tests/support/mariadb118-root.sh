#!/bin/sh
# Makes a folder that holds MariaDB 11.8, whose programs run outside of it.
#
# Debian 12 has MariaDB 10.11; Debian 13 has 11.8, but its libraries are too new for this system. So a minimal Debian 13 is unpacked
# into a folder of its own, from the mirror that apt uses anyway, and each of the server's programs is started by that system's
# loader with that system's libraries. The folder is made under another name and renamed when it is complete, so an interruption
# leaves nothing that looks usable.
set -eu

target=${1:?usage: mariadb118-root.sh FOLDER}
making="$target.making.$$"

if [ -x "$target/usr/sbin/mariadbd" ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "mariadb118-root.sh: run by user $(id -un), needs root for debootstrap; run it as root" >&2
    exit 1
fi

codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $codename" "Component: main" | head -n 1)
if [ -z "$mirror" ]; then
    echo "mariadb118-root.sh: apt lists no mirror for $codename main, needs one; check apt's sources and run apt-get update" >&2
    exit 1
fi

mkdir -p "$(dirname "$target")"
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
if ! debootstrap --variant=minbase --include=mariadb-server-core,mariadb-client-core trixie "$making" "$mirror" >"$target.log" 2>&1; then
    echo "mariadb118-root.sh: debootstrap failed; the end of $target.log:" >&2
    tail -n 20 "$target.log" >&2
    exit 1
fi
rm -rf "$making"/var/cache/apt/archives/*.deb "$making/var/lib/apt/lists"

(
    cd "$making"
    loader=$(echo usr/lib*/ld-linux*.so.*)
    libraries=$(echo usr/lib/*-linux-gnu*)
    for program in usr/sbin/mariadbd usr/bin/my_print_defaults usr/bin/resolveip; do
        mv "$program" "$program.program"
        cat >"$program" <<END
#!/bin/sh
root=\${0%/*}/../..
exec "\$root/$loader" --library-path "\$root/$libraries" "\$0.program" "\$@"
END
        chmod 755 "$program"
    done
)
mv -T "$making" "$target"
