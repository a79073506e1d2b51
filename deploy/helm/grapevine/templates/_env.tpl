{{- define "grapevine.env" -}}
{{- $_ := include "grapevine.checkValues" . }}
{{- $secrets := "/etc/grapevine/secrets" }}
{{- $keys := .Values.secrets.keys }}
- name: GRAPEVINE_ROUTER_ID
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: GRAPEVINE_CLUSTER_ID
  value: "{{ .Release.Namespace }}.{{ include "grapevine.fullname" . }}"
- name: GRAPEVINE_LISTEN
  value: "{{ .Values.bindAddress }}:{{ .Values.ports.http }}"
- name: GRAPEVINE_ADMIN_LISTEN
  value: "{{ .Values.bindAddress }}:{{ .Values.ports.admin }}"
- name: GRAPEVINE_GOSSIP_LISTEN
  value: "{{ .Values.bindAddress }}:{{ .Values.ports.gossip }}"
- name: GRAPEVINE_GOSSIP_SEEDS
  value: "{{ include "grapevine.peers" . }}.{{ .Release.Namespace }}:{{ .Values.ports.gossip }}"
{{- range $name, $engines := dict "GRAPEVINE_REPLICAS" .Values.engines.list "GRAPEVINE_REPLICAS_DNS" .Values.engines.dns "GRAPEVINE_REPLICAS_KUBERNETES" .Values.engines.kubernetes }}
{{- with $engines }}
- name: {{ $name }}
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}
- name: GRAPEVINE_CLUSTER_SECRET_FILE
  value: {{ $secrets }}/{{ $keys.clusterSecret }}
- name: GRAPEVINE_ADMIN_TOKEN_FILE
  value: {{ $secrets }}/{{ $keys.adminToken }}
{{- with $keys.previous }}
- name: GRAPEVINE_CLUSTER_SECRET_PREVIOUS_FILE
  value: {{ $secrets }}/{{ . }}
{{- end }}
{{- with include "grapevine.engineKeyName" . }}
- name: GRAPEVINE_ENGINE_KEY_FILE
  value: {{ $secrets }}/{{ . }}
{{- end }}
{{- if .Values.clientKeys.existingSecret }}
- name: GRAPEVINE_CLIENT_KEYS
  value: /etc/grapevine/client-keys/{{ .Values.clientKeys.key }}
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: GRAPEVINE_TLS_CERT
  value: /etc/grapevine/tls/tls.crt
- name: GRAPEVINE_TLS_KEY
  value: /etc/grapevine/tls/tls.key
{{- end }}
- name: GRAPEVINE_DRAIN_DELAY
  value: "{{ .Values.drain.delaySeconds }}s"
- name: GRAPEVINE_DRAIN_TIMEOUT
  value: "{{ .Values.drain.timeoutSeconds }}s"
{{- if not (hasKey .Values.settings "GRAPEVINE_LOG_FORMAT") }}
- name: GRAPEVINE_LOG_FORMAT
  value: json
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
