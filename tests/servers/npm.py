"""Other people's locks from npm, for tests and measurements: the packages that interop/package.json names.

To change their versions, edit that file and run `npm install --package-lock-only --omit-lockfile-registry-resolved`
beside it.
"""
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

INSTALL_S = 300
OTHERS = Path(__file__).resolve().parents[1] / "redis/interop"


class NpmError(Exception):
    pass


def install(folder):
    """Installs the packages of interop/package.json in a folder, once, and returns the path for NODE_PATH."""
    files = [OTHERS / name for name in ("package.json", "package-lock.json")]
    version = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    place = Path(folder) / f"interop-npm-{version}"
    modules = place / "node_modules"
    if modules.exists():
        return modules
    fresh = tempfile.mkdtemp(dir=folder, prefix="interop-npm-")
    try:
        for file in files:
            shutil.copy(file, fresh)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline"],
                       cwd=fresh, check=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if not modules.exists():  # another run may have done it meanwhile
            os.rename(fresh, place)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "output", None) or b"").decode(errors="replace")
        raise NpmError(f"npm cannot install what {files[0]} says: {error}\n{said}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return modules
