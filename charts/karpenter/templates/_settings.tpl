{{/* Environment variables of the operator's options, as one mapping. Zero and false are said, not left out. */}}
{{- define "karpenter.settings" -}}
{{- $s := .Values.settings -}}
METRICS_PORT: {{ .Values.controller.metrics.port | toString | quote }}
HEALTH_PROBE_PORT: {{ .Values.controller.healthProbe.port | toString | quote }}
LOG_LEVEL: {{ .Values.logLevel | quote }}
LOG_OUTPUT_PATHS: {{ join "," .Values.logOutputPaths | quote }}
LOG_ERROR_OUTPUT_PATHS: {{ join "," .Values.logErrorOutputPaths | quote }}
CLOUD_PROVIDER: {{ $s.cloudProvider | quote }}
BATCH_MAX_DURATION: {{ $s.batchMaxDuration | quote }}
BATCH_IDLE_DURATION: {{ $s.batchIdleDuration | quote }}
PREFERENCE_POLICY: {{ $s.preferencePolicy | quote }}
MIN_VALUES_POLICY: {{ $s.minValuesPolicy | quote }}
IGNORE_DRA_REQUESTS: {{ $s.ignoreDRARequests | toString | quote }}
DISABLE_CLUSTER_STATE_OBSERVABILITY: {{ $s.disableClusterStateObservability | toString | quote }}
KUBE_CLIENT_QPS: {{ $s.kubeClientQPS | toString | quote }}
KUBE_CLIENT_BURST: {{ $s.kubeClientBurst | toString | quote }}
ENABLE_PROFILING: {{ $s.enableProfiling | toString | quote }}
SOLVE_BUDGET: {{ $s.solveBudget | quote }}
CONSOLIDATION_SEARCH: {{ $s.consolidationSearch | quote }}
CONSOLIDATION_RESTART_COST: {{ $s.consolidationRestartCost | quote }}
CONSOLIDATION_PAYBACK: {{ $s.consolidationPayback | quote }}
FEATURE_GATES: {{ include "karpenter.featureGates" . | quote }}
{{- with $s.schedulerConfig }}
SCHEDULER_CONFIG: {{ toJson . | quote }}
{{- end }}
{{- with $s.clusterPriceLimit }}
CLUSTER_PRICE_LIMIT: {{ toString . | quote }}
{{- end }}
{{- if ne (toString $s.expendablePodsPriorityCutoff) "" }}
EXPENDABLE_PODS_PRIORITY_CUTOFF: {{ toString $s.expendablePodsPriorityCutoff | quote }}
{{- end }}
{{- range $name, $value := $s.further }}
{{ $name }}: {{ toString $value | quote }}
{{- end }}
{{- end }}
