"""Random programs against PyTorch, for a given time. Usage: hunt.py [--seconds 60] [--seed N] [--count N] [--corpus]

hunt.py --seed 4711 --count 1     tells of one program
"""

import argparse
import collections
import importlib.util
import json
import logging
import pathlib
import re
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests/python"), str(ROOT / "clients/python/src")]
sys.path.append(str(ROOT / "tests/api"))

import corpus  # noqa: E402
import foldback  # noqa: E402
import reduce as reducing  # noqa: E402
import statements  # noqa: E402
import torch  # noqa: E402
from checks import Check, Difference, ExportError, Subject, Workshop  # noqa: E402
from subject import Unusable  # noqa: E402

REDUCE_SECONDS = 12  # of this process's time
REDUCED = 4  # of one kind with the same passes; more are but counted


def start_service(folder):
    specification = importlib.util.spec_from_file_location("api_conftest", ROOT / "tests/api/conftest.py")
    api = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(api)
    return api.Service(pathlib.Path(folder, "data")).start()


class Hunt:
    def __init__(self, workshop):
        self.workshop = workshop
        self.found = collections.OrderedDict()  # by signature: failures
        self.programs = self.unusable = self.clean = 0
        self.groups = collections.Counter()
        self.unusable_why = collections.Counter()

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
            try:
                check.run(subject, self.workshop)
            except Exception:
                is_clean = False
                self.report(program, check)
                if check.stage == "document":
                    break
        self.clean = self.clean + 1 if is_clean else 0

    def report(self, program, check):
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


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int)
    options.add_argument("--count", type=int, default=10**9, help="stops after so many seeds, or when the time is up")
    options.add_argument("--corpus", action="store_true", help="programs that somebody thought of, with each pass alone")
    given = options.parse_args()
    given.seed = given.seed if given.seed is not None else 0 if given.corpus else int(time.time())
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.ERROR)
    rules = [json.loads(path.read_text()) for path in sorted((ROOT / "tests/golden/rules/_rules").glob("*.json"))]
    # Not those of operators of somebody else, nor those that say that they change what is computed.
    rules = [rule for rule in rules if "my." not in json.dumps(rule) and rule.get("exactness") != "changes"]
    with tempfile.TemporaryDirectory() as folder:
        service = start_service(folder)
        with foldback.Client(service.url) as client:
            hunt = Hunt(Workshop(service, client, rules))
            for preset in service.get("/v1/passes").json()["presets"]:
                reducing.PRESETS[preset["name"]] = preset["passes"]
            begun, seed = time.monotonic(), given.seed
            for program in corpus.FOUND if given.corpus else []:
                if not given.seed <= program.seed < given.seed + given.count:
                    continue
                hunt.try_program(program, list(hunt.workshop.every()))
            while not given.corpus and time.monotonic() - begun < given.seconds and seed < given.seed + given.count:
                hunt.try_program(statements.generate(seed))
                seed += 1
            seconds = time.monotonic() - begun
        status = service.stop()
    print(
        f"\nseeds {given.seed} to {seed - 1}: {hunt.programs} programs in {seconds:.0f} s ({time.process_time():.0f} s of the processor), {hunt.unusable} that PyTorch does not trace;"
        f" {len(hunt.found)} differences; {hunt.clean} in a row without one"
    )
    print(dict(sorted(hunt.workshop.counts.items())))
    print(hunt.unusable_why.most_common(12))
    for signature, seeds in hunt.found.items():
        print(f"{len(seeds):4} × {signature} {seeds[:5]}")
    assert status == 0, "the service did not end well"
    assert hunt.programs > hunt.unusable, "most programs could not be tried"
    return 1 if hunt.found else 0


if __name__ == "__main__":
    sys.exit(main())
