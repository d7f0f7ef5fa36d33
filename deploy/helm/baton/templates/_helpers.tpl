{{/* Names, labels, images: everything that more than one object needs. */}}

{{- define "baton.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}{{ end }}{{ end }}
{{- end }}

{{- define "baton.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "baton.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "baton.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The roles of workers that there are, with commas. */}}
{{- define "baton.roles" -}}
{{ if .Values.cluster.colocated }}decode{{ else }}prefill,decode{{ end }}
{{- end }}

{{- define "baton.image" -}}
{{- $image := .Values.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{- define "baton.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "baton.fullname" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "baton.clusterName" -}}
{{ default (include "baton.fullname" .) .Values.cluster.name }}
{{- end }}

{{- define "baton.clusterKeySecret" -}}
{{ default (printf "%s-cluster-key" (include "baton.fullname" .)) .Values.cluster.key.secret }}
{{- end }}

{{/* The Secret with a role's certificate: list of the root and the role. */}}
{{- define "baton.tlsSecret" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- if $root.Values.cluster.tls.certManager.enabled }}{{ include "baton.fullname" $root }}-{{ $role }}-tls
{{- else }}{{ index $root.Values.cluster.tls.secrets $role }}{{ end }}
{{- end }}

{{- define "baton.modelClaim" -}}
{{ default (printf "%s-models" (include "baton.fullname" .)) .Values.model.volume.claim }}
{{- end }}

{{/* Yes where there is a volume at /models. */}}
{{- define "baton.hasModelVolume" -}}
{{- with .Values.model.volume }}{{ if or .claim .hostPath .create }}yes{{ end }}{{ end }}
{{- end }}
