"""Where the lab finds its parts: in a clone, or in the folder in which it is installed."""
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE.parent, HERE.parent / "tests", HERE.parent / "bindings/python"):
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def shim():
    """clock_shim.so, which lies beside the library's modules; None: it does not exist."""
    beside = Path(os.environ.get("HOLDFAST_LIBRARY", HERE)).parent
    for path in (beside / "lab/clock_shim.so", beside / "holdfast/clock_shim.so"):
        if path.exists():
            return path
    return None
