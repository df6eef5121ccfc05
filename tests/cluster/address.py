"""`address.py KUBECONFIG`: this machine's address on its way to the API server, where pods can be
expected to reach it, too."""

from __future__ import annotations

import ipaddress
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from cdcsync_kube.access import by_kubeconfig


def main() -> None:
    server = urlsplit(by_kubeconfig(Path(sys.argv[1])).server)
    with socket.create_connection((server.hostname or "", server.port or 443), timeout=10) as connection:
        address = connection.getsockname()[0]
    if ipaddress.ip_address(address).is_loopback:
        sys.exit(
            f"found: the API server at {server.netloc}, on this machine itself; needed: an address of this machine that pods reach; "
            "remedy: give it as TEST_ADDRESS (of docker's networks: ip -4 address)"
        )
    print(address)


if __name__ == "__main__":
    main()
