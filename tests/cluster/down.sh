#!/bin/bash
# Stop the node and everything it started. --purge also removes its state (image layers are kept).
set -uo pipefail
cd "$(dirname "$0")"; . ./lib.sh

stop() { # SIGNAL NAME...: signal all, wait for all, kill what is left after 5 s
  local signal=$1 name pid end=$((SECONDS + 5)); shift
  for name in "$@"; do running "$name" && kill -s "$signal" "$(cat "$RUN/$name.pid")" 2>/dev/null; done
  for name in "$@"; do
    while running "$name" && [ $SECONDS -lt $end ]; do sleep 0.05; done
    running "$name" && kill -s KILL "$(cat "$RUN/$name.pid")" 2>/dev/null
    rm -f "$RUN/$name.pid"
  done
}

# Nothing of the control plane needs to say goodbye; only etcd closes a file.
stop KILL forward kubelet dns kube-proxy kube-scheduler kube-controller-manager kube-apiserver
stop TERM etcd
if running containerd; then
  for task in $(ctr_ tasks ls -q 2>/dev/null); do ctr_ tasks kill -s SIGKILL "$task" 2>/dev/null; done
  for task in $(ctr_ tasks ls -q 2>/dev/null); do ctr_ tasks delete -f "$task" > /dev/null 2>&1; done
  for box in $(ctr_ containers ls -q 2>/dev/null); do ctr_ containers delete "$box" > /dev/null 2>&1; done
fi
if running containerd; then stop TERM containerd; touch "$CONTAINERD.clean"; fi
# Shims outlive containerd; ours are the ones that carry our socket's path.
for cmdline in /proc/[0-9]*/cmdline; do
  line=$({ tr '\0' ' ' < "$cmdline"; } 2>/dev/null) || continue
  case $line in *containerd-shim*"$CRI"*) pid=${cmdline#/proc/}; kill -9 "${pid%/cmdline}" 2>/dev/null ;; esac
done
sleep 0.2
awk -v home="$KUBE_HOME/" 'index($2, home) == 1 {print $2}' /proc/mounts | sort -r | while read -r mount; do umount -l "$mount"; done
if [ -e /run/netns/"$NETNS" ]; then
  # Pod namespaces, by the results that the CNI library keeps for our network.
  for result in /var/lib/cni/results/cdcsync-node-*; do
    [ -e "$result" ] || continue
    ns=$(grep -o '/netns/cni-[0-9a-f-]*' "$result" | head -1)
    [ -n "$ns" ] && ip netns delete "${ns##*/}" 2>/dev/null
    rm -f "$result"
  done
  ip netns delete "$NETNS"
fi
for top in /sys/fs/cgroup/*/kubepods /sys/fs/cgroup/kubepods; do
  [ -d "$top" ] && find "$top" -depth -type d -exec rmdir {} \; 2>/dev/null
done
rm -rf "$KUBE_HOME/cni-ipam" "$RUN/containerd"
if [ "${1:-}" = --purge ]; then rm -rf --one-file-system "$KUBE_HOME"; fi
exit 0
