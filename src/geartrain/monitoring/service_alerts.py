"""Alerts about the machinery: stages that stand still or fail, jobs that wait, what should have happened."""

from geartrain.cluster.budgets import Budgets
from geartrain.monitoring.alert import RUN, WHERE, Alert, Pace, failed, recent
from geartrain.monitoring.recordings import GPU_BY_NODE, GPU_BY_POD, ITERATION

ITERATIONS_OF_SILENCE = 5
"""Mean iterations without a sign of life that are a stall; one that validates takes two or three."""
SILENCE_SECONDS = 600.0
"""Least silence that is a stall where iterations are told of."""
WORK_SECONDS = 1800.0
"""Silence that is a stall where none has been told of yet: loading, a first iteration, a stage without any."""
AT_RISK_SECONDS = 3600.0
"""Work that a kill may cost."""
AT_RISK_ITERATIONS = 3
IDLE = 0.05
"""Share of time below which a GPU does nothing worth its price."""
QUEUE_SECONDS = Budgets().queue_seconds / 4
"""Wait at which somebody may still help, before the launcher gives the job up."""
RETRAIN_SECONDS = 8 * 86_400.0
"""A week's schedule and a day of grace."""
MEMORY_SECONDS = 1800.0
"""How long a failure is told of."""


def service(pace: Pace) -> tuple[Alert, ...]:
    """Return the alerts, at a pace."""
    return (*_progress(pace), *_cluster(pace), *_upkeep(pace))


def _progress(pace: Pace) -> tuple[Alert, ...]:
    silence = "time() - geartrain_stage_last_progress_timestamp_seconds"
    patience = f"clamp_min({ITERATIONS_OF_SILENCE} * {ITERATION}, {pace.number(SILENCE_SECONDS)})"
    risk = f"clamp_min({AT_RISK_ITERATIONS} * {ITERATION}, {pace.number(AT_RISK_SECONDS)})"
    return (
        Alert(
            "TrainingStalled",
            f"({silence} > {patience})\nor\n(({silence} > {pace.number(WORK_SECONDS)}) unless {ITERATION})",
            pace.span(60.0),
            "critical",
            "training",
            f"{WHERE}: no sign of life for {{{{ $value | humanizeDuration }}}}",
            f"{RUN}Its process still answers, and has told nothing for {{{{ $value | humanizeDuration }}}}: longer "
            f"than {ITERATIONS_OF_SILENCE} iterations take. First: see what it does (py-spy dump, or the pod's log); "
            "on several ranks one that died leaves the others waiting. The last checkpoint is intact: ending it "
            "costs what came after.",
        ),
        Alert(
            "CheckpointStale",
            f"time() - geartrain_train_last_checkpoint_timestamp_seconds > {risk}",
            pace.span(60.0),
            "warning",
            "training",
            f"{WHERE}: {{{{ $value | humanizeDuration }}}} of work would be lost by a kill",
            f"{RUN}The last checkpoint is {{{{ $value | humanizeDuration }}}} old. First: is the disk or the volume "
            "full or slow (df, the phase `save` of the iterations)? If not, lower policy.checkpoint_every.",
        ),
        Alert(
            "StageFailed",
            failed(pace, MEMORY_SECONDS),
            "0s",
            "critical",
            "pipeline",
            f"{WHERE}: failed {{{{ $value | humanizeDuration }}}} ago",
            f"{RUN}The stage ended by itself; nothing repeats it but a retry. First: the last line of its log says "
            "what was wrong, where, and how to mend it; `geartrain diagnose` reads its record. Exit code 75 is disk "
            "or network: retry.",
        ),
    )


def _cluster(pace: Pace) -> tuple[Alert, ...]:
    running = "(geartrain_stage_running == 1)"
    pending, hour = 'kueue_pending_workloads{cluster_queue=~"geartrain.*",status="active"}', pace.span(QUEUE_SECONDS)
    unnamed = f'((geartrain_stage_running{{geartrain_dev_stage!=""}} == 1) unless on (namespace, pod) {GPU_BY_POD})'
    return (
        Alert(
            "GPUIdle",
            f"({running} * on (namespace, pod) group_left () {GPU_BY_POD} < {IDLE:g})\nor\n({unnamed} * on (node) "
            f"group_left () {GPU_BY_NODE} < {IDLE:g})",
            pace.span(900.0),
            "warning",
            "gpu",
            f"{WHERE}: its GPUs are busy {{{{ $value | humanizePercentage }}}} of the time",
            f"{RUN}It holds GPUs that others queue for. First: which part of the iterations takes the time (dashboard "
            "of the run, phases)? Playing: fewer, larger batches (policy.sampling.rows). Nothing: see "
            "TrainingStalled. A run that needs no GPU should not ask for one.",
        ),
        Alert(
            "QueueTooLong",
            f"geartrain_job_queue_seconds > {pace.number(QUEUE_SECONDS)}\nor\n{pace.number(QUEUE_SECONDS)} * (min by "
            f"(cluster_queue) (min_over_time({pending}[{hour}])) > bool 0)\n  * on (cluster_queue) (max by "
            f"(cluster_queue) ({pending} offset {hour}) > bool 0) > 0",
            pace.span(60.0),
            "warning",
            "pipeline",
            "{{ or $labels.cluster_queue $labels.stage }}: a job has waited {{ $value | humanizeDuration }} for its "
            "place",
            f"{RUN}The launcher gives up after {pace.span(Budgets().queue_seconds)} (exit code 76). First: `geartrain "
            "status RUN` says what the queue is short of. Then end what need not run, or ask for fewer nodes or GPUs.",
        ),
    )


def _upkeep(pace: Pace) -> tuple[Alert, ...]:
    memory = pace.span(MEMORY_SECONDS)
    last = 'max by (job, namespace) (geartrain_stage_last_success_timestamp_seconds{stage="promotion"})'
    return (
        Alert(
            "RetrainOverdue",
            f"time() - {last} > {pace.number(RETRAIN_SECONDS)}",
            pace.span(3600.0),
            "warning",
            "pipeline",
            "no pipeline has come to its end for {{ $value | humanizeDuration }}",
            f"A run was due at least every {pace.span(RETRAIN_SECONDS)} (namespace "
            f"{{{{ or $labels.namespace `of this machine` }}}}). First: `geartrain schedule list` says when the next "
            "is due and how the last one ended; `geartrain schedule plan` whether the server is as git says.",
        ),
        Alert(
            "LineageFailing",
            recent("geartrain_lineage_failures_total", memory),
            "0s",
            "warning",
            "pipeline",
            f"{WHERE}: lineage events are being lost on their way",
            f"{RUN}{{{{ $value }}}} events within {memory} were not copied to where $GEARTRAIN_LINEAGE points. They "
            "still lie in the journal of the stage. First: is that place reachable and writable? Then `geartrain "
            "lineage verify`, which says what is missing.",
        ),
    )
