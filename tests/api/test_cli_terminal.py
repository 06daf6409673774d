"""The command line for people: tables, colours, help, the man page, completions."""

import json
import pathlib
import re
import shutil
import socket
import subprocess

import pytest
from cli import CommandLine, environment
from conftest import binary
from documents import batch_norm_fold, branches, node, ref
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
    shown = local.on_terminal("optimize", TOY, "-p", "MergeLinears", "-p", "FuseBatchNorm2dInConv2d", "-o",
                              "out.json", NO_COLOR="1")
    assert shown.status == 0 and shown.err == "" and not COLOUR.search(shown.out)
    lines = rows(shown.out)
    run = local("runs").json()["items"][0]
    assert ["run", run["id"]] in lines and ["source", run["source"]] in lines and ["result", run["result"]] in lines
    assert ["PASS", "EXACTNESS", "REVERSIBLE", "APPLIED", "REFUSED"] in lines
    assert ["FuseBatchNorm2dInConv2d", "rounds", "no", "2", "1"] in lines
    assert ["FuseBatchNorm2dInConv2d", "shared-output", "c2, b2", "the value between the two has other readers"] in lines
    assert ["written to out.json"] in lines
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


def test_a_run_that_is_judged_by_its_task(local):
    words = ["--weights", TOY.parent / "weights.safetensors", "--inputs", TOY.parent / "io.safetensors"]
    shown = local.on_terminal("optimize", TOY, "-p", "QuantizeWeights", *words, "--metric", "cosine", "--at-least", "0.9",
                              NO_COLOR="1")
    lines = rows(shown.out)
    (found,) = [line for line in lines if line[0] == "output.0"]
    assert ["OUTPUT", "cosine", "BEFORE"] in lines and 0.99 < float(found[1]) <= 1 and float(found[2]) == 1, shown
    assert ["ROUNDED", "WEIGHTS", "UNKNOWN", "LARGEST ERROR", "EXPECTED ERROR", "1 - COSINE"] in lines
    (loss,) = [line for line in lines if line[0] == "QuantizeWeights" and len(line) == 6]
    assert int(loss[1]) > 3 and loss[2] == "0" and 1e-3 < float(loss[3]) < 0.02 and float(loss[3]) < float(loss[4]) < 0.1
    assert 0 < float(loss[5]) < 5e-3


def test_a_comparison(local):
    optimize(local, TOY, "FuseBatchNorm2dInConv2d")
    shown = local.on_terminal("compare", TOY, "out.json", "--random-weights", NO_COLOR="1")
    lines = rows(shown.out)
    assert shown.status == 0 and lines[0] == ["evaluated"] and lines[1][:3] == ["OUTPUT", "DTYPE", "VERDICT"]
    assert [line[:3] for line in lines[2:]] == [["output.0", "float32", "evaluated"], ["output.1", "float32", "evaluated"]]
    other = json.loads(pathlib.Path(TOY).read_text().replace("torch.sigmoid", "torch.tanh"))
    shown = local.on_terminal("compare", TOY, local.put("other.json", other), "--random-weights", NO_COLOR="1")
    assert shown.status == 1 and "the first node that differs: sigmoid" in shown.out
    one = {"format": "foldback.graph/1", "modules": [{"path": "", "type": "Net"}], "tensors": [], "nodes": [
        node("x", "placeholder", "x", meta={"shape": [4], "dtype": "float32"}),
        node("y", "call_function", "torch.relu", [ref("x")]), node("output", "output", "output", [ref("y")])]}
    summed = json.loads(json.dumps(one).replace("torch.relu", "torch.sum"))
    shown = local.on_terminal("compare", local.put("one.json", one), local.put("summed.json", summed), NO_COLOR="1")
    [row] = [line for line in rows(shown.out) if line[:3] == ["output.0", "float32", "differs"]]
    assert shown.status == 1 and row[4:] == ["-"] * 5, shown.out  # two shapes have no distance


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


def settled(text):
    """The same whenever it is printed: "just now" may be "5 s ago" the next time."""
    return re.sub(" +", " ", re.sub(r"just now|\d+ s ago", "then", text))


