"""The one schema of `params.yaml`: frozen, unknown keys rejected, defaults are the vetted settings.

Each DAG stage owns one section. `seed`, `threads`, `model` and `environment`
are shared. Field docstrings say what a low and a high value do.
"""

import re
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, ValidationError, model_validator

from geartrain.errors import UserError
from geartrain.policy_section import PolicySection
from geartrain.schema import Count, NonNegative, Number, Positive, SamplingSection, Section, Share

SPLITS = ("train", "val", "test", "ood", "paraphrase")


class TinyModel(Section):
    """A small Llama-architecture model that the pipeline builds itself."""

    kind: Literal["tiny"] = "tiny"
    vocabulary: Annotated[int, Field(ge=300)] = 2048
    """Size of the byte-level BPE vocabulary; low makes sequences long, high starves rare tokens of examples."""
    hidden: Annotated[int, Field(ge=16, multiple_of=16)] = 128
    """Width; cost of a step grows with its square."""
    layers: Count = 4
    """Depth; below 2 the model cannot copy from what it read."""
    heads: Count = 4
    induction: bool = False
    """Whether the initial weights can already copy what they read (an induction circuit; needs 2 layers). False leaves
    copying to be learned, which takes a model from scratch most of a laptop's budget."""
    context: Annotated[int, Field(ge=64, le=10**6), Number] = 2048
    """Longest sequence, in tokens; an episode that would pass it ends as "max_context"."""

    @property
    def dtype(self) -> Literal["float32"]:
        """Weights of a model this small stay in float32."""
        return "float32"

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "TinyModel":
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden ({self.hidden}) must be an even multiple of heads ({self.heads})")
        if self.induction and self.layers < 2:
            raise ValueError("induction needs 2 layers: one to mark the previous token, one to look for it")
        return self


class PretrainedModel(Section):
    """Any Hugging Face causal LM, by path of a local folder or of a GGUF file."""

    kind: Literal["pretrained"]
    path: Path
    """Folder with config, weights and tokenizer; or a `.gguf` file, which is converted once."""
    context: Count = 4096
    """Longest sequence, in tokens."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """float32 keeps sampler and trainer log-probs equal to 1e-4; bfloat16 halves memory and loosens that."""


class EnvironmentSection(Section):
    """Which environment, and its limits. Shared by every stage that plays episodes."""

    name: Literal["analyst", "twophase"] = "analyst"
    source: Path = Path("data/raw/chinook.json")
    """Raw data that the worlds of `analyst` are built from; `make setup` fetches it."""
    prompt: Literal["full", "brief"] = "full"
    """System prompt: "full" describes every tool and table; "brief" names the tools and saves a small model tokens."""
    max_turns: Count = 26
    """Tool calls before an episode is cut; below a task's necessary steps it cannot succeed."""
    spare_turns: Count | None = None
    """Tool calls beyond a task's necessary ones before it is cut, within `max_turns`; low leaves no room to mend
    mistakes, None lets every task loop up to `max_turns`."""
    row_limit: Count = 12
    """Rows of a query result that the agent is shown."""
    sql_steps: Count = 2_000_000
    """SQLite virtual-machine steps a query may take; a count, not seconds, so that results repeat."""


class TasksSection(Section):
    """Task sets."""

    train: Count = 480
    val: Count = 60
    test: Count = 120
    ood: Count = 48
    paraphrase: Annotated[int, Field(ge=0)] = 120
    """Test tasks that are also asked in other words; at most `test`."""

    @model_validator(mode="after")
    def _paraphrase_within_test(self) -> "TasksSection":
        if self.paraphrase > self.test:
            raise ValueError(f"paraphrase ({self.paraphrase}) rewords test tasks, of which there are {self.test}")
        return self


class WarmStartSection(Section):
    """Supervised start from demonstrations of a scripted, deliberately imperfect expert."""

    demonstrations: Count = 2400
    """Expert episodes; few leave the policy unable to follow the format."""
    epochs: Positive = 1.5
    """Passes over the whole episodes (a fraction is allowed)."""
    observation_loss: bool = True
    """Whether tool results are learned beside the agent's messages: they repeat names and numbers, which teaches a
    model from scratch to copy; off for pretrained weights."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Of the matrices; Muon learns to read the prompt in about half the steps. Use adamw for pretrained weights."""
    learning_rate: Positive = 1e-3
    """Of AdamW. High diverges; low leaves copying unlearned within the budget."""
    matrix_learning_rate: Positive = 2e-2
    """Of Muon, where it is used."""
    batch_tokens: Count = 2048
    """Tokens per optimiser step; a small model needs many steps more than it needs smooth ones."""
    microbatch_tokens: Count = 1024
    """Padded tokens per forward pass: memory and speed, never the result. High pads more and leaves the caches."""
    warmup: Share = 0.05
    """Share of the steps over which the learning rate rises linearly."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Autocast of the forward pass; bfloat16 halves the time on a CPU with AMX, and takes ten times as long on one that
    emulates it."""
    checkpoint_every: Count = 100
    """Optimiser steps between checkpoints; a killed run repeats at most this many."""


