{{- define "grapevine.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 50 characters: `-peers-0` and the like come after it. */}}
{{- define "grapevine.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "grapevine.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "grapevine.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "grapevine.peers" -}}
{{ include "grapevine.fullname" . }}-peers
{{- end }}

{{- define "grapevine.selector" -}}
app.kubernetes.io/name: {{ include "grapevine.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "grapevine.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "grapevine.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "grapevine.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "grapevine.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "grapevine.secret" -}}
{{- default (include "grapevine.fullname" .) .Values.secrets.existingSecret }}
{{- end }}

{{/* The name of the engines' key within the Secret; empty when there is none. */}}
{{- define "grapevine.engineKeyName" -}}
{{- if .Values.secrets.keys.engineKey }}
{{- .Values.secrets.keys.engineKey }}
{{- else if and .Values.secrets.engineKey (not .Values.secrets.existingSecret) }}
{{- "engine-key" }}
{{- end }}
{{- end }}

{{- define "grapevine.graceSeconds" -}}
{{- add (int .Values.drain.preStopSeconds) (int .Values.drain.delaySeconds) (int .Values.drain.timeoutSeconds) 10 }}
{{- end }}

{{/* Settings that the chart makes from other values: giving them twice would leave one without effect. */}}
{{- define "grapevine.ownSettings" -}}
GRAPEVINE_LISTEN GRAPEVINE_ADMIN_LISTEN GRAPEVINE_GOSSIP_LISTEN GRAPEVINE_GOSSIP_SEEDS GRAPEVINE_ROUTER_ID GRAPEVINE_CLUSTER_ID GRAPEVINE_CLUSTER_SECRET GRAPEVINE_CLUSTER_SECRET_FILE GRAPEVINE_CLUSTER_SECRET_PREVIOUS GRAPEVINE_CLUSTER_SECRET_PREVIOUS_FILE GRAPEVINE_ADMIN_TOKEN GRAPEVINE_ADMIN_TOKEN_FILE GRAPEVINE_ENGINE_KEY GRAPEVINE_ENGINE_KEY_FILE GRAPEVINE_CLIENT_KEYS GRAPEVINE_TLS_CERT GRAPEVINE_TLS_KEY GRAPEVINE_DRAIN_DELAY GRAPEVINE_DRAIN_TIMEOUT GRAPEVINE_REPLICAS GRAPEVINE_REPLICAS_DNS GRAPEVINE_REPLICAS_KUBERNETES
{{- end }}

{{- define "grapevine.checkValues" -}}
{{- range $name, $_ := .Values.settings }}
{{- if has $name (splitList " " (include "grapevine.ownSettings" $)) }}
{{- fail (printf "settings.%s: the chart sets it from other values" $name) }}
{{- end }}
{{- end }}
{{- if not (or .Values.engines.list .Values.engines.dns .Values.engines.kubernetes .Values.settings.GRAPEVINE_REPLICAS_FILE) }}
{{- fail "no engines: set engines.list, engines.dns, engines.kubernetes or settings.GRAPEVINE_REPLICAS_FILE" }}
{{- end }}
{{- end }}
