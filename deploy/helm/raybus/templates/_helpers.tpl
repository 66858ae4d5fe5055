{{/* One of our images: (list . "watcher"). */}}
{{- define "raybus.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- $registry := required "image.registry: set the registry that has raybus's images, such as registry.example.com/raybus (docs/installation.md)" $image.registry -}}
{{- $name := index . 1 -}}
{{- $tag := $image.tag | default (index . 0).Chart.AppVersion -}}
{{- with get $image.digests $name -}}
{{ printf "%s/%s@%s" $registry $name . }}
{{- else -}}
{{ printf "%s/%s:%s" $registry $name $tag }}
{{- end -}}
{{- end -}}

{{/* "true" where a feature gate is on that is off by default: (list . "RayClusterMTLS"). */}}
{{- define "raybus.gate" -}}
{{- $gate := index . 1 -}}
{{- range (index . 0).Values.featureGates -}}
{{- if and .enabled (or (eq .name $gate) (eq .name "AllAlpha")) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The settings that all services share, as JSON. */}}
{{- define "raybus.settings" -}}
{{- $gates := list -}}
{{- range .Values.featureGates -}}
{{- $gates = append $gates (printf "%s=%t" .name .enabled) -}}
{{- end -}}
{{- $url := "tls://nats:4222" -}}
{{- if not .Values.nats.enabled -}}
{{- $url = required "nats.url: set the address of NATS, or set nats.enabled=true" .Values.nats.url -}}
{{- end -}}
{{- $settings := dict
  "RAYBUS_NATS_URL" $url
  "RAYBUS_LOG_LEVEL" .Values.logLevel
  "RAYBUS_FEATURE_GATES" (join "," $gates)
  "RAYBUS_WATCH_NAMESPACES" (join "," .Values.watchNamespace)
  "RAYBUS_WORKERS" (toString .Values.reconcileConcurrency)
  "RAYBUS_GATE_TARGETS" (join "," .Values.gateTargets)
-}}
{{- if .Values.nats.enabled -}}
{{- $settings = set $settings "RAYBUS_NATS_REGISTER_KEY" "true" -}}
{{- end -}}
{{- with .Values.clusterDomain -}}
{{- $settings = set $settings "RAYBUS_CLUSTER_DOMAIN" . -}}
{{- end -}}
{{- with .Values.kuberayNamespace -}}
{{- $settings = set $settings "RAYBUS_LEASE_NAMESPACE" . -}}
{{- end -}}
{{- toJson $settings -}}
{{- end -}}

{{/* How many NATS servers there are and what each may keep, as JSON. */}}
{{- define "raybus.nats" -}}
{{- $servers := toString .Values.nats.servers -}}
{{- dict "NATS_SERVERS" $servers "NATS_REPLICAS" $servers "NATS_MAX_STORE" .Values.nats.maxStore "NATS_SUBSCRIBERS" .Values.nats.subscribers | toJson -}}
{{- end -}}

{{/* KubeRay's configuration file, as JSON. */}}
{{- define "raybus.operator" -}}
{{- $file := dict "apiVersion" "config.ray.io/v1alpha1" "kind" "Configuration" -}}
{{- with .Values.batchScheduler.name -}}
{{- $file = set $file "batchScheduler" . -}}
{{- end -}}
{{- dict "config.yaml" (merge $file .Values.configuration | toYaml) | toJson -}}
{{- end -}}