def test_colour(local):
    optimize(local, TOY, "MergeLinears")
    for words in (["runs"], ["passes"], ["diff", TOY, "out.json"], ["diff", TOY, "out.json", "--edits"]):
        coloured = local.on_terminal(*words)
        plain = [settled(local.on_terminal(*words, **how).out) for how in ({"NO_COLOR": "1"}, {"TERM": "dumb"})]
        assert coloured.status == 0 and COLOUR.search(coloured.out) and plain[0] == plain[1], words
        assert not COLOUR.search(plain[0]) and settled(COLOUR.sub("", coloured.out).replace("\033[m", "")) == plain[0], words
        assert settled(local.on_terminal(*words, NO_COLOR="").out) == settled(coloured.out)
    assert not COLOUR.search(local("diff", TOY, "out.json").out)


def test_next_steps(tmp_path):
    """On a terminal, and only there; they work as they stand."""
    foldback = CommandLine(tmp_path)
    shown = foldback.on_terminal("optimize", TOY, "-p", "MergeLinears", "-o", "out.json", NO_COLOR="1")
    steps = re.findall(r"^foldback (.*?)   *\w", shown.out[shown.out.index("Next:") :], re.M)
    assert [step.split()[0] for step in steps] == ["diff", "reverse", "register"]
    for step in steps:
        assert foldback.run(*step.replace("MODEL:VERSION", "toy:v1").split()).status == 0, step
    fused = foldback.on_terminal("optimize", TOY, "-p", "FuseBatchNorm2dInConv2d", "--data", "other place", NO_COLOR="1")
    assert re.search(r"^foldback rollback run_\w+ --data 'other place' ", fused.out, re.M)  # it cannot be reversed
    for words in (["optimize", TOY, "-p", "MergeLinears", "--dry-run"], ["optimize", TOY, "-p", "DeepCopy"],
                  ["optimize", TOY, "-p", "MergeLinears", "--json"], ["run", "list"]):
        assert "Next:" not in foldback.on_terminal(*words, NO_COLOR="1").out, words
    assert "Next:" not in foldback.run("optimize", TOY, "-p", "MergeLinears").out


@pytest.mark.parametrize("width", [60, *(pytest.param(width, marks=pytest.mark.long) for width in (80, 100, 200))])
def test_no_table_is_wider_than_the_terminal(local, width):
    """A terminal breaks a line that is too long anywhere; here cells are broken at spaces, and ids are shortened."""
    run = optimize(local, TOY, "MergeLinears")
    optimize(local, TOY, "FuseBatchNorm2dInConv2d")
    local("register", "a-model-with-a-long-name:v1", run["id"], "--note",
          "words of a note that is longer than any line of a terminal is wide, and then some more of them")
    local("deploy", "a-model-with-a-long-name@production", "v1", "--why",
          "it does as well as the one before in the test of the last two weeks")
    local("upload", TOY)
    name = "a-model-with-a-long-name"
    for words in (["optimize", TOY, "-p", "MergeLinears,FuseBatchNorm2dInConv2d"], ["run", "list"], ["run", "show", run["id"]],
                  ["graph", "list"],
                  ["graph", "show", run["result"]], ["graph", "nodes", run["result"]], ["model", "list"],
                  ["model", "show", name], ["show", f"{name}:v1"],
                  ["show", f"{name}@production"], ["history", f"{name}@production"], ["pass", "list"],
                  ["pass", "show", "FuseBatchNorm2dInConv2d"],
                  ["pass", "show", "cleanup"], ["blob", "list"], ["audit"], ["gc", "-n"], ["help"], ["help", "job"],
                  ["help", "optimize"], ["help", "serve"],
                  ["rollback", run["id"]], ["compare", run["source"], run["result"], "--random-weights"], ["job", "list"],
                  ["token", "list"]):
        place = local.place if words[0] != "help" else []
        shown = CommandLine(local.folder, *place).on_terminal(*words, width=width, NO_COLOR="1")
        lines = shown.out.splitlines()
        assert shown.status == 0 and lines, (words, shown)
        if words[:2] != ["pass", "show"]:  # whose picture stands as it is
            assert max(len(line) for line in lines) <= width, (words, shown.out)
        wide = CommandLine(local.folder, *place).on_terminal(*words, width=0, NO_COLOR="1").out
        if words[0] in ("run", "graph", "model", "history", "help", "show", "blob", "job"):
            told, seen = (set(re.findall(r"[A-Za-z-]+", re.sub(r"(run_|sha256:)\w+", "", text))) for text in (wide, shown.out))
            assert seen <= told | {"just", "now", "ago", "second", "seconds", "minute", "minutes"}, words  # no piece of a word


