{{- define "terrier.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "terrier.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "terrier.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "terrier.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "terrier.selector" -}}
app.kubernetes.io/name: {{ include "terrier.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "terrier.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "terrier.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The API groups of the kinds that are not reconciled, as JSON. */ -}}
{{- define "terrier.noKinds" -}}
{{- $none := list }}
{{- range list "infra.contrib.fluxcd.io" "alustan.io" }}
{{- if not (has . $.Values.kinds) }}{{ $none = append $none . }}{{ end }}
{{- end }}
{{- if not (get $.Values.flags "weave-policies") }}{{ $none = append $none "pac.weave.works" }}{{ end }}
{{- if not (get $.Values.flags "external-secrets") }}{{ $none = append $none "external-secrets.io" }}{{ end }}
{{- toJson $none }}
{{- end }}

{{- /* Whether several controllers share the stacks: a text, or none. */ -}}
{{- define "terrier.shared" -}}
{{- if gt (int .Values.replicaCount) 1 }}true{{ end -}}
{{- end }}

{{- /* Whether there is a registry of modules and providers: a text, or none. Flags of earlier
charts count more than values. */ -}}
{{- define "terrier.registry" -}}
{{- $on := .Values.registry.enabled }}
{{- if hasKey .Values.flags "registry" }}{{ $on = ne (toString (get .Values.flags "registry")) "false" }}{{ end }}
{{- if $on }}true{{ end -}}
{{- end }}

{{- define "terrier.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "terrier.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: name the ServiceAccount, since serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* The name of an image, with the version of the chart. */ -}}
{{- define "terrier.image" -}}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository (default .version .image.tag) }}
{{- end }}
{{- end }}

{{- /* All but the metadata services of clouds, those of internal/outbound. */ -}}
{{- define "terrier.egress" -}}
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: [169.254.169.254/32, 168.63.129.16/32, 100.100.100.200/32, 192.0.0.192/32]
    - ipBlock:
        cidr: ::/0
        except: ["fd00:ec2::254/128", "fd20:ce::254/128"]
{{- end }}

