{{/* Parts of the pods of all roles. Each takes a dict: root, role, values (of the role). */}}

{{- define "baton.podMetadata" -}}
labels:
  {{- include "baton.selector" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .role }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/config: {{ include "baton.settings" .root | sha256sum }}
  {{- with .values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "baton.podSpec" -}}
serviceAccountName: {{ include "baton.serviceAccount" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
# After the hook before the stop, running requests have server.shutdown_timeout, and 10 s are left to end.
terminationGracePeriodSeconds: {{ add (default 0 .values.preStopSeconds) .values.shutdownSeconds 10 }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .root.Values.security.runAsUser }}
  runAsGroup: {{ .root.Values.security.runAsGroup }}
  fsGroup: {{ .root.Values.security.fsGroup }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- if .values.topologySpread }}
  {{- toYaml .values.topologySpread | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "baton.selector" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .role }}
  {{- end }}
{{- end }}

{{- define "baton.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- if dig "rdma" "ipcLock" false .values }}
  add: [IPC_LOCK]
  {{- end }}
{{- end }}

{{/* Startup ends when the model is loaded and the pages are served; liveness says that the process (a worker: its
     engine) goes on; readiness that it can serve now. */}}
{{- define "baton.probes" -}}
{{- $get := dict "port" .port "scheme" .scheme -}}
startupProbe:
  httpGet: {{ merge (dict "path" "/livez") $get | toJson }}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: {{ max 1 (div (add .values.startupSeconds 4) 5) }}
livenessProbe:
  httpGet: {{ merge (dict "path" "/livez") $get | toJson }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {{ merge (dict "path" "/readyz") $get | toJson }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}

{{- define "baton.mounts" -}}
- {name: config, mountPath: /etc/baton/config, readOnly: true}
- {name: cluster-key, mountPath: /etc/baton/cluster-key, readOnly: true}
- {name: cluster-tls, mountPath: /etc/baton/cluster-tls, readOnly: true}
{{- if .root.Values.server.apiKeys.secret }}
- {name: api-keys, mountPath: /etc/baton/api-keys, readOnly: true}
{{- end }}
{{- if include "baton.hasModelVolume" .root }}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "baton.volumes" -}}
- name: config
  configMap:
    name: {{ include "baton.fullname" .root }}
- name: cluster-key
  secret:
    secretName: {{ include "baton.clusterKeySecret" .root }}
    defaultMode: 0440
    items: [{key: {{ .root.Values.cluster.key.secretKey | quote }}, path: key}]
- name: cluster-tls
  secret:
    secretName: {{ include "baton.tlsSecret" (list .root .role) }}
    defaultMode: 0440
{{- if .root.Values.server.apiKeys.secret }}
- name: api-keys
  secret:
    secretName: {{ .root.Values.server.apiKeys.secret }}
    defaultMode: 0440
    items: [{key: {{ .root.Values.server.apiKeys.secretKey | quote }}, path: keys}]
{{- end }}
{{- if include "baton.hasModelVolume" .root }}
- name: models
  {{- include "baton.modelVolume" (dict "root" .root "readOnly" true) | nindent 2 }}
{{- end }}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- end }}

{{- define "baton.modelVolume" -}}
{{- if .root.Values.model.volume.hostPath -}}
hostPath:
  path: {{ .root.Values.model.volume.hostPath }}
  type: Directory
{{- else -}}
persistentVolumeClaim:
  claimName: {{ include "baton.modelClaim" .root }}
  readOnly: {{ .readOnly }}
{{- end }}
{{- end }}
