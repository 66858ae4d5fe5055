"""The meaning of each field of RayService and RayCluster, with keys such as `HeadInfo.podIP`."""

from typing import Final

TEXTS: Final = {
    # --- RayService -------------------------------------------------------------------------------
    (
        "RayServiceSpec.rayClusterDeletionDelaySeconds"
    ): "Seconds until the deletion of the old cluster after an upgrade; 60 when absent.",
    "RayServiceSpec.serviceUnhealthySecondThreshold": "Deprecated; has no effect.",
    "RayServiceSpec.deploymentUnhealthySecondThreshold": "Deprecated; has no effect.",
    (
        "RayServiceSpec.serveService"
    ): "Template of the Service that takes requests; unused if a route carries the traffic.",
    "RayServiceSpec.upgradeStrategy": "How a change that needs a new cluster is rolled out.",
    "RayServiceSpec.managedBy": "The controller that reconciles the object; absent means this one.",
    ("RayServiceSpec.serveConfigV2"): (
        "Ray Serve's multi-application config as YAML. raybus sends a change to the running "
        "cluster."
    ),
    ("RayServiceSpec.rayClusterConfig"): (
        "Spec of the RayCluster. Every change requires a new cluster, except changed replicas and "
        "appended groups."
    ),
    "RayServiceSpec.excludeHeadPodFromServeSvc": "Send no requests to the head.",
    "RayServiceSpec.suspend": "Delete the clusters and routes, and keep the object.",
    ("ServiceUpgradeStrategy.type"): (
        "`NewCluster` (the default), `NewClusterWithIncrementalUpgrade`, or `None`, which never "
        "creates a new cluster."
    ),
    (
        "ServiceUpgradeStrategy.clusterUpgradeOptions"
    ): "Required with `NewClusterWithIncrementalUpgrade`.",
    ("ClusterUpgradeOptions.maxSurgePercent"): (
        "Percent of capacity that both clusters together may have above 100, from 0 to 100; see "
        "[sizing](../how-to/sizing.md)."
    ),
    ("ClusterUpgradeOptions.stepSizePercent"): (
        "Percent of the traffic that moves in one step, from 0 to 100 and not above "
        "`maxSurgePercent`."
    ),
    (
        "ClusterUpgradeOptions.intervalSeconds"
    ): "Minimum number of seconds between two steps, more than 0.",
    (
        "ClusterUpgradeOptions.gatewayClassName"
    ): "GatewayClass of the Gateway that raybus creates for the service.",
    "RayServiceStatus.conditions": "See [conditions](conditions.md#conditions-of-a-rayservice).",
    "RayServiceStatus.lastUpdateTime": "When the status was last written.",
    "RayServiceStatus.serviceStatus": "Deprecated: `Running` while `Ready` is True.",
    "RayServiceStatus.activeServiceStatus": "The cluster that serves.",
    (
        "RayServiceStatus.pendingServiceStatus"
    ): "The cluster of an upgrade in progress; empty without an upgrade.",
    "RayServiceStatus.numServeEndpoints": "Pods that can accept requests.",
    "RayServiceStatus.observedGeneration": "Generation of the spec that this status describes.",
    "ClusterServiceStatus.applicationStatuses": "Applications by name, with Ray Serve's states.",
    (
        "ClusterServiceStatus.targetCapacity"
    ): "Serve's target capacity in percent; only with upgrades in steps.",
    (
        "ClusterServiceStatus.trafficRoutedPercent"
    ): "Percent of the requests that the route sends to this cluster; only with upgrades in steps.",
    "ClusterServiceStatus.lastTrafficMigratedTime": "When that percentage last changed.",
    "ClusterServiceStatus.rayClusterName": "Name of the RayCluster.",
    "ClusterServiceStatus.rayClusterStatus": "Copy of the status of that RayCluster.",
    "AppStatus.serveDeploymentStatuses": "Deployments by name.",
    "AppStatus.status": (
        "`NOT_STARTED`, `DEPLOYING`, `RUNNING`, `DEPLOY_FAILED`, `DELETING` or `UNHEALTHY`."
    ),
    "AppStatus.message": "Serve's message.",
    (
        "ServeDeploymentStatus.status"
    ): "State of the deployment, such as `HEALTHY`, `UPDATING` or `UNHEALTHY`.",
    "ServeDeploymentStatus.message": "Serve's message.",
    # --- RayCluster -------------------------------------------------------------------------------
    (
        "RayClusterSpec.upgradeStrategy"
    ): "Effect of a spec change on running pods; not allowed in a RayService.",
    "RayClusterSpec.authOptions": "Token authentication of Ray.",
    "RayClusterSpec.suspend": "Delete all pods, and keep the object.",
    "RayClusterSpec.managedBy": "The controller that reconciles the object; absent means this one.",
    "RayClusterSpec.autoscalerOptions": "The autoscaler's container.",
    "RayClusterSpec.headServiceAnnotations": "Annotations of the head's Service.",
    (
        "RayClusterSpec.enableInTreeAutoscaling"
    ): "Run Ray's autoscaler next to the head; required for upgrades in steps.",
    (
        "RayClusterSpec.gcsFaultToleranceOptions"
    ): "Storage of the GCS state, from which a new head continues.",
    (
        "RayClusterSpec.historyServerOptions"
    ): "Collect logs and events for the history server. Needs the gate `RayClusterHistoryServer`.",
    ("RayClusterSpec.networkPolicy"): (
        "NetworkPolicies around the cluster's pods: one for the head, and one for each worker "
        "group. Needs the feature gate `RayClusterNetworkPolicy`."
    ),
    ("RayClusterSpec.tlsOptions"): (
        "Mutual TLS between Ray's processes, with certificates of cert-manager. Needs the gate "
        "`RayClusterMTLS`."
    ),
    "RayClusterSpec.headGroupSpec": "The head.",
    ("RayClusterSpec.rayVersion"): (
        "Ray's version. The image decides which version runs; this field decides probes and "
        "options."
    ),
    "RayClusterSpec.workerGroupSpecs": "Groups of equal workers.",
    (
        "UpgradeStrategy.type"
    ): "`Recreate` deletes all pods when the spec changes; absent means `None`.",
    (
        "AuthOptions.enableK8sTokenAuth"
    ): "Let the Kubernetes API check tokens. KubeRay rejects this in a RayService.",
    (
        "AuthOptions.secretName"
    ): "Your own Secret with the token under `auth_token`. If absent, raybus creates one.",
    "AuthOptions.mode": "Whether tokens are required.",
    "AutoscalerOptions.resources": "Requests and limits; 500m CPU and 512Mi of memory when absent.",
    "AutoscalerOptions.image": "Image of the container; the head's image when absent.",
    "AutoscalerOptions.imagePullPolicy": "As in a container; `IfNotPresent` when absent.",
    "AutoscalerOptions.securityContext": "As in a container.",
    (
        "AutoscalerOptions.idleTimeoutSeconds"
    ): "Seconds that a worker is idle before Ray deletes it; 60 when absent.",
    "AutoscalerOptions.upscalingMode": "How fast Ray scales up.",
    "AutoscalerOptions.version": "Version of the autoscaler; chosen by Ray when absent.",
    "AutoscalerOptions.env": "Variables added to the container.",
    "AutoscalerOptions.envFrom": "Sources of variables added to the container.",
    "AutoscalerOptions.volumeMounts": "Mounts added to the container.",
    "AutoscalerOptions.command": "Replaces the command.",
    "AutoscalerOptions.args": "Replaces the arguments.",
    "GcsFaultToleranceOptions.backend": "Redis (the default), or a store on a volume of the head.",
    "GcsFaultToleranceOptions.redisUsername": "Redis user name.",
    "GcsFaultToleranceOptions.redisPassword": "Redis password.",
    (
        "GcsFaultToleranceOptions.externalStorageNamespace"
    ): "Prefix of the keys in Redis; the cluster's uid when absent.",
    "GcsFaultToleranceOptions.redisAddress": "Address of Redis.",
    "GcsFaultToleranceOptions.storage": "The volume, for `rocksdb`.",
    "RedisCredential.valueFrom": "Source of the value.",
    "RedisCredential.value": "Literal value.",
    (
        "GcsEmbeddedStorage.claimName"
    ): "Your own PersistentVolumeClaim. It excludes `size`, `storageClassName` and `accessModes`.",
    "GcsEmbeddedStorage.size": "Size of the created claim; 1Gi when absent.",
    (
        "GcsEmbeddedStorage.storageClassName"
    ): "StorageClass of the created claim; the default class when absent.",
    (
        "GcsEmbeddedStorage.accessModes"
    ): "Access modes of the created claim; `ReadWriteOnce` when absent.",
    "GcsEmbeddedStorage.subPath": "Folder within the volume.",
    (
        "GcsEmbeddedStorage.deletionPolicy"
    ): "When the claim is deleted; together with the cluster when absent.",
    "HistoryServerOptions.collectorOptions": "The collector's container.",
    "CollectorOptions.image": "Image of the collector.",
    "CollectorOptions.imagePullPolicy": "As in a container.",
    "CollectorOptions.resources": "Requests and limits.",
    "CollectorOptions.env": "Variables added to the container.",
    "NetworkPolicyConfig.mode": "Direction of the traffic that is denied unless a rule allows it.",
    "NetworkPolicyConfig.head": "Rules added for the head.",
    "NetworkPolicyConfig.worker": "Rules added for all workers.",
    (
        "NetworkPolicyConfig.workerGroups"
    ): "Rules of single groups; they replace `worker` for these groups.",
    "NetworkPolicyRules.ingressRules": "Allowed incoming traffic.",
    "NetworkPolicyRules.egressRules": "Allowed outgoing traffic.",
    "WorkerGroupNetworkPolicyRules.groupName": "Name of the group.",
    "WorkerGroupNetworkPolicyRules.ingressRules": "Allowed incoming traffic.",
    "WorkerGroupNetworkPolicyRules.egressRules": "Allowed outgoing traffic.",
    "TlsOptions.enabled": "Whether TLS is enabled.",
    "HeadGroupSpec.template": "The pod; its first container runs Ray.",
    "HeadGroupSpec.headService": "Template of the head's Service.",
    "HeadGroupSpec.enableIngress": "Create an Ingress for the dashboard, on OpenShift a Route.",
    "HeadGroupSpec.ingressOptions": "Options of that Ingress.",
    (
        "HeadGroupSpec.resources"
    ): "Resources of the head as Ray sees them; those of its container when absent.",
    "HeadGroupSpec.labels": "Labels of the Ray node and of its pod.",
    "HeadGroupSpec.rayStartParams": "Options of `ray start`.",
    "HeadGroupSpec.serviceType": "Type of the head's Service.",
    "IngressOptions.host": "Host name.",
    "IngressOptions.path": "Path; `/` when absent.",
    "IngressOptions.pathType": "How the path is matched; `Prefix` when absent.",
    "IngressOptions.tls": "Certificates.",
    ("WorkerGroupSpec.suspend"): (
        "Delete the group's pods. Needs the gate `RayJobDeletionPolicy`; not possible with "
        "autoscaling."
    ),
    "WorkerGroupSpec.groupName": "Name of the group, unique in the cluster.",
    (
        "WorkerGroupSpec.replicas"
    ): "Number of replicas, between `minReplicas` and `maxReplicas`. The autoscaler writes it.",
    "WorkerGroupSpec.minReplicas": "Minimum number of replicas.",
    "WorkerGroupSpec.maxReplicas": "Maximum number of replicas.",
    (
        "WorkerGroupSpec.idleTimeoutSeconds"
    ): "Seconds that a worker of the group is idle before Ray deletes it; autoscaler v2 only.",
    ("WorkerGroupSpec.priority"): (
        "Priority of the group when the autoscaler adds workers; autoscaler v2 of Ray 2.56 or "
        "newer."
    ),
    (
        "WorkerGroupSpec.resources"
    ): "Resources of a worker as Ray sees them; those of its container when absent.",
    "WorkerGroupSpec.labels": "Labels of the Ray nodes and of their pods.",
    "WorkerGroupSpec.rayStartParams": "Options of `ray start`.",
    "WorkerGroupSpec.template": "The pod; its first container runs Ray.",
    "WorkerGroupSpec.scaleStrategy": "Pods to delete first.",
    ("WorkerGroupSpec.numOfHosts"): (
        "Number of pods of one replica. They are created and deleted together, for hosts that "
        "share accelerators."
    ),
    "ScaleStrategy.workersToDelete": "Names of the pods to delete. The autoscaler writes them.",
    "RayClusterStatus.state": "Deprecated: `ready` or `suspended`.",
    "RayClusterStatus.desiredCPU": "CPU requests of all pods.",
    "RayClusterStatus.desiredMemory": "Memory requests of all pods.",
    "RayClusterStatus.desiredGPU": "GPU requests of all pods.",
    "RayClusterStatus.desiredTPU": "TPU requests of all pods.",
    "RayClusterStatus.lastUpdateTime": "When the status was last written.",
    "RayClusterStatus.stateTransitionTimes": "Time at which each state was last entered.",
    "RayClusterStatus.endpoints": "Ports of the head's Service by name.",
    "RayClusterStatus.head": "Names and addresses of the head.",
    "RayClusterStatus.reason": "Deprecated; stays empty.",
    "RayClusterStatus.conditions": "See [conditions](conditions.md#conditions-of-a-raycluster).",
    "RayClusterStatus.readyWorkerReplicas": "Number of worker pods that are ready.",
    "RayClusterStatus.availableWorkerReplicas": "Number of worker pods that run.",
    "RayClusterStatus.desiredWorkerReplicas": "Desired number of worker pods.",
    "RayClusterStatus.minWorkerReplicas": "Minimum number of worker pods.",
    "RayClusterStatus.maxWorkerReplicas": "Maximum number of worker pods.",
    "RayClusterStatus.observedGeneration": "Generation of the spec that this status describes.",
    "HeadInfo.podIP": "Address of the pod.",
    "HeadInfo.serviceIP": "Address of the Service, or of the pod if the Service has none.",
    "HeadInfo.podName": "Name of the pod.",
    "HeadInfo.serviceName": "Name of the Service.",
}
