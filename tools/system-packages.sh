#!/bin/sh
# Installs the Debian packages of a group that are missing: `python` for the tests without a server, `base` to run cdcsync,
# `servers` for the tests' database servers.
#
# What a program is needed for decides, not a package's name: a Python from elsewhere or another JDK is as good. Nothing is
# installed, and no root is needed, where all is there. Of MariaDB only the programs are taken (mariadb-server-core), because the
# full package would add a system service and start it. Of PostgreSQL the programs lie in /usr/lib/postgresql, and no cluster is
# made.
set -eu

group=${1:?usage: system-packages.sh python|base|servers}

has() { PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null 2>&1; }

missing_of_python() {
    python3 -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 11)' 2>/dev/null || echo python3 python3-venv
}

missing_of_base() {
    missing_of_python
    has java || echo openjdk-17-jre-headless
    has mvn || echo maven
    has ps || echo procps
}

missing_of_servers() {
    has mariadbd && has mariadb-install-db || echo mariadb-server-core
    has my_print_defaults || echo mariadb-client-core
    has debootstrap || echo debootstrap
    has ip || echo iproute2
    has_postgres || echo postgresql
}

has_postgres() { ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; }

# The package of a PostgreSQL server makes a cluster and starts it, unless the settings of postgresql-common forbid it.
forbid_postgres_cluster() {
    apt-get install -qq --yes --no-install-recommends postgresql-common >/dev/null
    sed -i -E 's/^#? *create_main_cluster *=.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
    grep -q '^create_main_cluster = false$' /etc/postgresql-common/createcluster.conf
}

case $group in
python) missing=$(missing_of_python) ;;
base) missing=$(missing_of_base) ;;
servers) missing=$(missing_of_servers) ;;
*) echo "system-packages.sh: found the group '$group', needs python, base or servers" >&2; exit 2 ;;
esac

# One word each, on one line.
missing=$(echo $missing)
if [ -z "$missing" ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "system-packages.sh: missing: $missing; installing needs root: run 'apt-get install $missing' as root" >&2
    exit 1
fi
echo "setup: apt-get install $missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
case " $missing " in *" postgresql "*) forbid_postgres_cluster ;; esac
# shellcheck disable=SC2086
apt-get install -qq --yes --no-install-recommends $missing >/dev/null
