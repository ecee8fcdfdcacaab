"""What people type: help, suggestions, colours, completions, manual pages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from patchtrace.cli import COMMANDS, FIRST_STEPS, cli
from patchtrace.cli.helptext import Command, Context, Group, described
from patchtrace.cli.manual import pages, write_pages

BIN = Path(sys.executable).parent


def every_command(command=cli, parent=None):
    """Each command with its context."""
    context = Context(command, parent, "patchtrace" if parent is None else command.name)
    yield command, context
    for below in getattr(command, "commands", {}).values():
        yield from every_command(below, context)


NAMED = [pytest.param(*found, id=found[1].command_path) for found in every_command()]


def needed(program):
    """The program, or the end of the test; where CI=true nothing may be missing."""
    found = shutil.which(program)
    if found is None and os.environ.get("CI") == "true":
        pytest.fail(f"{program} must be present where CI=true")
    if found is None:
        pytest.skip(f"no {program} on this machine")
    return found


# -- help -----------------------------------------------------------------------------------------------


def test_without_a_command_the_first_steps_and_all_commands_are_shown(call):
    code, out, err = call()
    assert (code, err) == (0, "")
    assert all(step in out for step in FIRST_STEPS)
    assert out.index("First steps") < out.index("attribute   ") < out.index("tune   ")
    assert all(f"  {command.name}" in out for commands in COMMANDS.values() for command in commands)


@pytest.mark.parametrize("step", FIRST_STEPS)
def test_first_steps_are_commands_that_exist(step):
    name, *arguments = step.split()[1:]
    command = cli.commands[name]
    context = Context(command, resilient_parsing=True)
    command.parse_args(context, arguments)  # an unknown option would be an error


def test_every_command_is_under_a_heading():
    assert "Commands" not in cli.parts()


@pytest.mark.parametrize(("command", "context"), NAMED)
def test_help_says_every_option_once_and_ends_with_examples(command, context):
    text = command.get_help(context)
    assert isinstance(command, Command)
    shown = [option for _, records in command.sections(context) for option, _ in records]
    listed = [one for one in command.get_params(context) if isinstance(one, click.Option) and not one.hidden]
    assert len(shown) == len(set(shown)) == len(listed)
    if not isinstance(command, Group):  # a group has those of its commands
        examples = described(command)[1]
        assert examples
        assert examples[-1] in text.splitlines()[-1]
    assert all(example.lstrip("# ").split()[0] in ("patchtrace", "eval") for example in described(command)[1])


@pytest.mark.parametrize(("command", "context"), NAMED)
def test_every_option_has_a_help_text(command, context):
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or (parameter.help or "").strip(), parameter.name


def test_many_options_are_under_headings():
    command = cli.commands["attribute"]
    headings = [heading for heading, _ in command.sections(Context(command))]
    assert headings[0] == "Collection"
    assert headings[-1] == "General"
    assert "Options" not in headings


# -- suggestions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["attribut"], "'attribute'"),
        (["attribute", "{query}", "--train", "{photos}", "--prest", "quick"], "'--preset'"),
        (["attribute", "{query}", "--train", "{photos}", "--preset", "celba"], "'celeba'"),
        (["attribute", "{query}", "--train", "{photos}", "--method", "pixl"], "'pixel'"),
        (["attribute", "{query}", "--train", "{photos}", "--engine", "nativ"], "'native'"),
        (["{query}"], "patchtrace attribute {query} --train FOLDER"),
        (["completion", "bsh"], "'bash'"),
    ],
)
def test_errors_suggest_what_was_probably_meant(call, photos, query, arguments, suggestion):
    filled = [argument.format(query=query, photos=photos) for argument in arguments]
    code, _, err = call(*filled)
    assert code == 2
    assert suggestion.format(query=query) in err


def test_a_settings_file_is_answered_in_the_same_way(call, tmp_path):
    (tmp_path / "s.toml").write_text("[atribute]\ntop = 3\n")
    assert "'attribute'" in call("--config", tmp_path / "s.toml", "doctor")[2]
    (tmp_path / "s.toml").write_text("[attribute]\nprest = 'quick'\n")
    assert "'preset'" in call("--config", tmp_path / "s.toml", "doctor")[2]


# -- colours --------------------------------------------------------------------------------------------


def run(*command, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, capture_output=True, text=True, env={**kept, "PATH": path, **environment})


@pytest.mark.slow
def test_there_is_colour_on_a_terminal_or_where_it_is_forced_and_none_with_no_color():
    command = [sys.executable, "-m", "patchtrace", "completion", "-h"]
    assert "\x1b[" not in run(*command).stdout
    assert "\x1b[1m" in run(*command, FORCE_COLOR="1").stdout
    assert "\x1b[" not in run(*command, FORCE_COLOR="1", NO_COLOR="1").stdout
    on_a_terminal = ["script", "-qec", " ".join(command), "/dev/null"]
    assert "\x1b[1m" in run(*on_a_terminal, TERM="xterm").stdout
    assert "\x1b[" not in run(*on_a_terminal, TERM="xterm", NO_COLOR="1").stdout
    assert "\x1b[" not in run(*on_a_terminal, TERM="dumb").stdout


# -- completions ----------------------------------------------------------------------------------------

BASH = """
eval "$(patchtrace completion bash)"
compopt() { :; }  # only works while a key is pressed
COMP_WORDS=(patchtrace %s); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_patchtrace_completion patchtrace
printf '%%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
autoload -U compinit; compinit -u -D
eval "$(patchtrace completion zsh)"
[[ $_comps[patchtrace] == _patchtrace_completion ]] || exit 9
compadd() { print -l -- ${(P)5} }
_describe() { print -l -- ${(P)3} }
_path_files() { print files }
words=(patchtrace %s); CURRENT=$#words
_patchtrace_completion
"""
FISH = """
patchtrace completion fish | source
complete -C 'patchtrace %s'
"""
SCRIPTS = {"bash": ("bash", "-c", BASH), "zsh": ("zsh", "-fc", ZSH), "fish": ("fish", "-c", FISH)}


@pytest.mark.slow
@pytest.mark.parametrize("shell", SCRIPTS)
@pytest.mark.parametrize(
    ("typed", "offered", "not_offered"),
    [
        ("comp", "compare", "attribute"),
        ("attribute q.png --preset ce", "celeba", "cifar"),
        ("attribute q.png --method pix", "pixel-dot", "nda"),
        ("attribute --shortl", "--shortlist", "--train"),
    ],
)
def test_shells_complete_commands_options_and_names(shell, typed, offered, not_offered):
    program, *arguments, script = SCRIPTS[shell]
    done = run(needed(program), *arguments, script % typed)
    assert (done.returncode, done.stderr) == (0, "")
    found = {re.split(r"[\t:]", line)[0] for line in done.stdout.split("\n")}
    assert offered in found
    assert not_offered not in found


# -- manual pages ---------------------------------------------------------------------------------------


def test_there_is_a_page_for_each_command_with_all_of_its_options(tmp_path):
    written = {path.stem: path.read_text() for path in write_pages(cli, tmp_path)}
    assert written == dict(pages(cli))
    assert set(written) == {context.command_path.replace(" ", "-") for _, context in every_command()}
    for command, context in every_command():
        page = written[context.command_path.replace(" ", "-")].replace(r"\-", "-")
        assert all(option in page for parameter in command.params for option in parameter.opts if option[0] == "-")


@pytest.mark.slow
def test_pages_render_without_a_warning_and_say_what_the_help_says(tmp_path):
    man, groff = needed("man"), needed("groff")
    for path in write_pages(cli, tmp_path):
        assert run(groff, "-man", "-Tutf8", "-ww", "-z", str(path)).stderr == ""
        shown = run(man, "--warnings", "-l", str(path), MANWIDTH="80", LC_ALL="C.UTF-8", MANPAGER="cat")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "NAME" in shown.stdout
    shown = run(man, "-l", str(tmp_path / "patchtrace-index.1"), MANWIDTH="80", MANPAGER="cat").stdout
    assert "--follow-symlinks" in shown
    assert described(cli.commands["index"])[1][0] in shown


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)], ids=["stdout", "stderr", "all"])
def test_closed_streams_are_no_obstacle(tmp_path, photos, query, closed):
    """As some programs start others; what is opened must not take their place and get what is printed."""
    command = [sys.executable, "-m", "patchtrace", "attribute", query, "--train", photos, "--draws", "2"]
    ends = [f"{number}>&-" for number in closed]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {" ".join(ends)}', "sh", *command, "--no-verdicts", "-o", tmp_path / "run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "scores.npy").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_behind_the_output_is_told(photos, query):
    command = [sys.executable, "-m", "patchtrace", "attribute", query, "--train", photos, "--draws", "2"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*command, "--no-verdicts", "-q"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
