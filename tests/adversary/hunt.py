"""Random programs against PyTorch, for a given time. Usage: hunt.py [--seconds 60] [--seed N] [--count N] [--stage NAME]
[--corpus]

hunt.py --seed 4711 --count 1     tells of one program
"""

import argparse
import collections
import faulthandler
import functools
import importlib.util
import itertools
import json
import logging
import os
import pathlib
import pickle
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests/python"), str(ROOT / "clients/python/src")]
sys.path.append(str(ROOT / "tests/api"))

import corpus
import golden
import reduce as reducing
import statements
import torch
from checks import Check, Difference, ExportError, Subject, Workshop
from subject import Unusable

import foldback

REDUCE_SECONDS = 12  # of this process's time
REDUCED = 4  # of one kind with the same passes; more are but counted


def start_service(folder):
    specification = importlib.util.spec_from_file_location("api_conftest", ROOT / "tests/api/conftest.py")
    api = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(api)
    return api.Service(pathlib.Path(folder, "data")).start()


class Hunt:
    def __init__(self):
        self.workshop, self.stage = None, None
        self.counts = {}  # what the workshop has counted
        self.crashes = []  # seeds whose program took the interpreter down
        self.found = collections.OrderedDict()  # by signature: failures
        self.begun = self.programs = self.unusable = self.clean = 0
        self.seed = None  # of the program that was begun last
        self.groups = collections.Counter()
        self.unusable_why = collections.Counter()

    def leave(self, path):
        """What it has seen, for whoever goes on after it."""
        workshop, self.workshop = self.workshop, None
        beside = path.with_suffix(".new")
        beside.write_bytes(pickle.dumps(self))
        beside.replace(path)
        self.workshop = workshop

    def kind(self, program, check):
        """How a program fails; None if it does not."""
        try:
            check.run(Subject(program), self.workshop)
        except Unusable:
            return None
        except ExportError as error:
            return "export " + re.sub(r"\W+", " ", re.sub(r"[vx]\d+|\d+", "", str(error)))[:60]
        except Difference as difference:
            return difference.kind
        except (AssertionError, OSError):
            raise
        except Exception as error:
            return f"client {type(error).__name__}"
        return None

    def detail(self, program, check):
        try:
            check.run(Subject(program), self.workshop)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "it does not fail again"

    def try_program(self, program, checks=None):
        try:
            subject = Subject(program)
        except Unusable as error:
            self.unusable += 1
            self.unusable_why[re.sub(r"[vx]\d+|\d+", "", str(error))[:70]] += 1
            return
        except ExportError:
            self.programs += 1
            self.report(program, Check("document"))
            return
        self.programs += 1
        is_clean = True
        for check in checks or self.workshop.plan(program):
            if self.stage and check.stage != self.stage:
                continue
            try:
                check.run(subject, self.workshop)
            except Exception:
                is_clean = False
                self.report(program, check)
                if check.stage == "document":
                    break
        self.clean = self.clean + 1 if is_clean else 0

    def report(self, program, check):
        try:
            Subject(program)
        except Unusable:  # at a second look: what it reads is not the same each time
            self.unusable_why["it is another program each time"] += 1
            return
        except ExportError:
            pass
        check = reducing.shorten(program, check, self.kind)
        group = (
            self.kind(program, check),
            tuple(sorted({item if isinstance(item, str) else item["name"] for item in check.passes})),
        )
        self.groups[group] += 1
        if self.groups[group] > REDUCED:
            self.found.setdefault((*group, ()), []).append(program.seed)
            return
        smaller, less = reducing.reduce(program, check, self.kind, REDUCE_SECONDS)
        kind = self.kind(smaller, less)
        names = [item if isinstance(item, str) else item["name"] for item in less.passes]
        operators = sorted({re.sub(r"[vx]\d+|\d+|self\.[\w.]+", "", line.partition(" = ")[2]) for line in smaller.body})
        signature = (kind, tuple(sorted(set(names))), tuple(operators)[:3])
        known = next((one for one in self.found if one[:2] == signature[:2] and set(one[2]) & set(signature[2])), signature)
        if known in self.found:
            self.found[known].append(program.seed)
            return
        self.found[signature] = [program.seed]
        print(f"\n==== {kind} · {less.stage} · {json.dumps(list(less.passes))} · {smaller.dialect} · seed {program.seed}\n")
        print("# " + self.detail(smaller, less).replace("\n", "\n# ")[:2500])
        if less.validate != "off":
            print(f"# validate: {less.validate}")
        print(smaller.source(), flush=True)


