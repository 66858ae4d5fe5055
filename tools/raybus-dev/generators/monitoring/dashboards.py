"""The two Grafana dashboards: the state of raybus, and upgrades."""

from typing import Final

from generators.monitoring.grafana import GrafanaDashboard, GrafanaVariable, Panel, PanelRow, Query

RATE: Final = "[$__rate_interval]"


def _p(share: str, metric: str, by: str) -> Query:
    """Return a query for a quantile (`share`) of a histogram, grouped by the labels `by`."""
    label = by.split(", ", 1)[0]
    expr = f"histogram_quantile({share}, sum by ({by}, le) (rate({metric}_bucket{RATE})))"
    return Query(expr, f"{{{{{label}}}}} p{share.removeprefix('0.').ljust(2, '0')}")


_HEALTH: Final = PanelRow(
    title="Health",
    panels=(
        Panel(
            title="Processes that answer",
            text="Replicas of each service that Prometheus can scrape.",
            kind="stat",
            queries=(Query('sum by (service) (up{job="raybus"})', "{{service}}"),),
        ),
        Panel(
            title="Connected to NATS",
            text="1 while all replicas of a service have their connection.",
            kind="stat",
            queries=(Query("min by (service) (raybus_bus_connected)", "{{service}}"),),
        ),
        Panel(
            title="Watcher",
            text="Exactly one watcher leads; it has published the whole state of the API server.",
            kind="stat",
            queries=(
                Query("sum(raybus_watcher_leader)", "leading"),
                Query("sum(raybus_watcher_synced)", "synced"),
            ),
        ),
        Panel(
            title="Partitions held",
            text="64 for each controller; less means that some objects have no owner.",
            queries=(Query("sum by (controller) (raybus_partitions_held)", "{{controller}}"),),
        ),
        Panel(
            title="Age of the replicas' Leases",
            text="Renewed every 2 s; a replica stops writing at 5 s.",
            unit="s",
            queries=(Query("max by (lease) (raybus_lease_age_seconds)", "{{lease}}"),),
        ),
        Panel(
            title="Partitions that change hands",
            text=(
                "Acquired, released and lost; and writes that the fence rejected without a valid "
                "Lease."
            ),
            unit="ops",
            queries=(
                Query(
                    "sum by (controller, direction) "
                    f"(rate(raybus_partition_handovers_total{RATE}))",
                    "{{controller}} {{direction}}",
                ),
                Query(f"sum(rate(raybus_fenced_writes_total{RATE}))", "refused writes"),
            ),
        ),
        Panel(
            title="Silence of the API server",
            text="Time since its last message on a watch. Bookmarks arrive every minute.",
            unit="s",
            queries=(Query("max by (watch) (raybus_watch_silence_seconds)", "{{watch}}"),),
        ),
    ),
)
_RECONCILES: Final = PanelRow(
    title="Reconciles",
    panels=(
        Panel(
            title="Reconciles per second",
            text="By controller and result.",
            unit="ops",
            queries=(
                Query(
                    f"sum by (controller, result) (rate(controller_runtime_reconcile_total{RATE}))",
                    "{{controller}} {{result}}",
                ),
            ),
        ),
        Panel(
            title="Duration of a reconcile",
            text="Half of them, and nearly all of them, take less.",
            unit="s",
            queries=(
                _p("0.5", "controller_runtime_reconcile_time_seconds", "controller"),
                _p("0.99", "controller_runtime_reconcile_time_seconds", "controller"),
            ),
        ),
        Panel(
            title="Failed reconciles",
            text="Conflicts with others' writes count as well; they are repeated at once.",
            unit="percentunit",
            queries=(
                Query(
                    f"sum by (controller) (rate(controller_runtime_reconcile_errors_total{RATE}))"
                    f" / sum by (controller) (rate(controller_runtime_reconcile_total{RATE}))",
                    "{{controller}}",
                ),
            ),
        ),
        Panel(
            title="Queue depth",
            text="Keys in the queue.",
            queries=(Query("sum by (controller) (workqueue_depth)", "{{controller}}"),),
        ),
        Panel(
            title="Queue wait",
            text="Nearly all wait less; and the longest present wait.",
            unit="s",
            queries=(
                _p("0.99", "workqueue_queue_duration_seconds", "controller"),
                Query(
                    "max by (controller) (raybus_queue_longest_wait_seconds)",
                    "{{controller}} longest now",
                ),
            ),
        ),
        Panel(
            title="Workers",
            text="Busy ones, and how many there may be.",
            queries=(
                Query(
                    "sum by (controller) (controller_runtime_active_workers)", "{{controller}} busy"
                ),
                Query(
                    "sum by (controller) (controller_runtime_max_concurrent_reconciles)",
                    "{{controller}} most",
                ),
            ),
        ),
    ),
)
_OTHERS: Final = PanelRow(
    title="API server, NATS, Serve",
    panels=(
        Panel(
            title="Requests to the API server",
            text="By service, method and status code; watches count when they begin.",
            unit="reqps",
            queries=(
                Query(
                    f"sum by (service, method, code) (rate(rest_client_requests_total{RATE}))",
                    "{{service}} {{method}} {{code}}",
                ),
            ),
        ),
        Panel(
            title="API server latency",
            text="Nearly all requests take less.",
            unit="s",
            queries=(_p("0.99", "rest_client_request_duration_seconds", "verb"),),
        ),
        Panel(
            title="Bytes from the API server",
            text="Answers, watches aside.",
            unit="Bps",
            queries=(
                Query(
                    f"sum by (service) (rate(rest_client_response_size_bytes_sum{RATE}))",
                    "{{service}}",
                ),
            ),
        ),
        Panel(
            title="Published states",
            text="By kind.",
            unit="ops",
            queries=(
                Query(f"sum by (kind) (rate(raybus_watcher_published_total{RATE}))", "{{kind}}"),
            ),
        ),
        Panel(
            title="Publish latency",
            text="Half, and nearly all, take less.",
            unit="s",
            queries=(
                _p("0.5", "raybus_watcher_publish_seconds", "service"),
                _p("0.99", "raybus_watcher_publish_seconds", "service"),
            ),
        ),
        Panel(
            title="State stream",
            text="Stored objects, objects with an unstored newest state, and reloads by readers.",
            queries=(
                Query("max(raybus_watcher_objects)", "objects"),
                Query("max(raybus_watcher_pending)", "not stored yet"),
                Query("sum(raybus_state_reloads_total) or vector(0)", "reloads"),
            ),
        ),
        Panel(
            title="Serve: longest silence",
            text="Since the dashboard of a cluster last answered.",
            unit="s",
            queries=(Query("max by (role) (raybus_serve_poll_age_seconds)", "{{role}}"),),
        ),
        Panel(
            title="Serve configs and capacities sent",
            text="That dashboards accepted.",
            unit="ops",
            queries=(Query(f"sum(rate(raybus_serve_configs_sent_total{RATE}))", "sent"),),
        ),
        Panel(
            title="Certificate of NATS",
            text="Time until it ends.",
            unit="s",
            kind="stat",
            queries=(
                Query(
                    "min by (certificate) (raybus_nats_certificate_expiry_timestamp_seconds) - "
                    "time()",
                    "{{certificate}}",
                ),
            ),
        ),
    ),
)
_NATS: Final = PanelRow(
    title="NATS",
    panels=(
        Panel(
            title="Storage used",
            text=(
                "Of what each server may store. At 100 % no change of the cluster can be published."
            ),
            unit="percentunit",
            most=1,
            queries=(
                Query("raybus_nats_storage_bytes / raybus_nats_storage_limit_bytes", "{{pod}}"),
            ),
        ),
        Panel(
            title="Streams",
            text="Bytes of each stream, before compression, on the server that holds most.",
            unit="bytes",
            queries=(
                Query(
                    "max by (account, stream) (raybus_nats_stream_bytes)", "{{account}} {{stream}}"
                ),
            ),
        ),
        Panel(
            title="Messages",
            text="Of each stream.",
            queries=(
                Query(
                    "max by (account, stream) (raybus_nats_stream_messages)",
                    "{{account}} {{stream}}",
                ),
            ),
        ),
        Panel(
            title="Replicas",
            text=(
                "Entries by which the last replica lags, replicas that are away, and leaders: one "
                "for each stream."
            ),
            queries=(
                Query(
                    "max by (account, stream) (raybus_nats_stream_lag_messages)",
                    "{{account}} {{stream}} lag",
                ),
                Query(
                    "max by (account, stream) (raybus_nats_stream_replicas_away)",
                    "{{account}} {{stream}} away",
                ),
                Query(
                    "sum by (account, stream) (raybus_nats_stream_leader)",
                    "{{account}} {{stream}} leaders",
                ),
            ),
        ),
        Panel(
            title="Clients",
            text=(
                "Connections to each server, and clients that it disconnected because they did "
                "not read, in the time shown."
            ),
            queries=(
                Query("raybus_nats_connections", "{{pod}}"),
                Query("increase(raybus_nats_slow_consumers_total[$__range])", "{{pod}} slow"),
            ),
        ),
        Panel(
            title="Memory of NATS",
            text="Resident set of each server; empty without an answer of its monitoring port.",
            unit="bytes",
            queries=(Query("raybus_nats_memory_bytes and raybus_nats_up == 1", "{{pod}}"),),
        ),
    ),
)
_RAY: Final = PanelRow(
    title="Ray",
    panels=(
        Panel(
            title="RayClusters",
            text="By namespace.",
            queries=(Query("count by (namespace) (kuberay_cluster_info)", "{{namespace}}"),),
        ),
        Panel(
            title="Time to provision",
            text="From a RayCluster's creation until all its pods ran.",
            unit="s",
            queries=(
                Query(
                    "max by (namespace) (kuberay_cluster_provisioned_duration_seconds)",
                    "{{namespace}}",
                ),
            ),
        ),
        Panel(
            title="RayServices",
            text="Ready and not ready.",
            queries=(
                Query(
                    "count by (condition) (kuberay_service_condition_ready)", "ready: {{condition}}"
                ),
            ),
        ),
    ),
)
_PROCESSES: Final = PanelRow(
    title="Processes",
    panels=(
        Panel(
            title="CPU",
            text="Cores.",
            unit="none",
            queries=(
                Query(
                    "sum by (service, pod) "
                    f'(rate(process_cpu_seconds_total{{job="raybus"}}{RATE}))',
                    "{{service}} {{pod}}",
                ),
            ),
        ),
        Panel(
            title="Memory",
            text="Resident set.",
            unit="bytes",
            queries=(Query('process_resident_memory_bytes{job="raybus"}', "{{service}} {{pod}}"),),
        ),
        Panel(
            title="Open files",
            text="Sockets count.",
            queries=(Query('process_open_fds{job="raybus"}', "{{service}} {{pod}}"),),
        ),
    ),
)
OPERATOR: Final = GrafanaDashboard(
    uid="raybus-operator",
    title="raybus / Operator",
    text="State of the five services. Alerts: docs/alerts.md; metrics: docs/metrics.md.",
    rows=(_HEALTH, _RECONCILES, _OTHERS, _NATS, _RAY, _PROCESSES),
)

