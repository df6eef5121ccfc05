{{- define "cdcsync.name" -}}
{{- $chart := .Values.nameOverride | default .Chart.Name }}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}{{ else if contains $chart .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name $chart | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "cdcsync.selector" -}}
app.kubernetes.io/name: cdcsync-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cdcsync.labels" -}}
{{ include "cdcsync.selector" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "cdcsync.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "cdcsync.name" .) }}{{ else }}{{ required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{/* Ids of the operator's and runs' pods, as JSON. Helm leaves a null of the values out: then the cluster gives that id, as OpenShift
     does from a namespace's range. */}}
{{- define "cdcsync.ids" -}}
{{- $ids := dict }}
{{- range $name := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- if not (kindIs "map" $.Values.podSecurityContext) }}{{ $_ := set $ids $name 65532 }}
{{- else if and (hasKey $.Values.podSecurityContext $name) (not (kindIs "invalid" (get $.Values.podSecurityContext $name))) }}{{ $_ := set $ids $name (get $.Values.podSecurityContext $name | int64) }}{{ end }}
{{- end }}
{{- toJson $ids }}
{{- end }}

{{/* Of the operator's pods and of `helm test`. */}}
{{- define "cdcsync.podSecurityContext" -}}
{{- merge (dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault")) (include "cdcsync.ids" . | fromJson) | toYaml }}
{{- end }}

{{/* Where values name none, several replicas are spread over the nodes, as far as there are some. */}}
{{- define "cdcsync.topologySpread" -}}
{{- if .Values.topologySpreadConstraints }}{{ toYaml .Values.topologySpreadConstraints }}
{{- else if gt (int .Values.replicas) 1 }}
{{- toYaml (list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" (dict "matchLabels" (include "cdcsync.selector" . | fromYaml)))) }}
{{- end }}
{{- end }}

{{- define "cdcsync.image" -}}
{{ .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .chart.AppVersion }}{{ end }}
{{- end }}

{{- define "cdcsync.checkNamespaces" -}}
{{- if not (or .Values.watchNamespaces .Values.clusterWide .Values.namespaceSelector) }}
{{- fail "watchNamespaces is empty; needed: the namespaces whose CdcSyncs are run, namespaceSelector for those with a label, or clusterWide: true for all of them, which lets the operator list the Secrets and create pods everywhere" }}
{{- end }}
{{- if gt (add (ternary 1 0 (not (empty .Values.watchNamespaces))) (ternary 1 0 .Values.clusterWide) (ternary 1 0 (not (empty .Values.namespaceSelector)))) 1 }}
{{- fail "watchNamespaces, namespaceSelector and clusterWide: true contradict each other; needed: one of them" }}
{{- end }}
{{- if and .Values.namespaceSelector (not .Values.policy.admission) }}
{{- fail "namespaceSelector with policy.admission: false would let the operator bind its ClusterRole in every namespace; needed: policy.admission: true, whose admission policy refuses a binding in a namespace without the labels, or watchNamespaces or clusterWide: true instead" }}
{{- end }}
{{- end }}

{{/* What the operator may do in a namespace. It can give drivers only rights that it has itself. */}}
{{- define "cdcsync.rules" -}}
- apiGroups: [cdcsync.io]
  resources: [cdcsyncs]
  verbs: [get, list, watch]
- apiGroups: [cdcsync.io]
  resources: [cdcsyncs/status]
  verbs: [update]
# The last verb is given on to a snapshot's driver, whose Spark deletes executors so; the operator itself deletes object by object.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, update, patch, delete]
# They are asked for one by one, by name and by the label cdcsync.io/source=true. A run's own one is created, and goes with the run.
- apiGroups: [""]
  resources: [secrets]
  verbs: [list, create]
# No such resource exists: a run's account has this verb on the Secrets that its executors may mount (see admission.yaml).
- apiGroups: [cdcsync.io]
  resources: [secrets]
  verbs: [mount]
# Nor this one: by this verb the admission policy knows which release a run is of.
- apiGroups: [cdcsync.io]
  resources: [releases]
  verbs: [run]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, create, delete]
{{- if .Values.networkPolicy.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, delete]
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{/* A pattern of the variables that a podTemplate may set: the allow list, and policy.allowedEnvironment. */}}
{{- define "cdcsync.variables" -}}
{{- include "cdcsync.patterns" (dict "first" (.Files.Get "files/restricted.yaml" | fromYaml).variables "more" .Values.policy.allowedEnvironment) }}
{{- end }}

{{/* A pattern of the annotations that a podTemplate may have: the allow list, and policy.allowedPodAnnotations. */}}
{{- define "cdcsync.annotations" -}}
{{- include "cdcsync.patterns" (dict "first" (.Files.Get "files/restricted.yaml" | fromYaml).annotations "more" .Values.policy.allowedPodAnnotations) }}
{{- end }}

{{/* The pattern `first`, or one of the names `more`, of which a * at the end stands for any rest. */}}
{{- define "cdcsync.patterns" -}}
{{- $patterns := list .first }}
{{- range .more }}
{{- $patterns = append $patterns (ternary (printf "%s.*" (regexQuoteMeta (trimSuffix "*" .))) (regexQuoteMeta .) (hasSuffix "*" .)) }}
{{- end }}
{{- join "|" $patterns }}
{{- end }}

{{/* Whether pods may pull images by the Secret `s`, in CEL: those of imagePullSecrets and policy.allowedPullSecrets. */}}
{{- define "cdcsync.pulls" -}}
{{- $names := list }}
{{- $tests := list }}
{{- range concat .Values.imagePullSecrets (.Values.policy.allowedPullSecrets | default list) }}
{{- if hasSuffix "*" . }}{{ $tests = append $tests (printf "s.?name.orValue('').startsWith('%s')" (trimSuffix "*" .)) }}{{ else }}{{ $names = append $names . }}{{ end }}
{{- end }}
{{- join " || " (prepend $tests (printf "s.?name.orValue('') in %s" (toJson $names | replace "\"" "'"))) }}
{{- end }}

{{/* The watched namespaces that exist and are not being deleted, as JSON; all of them where no cluster can be asked. A Role in one that is
     gone would fail every upgrade, as would one in a namespace that a finalizer of a tenant's object keeps from going. */}}
{{- define "cdcsync.present" -}}
{{- $any := dict }}
{{- if .Values.checkNamespaces }}{{ $any = lookup "v1" "Namespace" "" "" }}{{ end }}
{{- $present := list }}
{{- range .Values.watchNamespaces }}
{{- $namespace := ternary dict (lookup "v1" "Namespace" "" .) (empty $any) }}
{{- if or (not $any) (eq . $.Release.Namespace) (and $namespace (not $namespace.metadata.deletionTimestamp)) }}{{ $present = append $present . }}{{ end }}
{{- end }}
{{- if and .Values.watchNamespaces (not $present) }}
{{- fail (printf "none of the watchNamespaces exists: %s; needed: one of them; remedy: create it, and install or upgrade again" (join ", " .Values.watchNamespaces)) }}
{{- end }}
{{- toJson $present }}
{{- end }}

{{/* Whether policy.`name`, without a value, is on where tenants' namespaces are not listed. "" is false. */}}
{{- define "cdcsync.strict" -}}
{{- $value := get .top.Values.policy .name }}
{{- if ternary $value (or .top.Values.clusterWide (not (empty .top.Values.namespaceSelector))) (kindIs "bool" $value) }}true{{ end }}
{{- end }}

{{/* Whether the operator lists nodes, because no source may be on one; and nodes and ServiceCIDRs, because none may be among pods and
     Services. "" is false. */}}
{{- define "cdcsync.refuseNodes" -}}
{{- if and .Values.policy.refuseNodeAddresses (or .Values.clusterWide .Values.namespaceSelector) }}true{{ end }}
{{- end }}
{{- define "cdcsync.refuseRanges" -}}
{{- include "cdcsync.strict" (dict "top" . "name" "refuseClusterNetworks") }}
{{- end }}

{{/* As JSON: the networks in which `kubectl apply` refuses a source, those of nodes, pods and Services as Helm finds them. The operator
     refuses those that join later, too. */}}
{{- define "cdcsync.networksAtApply" -}}
{{- $networks := .Values.policy.refusedSourceNetworks }}
{{- $ofNodes := include "cdcsync.refuseNodes" . }}
{{- $ranges := include "cdcsync.refuseRanges" . }}
{{- if or $ofNodes $ranges }}
{{- range (lookup "v1" "Node" "" "").items }}
{{- if $ofNodes }}{{ range .status.addresses }}{{ if hasSuffix "IP" .type }}{{ $networks = append $networks .address }}{{ end }}{{ end }}{{ end }}
{{- if $ranges }}{{ $networks = concat $networks (.spec.podCIDRs | default list) }}{{ end }}
{{- end }}
{{- end }}
{{- if and $ranges (.Capabilities.APIVersions.Has "networking.k8s.io/v1/ServiceCIDR") }}
{{- range (lookup "networking.k8s.io/v1" "ServiceCIDR" "" "").items }}{{ $networks = concat $networks .spec.cidrs }}{{ end }}
{{- end }}
{{- uniq $networks | toJson }}
{{- end }}

{{/* networkPolicy.egress.refused as JSON. `helm upgrade --reuse-values` leaves out what the values of the last release do not have. */}}
{{- define "cdcsync.refusedEgress" -}}
{{- $why := "networkPolicy.egress.refused is missing; needed: the addresses that are refused, [] for none; remedy: helm upgrade --reset-then-reuse-values, which takes the chart's" }}
{{- required $why .Values.networkPolicy.egress.refused | toJson }}
{{- end }}

{{/* The requirements of a label selector, as kubectl -l takes it, as JSON: those of a LabelSelector's matchExpressions. */}}
{{- define "cdcsync.requirements" -}}
{{- $found := list }}
{{- range regexFindAll "[^,(]+(\\([^)]*\\))?" . -1 }}
{{- $part := trim . }}
{{- if regexMatch "^\\S+\\s+(in|notin)\\s*\\([^()]*\\)$" $part }}
{{- $values := list }}
{{- range splitList "," (regexReplaceAll "^.*\\(|\\)$" $part "") }}{{ $values = append $values (trim .) }}{{ end }}
{{- $found = append $found (dict "key" (regexFind "^\\S+" $part) "operator" (ternary "NotIn" "In" (regexMatch "\\snotin\\s*\\(" $part)) "values" $values) }}
{{- else if contains "=" $part }}
{{- $found = append $found (dict "key" (trim (regexFind "^[^!=]+" $part)) "operator" (ternary "NotIn" "In" (contains "!=" $part)) "values" (list (trim (regexReplaceAll "^[^=]*==?" $part "")))) }}
{{- else }}
{{- $found = append $found (dict "key" (trim (trimPrefix "!" $part)) "operator" (ternary "DoesNotExist" "Exists" (hasPrefix "!" $part))) }}
{{- end }}
{{- end }}
{{- range $found }}
{{- if not (and (regexMatch "^([a-z0-9][-a-z0-9.]*/)?[A-Za-z0-9][-A-Za-z0-9_.]*$" .key) (regexMatch "^[-A-Za-z0-9_.,]*$" (join "," (.values | default list)))) }}
{{- fail (printf "%q is no label selector; needed: requirements such as shard=one, shard!=two, team in (a, b), !shard" $) }}
{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* Whether `selector` selects the labels `labels`, an expression, in CEL. */}}
{{- define "cdcsync.selects" -}}
{{- $all := list }}
{{- range include "cdcsync.requirements" .selector | fromJsonArray }}
{{- $is := printf "%s in l" (squote .key) }}
{{- if .values }}{{ $is = printf "(%s && l[%s] in %s)" $is (squote .key) (toJson .values | replace "\"" "'") }}{{ end }}
{{- $all = append $all (ternary (printf "!(%s)" $is) $is (or (eq .operator "NotIn") (eq .operator "DoesNotExist"))) }}
{{- end }}
{{- printf "[%s].all(l, %s)" .labels (join " && " $all) }}
{{- end }}

{{/* Fields of a volume, in CEL: its name, the kinds that need no word of policy.allowedInPodTemplate, `more`, and those that have one.
     Without `securityContext` each is of the restricted Pod Security Standard. */}}
{{- define "cdcsync.volumes" -}}
{{- $lists := .top.Files.Get "files/restricted.yaml" | fromYaml }}
{{- $allowed := .top.Values.policy.allowedInPodTemplate }}
{{- $kinds := concat (list "name" "projected") $lists.volumes .more }}
{{- range $allowed }}
{{- $kind := trimPrefix "volumes/" . }}
{{- if and (hasPrefix "volumes/" .) (ne $kind "hostPath") (or (has "securityContext" $allowed) (has $kind $lists.standard.volumes)) }}{{ $kinds = append $kinds $kind }}{{ end }}
{{- end }}
{{- toJson $kinds | replace "\"" "'" }}
{{- end }}

{{/* Fields of a source of a projected volume, in CEL: those that need no word of policy.allowedInPodTemplate, and those that have one. */}}
{{- define "cdcsync.projected" -}}
{{- $allowed := .Values.policy.allowedInPodTemplate }}
{{- $kinds := list }}
{{- range $kind, $word := (.Files.Get "files/restricted.yaml" | fromYaml).projected }}{{ if or (not $word) (has $word $allowed) }}{{ $kinds = append $kinds $kind }}{{ end }}{{ end }}
{{- range $allowed }}{{ if hasPrefix "volumes/" . }}{{ $kinds = append $kinds (trimPrefix "volumes/" .) }}{{ end }}{{ end }}
{{- toJson $kinds | replace "\"" "'" }}
{{- end }}
