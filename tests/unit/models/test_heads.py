import torch

from geartrain.models.heads import CriticHead, GrainNetwork, load_critic_head, save_head


def test_the_mixture_starts_exactly_even_and_can_learn():
    torch.manual_seed(0)
    network = GrainNetwork(16, 3)
    state = torch.randn(5, 16)
    assert torch.equal(network(state), torch.full((5, 3), 1 / 3))
    network(state)[:, 0].sum().backward()
    assert network.outer.weight.grad.abs().max() > 0


def test_a_critic_survives_the_disk_and_carries_its_scaling(tmp_path):
    torch.manual_seed(0)
    head = CriticHead(8, hidden=4)
    state, action = torch.randn(20, 8) * 50 + 3, torch.randn(20, 8)
    head.fit_scale(state, action)
    save_head(head, tmp_path / "critic.safetensors")
    again = load_critic_head(tmp_path / "critic.safetensors")
    assert torch.equal(head(state, action), again(state, action))
    assert again.mean[:8].mean() > 1


def test_the_critic_reads_the_action():
    torch.manual_seed(0)
    head = CriticHead(8, hidden=4)
    state = torch.randn(1, 8).expand(2, 8)
    scores = head(state, torch.randn(2, 8))
    assert scores.shape == (2,)
    assert scores[0] != scores[1]
