"""The package's declarations match what a C compiler makes of the header, and its types are sound."""
import ast
import ctypes
import os
import re
import subprocess
import tempfile
from pathlib import Path

from harness import PACKAGE, ROOT, main, path_of, test

import holdfast
from holdfast import _c

HEADER = ROOT / "include/holdfast/holdfast.h"
STRUCTS = {value: re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower() for name, value in vars(_c).items()
           if isinstance(value, type) and issubclass(value, ctypes.Structure) and value is not ctypes.Structure}
NUMBERS = {name: value for name, value in vars(_c).items() if name.isupper() and isinstance(value, int)}


def ask_compiler(expressions):
    """The values of C expressions, after the header."""
    lines = "".join(f'printf("%lld\\n", (long long)({each}));' for each in expressions)
    source = f'#include <holdfast/holdfast.h>\n#include <stdio.h>\nint main(void) {{ {lines} }}\n'
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "ask"
        subprocess.run(["gcc", "-xc", "-", "-I", ROOT / "include", "-o", program], input=source, text=True, check=True)
        return [int(line) for line in subprocess.run([program], capture_output=True, check=True).stdout.split()]


def fields_in_header(struct):
    """Their names in order, as the header has them."""
    body = re.search(rf"typedef struct hf_{struct} \{{(.*?)\n\}} hf_{struct};", HEADER.read_text(), re.S)[1]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    return [re.search(r"\(\*(\w+)\)|(\w+)(\[\d+\])?$", line.strip())[1] or re.search(r"(\w+)(\[\d+\])?$", line.strip())[1]
            for line in body.split(";") if line.strip()]


@test
def structs_are_laid_out_as_the_compiler_does():
    assert STRUCTS
    for struct, name in STRUCTS.items():
        fields = [field for field, *_ in struct._fields_]
        assert fields == fields_in_header(name), (name, fields, fields_in_header(name))
        asked = ask_compiler([f"sizeof(hf_{name})"] + [
            f"{what}((hf_{name} *)0)->{field}{end}" for field in fields
            for what, end in (("(char *)&", " - (char *)0"), ("sizeof ", ""))])
        ours = [ctypes.sizeof(struct)]
        for field in fields:
            ours += [getattr(struct, field).offset, getattr(struct, field).size]
        assert ours == asked, (name, ours, asked)


@test
def numbers_are_those_of_the_header():
    assert NUMBERS
    asked = ask_compiler([f"HF_{name}" for name in NUMBERS])
    assert list(NUMBERS.values()) == asked, (NUMBERS, asked)


@test
def each_error_has_its_exception():
    named = {int(number): name for name, number in re.findall(r"X\((\w+), (-\d+), ", HEADER.read_text())}
    del named[_c.PENDING]  # no completed call returns it
    ours = {each.code: each.__name__ for each in holdfast.Error.__subclasses__()}
    assert ours == {number: name.title().replace("_", "") for number, name in named.items()}, ours
    assert all(hasattr(holdfast, name) for name in ours.values())


@test
def python_3_9_understands_the_syntax():
    for path in PACKAGE.rglob("*.py"):
        ast.parse(path.read_text(), str(path), feature_version=(3, 9))


def run_mypy(*words, **options):
    mypy = ["/usr/bin/mypy", "--strict", "--enable-incomplete-feature=Unpack", "--python-version=3.9", "--cache-dir=/dev/null"]
    return subprocess.run([*mypy, *words], capture_output=True, text=True, **options)


@test
def the_types_are_sound():
    done = run_mypy(PACKAGE / "holdfast")
    assert done.returncode == 0, done.stdout + done.stderr


@test
def the_types_help_programs():
    program = Path(path_of("program.py"))
    program.write_text("""\
import holdfast
import holdfast.aio

def sync(client: holdfast.Client) -> int:
    with client.lock("job", wait=5) as hold:
        return hold.token

async def main() -> int:
    async with holdfast.aio.open() as client, client.lock(["job", holdfast.Want("other", shared=True)]) as hold:
        await hold.release()
        return await client.counter("n").add()

with holdfast.open(max_lease=90) as client:
    client.acquire("job", waits=5)
    client.acquire("job", wait="5")
    client.lock("job").token
""")
    done = run_mypy(program, env={**os.environ, "MYPYPATH": str(PACKAGE)})
    wrong = [int(line) for line in re.findall(r"program.py:(\d+): error", done.stdout)]
    assert wrong == [14, 15, 16], done.stdout


main()