_OF: Final = '{namespace=~"$namespace", name=~"$rayservice"}'


def _where(condition: str) -> str:
    return _OF.replace("}", f', condition="{condition}"}}')


def _count(title: str, text: str, metric: str) -> Panel:
    return Panel(
        title=title,
        text=text,
        kind="stat",
        queries=(Query(f"count({metric}{_where('true')}) or vector(0)", title),),
    )


_NOW: Final = PanelRow(
    title="Now",
    panels=(
        _count(
            "Current upgrades",
            "RayServices in an upgrade.",
            "kuberay_service_condition_upgrade_in_progress",
        ),
        _count(
            "Stalled", "Past their progress deadline.", "raybus_service_condition_upgrade_stalled"
        ),
        _count(
            "Rollbacks", "Rollbacks in progress.", "raybus_service_condition_rollback_in_progress"
        ),
    ),
)
_COURSE: Final = PanelRow(
    title="Progress",
    panels=(
        Panel(
            title="Requests by cluster",
            text=(
                "Weights in the route; where there is none, the cluster that the Serve Service "
                "selects."
            ),
            unit="percent",
            most=100,
            queries=(
                Query(f"raybus_service_traffic_percent{_OF}", "{{name}}: {{cluster}} ({{role}})"),
            ),
        ),
        Panel(
            title="Target capacity",
            text="target_capacity that Serve has accepted.",
            unit="percent",
            queries=(
                Query(
                    f"raybus_service_target_capacity_percent{_OF}",
                    "{{name}}: {{cluster}} ({{role}})",
                ),
            ),
        ),
        Panel(
            title="Running capacity",
            text="Running replicas, of what the Serve config asks for. Weights never go beyond it.",
            unit="percent",
            queries=(
                Query(
                    f"raybus_service_ready_capacity_percent{_OF}",
                    "{{name}}: {{cluster}} ({{role}})",
                ),
            ),
        ),
        Panel(
            title="Phase",
            text="Idle, Starting, Preparing, Shifting, RollingBack, Draining.",
            kind="state-timeline",
            queries=(Query(f"raybus_service_upgrade_phase{_OF}", "{{name}} {{phase}}"),),
        ),
        Panel(
            title="Age of the upgrade, and of its last step",
            text="While one is on. A step waits for the interval, for capacity, and for the route.",
            unit="s",
            queries=(
                Query(f"raybus_service_upgrade_age_seconds{_OF}", "{{name}}"),
                Query(f"raybus_service_step_age_seconds{_OF}", "{{name}} last step"),
            ),
        ),
        Panel(
            title="Silence of Serve",
            text="Since each cluster's dashboard last answered.",
            unit="s",
            queries=(
                Query(f"raybus_serve_poll_age_seconds{_OF}", "{{name}}: {{cluster}} ({{role}})"),
            ),
        ),
    ),
)
_ENDED: Final = PanelRow(
    title="Ended",
    panels=(
        Panel(
            title="How upgrades ended",
            text="In the time shown.",
            kind="stat",
            queries=(
                Query(
                    "sum by (outcome) (increase(raybus_upgrades_total[$__range]))", "{{outcome}}"
                ),
            ),
        ),
        Panel(
            title="Duration",
            text="Half, and nearly all, took less; by phase, in the time shown.",
            unit="s",
            queries=tuple(
                Query(
                    f"histogram_quantile({share}, sum by (phase, le) "
                    "(rate(raybus_upgrade_duration_seconds_bucket[$__range])))",
                    f"{{{{phase}}}} p{name}",
                )
                for share, name in (("0.5", "50"), ("0.95", "95"))
            ),
        ),
        Panel(
            title="Phases of each service's last upgrade",
            text="From its receipt, which a restart does not forget.",
            unit="s",
            queries=(
                Query(
                    f"raybus_service_last_upgrade_seconds{_OF}", "{{name}} {{phase}} ({{outcome}})"
                ),
            ),
        ),
        Panel(
            title="Drains",
            text="Clusters that were deleted after a drain, by what was in flight.",
            kind="stat",
            queries=(
                Query("sum by (result) (increase(raybus_drains_total[$__range]))", "{{result}}"),
            ),
        ),
        Panel(
            title="Requests cut",
            text="In flight when their cluster was deleted.",
            kind="stat",
            queries=(Query("sum(increase(raybus_drain_requests_cut_total[$__range]))", "cut"),),
        ),
        Panel(
            title="Upgrade events",
            text="By kind, in the time shown; a lost one was refused by NATS.",
            kind="stat",
            queries=(
                Query(
                    "sum by (kind, result) (increase(raybus_upgrade_events_total[$__range])) > 0",
                    "{{kind}} {{result}}",
                ),
            ),
        ),
        Panel(
            title="Least capacity, most surge",
            text="Of each service's last upgrade.",
            unit="percent",
            queries=(
                Query(
                    f"raybus_service_last_upgrade_lowest_capacity_percent{_OF}", "{{name}} least"
                ),
                Query(
                    f"raybus_service_last_upgrade_peak_surge_percent{_OF}", "{{name}} beyond 100"
                ),
            ),
        ),
    ),
)
UPGRADES: Final = GrafanaDashboard(
    uid="raybus-upgrades",
    title="raybus / Upgrades",
    text=(
        "Weights, capacities and phases of the upgrades of RayServices. Alerts: docs/alerts.md; "
        "metrics: docs/metrics.md."
    ),
    rows=(_NOW, _COURSE, _ENDED),
    variables=(
        GrafanaVariable(
            name="namespace",
            label="Namespace",
            query="label_values(kuberay_service_info, namespace)",
        ),
        GrafanaVariable(
            name="rayservice",
            label="RayService",
            query='label_values(kuberay_service_info{namespace=~"$namespace"}, name)',
        ),
    ),
)
DASHBOARDS: Final = {"operator": OPERATOR, "upgrades": UPGRADES}
