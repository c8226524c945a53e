"""The build backend: maturin, and around it the command `gannet`, which is a crate of its own in ../cli.

A wheel gets the command as a script. A source distribution gets the sources of the command, so that a wheel can be
built from it, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Optional

import maturin
from maturin import (  # noqa: F401
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

HERE = Path(__file__).resolve().parent
# In the repository this file is in a folder of the workspace, and in a source distribution beside its Cargo.toml.
WORKSPACE = HERE if (HERE / "cli").is_dir() else HERE.parent
# The crates that only the command needs.
OF_THE_COMMAND = ("cli", "serve", "bench")


def add_command() -> None:
    """Builds the command, and puts it where maturin takes scripts from. `GANNET_BINARY` names one that is built."""
    built = os.environ.get("GANNET_BINARY")
    if not built:
        words = ["cargo", "build", "--release", "--locked", "-p", "gannet-cli", "--manifest-path"]
        subprocess.run([*words, str(WORKSPACE / "Cargo.toml")], check=True)
        target = os.environ.get("CARGO_TARGET_DIR") or WORKSPACE / "target"
        built = str(Path(target) / "release/gannet")
    command = HERE / "gannet.data/scripts/gannet"
    command.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(built, command)
    subprocess.run(["strip", str(command)], check=True)


def prepare_metadata_for_build_wheel(folder: str, settings: Optional[dict[str, Any]] = None) -> str:
    """The metadata alone. maturin wants the folder of scripts to be there."""
    (HERE / "gannet.data/scripts").mkdir(parents=True, exist_ok=True)
    return str(maturin.prepare_metadata_for_build_wheel(folder, settings))


def build_wheel(
    folder: str, settings: Optional[dict[str, Any]] = None, metadata: Optional[str] = None
) -> str:
    """A wheel, for pip."""
    add_command()
    return str(maturin.build_wheel(folder, settings, metadata))


def build_editable(
    folder: str, settings: Optional[dict[str, Any]] = None, metadata: Optional[str] = None
) -> str:
    """A wheel that points to these files, for `pip install --editable`."""
    add_command()
    return str(maturin.build_editable(folder, settings, metadata))


def build_sdist(folder: str, settings: Optional[dict[str, Any]] = None) -> str:
    """A source distribution: maturin's, and the crates of the command. It leaves data out.

    maturin takes these crates off the members of the workspace, so the workspace's own Cargo.toml is put back.
    """
    name = str(maturin.build_sdist(folder, settings))
    path = Path(folder) / name
    new = path.with_suffix(".new")
    root = name.removesuffix(".tar.gz")
    with tarfile.open(path) as source, tarfile.open(new, "w:gz") as target:
        for member in source.getmembers():
            if member.name == f"{root}/Cargo.toml":
                target.add(WORKSPACE / "Cargo.toml", member.name, filter=_reproducible)
            elif not member.name.startswith(f"{root}/data/"):
                target.addfile(member, source.extractfile(member))
        for crate in OF_THE_COMMAND:
            if f"{root}/{crate}/Cargo.toml" not in source.getnames():
                target.add(WORKSPACE / crate, f"{root}/{crate}", filter=_reproducible)
    new.replace(path)
    return name


def _reproducible(member: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
    if Path(member.name).name in ("target", "__pycache__"):
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member
