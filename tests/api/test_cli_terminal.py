"""The command line for people: tables, colours, help, the man page, completions."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

from cli import CommandLine, environment
from conftest import binary
from documents import batch_norm_fold, branches
from test_cli import TOY, optimize

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLOUR = re.compile(r"\033\[\d*m")


@pytest.fixture
def local(tmp_path):
    return CommandLine(tmp_path, "--data", tmp_path / "store")


def rows(text):
    return [re.split(r"  +", line.strip()) for line in text.splitlines() if line]


# ------------------------------------------------------------------------------------------------------------------ tables


def test_a_run(local):
    shown = local.on_terminal("optimize", TOY, "-p", "MergeLinears", "-p", "FuseBatchNorm2dInConv2d", "-o", "out.json", NO_COLOR="1")
    assert shown.status == 0 and shown.err == "" and not COLOUR.search(shown.out)
    lines = rows(shown.out)
    run = local("runs").json()["items"][0]
    assert ["run", run["id"]] in lines and ["source", run["source"]] in lines and ["result", run["result"]] in lines
    assert ["PASS", "EXACTNESS", "REVERSIBLE", "APPLIED", "REFUSED"] in lines
    assert ["FuseBatchNorm2dInConv2d", "rounds", "no", "2", "1"] in lines
    assert ["FuseBatchNorm2dInConv2d", "shared-output", "c2, b2", "the value between the two has other readers"] in lines
    assert lines[-1] == ["written to out.json"]
    as_json = local.on_terminal("show", run["id"], "--json")
    assert json.loads(as_json.out)["id"] == run["id"]


def test_a_validated_run(local):
    words = ["optimize", TOY, "-p", "MergeLinears", "-p", "FuseBatchNorm2dInConv2d", "--validate"]
    for mode, counts in (("rewrites", ["1", "2"]), ("graph", ["2", "2"])):
        lines = rows(local.on_terminal(*words, mode, NO_COLOR="1").out)
        assert ["VALIDATED", "COMPARED", "NOT", "ABSOLUTE", "RELATIVE", "ULP"] in lines
        found = [line for line in lines if len(line) == 6 and line[0] in ("MergeLinears", "FuseBatchNorm2dInConv2d")]
        assert [line[1:3] for line in found] == [[count, "0"] for count in counts]
        assert all(float(cell) < 1e-4 for line in found for cell in line[3:5])


def test_a_comparison(local):
    optimize(local, TOY, "FuseBatchNorm2dInConv2d")
    shown = local.on_terminal("compare", TOY, "out.json", "--random-weights", NO_COLOR="1")
    lines = rows(shown.out)
    assert shown.status == 0 and lines[0][:3] == ["OUTPUT", "DTYPE", "SAME"] and len(lines) == 3
    assert [line[:3] for line in lines[1:]] == [["output.0", "float32", "yes"], ["output.1", "float32", "yes"]]
    other = json.loads(pathlib.Path(TOY).read_text().replace("torch.sigmoid", "torch.tanh"))
    shown = local.on_terminal("compare", TOY, local.put("other.json", other), "--random-weights", NO_COLOR="1")
    assert shown.status == 1 and "the first node that differs: sigmoid" in shown.out


def test_columns_stand_below_each_other(local):
    optimize(local, TOY, "MergeLinears")
    optimize(local, local.put("folds.json", batch_norm_fold()), "FuseBatchNorm2dInConv2d")
    heading, *lines = local.on_terminal("runs", NO_COLOR="1").out.splitlines()
    for title in ("KIND", "CREATED", "PASSES"):
        column = heading.index(title)
        assert len(lines) == 2 and all(line[column] != " " and line[column - 2 : column] == "  " for line in lines)
    heading, *lines = local.on_terminal("graphs", NO_COLOR="1").out.splitlines()
    end = heading.index("NODES") + len("NODES")
    assert all(line[end - 1].isdigit() and line[end] == " " for line in lines)  # numbers stand to the right


def test_colour(local):
    optimize(local, TOY, "MergeLinears")
    for words in (["runs"], ["passes"], ["diff", TOY, "out.json"], ["diff", TOY, "out.json", "--edits"]):
        coloured = local.on_terminal(*words)
        plain = [local.on_terminal(*words, NO_COLOR="1").out, local.on_terminal(*words, TERM="dumb").out]
        assert coloured.status == 0 and COLOUR.search(coloured.out) and plain[0] == plain[1], words
        assert not COLOUR.search(plain[0]) and COLOUR.sub("", coloured.out).replace("\033[m", "") == plain[0], words
        assert local.on_terminal(*words, NO_COLOR="").out == coloured.out
    assert not COLOUR.search(local("diff", TOY, "out.json").out)


def test_every_table(local):
    run = optimize(local, TOY, "MergeLinears")
    local("register", "toy:v1", run["id"])
    local("deploy", "toy@prod", "v1", "--why", "first")
    for words, cells in (
        (["passes"], ["MergeLinears", "moves", "yes"]),
        (["passes", "MergeLinears"], ["exactness", "moves"]),
        (["passes", "cleanup"], ["rounds", "4 at most"]),
        (["graphs"], [run["result"], "toy"]),
        (["nodes", "out.json", "--pass", "MergeLinears"], ["q_k_v_merged", "call_module", "q-k-v-merged", "float32[2,40]"]),
        (["show", run["result"]], ["graph", run["result"]]),
        (["show", "toy:v1"], ["version", "v1"]),
        (["show", "toy@prod"], ["why", "first"]),
        (["models"], ["toy", "1", "1"]),
        (["models", "toy"], ["prod", "v1"]),
        (["history", "toy@prod"], ["1"]),
        (["rollback", run["id"]], ["kind", "rollback"]),
        (["diff", TOY, "out.json", "--edits"], ["/op: \"call_module\" -> \"call_function\""]),
    ):
        shown = local.on_terminal(*words, NO_COLOR="1")
        assert shown.status == 0 and shown.err == "", (words, shown)
        assert any(line[: len(cells)] == cells for line in rows(shown.out)), (words, shown)
    assert local.on_terminal("verify", "out.json").out.startswith("valid: ")


def test_control_characters_do_not_reach_a_terminal(local):
    graph = local.put("graph.json", branches(2, name="a\033]0;evil\007\u009bb"))
    optimize(local, graph, "MergeLinears")
    shown = local.on_terminal("graphs", NO_COLOR="1")
    assert "a?]0;evil??b" in shown.out and "\033" not in shown.out and "\u009b" not in shown.out
    assert local("graphs").json()["items"][0]["name"] == "a\033]0;evil\007\u009bb"  # for programs it is what it is
    shown = local.on_terminal("optimize", graph, "-p", "MergeLinears", "--note", "\033[2Jn\no", NO_COLOR="1")
    assert "?[2Jn?o" in shown.out
    refused = local("optimize", graph, "-p", "\033[2J")
    assert refused.status == 1 and "\033" not in refused.err


# -------------------------------------------------------------------------------------------------------------------- help


def verbs():
    text = CommandLine(ROOT).run("--help").out
    return re.findall(r"^  ([a-z]+)  +(.+)$", text, re.M)


def options(verb):
    """(letter or "", --name, argument or "") of each."""
    text = CommandLine(ROOT).run(verb, "--help").out
    return re.findall(r"^ +(?:(-\w), )?(--[a-z-]+)(?: (\S+))?  +\S.*$", text, re.M)


def test_help():
    foldback = CommandLine(ROOT)
    found = [name for name, _ in verbs()]
    assert {"optimize", "reverse", "rollback", "code", "diff", "verify", "id", "passes", "serve"} <= set(found)
    assert foldback.run("--help").out == foldback.run("help").out == foldback.run("-h").out
    for verb in found:
        shown = foldback.run(verb, "--help")
        assert shown.status == 0 and shown.err == "" and shown.out.startswith(f"usage: foldback {verb} "), verb
        assert foldback.run(verb, "-h").out == shown.out
        names = [name for _, name, _ in options(verb)]
        assert "--help" in names and len(names) == len(set(names))
    assert re.fullmatch(r"foldback \d+\.\d+\.\d+\n", foldback.run("--version").out)


def test_the_man_page_tells_of_every_verb_and_option():
    page = (ROOT / "deploy" / "foldback.1").read_text().replace("\\-", "-")
    common = page[page.index(".SH COMMON OPTIONS") :]
    sections = dict(re.findall(r'^\.SS "foldback (\w+).*?"\n(.*?)(?=^\.S[SH])', page, re.M | re.S))
    assert sorted(sections) == sorted(name for name, _ in verbs())
    for verb, text in sections.items():
        told = set(re.findall(r"\\fB(--[a-z-]+)\\fR", text))
        everywhere = {"--data", "--server", "--token-file", "--ca-file", "--json", "--help"} if verb != "serve" else set()
        listed = {name for _, name, _ in options(verb)}
        assert told <= listed and listed - told <= everywhere, (verb, told ^ listed)
        for letter, name, argument in options(verb):
            assert not letter or name not in told or f"\\fB{letter}\\fR, \\fB{name}\\fR" in text
            assert not argument or name not in told or f"\\fB{name}\\fR \\fI{argument}\\fR" in text
    assert all(name in common for name in ("--data", "--server", "--token-file", "--ca-file", "--json", "--help"))


# -------------------------------------------------------------------------------------------------------------- completion


def completed_by_bash(*words):
    script = """
        . deploy/completions/foldback.bash
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _foldback "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    return run_shell(["bash", "-c", script, "bash", str(binary()), *words])


