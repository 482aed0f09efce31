"""The command for tests that run it as another user: the build may lie in a home that others cannot enter."""
import os
import shutil
from pathlib import Path


def copy_for_everyone(command, folder):
    """Copies the command with its library and the modules that are there into a folder, and returns the path of the
    copy. (The command finds its library beside itself.)"""
    os.chmod(folder, 0o755)
    modules = os.environ.get("HOLDFAST_MODULE_PATH")
    for file in [Path(command), *Path(command).parent.glob("libholdfast.so.?"),
                 *(Path(modules).glob("*.so") if modules else ())]:
        shutil.copy(file, folder)
    return str(Path(folder) / Path(command).name)
