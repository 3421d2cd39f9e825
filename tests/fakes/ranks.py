"""Two processes over gloo on the loopback device that share optimiser steps, or a whole policy stage.

Both are given all that there is to do, and deal it out.
"""

import multiprocessing
import os

import torch

from geartrain import environments, live
from geartrain.algorithms.recipe import RECIPES
from geartrain.ranks import Group
from geartrain.rewards.mix import RewardMix
from geartrain.stages.policy import TaskWorld
from geartrain.telemetry.serving import PORT, exporting
from geartrain.training.credit import CreditAssigner
from geartrain.training.policy import PolicyTrainer
from tests.fakes.parity import Parity, ParityPlayers, make_config, make_policy, make_tasks
from tests.fakes.scrape import fetch
from tests.fakes.synthetic import step_gradient

SECONDS = 240
"""Far more than it takes: a busy machine is no fault."""


def gradients_of_two(folder, model, reference, jobs):
    """Return one gradient per job.

    Args:
        folder: an empty one, for what the processes tell each other.
        model: the same for both.
        reference: that too.
        jobs: (recipe, section, sequences).
    """
    torch.save((model, reference, jobs), folder / "jobs.pt")
    _run(_work, folder)
    return torch.load(folder / "gradients.pt")


def policy_of_two(folder, config, inputs, target):
    """Run the stage `policy` on the parity environment; its artifact ends up at `target`.

    Args:
        folder: an empty one, for what the processes tell each other and for their work.
        config: of the run.
        inputs: folders by name.
        target: where to publish.
    """
    _run(_train, folder, config, inputs, target)


def scrapes_of_two(folder):
    """Train two iterations, an exporter on each rank as if each were a node; return the last scrape of either.

    Args:
        folder: an empty one, for what the processes tell each other and for their work.
    """
    _run(_watch, folder)
    return [(folder / f"scrape-{rank}").read_text("utf-8") for rank in range(2)]


def _watch(folder, rank):
    ranks, config, policy = _meet(folder, rank), make_config(iterations=2), make_policy()
    rewards = RewardMix(policy.tokenizer, model_weight=0.0, invalid_call_reward=-0.1, learned=None)
    tasks = make_tasks(7), make_tasks(4, "val")
    world = TaskWorld(ParityPlayers(config), *tasks, rewards, config, Parity(), policy.chat, ranks)
    width = policy.model.config.hidden_size
    assigner = CreditAssigner(RECIPES["grpo"], {}, critic=None, width=width, iterations=2, seed=0)
    work = folder / f"work-{rank}"
    with exporting("policy", ranks, {PORT: "0"}) as endpoint:
        live.emit("begin", parameters={})
        PolicyTrainer(policy, assigner, world, config.policy, context=256, seed=0, work=work, ranks=ranks).run()
        (folder / f"scrape-{rank}").write_text(fetch(endpoint.port), "utf-8")
    ranks.gather(None)
    ranks.close()


def _run(work, folder, *arguments):
    context = multiprocessing.get_context("spawn")  # forking a process that runs threads deadlocks
    ranks = [context.Process(target=work, args=(folder, rank, *arguments)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(SECONDS)
    assert [process.exitcode for process in ranks] == [0, 0], "a rank failed, or waits for the other"


def _meet(folder, rank):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    return Group({"RANK": str(rank), "WORLD_SIZE": "2"}, f"file://{folder}/meeting")


def _train(folder, rank, config, inputs, target):
    from geartrain.stages import policy

    os.environ["GEARTRAIN_HOME"] = str(folder / "home")
    environments.ENVIRONMENTS["analyst"] = (lambda settings, worlds: Parity(), None)
    ranks = _meet(folder, rank)
    policy.run(config, inputs, {"policy": target}, ranks)
    ranks.close()


def _work(folder, rank):
    ranks = _meet(folder, rank)
    model, reference, jobs = torch.load(folder / "jobs.pt", weights_only=False)
    options = {"reference": reference, "ranks": ranks}
    gradients = [step_gradient(model, name, section, rows, **options)[0] for name, section, rows in jobs]
    if ranks.leads:
        torch.save(gradients, folder / "gradients.pt")
    ranks.gather(None)
    ranks.close()
