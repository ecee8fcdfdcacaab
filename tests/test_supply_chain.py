"""Nothing that is read can run code: no pickles, no eval, no shell. Looked for in the source, not in its behaviour."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SOURCES = sorted((Path(__file__).resolve().parent.parent / "src").rglob("*.py"))
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
UNSAFE_CALLS = {"eval", "exec", "os.system", "os.popen"}
#: Functions that read pickles unless they are told not to, and how they are told.
TOLD = {"torch.load": ("weights_only", True)}


def problems(code: str) -> list[str]:
    """What in the code could run what it reads."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module] if (node.module or "").partition(".")[0] in UNSAFE_MODULES else []
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            options = {each.arg: ast.unparse(each.value) for each in node.keywords}
            found += [name] if name in UNSAFE_CALLS else []
            option, value = TOLD.get(name, ("", None))
            found += [name] if option and options.get(option) != repr(value) else []
            found += ["allow_pickle"] if options.get("allow_pickle", "False") != "False" else []
            found += ["shell"] if options.get("shell", "False") != "False" else []
            found += ["trust_remote_code"] if options.get("trust_remote_code", "False") != "False" else []
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_source_can_run_what_it_reads(path):
    assert problems(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import os, pickle as p",
        "from pickle import loads",
        "import yaml",
        "eval('1')",
        "exec(text)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=wanted)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
    ],
)
def test_code_that_could_is_found(code):
    assert problems(code)


def test_there_are_sources_to_look_at():
    assert len(SOURCES) > 100


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        ('{"dependencies": [{"name": "a", "skip_reason": "not found"}]}', 2, "cannot be reached: none of 1"),
        ("", 2, "cannot be reached"),
        ('{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}', 0, "1 of 1 packages audited, 0 known"),
        (
            '{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}]}',
            1,
            "a 1: X-1, mended in 2",
        ),
    ],
)
def test_an_audit_that_looked_at_nothing_does_not_pass(tmp_path, answer, code, says):
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{answer}'\n")
    program.chmod(0o755)
    audit = Path(__file__).resolve().parent.parent / ".ci" / "audit.py"
    done = subprocess.run([sys.executable, audit, program, tmp_path], capture_output=True, text=True)
    assert done.returncode == code
    assert says in done.stdout


def test_every_package_that_ci_installs_has_a_hash():
    lines = (Path(__file__).resolve().parent.parent / "requirements-ci.txt").read_text().splitlines()
    pins = [number for number, line in enumerate(lines) if "==" in line and not line.startswith((" ", "#"))]
    assert len(pins) > 50
    assert all(lines[number + 1].lstrip().startswith("--hash=sha256:") for number in pins)


def test_the_locked_versions_are_those_that_the_project_asks_for():
    root = Path(__file__).resolve().parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted, waiting = {}, [*project["dependencies"], *extras["test"]]
    while waiting:
        requirement = Requirement(waiting.pop())
        waiting += [each for extra in requirement.extras if requirement.name == "patchtrace" for each in extras[extra]]
        wanted.setdefault(canonicalize_name(requirement.name), []).append(requirement.specifier)
    lines = (line for line in (root / "requirements-ci.txt").read_text().splitlines() if "==" in line)
    locked = dict(line.split(" ")[0].split(";")[0].split("==") for line in lines if not line.startswith((" ", "#")))
    missing = set(wanted) - set(locked) - {"patchtrace", "torch"}  # of torch there are builds for every device
    assert not missing, "run `make lock`"
    for name in set(wanted) & set(locked):
        assert all(specifier.contains(locked[name]) for specifier in wanted[name]), f"{name}: run `make lock`"