def completed_by_zsh(*words):
    """The functions of zsh's completion system are stubs here that print what they are given."""
    script = """
        _describe() { print -l -- ${(P)2%%:*} }
        _files() { }
        words=("$@"); CURRENT=$#; PREFIX=$words[CURRENT]
        . deploy/completions/_foldback
    """
    offered = run_shell(["zsh", "-f", "-c", script, "zsh", str(binary()), *words])
    return [word for word in offered if word.startswith(words[-1])]


def completed_by_fish(*words):
    script = "source deploy/completions/foldback.fish; complete -C $argv[1]"
    offered = run_shell(["fish", "--no-config", "-c", script, " ".join(["foldback", *words])])
    return [line.split("\t")[0] for line in offered]


def run_shell(command):
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]} here")
    path = f"{binary().parent}:/usr/bin:/bin"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment(PATH=path, HOME="/nonexistent"))
    assert done.returncode == 0 and done.stderr == "", done
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("complete", [completed_by_bash, completed_by_zsh, completed_by_fish])
def test_completion(complete):
    everything = set(complete(""))
    assert {name for name, _ in verbs()} <= everything
    assert sorted(complete("re")) == ["ready", "record", "register", "reverse"]
    for verb, _ in verbs():
        assert sorted(complete(verb, "--")) == sorted(name for _, name, _ in options(verb)), verb
    assert sorted(complete("optimize", "--pass", "Merge")) == ["MergeLinears", "MergeViews"]
    assert "FuseBiasInLinear" in complete("passes", "Fuse")
    assert complete("runs", "--ki") == ["--kind"]


def test_installed_files_exist():
    for line in re.findall(r"(?<!tests/)deploy/\S+", (ROOT / "Makefile").read_text()):
        assert (ROOT / line).exists(), line
