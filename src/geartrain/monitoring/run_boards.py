"""What the boards of one run show: whether it learns, what its rewards are, where its credit goes."""

from geartrain.algorithms import validity
from geartrain.monitoring.learning_alerts import JUDGE_BUDGET, STARVED
from geartrain.monitoring.panel import Panel, Query, Row, of_run, plot, plot_share
from geartrain.monitoring.recordings import JUDGING

_LEARNING = Row(
    "Is it learning?",
    (
        Panel(
            "Success",
            "Share of episodes that succeed: of the tasks trained on, and of held-out ones. A gap that opens is "
            "overfitting "
            "or hacking.",
            (
                Query(of_run("geartrain_train_success_ratio"), "trained on {{run_id}}"),
                Query(of_run("geartrain_train_validation_success_ratio"), "held out, {{decoding}} {{run_id}}"),
                Query(
                    of_run("geartrain_train_validation_start_success_ratio"),
                    "held out at start, {{decoding}} {{run_id}}",
                ),
            ),
            unit="percentunit",
            low=0.0,
            high=1.0,
        ),
        plot("Reward", "geartrain_train_reward_mean", "Mean total reward of the episodes; a success earns about 1."),
        plot_share(
            "Success by family",
            "geartrain_rollout_success_ratio",
            "Share of episodes that succeed, by task family. One that falls while others rise is being forgotten.",
            "{{family}}",
        ),
        plot(
            "KL to the warm start",
            "geartrain_train_kl_nats",
            "Nats per token. Growth that speeds up is a policy on its way out.",
            limit=validity.FAR,
            log=True,
        ),
        Panel(
            "Entropy",
            "Nats per sampled token, and what it was at the start. A collapse to a tenth raises the alarm.",
            (
                Query(of_run("geartrain_train_entropy_nats"), "now {{run_id}}"),
                Query(of_run("geartrain_train_entropy_start_nats"), "at start {{run_id}}"),
            ),
            low=0.0,
        ),
        plot_share(
            "Groups that teach nothing",
            "geartrain_train_filtered_groups_ratio",
            "Share of groups whose siblings all have one reward.",
            limit=STARVED,
        ),
    ),
)
_STEPS = Row(
    "Are its steps sound?",
    (
        plot(
            "Gradient norm",
            "geartrain_train_gradient_norm",
            "Before clipping, mean over an iteration's steps.",
            log=True,
        ),
        plot_share(
            "Clipped tokens",
            "geartrain_train_clipped_tokens_ratio",
            "Share of tokens whose ratio left the trust region.",
        ),
        plot(
            "Largest ratio",
            "geartrain_train_importance_ratio_max",
            "Policy's over sampler's probability of one token.",
            log=True,
        ),
        plot(
            "Sampler against trainer",
            "geartrain_train_mismatch_nats",
            "Largest difference of a token's log-prob for the same weights; rounding is 1e-5 in float32.",
            limit=validity.MAX_MISMATCH,
            log=True,
        ),
        Panel(
            "Not finite",
            "Steps that were skipped and tokens that were left out, since the start.",
            (
                Query(of_run("geartrain_train_skipped_steps_total"), "steps {{run_id}}"),
                Query(of_run("geartrain_train_nonfinite_total"), "tokens {{run_id}}"),
            ),
            limit=1.0,
            low=0.0,
        ),
        plot("Learning rate", "geartrain_train_learning_rate", "Of the last step.", low=0.0),
        plot(
            "Spread of advantages", "geartrain_train_advantage_stddev", "Standard deviation; 0 trains nothing.", low=0.0
        ),
        plot_share(
            "Trained share of tokens",
            "geartrain_train_trained_tokens_ratio",
            "What the mask leaves of the sequences.",
        ),
        plot("Staleness", "geartrain_train_staleness_updates", "Iterations between sampling and training.", low=0.0),
    ),
)
_EPISODES = Row(
    "What do its episodes look like?",
    (
        plot(
            "Turns per episode",
            "geartrain_rollout_turns_mean",
            "Far more, or far fewer: circles, or giving up.",
            low=0.0,
        ),
        plot("Tokens per episode", "geartrain_rollout_tokens_mean", "Prompts and answers included.", low=0.0),
        plot_share(
            "Invalid calls",
            "geartrain_rollout_invalid_calls_ratio",
            "Share of turns answered by an error.",
            limit=validity.LOST_TOOLS,
        ),
        plot_share("Redundant calls", "geartrain_rollout_redundant_calls_ratio", "Share of turns that repeat a call."),
        plot_share("Cut short", "geartrain_rollout_truncated_ratio", "Share of episodes that a limit ended."),
        plot(
            "Entropy by progress",
            "geartrain_rollout_entropy_nats",
            "Nats per token, by thirds of the episode.",
            "{{progress}}",
            low=0.0,
        ),
    ),
)
_TIME = Row(
    "Where does the time go?",
    (
        plot(
            "Phases",
            "rate(geartrain_train_phase_seconds_total[$__rate_interval])",
            "Share of the time spent playing, training, validating and saving.",
            "{{phase}}",
            unit="percentunit",
            low=0.0,
        ),
        Panel(
            "Tokens per second",
            "Sampled while playing, trained while training.",
            (
                Query(of_run("geartrain_rollout_tokens_per_second"), "sampled {{run_id}}"),
                Query(of_run("geartrain_train_tokens_per_second"), "trained {{run_id}}"),
            ),
            low=0.0,
        ),
        Panel(
            "Alarms of the run's own watch",
            "Red while an alarm is raised; the names are those of the history.",
            (Query(of_run("geartrain_train_alarm"), "{{alarm}}"),),
            kind="state-timeline",
            limit=1.0,
        ),
    ),
)
RUN = (_LEARNING, _STEPS, _EPISODES, _TIME)
REWARD = (
    Row(
        "What do the channels say?",
        (
            plot(
                "Raw mean by channel",
                "geartrain_reward_raw_mean",
                "Before fusing; channels that part measure different things.",
                "{{channel}}",
            ),
            plot(
                "Raw spread by channel",
                "geartrain_reward_raw_stddev",
                "Standard deviation; 0 tells no sibling from another.",
                "{{channel}}",
                low=0.0,
            ),
            plot(
                "Raw mean by family",
                "geartrain_reward_family_raw_mean",
                "By task family and channel.",
                "{{family}} {{channel}}",
            ),
            Panel(
                "Reward against held-out success",
                "A reward that rises while held-out success falls is being hacked.",
                (
                    Query(of_run("geartrain_train_reward_mean"), "reward {{run_id}}"),
                    Query(of_run("geartrain_train_validation_success_ratio"), "held out, {{decoding}} {{run_id}}"),
                ),
            ),
            plot_share(
                "Disagreement",
                "geartrain_reward_disagreement_ratio",
                "Share of siblings that the reward model orders against the verifier; one half is a coin.",
                limit=0.5,
            ),
            plot(
                "Drift",
                "geartrain_data_reward_drift",
                "Change of the mean reward since the version before, in spreads.",
            ),
        ),
    ),
    Row(
        "Does judging work, and what does it cost?",
        (
            plot(
                "Failures",
                "rate(geartrain_reward_failures_total[$__rate_interval])",
                "Per second, by channel and kind; a failure is excluded and never counts as 0.",
                "{{channel}} {{kind}}",
                unit="cps",
                low=0.0,
            ),
            plot(
                "No opinion",
                "rate(geartrain_reward_no_opinion_total[$__rate_interval])",
                "Per second: ties that the verifier does not leave to it, or a model that is not trusted.",
                "{{channel}} {{kind}}",
                unit="cps",
                low=0.0,
            ),
            plot_share(
                "Share of time that judging takes",
                JUDGING,
                "Of the run so far.",
                limit=JUDGE_BUDGET,
            ),
        ),
    ),
    Row(
        "Can the reward model be trusted?",
        (
            Panel(
                "Accuracy on held-out pairs",
                "With its lower bound; no better than length alone means that length is what was learned.",
                (
                    Query("geartrain_reward_model_accuracy_ratio", "accuracy"),
                    Query("geartrain_reward_model_accuracy_low_ratio", "at least (90 %)"),
                    Query("geartrain_reward_model_length_accuracy_ratio", "length alone"),
                ),
                limit=0.5,
                below=True,
                unit="percentunit",
                low=0.0,
                high=1.0,
            ),
            Panel(
                "Canaries",
                "Share of forged transcripts that score below the honest one, by attack; near one half it can be "
                "fooled.",
                (Query("geartrain_reward_canary_resistance_ratio", "{{attack}}"),),
                kind="bargauge",
                limit=0.75,
                below=True,
                unit="percentunit",
                low=0.0,
                high=1.0,
            ),
            Panel(
                "Calibration error",
                "Expected, on held-out pairs, cross-fitted.",
                (Query("geartrain_reward_model_calibration_error_ratio", "error"),),
                kind="stat",
                unit="percentunit",
            ),
        ),
    ),
)
CREDIT = (
    Row(
        "Do the weights weigh?",
        (
            plot(
                "Distribution of W", "geartrain_credit_weight", "Over tokens; 1 everywhere is plain GRPO.", "{{point}}"
            ),
            plot(
                "Spread of W within trajectories",
                "geartrain_credit_weight_within_stddev",
                "Standard deviation; what tells one token of a trajectory from another.",
                limit=validity.INERT_SPREAD,
                below=True,
                log=True,
            ),
            plot(
                "Iterations with inert weights",
                "geartrain_credit_inert_iterations",
                f"In a row, where they had to weigh; {validity.INERT_ITERATIONS} end the run.",
                limit=float(validity.INERT_ITERATIONS),
                low=0.0,
            ),
            plot_share(
                "Grains",
                "geartrain_credit_grain_weight_ratio",
                "Mean weight of each grain in the mixture.",
                "{{grain}}",
            ),
            plot_share("Granularity", "geartrain_credit_granularity_mean", "Mean over trained tokens; 1 is coarsest."),
            plot(
                "Spread of granularity",
                "geartrain_credit_granularity_stddev",
                "0 tells no turn from another.",
                limit=validity.STUCK_GRANULARITY,
                below=True,
                low=0.0,
            ),
        ),
    ),
    Row(
        "Is the credit right?",
        (
            plot(
                "What credit goes with",
                "geartrain_credit_correlation",
                "Rank correlation over turns with what came later, the advantage, the step's reward, the teacher.",
                "{{partner}}",
                low=-1.0,
                high=1.0,
            ),
            plot_share(
                "Reliability of the sibling critic",
                "geartrain_credit_critic_reliability_ratio",
                "Correlation with labels of tasks that it has not seen; its grain weighs by this.",
                limit=validity.USELESS_CRITIC,
                below=True,
            ),
            plot_share(
                "Successes without a tool",
                "geartrain_rollout_zero_tool_successes_ratio",
                "A share that rises is zero-tool collapse: it guesses.",
                limit=validity.ZERO_TOOL_LIMIT,
            ),
            plot(
                "Teacher's ratio",
                "geartrain_credit_teacher_ratio_mean",
                "Policy's over teacher's probability, mean over turns.",
            ),
            plot(
                "Spread of the teacher's ratio",
                "geartrain_credit_teacher_ratio_stddev",
                "Below 0.1 a teacher leaves nothing to weigh by.",
                limit=0.1,
                below=True,
                low=0.0,
            ),
            plot(
                "Losses of what learns credit",
                "geartrain_credit_loss",
                "Before learning from the batch.",
                "{{learner}}",
            ),
        ),
    ),
)
