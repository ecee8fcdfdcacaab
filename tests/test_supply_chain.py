"""Nothing that is read can run code: no pickles, no eval, no shell. Looked for in the source, not in its behaviour."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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
