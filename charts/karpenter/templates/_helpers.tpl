{{- define "karpenter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "karpenter.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "karpenter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "karpenter.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "karpenter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "karpenter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "karpenter.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "karpenter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What every object's metadata has; the argument is (list context name). */}}
{{- define "karpenter.metadata" -}}
{{- $ := index . 0 -}}
name: {{ index . 1 }}
labels:
  {{- include "karpenter.labels" $ | nindent 2 }}
{{- with $.Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "karpenter.image" -}}
{{- $image := .Values.controller.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- end -}}
{{- end }}

{{- define "karpenter.featureGates" -}}
{{- $gates := .Values.settings.featureGates -}}
NodeRepair={{ $gates.nodeRepair }},NodeOverlay={{ $gates.nodeOverlay }},ReservedCapacity={{ $gates.reservedCapacity }},SpotToSpotConsolidation={{ $gates.spotToSpotConsolidation }},StaticCapacity={{ $gates.staticCapacity }},CapacityBuffer={{ $gates.capacityBuffer }}
{{- end }}

{{/* Pod (anti-)affinity terms without a selector get ours. */}}
{{- define "karpenter.affinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- $own := dict "matchLabels" (include "karpenter.selectorLabels" . | fromYaml) -}}
{{- range $kind := list "podAffinity" "podAntiAffinity" -}}
{{- $rules := get $affinity $kind | default dict -}}
{{- range $term := get $rules "requiredDuringSchedulingIgnoredDuringExecution" | default list -}}
{{- if not (hasKey $term "labelSelector") }}{{ $_ := set $term "labelSelector" $own }}{{ end -}}
{{- end -}}
{{- range $wish := get $rules "preferredDuringSchedulingIgnoredDuringExecution" | default list -}}
{{- $term := get $wish "podAffinityTerm" -}}
{{- if not (hasKey $term "labelSelector") }}{{ $_ := set $term "labelSelector" $own }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end }}

{{/* Spread constraints without a selector get ours. */}}
{{- define "karpenter.topologySpreadConstraints" -}}
{{- $own := dict "matchLabels" (include "karpenter.selectorLabels" . | fromYaml) -}}
{{- $found := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $constraint := deepCopy . -}}
{{- if not (hasKey $constraint "labelSelector") }}{{ $_ := set $constraint "labelSelector" $own }}{{ end -}}
{{- $found = append $found $constraint -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* CPU requests in thousandths of a core; the argument is a quantity or a number. */}}
{{- define "karpenter.milli" -}}
{{- $cpu := toString . -}}
{{- if hasSuffix "m" $cpu }}{{ trimSuffix "m" $cpu | int }}{{ else }}{{ mulf (float64 $cpu) 1000 | int }}{{ end -}}
{{- end }}
