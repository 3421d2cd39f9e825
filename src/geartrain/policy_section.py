"""The section `policy` of `params.yaml`: the loss, the credit method, the reward, when to stop and to look."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from geartrain.methods import METHODS, setting_problems, settings_of, unknown_method
from geartrain.schema import Count, NonNegative, Number, Positive, SamplingSection, Section
from geartrain.tools_section import ToolsSection


def _known_method(name: str) -> str:
    reason = unknown_method(name)
    if reason is not None:
        raise ValueError(reason)
    return name


def _http_address(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is no http(s) address, such as http://127.0.0.1:8000/v1")
    return url


class ShardingSection(Section):
    """DeepSpeed: what of the training state lies in parts on several ranks."""

    zero: Literal[0, 1, 2, 3] = 1
    """Stage of ZeRO: 1 parts the optimiser's state, 2 the gradients too, 3 the weights too. High saves memory and sends
    more between ranks."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of weights and gradients; AdamW's state stays in float32."""
    offload: bool = False
    """Whether the optimiser's state lies in the memory of the CPU: slower, and room for three times the model."""
    recompute: bool = False
    """Whether activations are computed anew in the backward pass: a third slower, a fraction of the memory."""

    @model_validator(mode="after")
    def _fits(self) -> "ShardingSection":
        if self.zero == 0 and (self.precision != "float32" or self.offload):
            raise ValueError("zero: 0 knows float32 on the device alone; take zero: 1 for bfloat16 or offload")
        return self