class CollectSection(Section):
    """Sibling rollouts of the warm-started policy."""

    tasks: Count = 96
    """Training tasks that are played; at most `tasks.train`."""
    siblings: Annotated[int, Field(ge=2)] = 6
    """Episodes per task; one alone has nothing to be compared with."""
    sampling: SamplingSection = SamplingSection()


class PreferenceFile(Section):
    """A file of preference data from outside."""

    path: Path
    """JSON lines, one JSON array, CSV or Parquet, each also as .gz or .zst."""
    form: str | None = None
    """hh, ultrafeedback, helpsteer2, nectar, pairs, ab, steps or records; None tells it by the first records."""
    licence: str | None = None
    """Of the data, as its publisher names it; records that name their own keep that."""


class PreferencesSection(Section):
    """Preference pairs from verified siblings."""

    pairs_per_task: Count = 4
    """At most this many pairs of one task, so that no task dominates."""
    min_margin: Share = 0.02
    """Smallest difference in verified score (success, then progress) that makes a pair."""
    validation_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    """Share of tasks whose pairs are held out; assigned by hash of the task, so growth moves none."""
    forgeries_per_task: Annotated[int, Field(ge=0, le=4)] = 2
    """Kinds of forged transcript (another task's work, no report, no look-up, padding) that each training task is set
    against; 0 leaves the reward model open to them, high takes time from the real pairs."""
    max_rejected_share: Share = 0.5
    """The stage stops when more than this share of records is quarantined."""
    files: tuple[PreferenceFile, ...] = ()
    """Preference data that people have (docs/preferences.md), learned from beside the siblings; an earlier file keeps
    its splits when a later one is added behind it."""
    file_pairs: Count = 2000
    """At most this many pairs from all files together, chosen by hash; high takes time from the siblings' pairs."""
    known_from: AwareDatetime = datetime(2000, 1, 1, tzinfo=UTC)
    """Time at which the rollouts count as known; features are as of it, and an iteration of the policy is an hour. A
    result holds no time of the wall: a scheduled run gives the time that it was scheduled for."""
    history: Path | None = None
    """Folder with what earlier runs have learned of tasks (`geartrain features keep`), as far as it was known before
    `known_from`; None begins anew, with the collected rollouts alone."""


class RewardModelSection(Section):
    """Bradley-Terry reward model on a small encoder."""

    encoder: Path | None = None
    """Folder of the encoder; None takes the one that the pinned data package ships."""
    max_tokens: Annotated[int, Field(ge=16)] = 160
    """Longest text; the start of the transcript is cut, never its end. Low leaves out pairs with long answers,
    high costs time in every iteration of the policy."""
    epochs: Positive = 2.0
    learning_rate: Positive = 3e-4
    batch_pairs: Count = 8
    train_layers: Annotated[int, Field(ge=0)] = 1
    """Topmost encoder layers that are trained; 0 trains the head alone, high costs time and fits few pairs no better.
    """
    patience: Count = 3
    """Validations without improvement before training stops; there are three an epoch."""
    margin_weight: NonNegative = 0.0
    """Nats by which a pair must be told apart per unit of verified margin; 0 asks only for the order."""
    headroom_weight: Share = 0.0
    """How much more pairs of tasks count whose siblings are likely to differ again; 0 counts all alike, 1 in
    proportion."""


class CriticSection(Section):
    """Sibling critic: credit of a step from the contrast of siblings."""

    encoder: Path | None = None
    """Encoder folder; None uses the frozen warm start's own hidden states (no extra forward pass in training)."""
    hidden: Count = 64
    epochs: Count = 30
    learning_rate: Positive = 1e-3
    shrinkage: NonNegative = 1.0
    """Pseudo-count n0 of n/(n+n0): high distrusts contrasts seen few times."""
    subgoal_credit: NonNegative = 0.5
    """Credit of a step that reaches a sub-goal, whatever the outcome."""
    clip: Positive = 5.0
    """Bound on the absolute label."""
    similarity: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    """Cosine of embeddings from which two states count as the same; None wants equal histories of calls and answers."""
    headroom_weight: Share = 0.0
    """How much more turns of tasks count whose siblings are likely to differ again; 0 counts all alike, 1 in
    proportion."""
    validation_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2


