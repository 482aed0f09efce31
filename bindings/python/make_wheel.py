"""Makes the wheel of the package: the build backend that pyproject.toml names, for pip.

    python3 make_wheel.py install [DESTDIR]

unpacks it where this Python looks for packages. That needs no pip, and works where pip refuses because the distribution
manages Python's packages: Debian leaves /usr/local/lib/python3.*/dist-packages to the administrator.
"""
import base64
import hashlib
import re
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADER = HERE.parents[1] / "include/holdfast/holdfast.h"
VERSION = re.search(r'#define HF_VERSION "(.*)"', HEADER.read_text())[1]
INFO = f"holdfast-{VERSION}.dist-info"
METADATA = f"""\
Metadata-Version: 2.1
Name: holdfast
Version: {VERSION}
Summary: Locks shared by threads, processes and machines, kept in the store you already run
License: MIT
Requires-Python: >=3.9
Description-Content-Type: text/markdown

"""
WHEEL = "Wheel-Version: 1.0\nGenerator: holdfast\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def files():
    for path in sorted((HERE / "holdfast").glob("*")):
        if path.suffix in (".py", ".typed"):
            yield f"holdfast/{path.name}", path.read_bytes()
    yield f"{INFO}/METADATA", (METADATA + (HERE / "README.md").read_text()).encode()
    yield f"{INFO}/WHEEL", WHEEL.encode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f"holdfast-{VERSION}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files():
            wheel.writestr(path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(content)}\n")
        wheel.writestr(f"{INFO}/RECORD", "".join(record) + f"{INFO}/RECORD,,\n")
    return name


def install(root=""):
    folder = root + sysconfig.get_path("purelib")
    with tempfile.TemporaryDirectory() as scratch:
        zipfile.ZipFile(Path(scratch) / build_wheel(scratch)).extractall(folder)
    print(f"installed the Python package in {folder}")


if __name__ == "__main__":
    assert sys.argv[1] == "install", __doc__
    install(*sys.argv[2:])
