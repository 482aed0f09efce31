"""Certificates for tests, made with the openssl command in a folder that lives as long as the `with` block.

    with Authority() as authority:
        here = authority.issue("here")                          # for localhost and 127.0.0.1
        old = authority.issue("old", start=-30, end=-1)         # days from now
        ... here.cert ... here.key ... here.ca ...
"""
import collections
import datetime
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = "DNS:localhost,IP:127.0.0.1,IP:::1"
CONFIG = """
[ca]
default_ca = ours
[ours]
new_certs_dir = {folder}
database = {folder}/{name}.index
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[req]
distinguished_name = none
[none]
[of_ca]
basicConstraints = critical,CA:TRUE
[of_host]
basicConstraints = CA:FALSE
subjectAltName = {names}
[of_nobody]
basicConstraints = CA:FALSE
"""

Certificate = collections.namedtuple("Certificate", "cert key ca")


def openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"openssl {' '.join(map(str, words))}\n{done.stderr}"


def date(days):
    """In openssl's format. Dates are whole days away from now, so that no clock is just about to reach them."""
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
    return at.strftime("%Y%m%d%H%M%SZ")


class Authority:
    """A CA, with its certificate in the file `ca`."""

    def __init__(self, name="authority"):
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-certificates-"))
        self.name = name
        self.ca, self.key = self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def __enter__(self):
        try:
            self.make(self.name, "of_ca", ["-selfsign"], "", -30, 365)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def issue(self, name, names=HERE, start=-1, end=90, self_signed=False):
        """names: as in subjectAltName; None: there is none, only the common name. start, end: in days from now."""
        signing = ["-selfsign"] if self_signed else ["-cert", self.ca]
        cert, key = self.make(name, "of_host" if names else "of_nobody", signing, names or "DNS:unused", start, end)
        return Certificate(cert, key, cert if self_signed else self.ca)

    def make(self, name, kind, signing, names, start, end):
        folder = self.folder if name == self.name else Path(tempfile.mkdtemp(dir=self.folder))  # tests run in parallel
        cert, key, request, config = (folder / f"{name}.{end}" for end in ("crt", "key", "csr", "cnf"))
        config.write_text(CONFIG.format(folder=folder, name=name, names=names or "DNS:unused"))
        (folder / f"{name}.index").write_text("")
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
        openssl("req", "-new", "-config", config, "-key", key, "-subj", f"/CN={name}", "-out", request)
        openssl("ca", "-batch", "-notext", "-config", config, "-extensions", kind, "-in", request, "-out", cert,
                "-keyfile", key if "-selfsign" in signing else self.key, "-startdate", date(start),
                "-enddate", date(end), *signing)
        return cert, key