class EvaluationSection(Section):
    """Held-out comparison of the candidate with the warm start."""

    samples: Count = 2
    """Sampled episodes per task beside the greedy one."""
    sampling: SamplingSection = SamplingSection()
    resamples: Count = 10_000
    """Bootstrap resamples."""
    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.95
    chunk_episodes: Count = 512
    """Episodes between saves; a killed run repeats at most this many, low leaves rows idle at each end."""


class PromotionSection(Section):
    """The gate."""

    min_gain: float = Field(default=0.0, ge=-1.0, le=1.0)
    """Smallest gain in sampled test success; the paired interval's lower end must pass it."""
    max_invalid_calls: Share = 0.2
    """Largest share of invalid calls in the candidate's test episodes."""
    max_zero_tool_share: Share = 0.05
    """Largest share of successes that used no tool (zero-tool collapse)."""
    require_signature: bool = False
    """Whether a model that cannot be signed is not promoted: the stage fails where `$GEARTRAIN_SIGNING_KEY` names no
    key. False promotes it unsigned, and says so."""
    model_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")] | None = None
    """What the model is called in its card and in registries; None calls it geartrain-ENVIRONMENT."""
    license: Annotated[str, Field(min_length=1)] = "apache-2.0"
    """Licence of the weights as the card states it, in Hugging Face's words; with a pretrained model, that one's."""
    registries: tuple[Literal["mlflow", "kubeflow"], ...] = ()
    """Model registries that a promoted model is entered in; their addresses come from the environment."""


class Config(Section):
    """A whole run."""

    seed: Annotated[int, Field(ge=0, lt=2**31), Number] = 0
    threads: Annotated[int, Field(ge=1, le=1024), Number] = 2
    """Threads of one stage's tensor work; results repeat bit for bit at 1."""
    model: Annotated[TinyModel | PretrainedModel, Field(discriminator="kind")] = TinyModel()
    environment: EnvironmentSection = EnvironmentSection()
    tasks: TasksSection = TasksSection()
    warm_start: WarmStartSection = WarmStartSection()
    collect: CollectSection = CollectSection()
    preferences: PreferencesSection = PreferencesSection()
    reward_model: RewardModelSection = RewardModelSection()
    critic: CriticSection = CriticSection()
    policy: PolicySection = PolicySection()
    evaluation: EvaluationSection = EvaluationSection()
    promotion: PromotionSection = PromotionSection()


def parse_config(record: Any, *, source: str) -> Config:
    """Check a configuration that was read from `source`.

    Raises:
        UserError: a key is unknown, of the wrong type or impossible; the message
            names key, reason and the nearest valid name.
    """
    try:
        return Config.model_validate(record)
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise UserError("\n".join([f"{source}: {len(lines)} problem(s)", *lines])) from error


def _explain(problem: Any) -> str:
    place = [str(part) for part in problem["loc"]]
    shown = [part for part in place if part not in {"tiny", "pretrained"}]
    key = ".".join(shown) or "(whole file)"
    if problem["type"] == "extra_forbidden":
        names = _names_beside(place)
        near = get_close_matches(place[-1], names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"valid names: {', '.join(names)}"
        return f"  {key}: unknown key; {hint}"
    reason, given = problem["msg"].removeprefix("Value error, "), problem["input"]
    if problem["type"].startswith("union_tag"):
        key, given = f"{key}.kind", given.get("kind", given) if isinstance(given, dict) else given
    if problem["type"] in {"union_tag_invalid", "literal_error"}:
        choices = re.findall(
            r"'([^']*)'", str(problem.get("ctx", {}).get("expected_tags") or problem["ctx"]["expected"])
        )
        near = get_close_matches(str(given), choices, n=1, cutoff=0.5)
        reason = f"must be one of {', '.join(choices)}" + (f"; did you mean {near[0]!r}?" if near else "")
    return f"  {key}: {reason}" + ("" if isinstance(given, dict | Section) else f" (got {given!r:.80})")


def _names_beside(place: list[str]) -> list[str]:
    """Return the valid keys of the section in which `place` lies."""
    schema: Any = Config
    for part in place[:-1]:
        if part in {"tiny", "pretrained"}:
            schema = {"tiny": TinyModel, "pretrained": PretrainedModel}[part]
            continue
        annotation = schema.model_fields[part].annotation
        schema = annotation if isinstance(annotation, type) else Config
    return sorted(schema.model_fields)
