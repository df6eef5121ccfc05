#!/bin/bash
# Keys, certificates and kubeconfigs; made once, kept until down.sh --purge.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
[ -e "$KUBE_HOME/pki.done" ] && exit 0
mkdir -p "$PKI"; cd "$PKI"; umask 077

key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }
authority() {
  key ca
  openssl req -x509 -new -key ca.key -subj /CN=cdcsync-node-ca -days 3650 -out ca.crt \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
}
certificate() { # NAME SUBJECT [SAN]
  key "$1"
  openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  { echo basicConstraints=CA:FALSE; echo keyUsage=critical,digitalSignature
    echo extendedKeyUsage=serverAuth,clientAuth
    if [ -n "${3:-}" ]; then echo "subjectAltName=$3"; fi; } > "$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile "$1.ext" -out "$1.crt" 2>/dev/null
  rm "$1.csr" "$1.ext"
}
kubeconfig() { # NAME FILE
  cat > "$2" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "$API", certificate-authority: "$PKI/ca.crt"}}]
users: [{name: $1, user: {client-certificate: "$PKI/$1.crt", client-key: "$PKI/$1.key"}}]
contexts: [{name: node, context: {cluster: node, user: $1}}]
current-context: node
EOF
}

authority
certificate apiserver /CN=kube-apiserver "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:$NODE_IP,IP:$API_SERVICE_IP"
certificate kubelet-server "/O=system:nodes/CN=system:node:$NODE_NAME" "DNS:$NODE_NAME,IP:$NODE_IP,IP:127.0.0.1"
certificate admin /O=system:masters/CN=admin
certificate apiserver-kubelet /O=system:masters/CN=apiserver-kubelet
certificate controller-manager /CN=system:kube-controller-manager
certificate scheduler /CN=system:kube-scheduler
certificate proxy /CN=system:kube-proxy
certificate kubelet "/O=system:nodes/CN=system:node:$NODE_NAME"
openssl genrsa -out service-account.key 2048 2>/dev/null
openssl rsa -in service-account.key -pubout -out service-account.pub 2>/dev/null
for user in admin controller-manager scheduler proxy kubelet; do kubeconfig $user "$KUBE_HOME/$user.kubeconfig"; done
touch "$KUBE_HOME/pki.done"
