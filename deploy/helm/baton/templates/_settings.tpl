{{/* The settings of all processes of the release. What the chart decides goes before `config`. */}}
{{- define "baton.settings" -}}
{{- $server := dict "host" .Values.server.host "port" .Values.server.port "grpc_port" .Values.server.grpcPort
      "metrics_port" .Values.metrics.port "allow_unauthenticated" .Values.server.allowUnauthenticated -}}
{{- if .Values.server.apiKeys.secret }}{{ $_ := set $server "api_key_file" "/etc/baton/api-keys/keys" }}{{ end -}}
{{- if .Values.server.tls.enabled -}}
{{- $_ := set $server "tls_cert" "/etc/baton/server-tls/tls.crt" -}}
{{- $_ := set $server "tls_key" "/etc/baton/server-tls/tls.key" -}}
{{- end -}}
{{- $model := dict "name" .Values.model.name -}}
{{- if not .Values.model.demo }}{{ $_ := set $model "path" .Values.model.path }}{{ end -}}
{{- if and .Values.model.demo (not .Values.model.name) }}{{ $_ := unset $model "name" }}{{ end -}}
{{- with .Values.model.hfCache }}{{ $_ := set $model "hf_cache" . }}{{ end -}}
{{- $_ := set $model "weight_cache" "/cache/baton" -}}
{{- $kv := dict "ports" (printf "%d-%d" (int .Values.kvtransfer.firstPort) (add (int .Values.kvtransfer.firstPort) 1))
      "transport" .Values.kvtransfer.transport -}}
{{- with .Values.kvtransfer.allowedCidrs }}{{ $_ := set $kv "allowed_cidrs" . }}{{ end -}}
{{- with .Values.kvtransfer.trustedCidrs }}{{ $_ := set $kv "trusted_cidrs" (printf "127.0.0.0/8,%s" .) }}{{ end -}}
{{- $cluster := dict "colocated" .Values.cluster.colocated "key_file" "/etc/baton/cluster-key/key"
      "tls_cert" "/etc/baton/cluster-tls/tls.crt" "tls_key" "/etc/baton/cluster-tls/tls.key"
      "tls_ca" "/etc/baton/cluster-tls/ca.crt" "metrics_port" .Values.metrics.port
      "router" (printf "%s-routers:%d" (include "baton.fullname" .) (int .Values.router.controlPort)) -}}
{{- $router := dict "control" (printf "0.0.0.0:%d" (int .Values.router.controlPort)) -}}
{{- $own := dict "model" $model "server" $server "router" $router "cluster" $cluster "kvtransfer" $kv -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $own) -}}
{{- end }}
