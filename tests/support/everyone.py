"""The command for tests that run it as another user: the build may lie in a home that others cannot enter."""
import os
import shutil
from pathlib import Path


def copy_for_everyone(command, folder):
    """Copies the command with its library and the modules into a folder, and returns the path of the copy. (The command
    finds its library beside itself, and the library its modules.)"""
    os.chmod(folder, 0o755)
    build = Path(command).parent
    for file in [Path(command), *build.glob("libholdfast.so.?"), *build.glob("holdfast-*.so")]:
        shutil.copy(file, folder)
    return str(Path(folder) / Path(command).name)
