"""Processes that run a piece of Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path


def run_python(tmp_path: Path, code: str) -> subprocess.Popen[str]:
    """Starts a Python process with this code."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, str(script)], cwd=script.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints. It fails with the process's errors if there is none."""
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline().strip()
    if not line:
        process.kill()
        raise AssertionError(process.stderr.read())
    return line


def stop(pid: int) -> None:
    """Stops a process. Each of its threads stops when the system looks at it, so this waits for all of them."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + 30
    while any(task.read_text().rpartition(") ")[2][0] != "T" for task in Path(f"/proc/{pid}/task").glob("*/stat")):
        assert time.monotonic() < end, f"process {pid} has not stopped"
        time.sleep(0.01)