def test_shortened_ids_are_accepted_back(local):
    run = optimize(local, TOY, "MergeLinears")
    shown = "".join(local.on_terminal(what, "list", width=60, NO_COLOR="1").out for what in ("run", "graph"))
    short = re.findall(r"(?:run_|sha256:)\w+…", shown)
    assert len(short) == 3
    for word in short:
        assert local("show", word).status == 0, word
    assert local("run", "show", next(word for word in short if word.startswith("run_"))).json()["id"] == run["id"]


def test_times_and_sizes(local):
    """For people on a terminal; exact for programs."""
    run = optimize(local, TOY, "MergeLinears")
    assert re.search(r"created +(just now|\d+\u00a0s ago) \(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\)",
                     local.on_terminal("run", "show", run["id"], NO_COLOR="1").out)
    assert re.search(r" (just now|\d+\u00a0s ago) ", local.on_terminal("run", "list", NO_COLOR="1").out)
    assert re.search(r" \d+ kB ", local.on_terminal("graph", "list", NO_COLOR="1").out)
    listed = local("graph", "list").json()["items"][0]
    assert listed["bytes"] > 1000 and re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", listed["created"])
    assert json.loads(local.on_terminal("graph", "list", "--json").out)["items"][0] == listed
    made = local("token", "create", "--scope", "read", "--name", "a", "--expires", "90d").json()
    local("token", "create", "--scope", "read", "--name", "b", "--expires", "5d")
    shown = local.on_terminal("token", "list", NO_COLOR="1").out
    assert made["expires"][:10] in shown and re.search(r"in [45]\u00a0days", shown)


@pytest.mark.heavy
def test_a_pass_with_picture_and_documentation(local):
    shown = CommandLine(local.folder).on_terminal("pass", "show", "MergeLinears", NO_COLOR="1", width=80)
    whole = local.run("pass", "show", "MergeLinears").json()
    picture = [line for line in whole["documentation"].splitlines() if line.startswith(" ")]
    assert len(picture) >= 3 and all(line in shown.out.splitlines() for line in picture)
    flowing = " ".join(shown.out.split())
    for sentence in re.findall(r"[^.:]+[.:]", " ".join(line for line in whole["documentation"].splitlines() if line
                                                       and not line.startswith(" "))):
        assert " ".join(sentence.split()) in flowing, sentence
    assert ["minimum_gain", "integer", "1", "How many calls a merge must save at least."] in rows(shown.out)
    assert ["exactness", "moves"] in rows(shown.out)
    for listed in local.run("pass", "list").json()["items"]:
        assert CommandLine(local.folder).on_terminal("passes", listed["name"], width=60).status == 0


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
    return re.findall(r"^  ([a-z-]+(?: [a-z]+)?)  +(\S.*)$", text, re.M)


def options(verb):
    """(letter or "", --name, argument or "") of each."""
    text = CommandLine(ROOT).run(*verb.split(), "--help").out
    return re.findall(r"^ +(?:(-\w), )?(--[a-z-]+)(?: (\S+))?  +\S.*$", text, re.M)


@pytest.mark.heavy
def test_help():
    foldback = CommandLine(ROOT)
    found = [name for name, _ in verbs()]
    assert {"optimize", "reverse", "rollback", "code", "diff", "verify", "id", "pass list", "job list", "serve"} <= set(found)
    assert foldback.run("--help").out == foldback.run("help").out == foldback.run("-h").out
    for verb in found:
        shown = foldback.run(*verb.split(), "--help")
        assert shown.status == 0 and shown.err == "" and shown.out.startswith(f"usage: foldback {verb} "), verb
        names = [name for _, name, _ in options(verb)]
        assert "--help" in names and len(names) == len(set(names))
    assert max(len(line) for line in foldback.run("help").out.splitlines()) <= 90
    for verb in ("optimize", "job list"):
        outs = [foldback.run(*verb.split(), option).out for option in ("--help", "-h")]
        assert outs == [foldback.run("help", *verb.split()).out] * 2
    for noun in {name.split()[0] for name in found if " " in name}:
        listed = foldback.run("help", noun)
        assert re.findall(r"^  ([a-z]+ [a-z]+)  ", listed.out, re.M) == [name for name in found if name.startswith(noun + " ")]
        assert foldback.run(noun, "--help").out == listed.out and foldback.run(noun).err == listed.out
        assert foldback.run(noun).status == 2
    assert re.fullmatch(r"foldback \d+\.\d+\.\d+\n", foldback.run("--version").out)


