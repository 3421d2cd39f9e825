"""What the boards of all runs and of the cluster below them show."""

from geartrain.monitoring.panel import Panel, Query, Row, of_run, plot
from geartrain.monitoring.recordings import GPU_BY_NODE, GPU_BY_POD, ITERATION
from geartrain.monitoring.service_alerts import AT_RISK_SECONDS, IDLE, QUEUE_SECONDS, RETRAIN_SECONDS, WORK_SECONDS

_NOW = (
    Panel(
        "Running stages",
        "What each is, and which data, image and code it belongs to.",
        (
            Query(
                'geartrain_stage_info{run_id=~"$run", stage=~"$stage"}\n'
                "  * on (job, instance, stage) (geartrain_stage_running == 1)"
            ),
        ),
        kind="table",
        width=16,
    ),
    Panel(
        "Alerts",
        "What fires now; the runbook of each says what to do.",
        (Query('ALERTS{alertname=~"Geartrain.*", alertstate="firing"}'),),
        kind="table",
        limit=1.0,
    ),
    plot(
        "Progress",
        "geartrain_stage_progress_ratio",
        "Of the last part of a stage's work.",
        kind="bargauge",
        unit="percentunit",
        low=0.0,
        high=1.0,
    ),
    plot(
        "Last sign of life",
        "time() - geartrain_stage_last_progress_timestamp_seconds",
        "Time since a stage told anything.",
        unit="s",
        limit=WORK_SECONDS,
        low=0.0,
    ),
    plot(
        "Success",
        "geartrain_train_success_ratio",
        "Share of training episodes that succeed.",
        unit="percentunit",
        low=0.0,
        high=1.0,
    ),
)
_PAST = (
    Panel(
        "Since the last pipeline that came through",
        "Age of the last complete promotion; a retrain is overdue after eight days.",
        (
            Query(
                'time() - max by (job, namespace) (geartrain_stage_last_success_timestamp_seconds{stage="promotion"})',
                "{{namespace}}",
            ),
        ),
        kind="stat",
        unit="s",
        limit=RETRAIN_SECONDS,
    ),
    Panel(
        "How stages ended",
        "In the last day, by outcome.",
        (
            Query(
                "sum by (stage, outcome) (max_over_time(geartrain_stage_ends_total[1d])) > 0", "{{stage}} {{outcome}}"
            ),
        ),
        kind="bargauge",
    ),
    Panel(
        "How long stages take",
        "When last complete.",
        (Query("geartrain_stage_duration_seconds", "{{stage}}"),),
        kind="bargauge",
        unit="s",
    ),
    Panel(
        "Held-out success before and after",
        "Of the last evaluation, sampled.",
        (Query('geartrain_eval_success_ratio{decoding="sampled"}', "{{split}} {{role}}"),),
        kind="bargauge",
        unit="percentunit",
        low=0.0,
        high=1.0,
    ),
    Panel(
        "Gain",
        "Paired, sampled, with the lower end of its interval, by which the gate decides.",
        (
            Query('geartrain_eval_gain_ratio{decoding="sampled"}', "{{split}} gain"),
            Query('geartrain_eval_gain_low_ratio{decoding="sampled"}', "{{split}} at least"),
        ),
        kind="bargauge",
        unit="percentunit",
    ),
    Panel(
        "Gate",
        "1 if the last policy passed, and each of its checks.",
        (Query("geartrain_gate_promoted", "promoted"), Query("geartrain_gate_check_passed", "{{check}}")),
        kind="stat",
        limit=1.0,
        below=True,
    ),
)
_DATA = (
    Panel(
        "Preference pairs",
        "For training and for validation.",
        (Query("geartrain_data_pairs", "{{split}}"),),
        kind="stat",
    ),
    Panel(
        "Quarantined records",
        "Rollouts that cannot be used, by reason.",
        (Query("geartrain_data_quarantined_records > 0", "{{reason}}"),),
        kind="bargauge",
    ),
    Panel(
        "Dropped pairs",
        "Siblings that made no preference, by reason.",
        (Query("geartrain_data_dropped_pairs > 0", "{{reason}}"),),
        kind="bargauge",
    ),
)
FLEET = (Row("Now", _NOW), Row("What came before", _PAST), Row("Data of the last run", _DATA))
CLUSTER = (
    Row(
        "Queue",
        (
            plot(
                "Wait of a job",
                "geartrain_job_queue_seconds",
                "Before it is admitted; the launcher gives up after four times the limit.",
                unit="s",
                limit=QUEUE_SECONDS,
                low=0.0,
            ),
            Panel(
                "Workloads that wait",
                "Of Kueue, by queue.",
                (Query('kueue_pending_workloads{cluster_queue=~"geartrain.*"}', "{{cluster_queue}} {{status}}"),),
                low=0.0,
            ),
            plot("Iteration", ITERATION, "Mean time over the life of the process.", unit="s", low=0.0),
        ),
    ),
    Row(
        "GPUs",
        (
            Panel(
                "Busy",
                "Share of time in which a pod's GPUs work; by node where the exporter names no pods.",
                (
                    Query(f"{GPU_BY_POD} and on (namespace, pod) geartrain_stage_running", "{{pod}}"),
                    Query(f"{GPU_BY_NODE} and on (node) geartrain_stage_running", "node {{node}}"),
                ),
                unit="percentunit",
                limit=IDLE,
                below=True,
                low=0.0,
                high=1.0,
            ),
            Panel(
                "Tensor cores",
                "Share of time in which they work, by GPU.",
                (Query("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "{{Hostname}} {{gpu}}"),),
                unit="percentunit",
                low=0.0,
                high=1.0,
            ),
            Panel(
                "Memory used",
                "Of the device, by GPU.",
                (Query("1048576 * DCGM_FI_DEV_FB_USED", "{{Hostname}} {{gpu}}"),),
                unit="bytes",
                low=0.0,
            ),
            Panel(
                "Memory of torch",
                "Allocated in tensors, held, and the most so far, by rank.",
                (
                    Query(of_run("geartrain_gpu_memory_allocated_bytes"), "tensors {{rank}}"),
                    Query(of_run("geartrain_gpu_memory_reserved_bytes"), "held {{rank}}"),
                    Query(of_run("geartrain_gpu_memory_peak_bytes"), "peak {{rank}}"),
                ),
                unit="bytes",
                low=0.0,
            ),
            Panel(
                "Temperature",
                "Throttling begins near 85 degrees, by GPU.",
                (Query("DCGM_FI_DEV_GPU_TEMP", "{{Hostname}} {{gpu}}"),),
                unit="celsius",
            ),
            Panel(
                "Last XID error",
                "A number above 0 is a fault of the driver or the hardware.",
                (Query("DCGM_FI_DEV_XID_ERRORS > 0", "{{Hostname}} {{gpu}}"),),
                limit=1.0,
            ),
        ),
    ),
    Row(
        "Ranks",
        (
            plot(
                "Memory",
                "geartrain_rank_memory_bytes",
                "Resident, by rank.",
                "{{instance}} {{rank}}",
                unit="bytes",
                low=0.0,
            ),
            plot(
                "CPU",
                "rate(geartrain_rank_cpu_seconds_total[$__rate_interval])",
                "Cores in use, by rank.",
                "{{instance}} {{rank}}",
                low=0.0,
            ),
            plot(
                "Tokens",
                "rate(geartrain_rank_trained_tokens_total[$__rate_interval])",
                "Trained per second, by rank; one that lags holds the others up.",
                "{{instance}} {{rank}}",
                unit="cps",
                low=0.0,
            ),
        ),
    ),
    Row(
        "Safety nets",
        (
            plot(
                "Age of the last checkpoint",
                "time() - geartrain_train_last_checkpoint_timestamp_seconds",
                "The work that a kill would cost.",
                unit="s",
                limit=AT_RISK_SECONDS,
                low=0.0,
            ),
            Panel(
                "Lineage events lost on their way",
                "Since the start of the exporter.",
                (Query("geartrain_lineage_failures_total", "{{stage}} {{instance}}"),),
                limit=1.0,
                low=0.0,
            ),
            Panel(
                "The exporter itself",
                "Series of the last scrape, and lines that could not be read.",
                (
                    Query("geartrain_exporter_series", "series {{instance}}"),
                    Query("geartrain_exporter_errors_total", "errors {{instance}}"),
                ),
                low=0.0,
            ),
        ),
    ),
)
