"""examples/python and the lines of the README run as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gannet._cluster import _claim_ports

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("sync", [0, 1])
def test_linear_regression(sync: int) -> None:
    claims, (ps,) = _claim_ports(1)
    flags = [sys.executable, str(ROOT / "examples/python/linear_regression.py"), f"--ps_hosts={ps}"]
    flags += ["--worker_hosts=127.0.0.1:7800,127.0.0.1:7801", f"--issync={sync}"]
    server = subprocess.Popen([*flags, "--job_name=ps", "--task_index=0"], stdout=subprocess.DEVNULL)
    try:
        workers = [
            subprocess.Popen([*flags, "--job_name=worker", f"--task_index={rank}"], stdout=subprocess.PIPE, text=True)
            for rank in range(2)
        ]
        outputs = [worker.communicate(timeout=60)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0]
    finally:
        server.terminate()
        server.wait(timeout=20)
        for claim in claims:
            claim.close()
    lines = [re.search(r"y = (\S+) x \+ (\S+)\n$", output) for output in outputs]
    for line in lines:
        assert line is not None, outputs
        assert abs(float(line[1]) - 2) < 0.1 and abs(float(line[2]) - 10) < 0.1, outputs
    if sync:
        # All steps of all workers are the same.
        assert lines[0] and lines[1] and lines[0][0] == lines[1][0]


def test_dataset(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = [(int(city < 5) ^ int(random.random() < 0.1), city) for city in random.integers(0, 10, 4000).tolist()]
    path = tmp_path / "rows.csv"
    path.write_text("bought,city,age\n" + "".join(f"{bought},0{city},{random.random()}\n" for bought, city in rows))
    flags = [sys.executable, str(ROOT / "examples/python/dataset.py"), str(path), "--label=bought", "--numeric=age"]
    for way in ([], ["--table"]):
        run = subprocess.run([*flags, "--batch=20", *way], capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr
        losses = re.findall(r"log loss (\S+) over 2000 examples", run.stdout)
        # One in ten is a surprise: nobody gets below 0.325, and 0.693 is that of a coin.
        assert len(losses) == 2 and all(0.3 < float(loss) < 0.5 for loss in losses), run.stdout
        # Ten cities, the intercept and the age.
        assert run.stdout.endswith("12 weights\n"), run.stdout


def test_the_readme(tmp_path: Path) -> None:
    text = (ROOT / "python/README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 2
    for number, block in enumerate(blocks):
        script = tmp_path / f"block{number}.py"
        script.write_text(block)
        run = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert run.returncode == 0, run.stderr
