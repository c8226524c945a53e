"""Two processes of DistributedDataParallel (gloo): the same rows as one model that has its own."""

import copy

import gannet
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gannet.torch

ROWS, DIM, STEPS, WORLD = 30, 4, 15, 2


def model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Embedding(ROWS, DIM), nn.Flatten(), nn.Linear(3 * DIM, 1))


def batches(rank):
    draw = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        yield torch.randint(0, ROWS, (8, 3), generator=draw), torch.randn(8, 1, generator=draw)


def work(rank, servers, meeting, folder):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    own = model()
    with gannet.connect(servers, timeout=20) as client:
        rule = gannet.Adagrad(lr=0.1, eps=1e-10, initial_accumulator=0.0)
        ours = gannet.torch.convert(copy.deepcopy(own), client, optimizer=rule, weights="keep", name="ddp")
        # Each step of all processes is one step of the rows: their gradients are added before the rule sees them.
        client.join(rank, WORLD, "bsp", merge="sum")
        rows = []
        for each in (own, ours):
            parallel = DistributedDataParallel(each)
            optimizer = torch.optim.Adagrad(each.parameters(), lr=0.1)
            if each is ours:
                optimizer.register_step_post_hook(lambda *_: client.tick())
            for ids, wanted in batches(rank):
                optimizer.zero_grad()
                nn.functional.mse_loss(parallel(ids), wanted).backward()
                optimizer.step()
            with torch.no_grad():
                rows.append(each[0](torch.arange(ROWS)).clone())
        torch.save((rows, own[2].weight, ours[2].weight), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("servers", [1, 2])
def test_two_processes_learn_as_with_embeddings_of_their_own(tmp_path, servers):
    with gannet.LocalCluster(servers=servers, workers=WORLD) as cluster:
        processes.start_processes(
            work, (cluster.servers, tmp_path / "meeting", tmp_path), WORLD, start_method="spawn"
        )
    for rank in range(WORLD):
        rows, own, ours = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(rows[0], rows[1], rtol=0, atol=1e-5)
        torch.testing.assert_close(own, ours, rtol=0, atol=1e-5)
        assert not torch.equal(rows[0], model()[0].weight)
