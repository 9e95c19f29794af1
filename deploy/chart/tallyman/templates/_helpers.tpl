{{/* At most 52: a StatefulSet's name is part of a label. */}}
{{- define "tallyman.fullname" -}}
{{- $n := .Release.Name -}}{{- if not (contains "tallyman" $n) -}}{{- $n = printf "%s-tallyman" $n -}}{{- end -}}
{{- $n | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- define "tallyman.selector" -}}
app.kubernetes.io/name: tallyman
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}
{{- define "tallyman.advertise" -}}
{{- .Values.tallyman.advertise | default (printf "https://%s.%s.svc:7333" (include "tallyman.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{/* "": the cluster lets Pods choose their user ids. */}}
{{- define "tallyman.openshift" -}}
{{- if or .Values.openshift (.Capabilities.APIVersions.Has "security.openshift.io/v1") }}true{{ end -}}
{{- end -}}
{{- define "tallyman.config" -}}
{{- $c := dict "data" "/data" "backend" "kube" "listen" "0.0.0.0:7333" "advertise" (include "tallyman.advertise" .) "namespace" .Release.Namespace "namespaces" .Values.namespaces "runner-image" (.Values.runnerImage | default .Values.image) "owner" (printf "%s-runs" (include "tallyman.fullname" .)) -}}
{{- if include "tallyman.openshift" . }}{{ $_ := set $c "openshift" true }}{{ end -}}
{{- if .Values.agents }}{{ $_ := set $c "agents" (list "/etc/tallyman/agents") }}{{ end -}}
{{- if .Values.token.secretName }}{{ $_ := set $c "token-file" "/etc/tallyman/token/token" }}{{ end -}}
{{- if .Values.tls.secretName }}{{ $_ := set $c "tls-cert" "/etc/tallyman/tls/tls.crt" }}{{ $_ := set $c "tls-key" "/etc/tallyman/tls/tls.key" }}
{{- else if hasPrefix "http://" (include "tallyman.advertise" .) }}{{ $_ := set $c "insecure-listen" true }}{{ end -}}
{{- toYaml (merge $c .Values.config) -}}
{{- end -}}
{{- define "tallyman.scheme" -}}
{{- if or .Values.tls.secretName (hasPrefix "https://" (include "tallyman.advertise" .)) }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}
