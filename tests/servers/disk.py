"""A separate disk for a server, which can stall: a small file system in a file, mounted and frozen. This needs root.

    with Disk() as disk:
        ... disk.mount is a folder ...
        with disk.frozen():
            ... a process that writes there waits, and cannot even be killed ...
"""
import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SIZE = 400 << 20  # etcd allocates 64 MB for each part of its log


class NotPermitted(Exception):
    """str() is the reason."""


class Disk:
    def __enter__(self):
        if os.geteuid() != 0:
            raise NotPermitted("only root can mount a file system")
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
        self.mount = self.folder / "mount"
        try:
            self.create()
        except BaseException:
            self.__exit__()
            raise
        return self

    def create(self):
        self.mount.mkdir()
        with open(self.folder / "image", "wb") as image:
            image.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", self.folder / "image"], check=True)
        done = subprocess.run(["mount", "-o", "loop", self.folder / "image", self.mount], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise NotPermitted(done.stderr.strip())

    def __exit__(self, *_):
        if os.path.ismount(self.mount):
            subprocess.run(["umount", "-l", self.mount], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def frozen(self):
        subprocess.run(["fsfreeze", "-f", self.mount], check=True)
        try:
            yield
        finally:
            subprocess.run(["fsfreeze", "-u", self.mount], check=True)