{{- /* The policy for the pods of runs in a namespace. */ -}}
{{- define "terrier.runsPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "terrier.fullname" .root }}-runs
  namespace: {{ .namespace }}
  labels: {{- include "terrier.labels" .root | nindent 4 }}
spec:
  podSelector:
    matchLabels: {app.kubernetes.io/name: terrier-run, app.kubernetes.io/managed-by: terrier}
  policyTypes: [Ingress, Egress]
  # Nothing listens in a pod of a run.
  ingress: []
  egress:
    - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
    - ports: [{port: https}]
      to:
        - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .root.Release.Namespace }}}}
          podSelector:
            matchLabels: {{- include "terrier.selector" .root | nindent 14 }}
    {{- with .root.Values.networkPolicy.runsEgress }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    {{- include "terrier.egress" .root | nindent 4 }}
    {{- end }}
{{- end }}

{{- /* The namespaces whose Secrets the controller may use, as a JSON list. */ -}}
{{- define "terrier.namespaces" -}}
{{- concat .Values.watchNamespaces .Values.rbac.namespaces | uniq | toJson }}
{{- end }}

{{- /* A flag of the controller. Numbers of values are floats, which print with an exponent. */ -}}
{{- define "terrier.flag" -}}
{{- $value := .value }}
{{- if kindIs "float64" $value }}{{ $value = int64 $value }}{{ end -}}
- {{ printf "--%s=%v" .name $value | toJson }}
{{- end }}

{{- define "terrier.args" -}}
- controller
- --data-dir=/var/lib/terrier
- --http-address=:{{ .Values.http.port }}
- --http-host={{ include "terrier.fullname" . }}.{{ .Release.Namespace }}.svc
- --http-host={{ include "terrier.fullname" . }}.{{ .Release.Namespace }}.svc.cluster.local
{{- range .Values.http.hosts }}
- --http-host={{ . }}
{{- end }}
- --http-host=$(POD_IP)
- --installation-keys={{ .Values.installationKeys }}
{{- if include "terrier.shared" . }}
- --share-stacks
- --replica-address=$(POD_IP)
{{- end }}
- --health-address=:8081
- --log-level={{ .Values.logLevel }}
{{- range .Values.watchNamespaces }}
- --watch-namespace={{ . }}
{{- end }}
{{- range .Values.kinds }}
- --kinds={{ . }}
{{- end }}
{{- if ne .Values.crds "controller" }}
- --install-crds=false
{{- end }}
{{- if .Values.admissionWebhooks.enabled }}
- --admission-webhooks
{{- end }}
{{- if .Values.metrics.enabled }}
- --metrics-address=:{{ .Values.metrics.port }}
{{- end }}
{{- with .Values.records }}
- {{ printf "--records=%s" . | toJson }}
{{- end }}
{{- range .Values.recordsKMS }}
- {{ printf "--records-kms=%s" . | toJson }}
{{- end }}
{{- with .Values.eventsAddress }}
- {{ printf "--events-addr=%s" . | toJson }}
{{- end }}
{{- if .Values.allowCrossNamespaceRefs }}
- --allow-cross-namespace-refs
{{- end }}
{{- if .Values.rbac.readAsServiceAccount }}
- --read-as-service-account
{{- end }}
{{- if .Values.allowBreakTheGlass }}
- --allow-break-the-glass
{{- end }}
{{- if .Values.oidc.clientSecret.name }}
- --oidc-client-secret-file=/etc/terrier/oidc/{{ .Values.oidc.clientSecret.key }}
{{- end }}
{{- if .Values.caBundle.configMap }}
- --run-ca-file=/etc/terrier/ca/{{ .Values.caBundle.key }}
{{- end }}
{{- /* A flag in flags takes the place of the value. */}}
{{- $flags := .Values.flags }}
{{- with .Values.identity }}
{{- if and .issuer (not (hasKey $flags "identity-issuer")) }}
- {{ printf "--identity-issuer=%s" .issuer | toJson }}
{{- end }}
{{- if and .rules (not (hasKey $flags "identity-rules")) }}
- --identity-rules=/etc/terrier/identity/rules.yaml
{{- end }}
{{- end }}
{{- with .Values.registry }}
{{- if and (not .enabled) (not (hasKey $flags "registry")) }}
- --registry=false
{{- end }}
{{- if include "terrier.registry" $ }}
{{- if and .storage (not (hasKey $flags "registry-storage")) }}
- {{ printf "--registry-storage=%s" .storage | toJson }}
{{- end }}
{{- if and .mirror.settings (not (hasKey $flags "registry-config")) }}
- --registry-config=/etc/terrier/mirror/mirror.yaml
{{- end }}
{{- if not (hasKey $flags "registry-host") }}
{{- range .hosts }}
- {{ printf "--registry-host=%s" . | toJson }}
{{- end }}
{{- end }}
{{- if and (ne .loginLife "720h") (not (hasKey $flags "registry-login-life")) }}
- --registry-login-life={{ .loginLife }}
{{- end }}
{{- if and .quota.size (not (hasKey $flags "registry-quota-size")) }}
- --registry-quota-size={{ int64 .quota.size }}
{{- end }}
{{- if and .quota.versions (not (hasKey $flags "registry-quota-versions")) }}
- --registry-quota-versions={{ int64 .quota.versions }}
{{- end }}
{{- end }}
{{- end }}
- --runs-as={{ .Values.runs.as }}
{{- if eq .Values.runs.as "processes" }}
- --drain={{ .Values.drain }}
{{- else }}
- --run-image={{ include "terrier.image" (dict "image" .Values.runs.image "version" .Chart.AppVersion) }}
- --run-image-pull-policy={{ .Values.runs.image.pullPolicy }}
{{- range .Values.runs.imagePullSecrets }}
- --run-image-pull-secret={{ .name }}
{{- end }}
- --run-service-account={{ .Values.runs.serviceAccountName }}
{{- range $kind, $list := .Values.runs.resources }}
{{- range $name, $quantity := $list }}
- {{ printf "--run-resources=%s.%s=%v" $kind $name $quantity | toJson }}
{{- end }}
{{- end }}
{{- with .Values.runs.priorityClass.name }}
- --run-priority-class={{ . }}
{{- end }}
{{- with .Values.runs.providerCache }}
{{- if .lock }}
- {{ printf "--run-provider-cache=%s" (toJson .volume) | toJson }}
- --run-provider-lock=/etc/terrier/providers/lock.hcl
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.imageBuilds.namespace }}
- --image-build-namespace={{ .Values.imageBuilds.namespace }}
- {{ printf "--image-build-image=%s" .Values.imageBuilds.image | toJson }}
{{- end }}
{{- range $name, $value := .Values.flags }}
{{- if kindIs "slice" $value }}
{{- range $value }}
{{ include "terrier.flag" (dict "name" $name "value" .) }}
{{- end }}
{{- else }}
{{ include "terrier.flag" (dict "name" $name "value" $value) }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | toJson }}
{{- end }}
{{- end }}
