"""The data of a new server, made once for each server version and copied from then on."""
import fcntl
import os
import re
import tempfile
from pathlib import Path


def template(kind, version, make):
    """The folder with such data, which is kept. make(folder) fills a new one."""
    base = Path(tempfile.gettempdir()) / f"holdfast-{kind}-{os.geteuid()}"
    base.mkdir(mode=0o755, exist_ok=True)
    assert base.stat().st_uid == os.geteuid(), f"{base} is somebody else's"
    folder = base / re.sub(r"\W+", "-", version.strip())[-60:]
    with open(base / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            new = Path(tempfile.mkdtemp(dir=base))
            make(new)
            new.rename(folder)
    return folder