def until(deadline, seed, count):
    """Seeds, and what makes their programs."""
    for number in range(seed, seed + count):
        if time.monotonic() >= deadline:
            return
        yield number, functools.partial(statements.generate, number)


def try_all(programs, with_each_pass, stage, service, rules, seen):
    """Tries the programs in a fork, and goes on in another one when a program takes the interpreter down, as PyTorch does now
    and then, also while it is made. `seen` is the file in which a fork leaves what it has seen so far."""
    hunt, programs = Hunt(), iter(programs)
    hunt.stage = stage
    for index, program in enumerate(programs):
        if index < hunt.begun:
            continue
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            hunt_on(hunt, itertools.chain([program], programs), with_each_pass, service, rules, seen)
        _, status = os.waitpid(child, 0)
        hunt = pickle.loads(seen.read_bytes())
        if os.WIFSIGNALED(status):
            hunt.crashes.append(hunt.seed)
            print(f"\nseed {hunt.seed}: {signal.Signals(os.WTERMSIG(status)).name} took the interpreter down", flush=True)
        elif status:
            raise SystemExit("the hunt itself failed")
    return hunt


def hunt_on(hunt, programs, with_each_pass, service, rules, seen):
    """What a fork does: it ends with the process."""
    faulthandler.enable()
    try:
        with foldback.Client(service.url) as client:
            hunt.workshop = Workshop(service, client, rules)
            hunt.workshop.counts = hunt.counts
            for seed, make in programs:
                hunt.begun, hunt.seed = hunt.begun + 1, seed
                hunt.leave(seen)
                hunt.try_program(make(), list(hunt.workshop.every()) if with_each_pass else None)
            hunt.leave(seen)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int)
    options.add_argument("--count", type=int, default=10**9, help="stops after so many seeds, or when the time is up")
    options.add_argument("--stage", help="only checks of this kind, such as chain (checks.py)")
    options.add_argument("--corpus", action="store_true", help="programs that somebody thought of, with each pass alone")
    given = options.parse_args()
    given.seed = given.seed if given.seed is not None else 0 if given.corpus else int(time.time())
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.ERROR)
    # Not those of operators of somebody else, nor those that say that they change what is computed.
    rules = [rule for rule in golden.RULES.values() if "my." not in json.dumps(rule) and rule.get("exactness") != "changes"]
    with tempfile.TemporaryDirectory() as folder:
        service = start_service(folder)
        begun = time.monotonic()
        if given.corpus:
            found = [one for one in corpus.FOUND if given.seed <= one.seed < given.seed + given.count]
            programs = [(one.seed, functools.partial(lambda program: program, one)) for one in found]
        else:
            programs = until(begun + given.seconds, given.seed, given.count)
        hunt = try_all(programs, given.corpus, given.stage, service, rules, pathlib.Path(folder, "seen"))
        seconds = time.monotonic() - begun
        status = service.stop()
    print(
        f"\nseeds {given.seed} to {hunt.seed}: {hunt.programs} programs in {seconds:.0f} s ({sum(os.times()[:4]):.0f} s of the "
        f"processor), {hunt.unusable} that PyTorch does not trace;"
        f" {len(hunt.found)} differences; {hunt.clean} in a row without one"
        + (f"; PyTorch took the interpreter down at {hunt.crashes}" if hunt.crashes else "")
    )
    print(dict(sorted(hunt.counts.items())))
    print(hunt.unusable_why.most_common(12))
    for signature, seeds in hunt.found.items():
        print(f"{len(seeds):4} × {signature} {seeds[:5]}")
    differ = len({seed for seeds in hunt.found.values() for seed in seeds})
    print(f"{hunt.programs - differ} passed, {differ} failed, {hunt.unusable} skipped in {seconds:.0f} s")
    assert status == 0, "the service did not end well"
    assert hunt.programs > hunt.unusable, "most programs could not be tried"
    return 1 if hunt.found else 0


if __name__ == "__main__":
    sys.exit(main())
