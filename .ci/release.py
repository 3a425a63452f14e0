"""What has to hold before a release: files that are complete, extras that stand alone, versions.

    python .ci/release.py files [--tag v0.2.0]    both distributions: built, checked, tried
    python .ci/release.py extras                  spen alone, and with each extra alone
    python .ci/release.py lowest | newest         the tests, with the lowest or the newest packages

Each works in environments of its own, which it makes and removes. ``--torch`` names the version of
torch, such as 2.6.*; by default it is the one of constraints.txt.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

FIRST_MINUTES = """
import numpy as np, spen
data = spen.exclusive_blocks(n_train=120, n_test=20)
clf = spen.SPENClassifier(hidden=(8,), epochs=2, random_state=0).fit(data.train.X, data.train.Y)
assert clf.predict(data.test.X).shape == (20, 16)
clf.save("model.spen")
assert np.array_equal(spen.load("model.spen").predict(data.test.X), clf.predict(data.test.X))
print("fits, predicts, saves and loads")
"""
"""What works wherever spen is installed."""

LOWEST = re.compile(r"^(?P<package>[\w.-]+)(?:\[[^]]*\])?>=(?P<version>[\d.]+)")


class Environment:
    """A virtual environment in a folder; what ``below`` has installed is seen in it too."""

    def __init__(self, folder: Path, below: Environment | None = None) -> None:
        venv.create(folder, with_pip=True)
        self.python = folder / "bin" / "python"
        self.packages = next((folder / "lib").glob("python*/site-packages"))
        if below is not None:
            (self.packages / "below.pth").write_text(f"{below.packages}\n", encoding="utf-8")

    def install(self, *what: str) -> None:
        """Install packages."""
        self.run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)

    def run(self, *arguments: str, cwd: Path | None = None) -> None:
        """Run Python, away from the sources unless a folder is named."""
        with tempfile.TemporaryDirectory() as elsewhere:
            where = cwd or Path(elsewhere)
            alone = {name: each for name, each in os.environ.items() if name != "PYTHONPATH"}
            command = [self.python, "-W", "ignore", *arguments]
            subprocess.run(command, check=True, cwd=where, env=alone)


def torch_pin(named: str | None) -> str:
    """Return the torch to install, as pip takes it."""
    if named:
        return f"torch=={named}"
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def one_version() -> str:
    """Return the version of both distributions and of the citation, which must be one."""
    source = (ROOT / "src/spen/__init__.py").read_text(encoding="utf-8")
    paper = (ROOT / "paper/src/spen_paper/__init__.py").read_text(encoding="utf-8")
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    found = {
        "src/spen/__init__.py": re.findall(r'^__version__ = "(.+)"', source, re.M),
        "paper/src/spen_paper/__init__.py": re.findall(r'^__version__ = "(.+)"', paper, re.M),
        "CITATION.cff": re.findall(r"^version: (.+)$", cited, re.M),
    }
    versions = {version for each in found.values() for version in each}
    if len(versions) != 1:
        sys.exit(f"The version must be the same everywhere; found {found}.")
    return versions.pop()


def files(folder: Path, torch: str, tag: str | None) -> None:
    """Build sdists and wheels, check them, and install the wheels into an empty environment."""
    version = one_version()
    if tag is not None and tag != f"v{version}":
        sys.exit(f"The tag is {tag}, and the version {version}.")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"## [{version}]" not in changes:
        sys.exit(f"CHANGELOG.md has no heading ## [{version}].")
    shutil.rmtree(DIST, ignore_errors=True)
    tools = Environment(folder / "tools")
    tools.install("build", "twine")
    for source in (ROOT, ROOT / "paper"):
        tools.run("-m", "build", "--outdir", str(DIST), str(source))
    built = sorted(map(str, DIST.iterdir()))
    tools.run("-m", "twine", "check", "--strict", *built)
    wheels = [path for path in built if path.endswith(".whl")]
    sdists = [path for path in built if path.endswith(".tar.gz")]
    for made in (wheels, sdists):
        place = Environment(folder / Path(made[0]).suffix.strip("."))
        place.install(torch, *made)
        place.run("-c", FIRST_MINUTES)
        place.run("-m", "spen", "doctor")
        place.run("-m", "spen", "reproduce", "--help")
    print("\n".join(Path(path).name for path in built))  # noqa: T201


def extras(folder: Path, torch: str) -> None:
    """Install spen alone, and with each extra alone, and let it work."""
    alone = Environment(folder / "alone")
    alone.install(torch, str(ROOT))
    alone.run("-c", FIRST_MINUTES)
    for extra in PROJECT["optional-dependencies"]:
        if extra in ("dev", "docs"):
            continue
        place = Environment(folder / extra, below=alone)
        place.install(f"{ROOT}[{extra}]", torch)
        place.run("-c", FIRST_MINUTES)
        place.run("-m", "pip", "check")
        print(f"spen[{extra}]: works alone", flush=True)  # noqa: T201
        shutil.rmtree(folder / extra)


def versions(folder: Path, torch: str, which: str) -> None:
    """Run the tests with the lowest versions that are promised, or with the newest there are."""
    place = Environment(folder / which)
    pins = []
    if which == "lowest":
        named = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["fast"]]
        named += [
            each
            for extra in ("tables", "report")
            for each in PROJECT["optional-dependencies"][extra]
        ]
        found = [
            match for each in named if (match := LOWEST.match(each)) and match["package"] != "torch"
        ]
        pins = [f"{match['package']}=={match['version']}.*" for match in found]
    place.install(torch, *pins, f"{ROOT}[fast,tables,report]", str(ROOT / "paper"))
    place.install(torch, *pins, "pytest", "pytest-xdist", "hypothesis")
    place.run("-m", "pip", "check")
    place.run("-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", *TESTS[which], cwd=ROOT)


# Newer packages print numbers in ways of their own, so docstrings are not run; nor do warnings
# of old packages that are not ours end a test.
NO_DOCTESTS = ("-o", "addopts=--strict-markers --strict-config --import-mode=importlib")
TESTS = {
    "lowest": ["tests", *NO_DOCTESTS, "-W", "default", "--ignore=tests/report"],
    "newest": ["tests", *NO_DOCTESTS, "--ignore=tests/report"],
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("check", choices=["files", "extras", "lowest", "newest"])
    parser.add_argument("--tag", help="of the release: v and the version")
    parser.add_argument("--torch", help="the version of torch, such as 2.6.*")
    options = parser.parse_args(arguments)
    torch = torch_pin(options.torch)
    with tempfile.TemporaryDirectory() as name:
        if options.check == "files":
            files(Path(name), torch, options.tag)
        elif options.check == "extras":
            extras(Path(name), torch)
        else:
            versions(Path(name), torch, options.check)


if __name__ == "__main__":
    main()
