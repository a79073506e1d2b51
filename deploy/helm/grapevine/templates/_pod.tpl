{{/* What both kinds of workload run. */}}
{{- define "grapevine.pod" -}}
metadata:
  labels:
    {{- include "grapevine.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.podAnnotations (not .Values.secrets.existingSecret) }}
  annotations:
    {{- if not .Values.secrets.existingSecret }}
    checksum/secret: {{ toJson .Values.secrets | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "grapevine.serviceAccount" . }}
  automountServiceAccountToken: {{ not (empty .Values.engines.kubernetes) }}
  # A Service that is called grapevine would set GRAPEVINE_* variables.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "grapevine.graceSeconds" . }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if .Values.topologySpreadConstraints }}
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "grapevine.selector" $ | nindent 10 }}
    {{- end }}
    {{- end }}
  containers:
    - name: router
      {{- include "grapevine.container" . | nindent 6 }}
  volumes:
    {{- include "grapevine.volumes" . | nindent 4 }}
{{- end }}

{{- define "grapevine.container" -}}
image: "{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve]
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
ports:
  - { name: http, containerPort: {{ .Values.ports.http }}, protocol: TCP }
  - { name: admin, containerPort: {{ .Values.ports.admin }}, protocol: TCP }
  - { name: gossip, containerPort: {{ .Values.ports.gossip }}, protocol: UDP }
env:
  {{- include "grapevine.env" . | nindent 2 }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and (gt (int .Values.drain.preStopSeconds) 0) (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
lifecycle:
  # Endpoints are taken away meanwhile. The image has no shell to sleep in.
  preStop: { sleep: { seconds: {{ .Values.drain.preStopSeconds }} } }
{{- end }}
# Up: the process runs. Ready: it has joined, is not draining, and knows an engine that may be alive.
startupProbe:
  httpGet: { path: /livez, port: admin }
  {{- toYaml .Values.probes.startup | nindent 2 }}
livenessProbe:
  httpGet: { path: /livez, port: admin }
  {{- toYaml .Values.probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: { path: /readyz, port: admin }
  {{- toYaml .Values.probes.readiness | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - { name: secrets, mountPath: /etc/grapevine/secrets, readOnly: true }
  {{- if .Values.clientKeys.existingSecret }}
  - { name: client-keys, mountPath: /etc/grapevine/client-keys, readOnly: true }
  {{- end }}
  {{- if .Values.tls.existingSecret }}
  - { name: tls, mountPath: /etc/grapevine/tls, readOnly: true }
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "grapevine.volumes" -}}
- name: secrets
  secret:
    secretName: {{ include "grapevine.secret" . }}
    defaultMode: 0440
{{- with .Values.clientKeys.existingSecret }}
- name: client-keys
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
