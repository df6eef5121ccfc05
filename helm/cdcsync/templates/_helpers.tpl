{{- define "cdcsync.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
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

{{- define "cdcsync.image" -}}
{{ .image.repository }}:{{ .image.tag | default .chart.AppVersion }}
{{- end }}

{{/* What the operator may do in a namespace. It can give drivers only rights that it has itself. */}}
{{- define "cdcsync.rules" -}}
- apiGroups: [cdcsync.io]
  resources: [cdcsyncs]
  verbs: [get, list, watch]
- apiGroups: [cdcsync.io]
  resources: [cdcsyncs/status]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, update, patch, delete, deletecollection]
# Only those with the label cdcsync.io/source=true are asked for.
- apiGroups: [""]
  resources: [secrets]
  verbs: [list]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [create, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [create, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}