def test_groups():
    """Each verb stands below what it is for; what the same noun is about stands together."""
    headings = re.findall(r"^\S.*:$", CommandLine(ROOT).run("help").out, re.M)
    assert [name.rstrip(":") for name in headings] == ["Optimise and undo", "Look at graphs", "Passes", "Checkpoints",
                                                       "Weights and numbers", "Models", "The service", "Help"]
    nouns = [name.split()[0] for name, _ in verbs()]
    assert [noun for i, noun in enumerate(nouns) if noun in nouns[:i] and nouns[i - 1] != noun] == []


@pytest.mark.heavy
def test_names_of_before(local):
    """They do the same as those of today."""
    run = optimize(local, TOY, "MergeLinears")
    local("register", "toy:v1", run["id"])
    for before, now in (
        (["runs"], ["run", "list"]),
        (["graphs"], ["graph", "list"]),
        (["models"], ["model", "list"]),
        (["models", "toy"], ["model", "show", "toy"]),
        (["blobs"], ["blob", "list"]),
        (["passes"], ["pass", "list"]),
        (["passes", "MergeLinears"], ["pass", "show", "MergeLinears"]),
        (["nodes", "out.json"], ["graph", "nodes", "out.json"]),
        (["transformation", "ls"], ["transformation", "list"]),
        (["show", run["id"]], ["run", "show", run["id"]]),
        (["show", "out.json"], ["graph", "show", "out.json"]),
        (["show", "toy"], ["model", "show", "toy"]),
        (["show", "toy:v1"], ["model", "show", "toy:v1"]),
    ):
        assert local(*before).json() == local(*now).json(), before
    assert "This is called run list now." in local.run("help", "runs").out


def test_verbs_with_typos():
    foldback = CommandLine(ROOT)
    for words, said in (
        (["job", "lst"], "there is no verb job lst; did you mean job list? foldback help job lists all"),
        (["jbo", "list"], "did you mean job list?"),
        (["run", "lits"], "did you mean run list?"),
        (["optimise"], "did you mean optimize?"),
        (["job", "nonsense"], "there is no verb job nonsense; foldback help job lists all"),
        (["help", "depoly"], "did you mean deploy?"),
        (["help", "token", "creat"], "did you mean token create?"),
    ):
        wrong = foldback.run(*words)
        assert wrong.status == 2 and said in wrong.err and len(wrong.err.splitlines()) == 1, wrong


@pytest.mark.heavy
def test_the_man_page_tells_of_every_verb_and_option():
    page = (ROOT / "deploy" / "foldback.1").read_text().replace("\\-", "-")
    common = page[page.index(".SH COMMON OPTIONS") :]
    sections = dict(re.findall(r'^\.SS "foldback ([a-z-]+(?: [a-z]+(?![|a-z]))?).*?"\n(.*?)(?=^\.S[SH])', page, re.M | re.S))
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
        COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _foldback "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    return run_shell(["bash", "-c", script, "bash", str(binary()), *words])


def completed_by_zsh(*words):
    """The functions of zsh's completion system are stubs here that print what they are given."""
    script = """
        _describe() { local name=${@[-1]}; [[ $name == "''" ]] && name=${@[-3]}; print -l -- ${${(P)name}%%:*} }
        _files() { }
        _call_program() { shift; eval "$@" }
        compdef() { }
        words=("$@"); CURRENT=$#; PREFIX=$words[CURRENT]
        . deploy/completions/_foldback
        _foldback
    """
    return run_shell(["zsh", "-f", "-c", script, "zsh", str(binary()), *words])


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
    assert set(complete("")) == {name.split()[0] for name, _ in verbs()}
    assert sorted(complete("re")) == ["ready", "record", "register", "reverse"]
    assert sorted(complete("job", "")) == ["cancel", "list", "result", "show", "wait"]
    for verb, _ in verbs()[::9]:
        assert sorted(complete(*verb.split(), "--")) == sorted(name for _, name, _ in options(verb)), verb
    passes = json.loads(subprocess.run([binary(), "pass", "list", "--json"], check=True, capture_output=True,
                                       text=True).stdout)["items"]
    merges = sorted(one["name"] for one in passes if one["name"].startswith("Merge"))
    assert "MergeViews" in merges and sorted(complete("optimize", "--pass", "Merge")) == merges
    assert complete("optimize", "--pass", "MergeLinears,MergeV") == ["MergeLinears,MergeViews"]
    assert "FuseBiasInLinear" in complete("passes", "Fuse")
    assert complete("runs", "--ki") == ["--kind"]
    assert sorted(complete("optimize", "x", "--lint", "")) == ["each", "end", "none"]
    assert sorted(complete("completion", "")) == ["bash", "fish", "zsh"]
    assert "--server" in complete("--se")


