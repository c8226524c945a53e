"""Pulls and pushes of 65,536 unique keys with rows of 16 weights: Python beside the Rust worker of `gannet bench`.

The two take turns on the same machine, each with a fresh server process of the same number of threads. The last lines
are the medians, and their ratios.

In its loop the Rust worker sorts the keys of a batch by shard, and takes the rows in that order. Python does this work
with a keyset that it makes in the loop ("pull", "push"); it also looks for keys that repeat, unless they ascend, as
numpy.unique returns them ("of ascending keys"). With arrays it also puts the rows into the order of the keys. With
prepared keysets it sorts nothing in the loop. The Rust worker sends its rows from where they are. Python copies them
before, unless they are lent (`copy=False`, "push of lent rows").

Both begin when the server has settled, and keep four requests in flight. Pulls of keysets return the client's own
buffers.

    python bench/pull_push.py --transport tcp --rounds 3
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import statistics
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable

import numpy as np

import gannet

IN_FLIGHT = 4


def settle(server: int, most: float = 60.0) -> None:
    """Waits until the server's process is idle for 0.3 s. After a fill it still turns small pages into huge ones."""

    def cpu_seconds() -> float:
        words = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    quiet, end = 0, time.monotonic() + most
    while quiet < 3 and time.monotonic() < end:
        before = cpu_seconds()
        time.sleep(0.1)
        quiet = quiet + 1 if cpu_seconds() - before < 0.015 else 0


def rust(args: argparse.Namespace) -> dict[str, float]:
    words = [gannet.command(), "bench", "--json", f"--dims={args.dim}", f"--rows={args.rows}", f"--batch={args.batch}"]
    words += [f"--seconds={args.seconds}", f"--transport={args.transport}", f"--threads={os.cpu_count()}"]
    report = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    rates = report[args.transport][f"dim{args.dim}"]
    return {work: rates[f"{work}_keys_per_s"] for work in ("pull", "push")}


def python(args: argparse.Namespace) -> dict[str, float]:
    with (
        gannet.LocalCluster(servers=1) as cluster,
        gannet.connect(cluster.servers, transport=args.transport) as client,
    ):
        table = client.table("bench", args.dim, optimizer=gannet.Sgd(lr=0.01), init=gannet.Zero())
        random = np.random.default_rng(1)
        all_keys = random.integers(0, 2**64, args.rows, dtype=np.uint64)
        grads = np.full((args.batch, args.dim), 1e-6, np.float32)
        for begin in range(0, args.rows, args.batch):
            keys = all_keys[begin : begin + args.batch]
            table.push(keys, grads[: len(keys)])
        client.flush()
        arrays = [random.choice(all_keys, args.batch, replace=False) for _ in range(args.rows // args.batch)]
        ascending = [np.sort(keys) for keys in arrays]
        prepared = [table.keyset(keys) for keys in arrays]
        settle(cluster.status()["servers"][0]["pid"])

        def pulls(batch: Callable[[int], Any], seconds: float) -> int:
            on_their_way: collections.deque[gannet.Pull] = collections.deque()
            done, end = 0, time.perf_counter() + seconds
            while time.perf_counter() < end:
                on_their_way.append(table.begin_pull(batch(done)))
                if len(on_their_way) == IN_FLIGHT:
                    on_their_way.popleft().result()
                done += 1
            for pull in on_their_way:
                pull.result()
            return done

        def pushes(batch: Callable[[int], Any], seconds: float, copy: bool = True) -> int:
            done, end = 0, time.perf_counter() + seconds
            while time.perf_counter() < end:
                table.push(batch(done), grads, copy=copy)
                done += 1
            client.flush()
            return done

        def rate(work: Callable[[Callable[[int], Any], float], int], batch: Callable[[int], Any]) -> float:
            work(batch, args.seconds / 2)
            begin = time.perf_counter()
            done = work(batch, args.seconds)
            return done * args.batch / (time.perf_counter() - begin)

        kinds: dict[str, Callable[[int], Any]] = {
            "": lambda at: table.keyset(arrays[at % len(arrays)]),
            " of ascending keys": lambda at: table.keyset(ascending[at % len(ascending)]),
            " of arrays": lambda at: arrays[at % len(arrays)],
            " of prepared keysets": lambda at: prepared[at % len(prepared)],
        }
        works = {"pull": pulls, "push": pushes}
        rates = {f"{name}{kind}": rate(work, batch) for kind, batch in kinds.items() for name, work in works.items()}
        return rates | {"push of lent rows": rate(partial(pushes, copy=False), kinds[""])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=("tcp", "shm"), default="tcp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the table")
    parser.add_argument("--batch", type=int, default=65_536, help="unique keys of a call")
    parser.add_argument("--dim", type=int, default=16)
    args = parser.parse_args()
    rates: dict[str, list[float]] = collections.defaultdict(list)
    for round in range(args.rounds):
        for name, measure in (("rust", rust), ("python", python)):
            measured = measure(args)
            for work, keys in measured.items():
                rates[f"{name} {work}"].append(keys)
            words = ", ".join(f"{work} {keys / 1e6:.2f}" for work, keys in measured.items())
            print(f"round {round + 1}, {name}: M keys/s {words}", flush=True)
    for work in sorted(name.removeprefix("python ") for name in rates if name.startswith("python ")):
        python_rate = statistics.median(rates[f"python {work}"])
        rust_rate = statistics.median(rates[f"rust {work.split()[0]}"])
        print(
            f"{work} over {args.transport}, dim {args.dim}, medians in M keys/s: python {python_rate / 1e6:.2f}, "
            f"rust {rust_rate / 1e6:.2f}, ratio {python_rate / rust_rate:.2f}"
        )


if __name__ == "__main__":
    main()