class PolicySection(Section):
    """Policy optimisation: GRPO's loss, a credit method's weights."""

    recipe: Annotated[str, AfterValidator(_known_method)] = "gear_a_sgcd"
    """The algorithm; `geartrain methods` lists them, with their settings. "grpo" is the control."""
    settings: dict[str, dict[str, bool | float | str]] = Field(default_factory=dict)
    """Settings of methods by name, where they differ from their defaults: {gear_b: {kappa: 0.5}}. Those of other
    methods than `recipe` are checked and wait."""
    iterations: Count = 30
    tasks_per_iteration: Count = 16
    task_sampling: Literal["uniform", "headroom"] = "uniform"
    """How an iteration's tasks are drawn: each once an epoch, or in proportion to how likely their siblings are to
    differ, by what is known of them and of their family when it begins."""
    siblings: Annotated[int, Field(ge=2)] = 8
    sampling: SamplingSection = SamplingSection()
    learning_rate: Positive = 3e-4
    """High forgets the format (invalid calls rise); low does not move within the budget."""
    train_embeddings: bool = False
    """Whether the token embeddings and the output layer move too. Adam moves the rows of tokens that hardly occur as
    far as all others: True unsettles a small model within a few iterations (invalid calls rise)."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """Of the learning rate after its first rise; cosine ends at 0: the last iterations average the noise out."""
    minibatches: Count = 2
    """Optimiser steps per iteration; more reuse means ratios further from 1."""
    microbatch_tokens: Count = 8192
    """Padded tokens per forward pass; memory, never the result."""
    clip_low: Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False), Number] = 0.2
    clip_high: Positive = 0.28
    ratio: Literal["token", "sequence"] = "token"
    """What is clipped: each token's ratio to the sampler, or the length-normalised ratio of the whole trajectory (GSPO;
    its bounds are a thousand times narrower)."""
    kl_coefficient: NonNegative = 0.01
    """Weight of the KL to the warm start; 0 skips the reference pass. High holds the policy where it was."""
    kl_final: NonNegative | None = None
    """Its value at the end of the run, reached linearly; None keeps it."""
    kl_place: Literal["loss", "reward"] = "loss"
    """Where the KL is paid: in the loss, token by token, or in the reward, by the whole trajectory, so that siblings
    are compared by it too and a token pays for where it leads."""
    kl_estimator: Literal["k1", "k2", "k3", "full"] | None = None
    """How the KL is measured; null is k3 in the loss and k1 in the reward. In the loss all have the KL's gradient: k1
    is noisiest, k3 never negative, full (the whole vocabulary) has no noise and costs logits of the warm start. In the
    reward k1 alone has it: k2 and k3 hardly hold the policy, full charges for the states it reaches, not for what it
    does there."""
    entropy_coefficient: NonNegative = 0.0
    """Weight of the entropy bonus; low lets the policy settle early, high keeps it random."""
    entropy_final: NonNegative | None = None
    """Its value at the end of the run, reached linearly; None keeps it."""
    gradient_clip: Positive = 1.0
    sharding: ShardingSection | None = None
    """DeepSpeed for one or many ranks; null keeps the whole state on each rank, and needs no DeepSpeed."""
    reference_url: Annotated[str, AfterValidator(_http_address)] | None = None
    """OpenAI-compatible server that summarises siblings for sgcd_p; None: built-in rules. Its key: environment."""
    reference_model: str = "default"
    """Model that the server is asked for."""
    reward_model_weight: NonNegative = 0.1
    """Spread of the learned reward within a group against that of the verified one (1.0). However high, no failure
    overtakes a success; 0 does not load the reward model."""
    progress_weight: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.2
    """Reward of a failure that reached every sub-goal; a success earns 1. High pays for almost, 0 only for done."""
    learned_in_ties: bool = False
    """Whether siblings that the verifier cannot tell apart are told apart by the reward model alone. True makes use of
    every group, and lets the policy please the model where nothing else counts (reward hacking)."""
    tools: ToolsSection = ToolsSection()
    learn_from_cut: bool = False
    """Whether episodes that were cut short (too many turns, context full) are trained on. True lets long loops outweigh
    everything else; either way they count in their group's statistics."""
    invalid_call_reward: Annotated[float, Field(le=0.0, allow_inf_nan=False)] = -0.1
    """Step reward of a call that was answered by an error."""
    validate_every: Count = 5
    """Iterations between greedy evaluations on `val`; the best checkpoint is kept."""
    patience: Count | None = None
    """Validations without improvement before the run ends; null never ends it early. Low saves time, and may stop at a
    bad draw of a small `val`; a cosine schedule is cut off where it stands."""
    checkpoint_every: Count = 1
    """Iterations between checkpoints; a killed run repeats at most this many."""

    record_megabytes: Annotated[int, Field(ge=0, le=10**9), Number] = 500
    """Room for the episodes that were played, with the credit of each turn, which `geartrain serve` shows; no part of
    the result. Past it those of earlier runs go, then every second iteration, then every second of the rest; 0 records
    none."""

    @model_validator(mode="after")
    def _settings_exist(self) -> "PolicySection":
        problems = []
        for method, given in self.settings.items():
            reason = unknown_method(method)
            found = [reason] if reason else setting_problems(method, given)
            problems += [f"settings.{method}: {problem}" for problem in found]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @model_validator(mode="after")
    def _kl_reaches_the_loss(self) -> "PolicySection":
        if self.kl_place == "reward" and self.uses_kl and not METHODS[self.recipe].rewarded:
            raise ValueError(
                f"kl_place: {self.recipe} learns from no reward, so a KL that is paid there holds nothing. Set "
                "kl_place: loss, or kl_coefficient: 0 and kl_final: null"
            )
        return self

    @property
    def uses_kl(self) -> bool:
        """Whether the KL to the warm start counts at any time of a run: it may rise from 0 to its final value."""
        return max(self.kl_coefficient, self.kl_final or 0.0) > 0

    @property
    def kl_measure(self) -> Literal["k1", "k2", "k3", "full"]:
        """The estimator; the default of its place where none is given."""
        return self.kl_estimator or ("k3" if self.kl_place == "loss" else "k1")

    @property
    def method_settings(self) -> dict[str, bool | float | str]:
        """Every setting of the recipe: defaults, and what is given instead."""
        return settings_of(self.recipe, self.settings.get(self.recipe, {}))