def offered(foldback, *words, **variables):
    """What `foldback complete` says, without descriptions."""
    done = foldback.run("complete", *words, **variables)
    assert done.status == 0 and done.err == "", done
    return [line.split("\t")[0] for line in done.out.splitlines()]


@pytest.mark.heavy
def test_completion_of_every_verb():
    foldback = CommandLine(ROOT)
    for verb, _ in verbs():
        assert offered(foldback, *verb.split(), "--") == [name for _, name, _ in options(verb)], verb


@pytest.mark.heavy
@pytest.mark.parametrize("place", ["data", "server"])
def test_completion_of_names(request, tmp_path, place):
    where = ["--data", str(tmp_path / "store")] if place == "data" else ["--server", request.getfixturevalue("service").url]
    foldback = CommandLine(tmp_path, *where)
    run = optimize(foldback, TOY, "MergeLinears")
    for name in ("bert", "resnet"):
        foldback("register", f"{name}:v1", run["id"])
        foldback("register", f"{name}:v2", run["source"])
        foldback("deploy", f"{name}@production", "v1")
    for words, found in (
        (["show", "b"], ["bert", ":files", "bert@production", "bert:v2", "bert:v1"]),
        (["deploy", ""], ["bert@production", "resnet@production"]),
        (["deploy", "res"], ["resnet@production"]),
        (["deploy", "bert@production", ""], ["v2", "v1"]),
        (["rollback", "bert@production", "--to", "v"], ["v2", "v1"]),
        (["code", "bert:"], [":files", "bert:v2", "bert:v1"]),
        (["model", "show", ""], ["bert", "resnet"]),
        (["run", "show", ""], [run["id"]]),
        (["run", "list", "--of-run", "run_"], [run["id"]]),
        (["code", run["source"][:12]], [":files", run["source"]]),
        (["job", "show", ""], []),
    ):
        assert sorted(offered(foldback, *where, *words)) == sorted(found), words
        variable = {"FOLDBACK_DATA" if place == "data" else "FOLDBACK_SERVER": where[1]}
        assert sorted(offered(foldback, *words, **variable)) == sorted(found), words


def test_completion_where_nothing_answers(tmp_path):
    """Quickly, without a word, and without making a data folder."""
    foldback = CommandLine(tmp_path)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert offered(foldback, "--server", url, "deploy", "") == []
    assert offered(foldback, "deploy", "") == [] and offered(foldback, "nonsense", "") == [] and not list(tmp_path.iterdir())
    assert offered(foldback, "optimize", "x", "--pass", "MergeL") == ["MergeLinears"]


def test_the_scripts_are_printed():
    for shell, name in (("bash", "foldback.bash"), ("zsh", "_foldback"), ("fish", "foldback.fish")):
        assert CommandLine(ROOT).run("completion", shell).out == (ROOT / "deploy" / "completions" / name).read_text()
    assert CommandLine(ROOT).run("completion", "tcsh").status == 2


def test_completion_in_a_real_bash(local):
    """bash cuts words at colons: what it puts in their place must not repeat them."""
    run = optimize(local, TOY, "MergeLinears")
    local("register", "bert:v1", run["id"])
    local("deploy", "bert@production", "v1")
    for typed, becomes in (("show bert:", "show bert:v1"), ("deploy bert@pr", "deploy bert@production"),
                           ("job ca", "job cancel")):
        script = (f"bind 'set bell-style none'; eval \"$({binary()} completion bash)\"; PS1='$ '\n{binary().name} --data store "
                  f"{typed}\t\x01echo \nexit\n")
        done = subprocess.run(["script", "-qec", "bash --norc -i", "/dev/null"], input=script.encode(), cwd=local.folder,
                              capture_output=True,
                              env=environment(PATH=f"{binary().parent}:/usr/bin:/bin", HOME="/nonexistent"), timeout=600)
        echoed = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.stdout.decode()).replace("\r", "\n").split("\n")
        assert f"{binary().name} --data store {becomes}" in echoed, done.stdout


def test_installed_files_exist():
    for line in re.findall(r"(?<!tests/)deploy/\S+", (ROOT / "Makefile").read_text()):
        assert (ROOT / line).exists(), line
