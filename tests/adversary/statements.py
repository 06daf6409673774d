"""Random programs. A statement is a template; what PyTorch refuses is not added, so templates need not know shapes."""

import random
import re

import torch
from program import NAME, Program, environment
from spellings import (
    BINARY,
    CHANNELS,
    FUNCTIONS,
    IN_PLACE,
    INFIX,
    INTEGER,
    LAST,
    NO_OPS,
    OTHER,
    SIZES,
    SUBSCRIPTS,
    UNARY,
    VIEWS,
    WEIGHTS,
)

SLOT = re.compile(r"<(\w+)>")
LARGEST = 4096  # elements
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool", "complex64"]


class Unfit(Exception):
    """A slot has nothing to be filled with, or a result is of no use."""


class Generator:
    def __init__(self, seed):
        self.seed, self.random = seed, random.Random(seed)
        choose = self.random
        self.dialect = choose.choice(["fx"] * 4 + ["fx-inputs", "fx-shapeless",
                                                   "fx-shapeless"] + ["export", "dynamic", "decomposed"])
        self.dtype = choose.choice(["torch.float64"] * 4 + ["torch.float32"] * 3 + ["torch.bfloat16"] + ["torch.float16"] * 2)
        self.batch = choose.choice([2, 3, 4, 5])
        self.theme = choose.choice([None] * 4 + ["wide"] * 3 + ["branches"] * 2 + ["images"] * 3 + ["pointwise"] * 3)
        if self.theme in ("wide", "pointwise"):
            self.dtype = choose.choice(["torch.float32"] * 3 + ["torch.bfloat16"])  # those that such passes are for
        if self.theme in ("wide", "images", "pointwise") and self.dialect in ("fx-inputs", "fx-shapeless"):
            self.dialect = "fx"  # these need shapes
        self.inner = set()  # values of the theme that nothing else reads
        self.space = environment()
        self.self = torch.nn.Module()
        self.space["self"] = self.self
        self.init, self.body, self.weights, self.modules = [], [], [], []
        self.values = {}
        self.inputs = self.make_inputs()

    def make_inputs(self):
        choose, dtype = self.random, self.dtype
        width = choose.choice([4, 6, 8])
        shapes = [f"B, {width}", f"B, 3, {width}", f"B, 3, {width}", f"B, 3, 4, {width}", "B, 2, 4, 4"]
        shape = choose.choice(shapes[3:] if self.theme in ("branches", "images", "pointwise") else shapes)
        texts = [f"torch.randn({shape}, dtype={dtype})"]
        for _ in range(choose.choice([0, 0, 1, 1, 2])):
            texts.append(
                choose.choice(
                    [
                        f"torch.randn({shape}, dtype={dtype})",
                        f"torch.randn({choose.choice(shapes)}, dtype={dtype})",
                        f"torch.randn({shape}, dtype={dtype}).mT",
                        f"torch.randint(0, 4, (B, {width}))",
                        f"torch.randint(0, 4, ({shape},))",
                        f"torch.rand({shape}) > 0.5",
                        f"torch.randn({width}, dtype={dtype})",
                        f"torch.randn({shape}, dtype=torch.float32)",
                        f"torch.randn({width}, {shape}, dtype={dtype})[0]",
                    ]
                )
            )
        if choose.random() < 0.15:
            inner = [f"torch.randn({shape}, dtype={dtype})", choose.choice([f"torch.randn({width}, dtype={dtype})", "x0"])]
            texts.append(choose.choice([f"({', '.join(inner)})", f"{{'a': {inner[0]}, 'b': {inner[1]}}}",
                                        f"[{inner[0]}, ({inner[1]},)]"]))
        if choose.random() < 0.1:
            texts.append(f"x{choose.randrange(len(texts))}")
        torch.manual_seed(self.seed)
        for index, text in enumerate(texts):
            made = eval(text, self.space | self.values | {"B": self.batch})
            for path, value in torch.utils._pytree.tree_flatten_with_path(made)[0]:
                self.values[f"x{index}{torch.utils._pytree.keystr(path)}"] = value
            self.values[f"x{index}"] = made
        return texts

    # ---- slots -----------------------------------------------------------------------------------------------------------

    def pick(self, condition):
        found = [name for name, value in self.values.items()
                 if isinstance(value, torch.Tensor) and name not in self.inner and condition(value)]
        if not found:
            raise Unfit
        return self.random.choice(found[-4:] if self.random.random() < 0.6 else found)

    def weight(self):
        choose = self.random
        if self.weights and choose.random() < 0.6:
            return choose.choice(self.weights)
        name = f"w{len(self.init)}"
        parent = "self"
        if choose.random() < 0.3 and self.modules:
            parent = choose.choice(self.modules)
            if not hasattr(eval(parent, self.space), "_parameters"):
                parent = "self"
        text = self.fill(choose.choice(WEIGHTS))
        if text.startswith("nn.Parameter") and choose.random() < 0.85:
            line = f"{parent}.{name} = {text}"
        else:
            line = f"{parent}.register_buffer('{name}', {text}{choose.choice(['', '', ', persistent=False'])})"
            if text.startswith("nn.Parameter"):
                line = f"{parent}.{name} = {text}"
        exec(line, self.space)
        self.init.append(line)
        self.weights.append(f"{parent}.{name}")
        return self.weights[-1]

    def slot(self, kind, picked):
        choose = self.random
        first = self.values.get(picked[0]) if picked else None
        if first is None and kind in ("c", "c1", "cm1", "s", "rest", "perm", "shape", "same"):
            first = self.values[self.pick(lambda value: value.dim() > 0)]
        if kind == "f":
            return self.pick(lambda value: value.is_floating_point())
        if kind == "t":
            return self.pick(lambda value: True)
        if kind == "i":
            return self.pick(lambda value: value.dtype in (torch.int64, torch.int32, torch.int8, torch.uint8))
        if kind == "b":
            return self.pick(lambda value: value.dtype == torch.bool)
        if kind == "s":
            return self.pick(lambda value: value.shape == first.shape)
        if kind == "n":
            found = [name for name, value in self.values.items() if type(value) in (int, float)]
            if found and choose.random() < 0.8:
                return choose.choice(found)
            return self.pick(lambda value: value.dim() > 0) + choose.choice(
                [".size(0)", ".shape[0]", ".size(-1)", ".shape[-1]"]
            )
        if kind == "w":
            return self.weight()
        if kind == "num":
            return choose.choice(
                ["2", "3", "0.5", "-7", "49", "0.1", "8.0", "1e-3", "-1", "1.5", "1", "0", "True", "1e4", "2.0**-20"]
            )
        if kind == "c":
            return str(first.shape[-1]) if first.dim() else "1"
        if kind == "cm1":
            return str(first.shape[-1] - 1) if first.dim() else "1"
        if kind == "c1":
            return str(first.shape[1]) if first.dim() > 1 else "1"
        if kind == "B":
            return choose.choice([str(self.batch), self.pick(lambda value: value.dim() > 0) + ".size(0)", "-1"])
        if kind == "rest":
            return ",".join(map(str, first.shape)) or "1"
        if kind == "shape":
            return ",".join(map(str, first.shape)) or "()"
        if kind == "perm":
            order = list(range(first.dim()))
            choose.shuffle(order)
            return f"({','.join(map(str, order))},)"
        if kind == "same":
            return str(first.dtype)
        if kind == "dt":
            return self.dtype
        if kind == "dtype":
            return choose.choice(DTYPES)
        if kind == "cast":
            return choose.choice(["float", "double", "half", "long", "int", "bool", "bfloat16"])
        raise KeyError(kind)

    def fill(self, template, picked=None):
        picked = [] if picked is None else picked

        def replace(match):
            text = self.slot(match[1], picked)
            if text in self.values:
                picked.append(text)
            return text

        return SLOT.sub(replace, template)

    # ---- statements ------------------------------------------------------------------------------------------------------

    def expression(self):
        choose = self.random
        kind = choose.randrange(100)
        if kind < 12:
            name = choose.choice(UNARY)
            return self.fill(
                f"<f>.{name}" if "(" in name else f"<f>.{name}()" if choose.random() < 0.5 else f"torch.{name}(<f>)"
            )
        if kind < 20:
            name, _, rest = choose.choice(FUNCTIONS).partition("(")
            return self.fill(f"{name}(<f>{rest}" if rest else f"{name}(<f>)")
        if kind < 26:
            return self.fill(
                f"torch.{choose.choice(BINARY)}(<t>,{choose.choice(['<s>', '<s>', '<f>', '<num>', '<w>', '<n>'])})"
            )
        if kind < 31:
            return self.fill(f"<f> {choose.choice(INFIX)} {choose.choice(['<s>', '<f>', '<num>', '<w>', '<t>'])}")
        if kind < 43:
            return self.fill(f"<t>.{choose.choice(VIEWS)}" if choose.random() < 0.7 else f"<t>{choose.choice(SUBSCRIPTS)}")
        if kind < 63:
            return self.fill(choose.choice(OTHER))
        if kind < 70:
            return self.fill(choose.choice(NO_OPS))
        if kind < 76:
            return self.fill(choose.choice(SIZES))
        if kind < 80 and self.body:
            return choose.choice(self.body).partition(" = ")[2]  # computed once more
        if kind < 84:
            return self.aten()
        return self.module_call()

    def module_call(self):
        choose = self.random
        if self.modules and choose.random() < 0.25:
            name = choose.choice(self.modules)
            given = self.pick(lambda value: True)
        else:
            kind = choose.random()
            name = choose.choice(["self.m", "self.fc", "self.block.m", "self.layers."]) + str(len(self.init))
            name = name if not name.startswith("self.layers") else f"self.m{len(self.init)}"
            if kind < 0.6:
                given = self.pick(lambda value: value.dim() > 0 and value.is_floating_point())
                template = choose.choice(LAST)
            elif kind < 0.94:
                given = self.pick(lambda value: value.dim() > 1 and value.is_floating_point())
                template = choose.choice(CHANNELS)
            else:
                given = self.pick(lambda value: value.dtype == torch.int64)
                template = choose.choice(INTEGER)
            dtype, self.dtype = (
                self.dtype,
                str(self.values[given].dtype) if self.values[given].is_floating_point() else self.dtype,
            )
            try:
                made = self.fill(template, [given])
            finally:
                self.dtype = dtype
            if name.startswith("self.block") and not hasattr(self.self, "block"):
                self.add_init("self.block = nn.Module()")
            self.add_init(f"{name} = {made}{'.train()' if choose.random() < 0.06 else '.eval()'}")
            self.modules.append(name)
            self.decorate(name)
        text = f"{name}({given})" if choose.random() < 0.95 else f"{name}(input={given})"
        if "GRU" in text:
            text += "[0]"
        if choose.random() < 0.1:
            text = f"{name}({choose.choice([f'{given} * 2', f'torch.relu({given})', f'{given}.contiguous()'])})"
        return text

    def add_init(self, line):
        exec(line, self.space)
        self.init.append(line)

    def decorate(self, name):
        """Ties, hooks, frozen weights, weights in channels_last."""
        choose, made = self.random, eval(name, self.space)
        if choose.random() < 0.06:
            hook = choose.choice(
                [
                    "register_forward_hook(after_double)",
                    "register_forward_pre_hook(before_shift)",
                    "register_forward_hook(after_noise)",
                ]
            )
            self.add_init(f"{name}.{hook}")
        if choose.random() < 0.06:
            self.add_init(f"{name}.requires_grad_(False)")
        weight = getattr(made, "weight", None)
        rank = weight.dim() if isinstance(weight, torch.nn.Parameter) else 0
        if rank in (4, 5) and choose.random() < 0.3:
            self.add_init(f"{name}.to(memory_format=torch.channels_last{'_3d' if rank == 5 else ''})")
        for other in self.modules[:-1]:
            theirs = getattr(eval(other, self.space), "weight", None)
            is_like = (
                isinstance(weight, torch.nn.Parameter)
                and isinstance(theirs, torch.nn.Parameter)
                and theirs.shape == weight.shape
            )
            if is_like and theirs.dtype == weight.dtype and choose.random() < 0.15:
                self.add_init(f"{name}.weight = {other}.weight")
                break

    def aten(self):
        """Any overload of any operator, with arguments by its schema."""
        choose = self.random
        overload = choose.choice(overloads())
        args, kwargs = [], []
        for argument in overload._schema.arguments:
            if argument.has_default_value() and choose.random() < 0.7:
                if not argument.kwarg_only:
                    break
                continue
            text = self.argument(argument)
            (kwargs if argument.kwarg_only else args).append(f"{argument.name}={text}" if argument.kwarg_only else text)
        return f"{overload}({', '.join(args + kwargs)})".replace("aten.", "torch.ops.aten.", 1)

    def argument(self, argument):
        choose, kind = self.random, str(argument.type)
        if kind.startswith("Optional["):
            if choose.random() < 0.5:
                return "None"
            kind = kind[9:-1]
        if kind == "Tensor":
            return self.slot(choose.choice(["f", "f", "t", "w"]), [])
        if kind == "List[Tensor]":
            return self.fill("[<f>,<s>]")
        if kind in ("number", "Scalar", "float"):
            return self.slot("num", [])
        if kind == "int":
            return choose.choice(["0", "1", "-1", "2"])
        if kind == "bool":
            return choose.choice(["True", "False"])
        if kind == "List[int]":
            return choose.choice(["[0]", "[1]", "[-1]", "[2,2]", "[0,1]", self.fill("[<shape>]")])
        raise Unfit

    def statement(self):
        """A line that runs, or nothing. What is written in place has happened by then."""
        choose = self.random
        if choose.random() < 0.1:
            name = self.pick(lambda value: True)
            kind = choose.random()
            if kind < 0.6:
                text = choose.choice(IN_PLACE)
                text = self.fill("F.dropout(<t>,0.5,True,True)" if text == "dropout_" else f"<t>.{text}")
            elif kind < 0.8:
                text = self.fill(
                    choose.choice(
                        [
                            "call(operator.setitem,<t>,0,<num>)",
                            "call(operator.setitem,<t>,(slice(None),0),<num>)",
                            "call(operator.setitem,<t>,slice(1,None),<f>)",
                            "call(operator.iadd,<f>,<s>)",
                            "call(operator.imul,<f>,2)",
                            "call(operator.itruediv,<f>,<num>)",
                            "call(operator.setitem,<t>,<b>,0)",
                            "call(operator.setitem,<t>,(...,0),<f>)",
                        ]
                    )
                )
            else:
                text = self.weight() + choose.choice(
                    [".add_(1)", ".mul_(0.5)", ".copy_(" + name + ")", ".zero_()", ".normal_()"]
                )
        else:
            text = self.expression()
        if len(text) > 200:
            return
        result = f"v{len(self.body)}"
        try:
            with torch.no_grad():
                value = eval(text, {**self.space, **self.values})
        except Exception:
            return
        if self.reads_beyond(text):
            return
        if isinstance(value, dict) or isinstance(value, (list, str)):
            return
        if isinstance(value, torch.Tensor):
            if value.numel() > LARGEST or (value.is_sparse or value.is_quantized):
                return
            is_float = value.is_floating_point() and value.numel() > 0
            if is_float and not (value.isfinite().all() and value.abs().max() < 1e4) and choose.random() < 0.97:
                if "_(" not in text and "call(" not in text and "out=" not in text and "True" not in text:
                    return
        self.body.append(f"{result} = {text}")
        self.values[result] = value

    def write(self, given, layer):
        """A write between two readers of `given`: into it, a view of it or, seldom, a weight of a layer that has read it."""
        choose = self.random
        view = choose.choice(["", "", "", ".view(-1)", "[0]", "[..., 1:]", ".detach()",
                              ".t()" if self.values[given].dim() == 2 else ".mT", ".data"])
        target = given + view if choose.random() < 0.85 else f"{layer}.weight"
        write = choose.choice(["add_(1)", "mul_(2)", "bernoulli_()", "normal_()", "zero_()", "neg_()", "copy_(T * 3)",
                               "masked_fill_(T > 0, 0.5)", ""])
        return f"{target}.{write.replace('T', target)}" if write else f"call(operator.iadd, {target}, 1)"

    def patterns(self, theme=None):
        """What passes look for, so that they find something."""
        choose = self.random
        given = "x0" if theme else self.pick(lambda value: value.dim() > 1 and value.is_floating_point())
        width, channels, dtype = self.values[given].shape[-1], self.values[given].shape[1], self.values[given].dtype
        index = len(self.init)
        kind = theme or choose.choice([0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12, 13, "wide", 15, 16, "images", 18, 19, 19,
                                       "branches", "branches", 21, 21, "pointwise"])
        motifs = {8: self.constants, 9: self.attention, 10: self.rotation, 11: self.repeated, 12: self.nested, 13: self.mask,
                  15: self.copied, 16: self.widened, 18: self.normalised, 19: self.table, 21: self.adapter,
                  "images": self.images, "branches": self.branches, "pointwise": self.pointwise, "wide": self.wide}
        lines, made = [], []
        if kind == 0:
            for item in range(choose.choice([2, 3])):
                if item and choose.random() < 0.3:
                    lines.append(self.write(given, f"self.q{index}_{choose.randrange(item)}"))
                made.append(
                    f"self.q{index}_{item} = nn.Linear({width}, {choose.choice([width, 4])}, bias={choose.random() < 0.8}, "
                    f"dtype={dtype}).eval()"
                )
                lines.append(f"self.q{index}_{item}({given})")
        elif kind == 1:
            made = [
                f"self.n{index} = stats(nn.LayerNorm({width}, dtype={dtype})).eval()",
                f"self.l{index} = nn.Linear({width}, 4, dtype={dtype}).eval()",
            ]
            lines = [f"self.n{index}({given})", f"self.l{index}(<last>)"]
        elif kind == 2:
            rank = self.values[given].dim()
            is_sharp = choose.random() < 0.3
            made_by, rest = ("sharp", "bias=False, ") if is_sharp else ("stats", "")
            if rank == 2:
                made = [
                    f"self.l{index} = nn.Linear({width}, 4, {rest}dtype={dtype}).eval()",
                    f"self.n{index} = {made_by}(nn.BatchNorm1d(4, dtype={dtype})).eval()",
                ]
            elif rank in (3, 4):
                made = [
                    f"self.l{index} = nn.Conv{rank - 2}d({channels}, 4, 1, {rest}dtype={dtype}).eval()",
                    f"self.n{index} = {made_by}(nn.BatchNorm{rank - 2}d(4, dtype={dtype})).eval()",
                ]
            lines = [f"self.l{index}({given}{' * 0.001' if is_sharp else ''})", f"self.n{index}(<last>)"]
        elif kind == 3:
            made = [f"self.l{index} = nn.Linear({width}, 4, dtype={dtype}).eval()"]
            lines = [
                f"self.l{index}({given})",
                self.fill(
                    choose.choice(
                        ["<last> * <num>", "<last> / <num>", "<last> + <num>", "<last>.mul(<num>)", "<num> - <last>"]
                    ).replace("<last>", "LAST")
                ).replace("LAST", "<last>"),
            ]
        elif kind == 4:
            made = [f"self.l{index} = nn.Linear({width}, 4, dtype={dtype}).eval()"]
            lines = [
                self.fill(
                    choose.choice(
                        [f"{given} * <num>", f"{given} / <num>", f"{given} + <num>", f"{given} * <w>", f"{given} - <w>"]
                    )
                ),
                f"self.l{index}(<last>)",
            ]
        elif kind == 5:
            weight = self.weight()
            lines = [f"{weight} * {choose.choice(['2', '0.5'])}", f"{given} * <last>"]
        elif kind in motifs:
            lines = motifs[kind](given)
        else:  # a cast of a weight, and arithmetic on what comes out
            first, second = (choose.choice(["long", "int", "half", "bool", "double", "float", "bfloat16"]) for _ in range(2))
            number = choose.choice(["0.5", "2", "3.7"])
            middle = choose.choice(["<last> * NUMBER", "<last> + NUMBER", "<last> / NUMBER", f"<last>.{second}()"])
            lines = [f"({self.weight()} * 3).{first}()" if kind == 6 else f"{self.weight()}.{first}()"]
            lines += [middle.replace("NUMBER", number), choose.choice([f"{given} * <last>", f"{given} + <last>", "<last> * 1"])]
        for line in made:
            self.add_init(line)
        for line in lines:
            text = line.replace("<last>", f"v{len(self.body) - 1}")
            try:
                with torch.no_grad():
                    value = eval(text, {**self.space, **self.values})
            except Exception:
                return
            self.body.append(f"v{len(self.body)} = {text}")
            self.values[f"v{len(self.body) - 1}"] = value

    def branches(self, given):
        """Convolutions of one value, BatchNorms of it and the value, added or subtracted; most of them fit together."""
        choose, value = self.random, self.values[given]
        rank, channels, dtype = value.dim(), value.shape[1], value.dtype
        if rank not in (3, 4):
            return []
        index, sides = len(self.init), rank - 2
        groups = choose.choice([1, 1, 1, channels])
        stride, dilation = choose.choice([1, 1, 1, 2]), choose.choice([1, 1, 1, 2])
        lines, terms = [], []
        for item in range(choose.choice([2, 2, 3, 4])):
            kind = choose.choice(["conv", "conv", "conv", "norm", "value"]) if item else "conv"
            if kind == "value":
                terms.append(given)
                continue
            made = f"nn.BatchNorm{sides}d({channels}, dtype={dtype})"
            if kind == "conv":
                kernel = [choose.choice([1, 3]) for _ in range(sides)]
                padding = [dilation * (size // 2) for size in kernel] if choose.random() < 0.9 else 1
                made = (f"nn.Conv{sides}d({channels}, {channels}, {kernel}, {stride}, {padding}, {dilation}, groups={groups}, "
                        f"bias={choose.random() < 0.5}, dtype={dtype})")
            if item and choose.random() < 0.1:
                lines.append(self.write(given, f"self.p{index}_0"))
            self.add_init(f"self.p{index}_{item} = stats({made}).eval()" if kind == "norm" else
                          f"self.p{index}_{item} = {made}.eval()")
            lines.append(f"self.p{index}_{item}({given})")
            terms.append(f"v{len(self.body) + len(lines) - 1}")
        choose.shuffle(terms)
        for i, term in enumerate(terms[1:]):
            first = terms[0] if i == 0 else "<last>"
            lines.append(choose.choice([f"{first} + {term}", f"{first} + {term}", f"{first} - {term}", f"{term} - {first}",
                                        f"{first}.add_({term})" if i or first != given else f"{first} + {term}"]))
        return lines

    def wide(self, given):
        """Linears with enough inputs for a group of weights, once or twice, of values that lie this way or that."""
        choose, value, index = self.random, self.values[given], len(self.init)
        inputs, outputs = choose.choice([32, 64, 128]), choose.choice([4, 16, 16, 32, 33])
        self.add_init(f"self.l{index} = nn.Linear({inputs}, {outputs}, bias={choose.random() < 0.8}, "
                      f"dtype={value.dtype}).eval()")
        lines = [f"nn.functional.pad({given}, (0, {inputs - value.shape[-1]}))"]
        lines += choose.choice([[], [], [], [f"<last>.reshape(-1, {inputs})"], ["<last>.transpose(0, 1)"], ["<last>.mul_(2)"],
                                ["<last>[:1]"]])
        before = f"v{len(self.body) + len(lines) - 1}"
        lines.append(choose.choice([f"self.l{index}(<last>)"] * 3 + [f"F.linear(<last>, self.l{index}.weight)"]))
        return lines + choose.choice([[], [f"self.l{index}({before})"], ["<last>.add_(1)"], [f"{before}.mul_(2)"],
                                      ["<last>.view(-1)"], ["<last>.transpose(0, 1)"], ["<last>.relu()"]])

    def pointwise(self, given):
        """A convolution or Linear, and what oneDNN computes together with it: an activation, or a sum and ReLU; or nearly."""
        choose, value, index = self.random, self.values[given], len(self.init)
        name, layer = f"self.o{index}", f"self.o{index}({given})"
        if value.dim() != 4 or choose.random() < 0.2:
            self.add_init(f"{name} = nn.Linear({value.shape[-1]}, {choose.choice([1, 4, 16])}, bias={choose.random() < 0.8}, "
                          f"dtype={value.dtype}).eval()")
            return [layer, choose.choice(["F.gelu(<last>)", "F.gelu(<last>, approximate='tanh')", "nn.GELU()(<last>)",
                                          "F.gelu(<last> * 2)", "<last>.relu()"])]
        channels = value.shape[1]
        kernel = choose.choice([1, 3, 3, (3, 1)])
        dilation, groups = choose.choice([1, 1, 1, 2]), choose.choice([1, 1, 1, channels])
        padding = choose.choice([f"{dilation}" if kernel == 3 else "0", "'same'", "'valid'", "(1, 0)"])
        options = f"{kernel}, padding={padding}, dilation={dilation}, groups={groups}, bias={choose.random() < 0.8}"
        options += choose.choice(["", "", "", ", padding_mode='reflect'"])
        self.add_init(f"{name} = nn.Conv2d({channels}, {channels}, {options}, dtype={value.dtype}).eval()")
        if choose.random() < 0.2:
            self.add_init(f"{name}.to(memory_format=torch.channels_last)")
        end = choose.choice([["<last>.mean((2, 3))"], ["<last>.sum((2, 3))"], ["<last>.amax(1)"],
                             ["F.adaptive_avg_pool2d(<last>, 1)"], []])
        activation = choose.choice([
            "<last>.relu()", "F.relu(<last>, inplace=True)", "<last>.relu_()", "F.relu6(<last>)", "F.hardswish(<last>)",
            "F.silu(<last>)", "F.gelu(<last>)", "F.gelu(<last>, approximate='tanh')", "F.hardtanh(<last>, -0.5, 0.75)",
            "F.hardtanh(<last>)", "<last>.clamp(0, 6)", "<last>.tanh()",
        ])
        first = f"v{len(self.body)}"
        if choose.random() < 0.5:
            return [layer, activation] + choose.choice([[], [], [], [], [f"{first} * 2"], ["<last>.permute(0, 2, 3, 1)"],
                                                        ["<last>.add_(1)"], ["<last>.view(-1)"]]) + end
        if choose.random() < 0.1:
            return [layer, self.write(given, name), f"{first} + {given}", activation, *end]
        sum_of = choose.choice([f"{first} + {given}", f"{given} + {first}", f"{first}.add_({given})", f"{given}.add_({first})",
                                f"torch.add({first}, {given}, alpha=2)", f"{first} - {given}", f"{first} + {first}",
                                f"{first} + {name}({given} * 2)", f"{first} + {given}.transpose(2, 3)"])
        after = choose.choice([[], ["<last>.relu()"], ["<last>.relu()"], ["<last>.relu_()"], [activation]])
        return [layer, sum_of, *after, *end]

    def adapter(self, given):
        """A Linear and a low-rank branch beside it, scaled anywhere, added or subtracted; most of them fit together."""
        choose, value = self.random, self.values[given]
        index, width, outputs, rank = len(self.init), value.shape[-1], choose.choice([1, 3, 4]), choose.choice([1, 2])
        sizes = {"b": (width, outputs), "d": (width, rank), "u": (rank, outputs if choose.random() < 0.9 else 1)}
        for name, (inputs, made) in sizes.items():
            self.add_init(f"self.{name}{index} = nn.Linear({inputs}, {made}, bias={choose.random() < 0.5}, "
                          f"dtype={value.dtype}).eval()")
        lines = [f"self.b{index}({given})"]
        scale = lambda: choose.choice([[], [], [self.fill(choose.choice(["LAST * <num>", "LAST / <num>", "<num> * LAST"]))]])
        branch = [f"{choose.choice(['', '2 * '])}{given}", *scale(), f"self.d{index}(LAST)", *scale(), f"self.u{index}(LAST)",
                  *scale()]
        if choose.random() < 0.3:
            branch[1:1] = [f"LAST.reshape(-1, {width})"]
            branch += [f"LAST.reshape({[*value.shape[:-1], sizes['u'][1]]})"]
        if choose.random() < 0.1:
            branch.append(self.write(given, f"self.b{index}"))
        lines += [line.replace("LAST", "<last>") for line in branch]
        base = f"v{len(self.body)}"
        lines.append(choose.choice([f"{base} + <last>"] * 3 + [f"<last> + {base}", f"{base} - <last>", f"{base}.add_(<last>)"]))
        return lines

    def constants(self, given):
        """Positions, masks and tables, which depend on no input; sometimes written to, or sliced so that they do not lie row by
        row."""
        choose = self.random
        width = self.values[given].shape[-1]
        lines = choose.choice(
            [
                [f"call(torch.arange, {width})"],
                [f"call(torch.arange, {width}, dtype=torch.float32)"],
                [f"call(torch.ones, {width}, {width})", "<last>.tril()"],
                [f"call(torch.arange, {width})", "<last>[None] <= <last>[:, None]"],
                [f"call(torch.full, ({width},), -2.5)"],
                [f"call(torch.eye, {width})"],
                [f"call(torch.zeros, {width}, {2 * width})", "<last>[:, ::2]"],
                [f"call(torch.arange, {2 * width})", f"<last>.view(2, {width})", "<last>.float()"],
            ]
        )
        steps = [
            "<last> * 3", "<last> + 0.5", "<last> / 7", "<last>.float()", "<last>.long()", "<last> > 1",
            "<last>.exp()", "<last>.t()",
            "<last>.add_(1)", "<last>[..., 1:]", "<last>.mul_(2)", "<last>.sum(-1, keepdim=True)", "<last>.expand(2, -1)",
            "<last>.clone()",
            "<last>.sin()", "<last>.masked_fill(<last> > 2, 0)", "torch.where(<last> > 1, <last>, 0)", "<last> // 2",
            "<last>.contiguous()",
            "torch.full_like(<last>, 2)", "torch.zeros_like(<last>)", f"<last>.expand_as({given})", f"<last>.type_as({given})",
            "torch.ones_like(<last>).add_(<last>)", "<last>.new_full((2,), 3)",
        ]
        lines += choose.choices(steps, k=choose.randint(0, 4))
        lines.append(choose.choice([f"{given} * <last>", f"{given} + <last>", f"torch.where(<last> > 0, {given}, 0)",
                                    f"<last> - {given}"]))
        return lines + choose.choices(["<last>.view(-1)", "<last>.reshape(-1)", "<last>.add_(1)", "<last>.relu()"],
                                      k=choose.randint(0, 1))

    def table(self, given):
        """What is computed of weights, in place as well, and what an index takes out of it."""
        choose, index = self.random, len(self.init)
        weight = self.weight()
        rank, size = eval(f"{weight}.dim(), {weight}.shape[:1].numel()", self.space)
        places = [choose.randrange(-size if choose.random() < 0.1 else 0, size)
                  for _ in range(choose.choice([2, 4, 6]))] if rank and size else [0, 0]
        if choose.random() < 0.2:
            places = list(range(len(places)))
        shaped = ".view(2, -1)" if choose.random() < 0.3 else ""
        persistent = choose.choice(["", ", persistent=False", ", persistent=False"])
        self.add_init(f"self.register_buffer('t{index}', torch.tensor({places}, "
                      f"dtype=torch.int{choose.choice([32, 64, 64])}){shaped}{persistent})")
        place = choose.choice([f"self.t{index}", f"self.t{index}", f"self.t{index}.view(-1)"])
        steps = [
            "<last> * 2", "<last> - 0.5", "<last>.relu_()", "<last>.exp_()", "<last>.div_(3.0)", "<last>.add_(<last>)",
            "<last>.sigmoid_()", "<last>.clamp_(-1, 1)",
            "<last>.relu()", "<last>.sigmoid()", "<last>.exp()", "<last>.clamp(max=0.5)", "<last>.clamp(min=-0.5, max=0.5)",
            "F.relu(<last>, inplace=True)",
            "<last>.t()", "<last>.transpose(0, -1)", "<last>.reshape(-1)", "<last>.view(-1)", "<last>.unsqueeze(0)",
            "<last>.contiguous()", "<last>[1:]",
            f"<last>[{place}]", f"<last>[:, {place}]", f"<last>[..., {place}]", f"torch.index_select(<last>, 0, {place})",
            f"F.embedding({place}, <last>)",
            f"<last>[{place}, 0]", f"<last>[None, {place}]", "<last> @ <last>.mT", f"torch.maximum(<last>, {weight})",
            f"<last> + {weight}", f"{weight}.mul_(2)",
        ]
        lines = [choose.choice([weight, f"{weight} * {choose.choice(['2', '0.5'])}", f"{weight}[{place}]", f"{weight}.abs()"])]
        lines += choose.choices(steps, k=choose.randint(1, 5))
        return lines + [choose.choice([f"{given} * <last>", f"{given} + <last>", "<last> * 2", f"<last> + {given}",
                                       "<last>.view(-1)", f"F.linear({given}, <last>)"])]

    def attention(self, given):
        """Attention that is spelled out: scaled here or there, masked or not, with heads of its own, shared or repeated."""
        choose = self.random
        width = self.values[given].shape[-1]
        if width % 2:
            return []
        heads = choose.choice([1, 2])
        split = f".reshape(-1, {choose.choice([1, 3])}, {heads}, {width // heads}).transpose(1, 2)"
        first = len(self.body)
        q, k, v = (f"v{first + i}" for i in range(3))
        lines = [f"{given}{split}", f"({given} * 0.5){split}", f"{given}.tanh(){split}"]
        if choose.random() < 0.3:
            lines += [f"{q} * {choose.choice([0.25, 2])}"]
            q = f"v{first + 3}"
        turned = choose.choice([f"{k}.transpose(-1, -2)", f"{k}.mT", f"{k}.permute(0, 1, 3, 2)"])
        lines.append(choose.choice([f"torch.matmul({q}, {turned})", f"{q} @ {turned}"]))
        if choose.random() < 0.7:
            lines.append(choose.choice(["<last> / 1.5", "<last> * 0.7", "<last>.div(2)", "<last> * -1", "<last>.mul_(0.5)"]))
        causal = "<last>.new_ones(<last>.shape[-2:]).tril().bool()"
        if choose.random() < 0.7:
            fill = choose.choice(["float('-inf')", "-1e9", "torch.finfo(torch.float32).min", "-10000.0", "0.0"])
            lines.append(choose.choice([
                f"<last>.masked_fill(<last> > 0.4, {fill})", f"torch.where(<last> > -0.4, <last>, {fill})",
                "<last> + <last>.tanh().mean(1, True)",
                f"<last> + torch.zeros(1, 1, 1, 1).masked_fill(torch.zeros(1, 1, 1, 1) > 0, {fill})",
                f"<last>.masked_fill(~{causal}, {fill})",
                "<last> + (<last> > 9).to(<last>.dtype) * -1e9", f"<last> + torch.triu(torch.full((1, 1), {fill}), 1)",
            ]))
        lines.append(choose.choice(["F.softmax(<last>, dim=-1)", "<last>.softmax(-1)", "torch.softmax(<last>, -1)",
                                    "F.softmax(<last>, dim=-1, dtype=torch.float32)"]))
        lines += choose.choice([[], [], ["F.dropout(<last>, 0.1, False)"], ["F.dropout(<last>, 0.1, self.training)"],
                                [f"<last>.to({q}.dtype)"]])
        lines.append(choose.choice([f"<last> @ {v}", f"torch.matmul(<last>, {v})"]))
        return lines + choose.choice([[], ["<last>.transpose(1, 2)"], ["<last>.transpose(1, 2).contiguous()"],
                                      ["<last>.transpose(1, 2).reshape(-1)"], ["<last>.view(-1)"]])

    def rotation(self, given):
        """A rotary embedding: halves changed over, one of them negated, and a factor that others read as well."""
        choose = self.random
        width, first = self.values[given].shape[-1], len(self.body)
        half = choose.choice([width // 2, width // 2, width // 2, 1])
        cosine, sine, product, front, back, negated = (f"v{first + i}" for i in range(6))
        kind = choose.random()
        if kind < 0.5:
            parts = [f"{given}[..., :{half}]", f"{given}[..., {half}:]"]
        elif kind < 0.8:
            of = choose.choice(["chunk(2, -1)", f"split({half}, -1)", f"chunk(2, {self.values[given].dim() - 1})"])
            parts = [f"{given}.{of}[0]", f"{given}.{of}[1]"]
        else:
            parts = [f"{given}.narrow(-1, 0, {half})", f"{given}.chunk(2, -1)[1]"]
        lines = [
            f"{given}[:1].cos()", choose.choice([f"{given}[:1].sin()", f"{given}[:1] > 0", f"{given}[:1].sin().float()"]),
            f"{given} * {cosine}",
            *parts, choose.choice([f"-{back}", f"{back}.neg()", f"torch.neg({back})", f"{front}.neg()"]),
        ]
        if choose.random() < 0.15:
            lines.append(f"{choose.choice([given, sine, front])}.{choose.choice(['add_(1)', 'mul_(2)', 'neg_()'])}")
        order = choose.choice([f"{negated}, {front}", f"{negated}, {front}", f"{negated}, {back}", f"{back}, {negated}",
                               f"{back}, {negated}", f"{back}, {front}"])
        lines.append(f"torch.cat(({order}), {choose.choice(['-1', 'dim=-1'])})")
        lines.append(choose.choice([f"<last> * {sine}", f"{sine} * <last>", f"<last>.mul({sine})", f"<last>.mul_({sine})"]))
        lines.append(choose.choice([f"{product} + <last>", f"<last> + {product}", f"<last> - {product}"]))
        return lines + choose.choice([[f"{sine} * 3"], [f"{sine} + 1", f"{sine}.add_(1)"], []])

    def repeated(self, given):
        """Each part of a dimension repeated, as keys and values are for grouped heads."""
        choose = self.random
        sizes = list(self.values[given].shape)
        axis, count = choose.randrange(len(sizes)), choose.choice([1, 2, 3])
        inserted = choose.choice([f".unsqueeze({axis + 1})", f"[{':, ' * (axis + 1)}None]"])
        wanted = [-1] * (axis + 1) + [count] + [-1] * (len(sizes) - axis - 1)
        merged = [-1, *sizes[1:]]
        if axis:
            merged[axis] *= count
        last = choose.choice(["reshape", "reshape", "contiguous().view", "flatten"])
        end = f"<last>.flatten({axis}, {axis + 1})" if last == "flatten" else f"<last>.{last}({', '.join(map(str, merged))})"
        lines = [f"{given}{inserted}", f"<last>.expand({', '.join(map(str, wanted))})", end]
        return lines + choose.choice([[], [], ["<last>.add_(1)"], ["<last>.transpose(0, 1)", "<last>.reshape(-1)"],
                                      [f"{given}.mul_(2)"], ["<last>.view(-1)"]])

    def copied(self, given):
        """A copy that the call behind it writes into, and what else may see either."""
        choose = self.random
        base = choose.choice([given, given, f"{given}.transpose(0, 1)", f"{given}[:1]", f"{given}.int()", f"{given}.double()",
                              f"torch.cat([{given}, {given}])"])
        copy = choose.choice(["<last>.clone()", "<last> * 1", "<last> + 0", "torch.cat([<last>])",
                              "<last>.expand(2, *<last>.shape).clone()"])
        written = choose.choice([
            f"<last>.add_({given})", "<last>.mul_(2)", "<last>.relu_()", "<last>.lt_(0.5)", "<last>.pow_(2)",
            "<last>.clamp_(min=0)", "<last>.fill_(1)",
            "<last>.masked_fill_(<last> > 0, 1)", f"<last>.sub_({given}, alpha=2)", f"<last>.add_({given}.sum(0))",
            f"<last>.add_({given}.sum())", f"<last>.mul_({given}.long())",
            f"call(operator.iadd, <last>, {given}.cos())", "torch.sigmoid_(<last>)", "<last>.add_(<last>)",
            f"<last>.copysign_({given})", f"<last>.div_({given})",
        ])
        first = len(self.body)
        lines = [f"{base} * 1.5" if choose.random() < 0.5 else base, copy]
        if choose.random() < 0.3:
            lines.append(choose.choice([f"v{first}.mul_(2)", f"{given}.add_(1)", f"v{first + 1} * 3"]))
            written = written.replace("<last>", f"v{first + 1}")
        lines.append(written)
        return lines + choose.choice([[], ["<last>.view(-1)"], ["<last>.add_(1)"], [f"v{first}.mul_(2)"], [f"v{first + 1} * 2"],
                                      ["<last>.transpose(0, 1)", "<last>.reshape(-1)"]])

    def widened(self, given):
        """Dimensions put in front, and expanded."""
        choose = self.random
        sizes = list(self.values[given].shape)
        base = choose.choice([given, f"{given}.transpose(0, 1)", f"{given}[:1]"])
        if base != given:
            sizes = [sizes[1], sizes[0], *sizes[2:]] if "transpose" in base else [1, *sizes[1:]]
        count = choose.choice([1, 1, 2])
        kept = [choose.choice([-1, size]) if size != 1 else choose.choice([-1, 1, 2]) for size in sizes]
        front = choose.choices([1, 2, 3, -1], weights=[2, 3, 2, 1], k=count)
        view = choose.choice([".unsqueeze(0)" * count, f".reshape({[1] * count + sizes})", f"[{'None, ' * count}]",
                              f".unsqueeze({choose.choice([0, 1, -1])})"])
        lines = [f"({base} * 2){view}" if choose.random() < 0.5 else f"{base}{view}", f"<last>.expand({front + kept})"]
        return lines + choose.choice([[], ["<last> + 1"], ["<last>.reshape(-1)"], ["<last>.contiguous()", "<last>.add_(1)"],
                                      [f"{given}.mul_(2)"], ["<last>.clone()"], ["<last>.view(-1)"]])

    def normalised(self, given):
        """A norm that is spelled out, or nearly."""
        choose = self.random
        axis = choose.choice([-1, -1, -1, 1, 0])
        lines = [choose.choice([
            f"{given}.norm(2, {axis}, keepdim=True)", f"torch.norm({given}, dim={axis}, keepdim=True)",
            f"{given}.norm({choose.choice([1, 2])}, {axis}, True)",
            f"torch.linalg.vector_norm({given}, dim={axis}, keepdim=True)",
            f"torch.linalg.norm({given}, dim={axis}, keepdim=True)",
            f"{given}.square().sum({axis}, keepdim=True)", f"({given} * {given}).mean({axis}, True)",
            f"{given}.pow(2).mean({axis}, keepdim=True)",
        ])]
        lines += choose.choice([["<last>.sqrt()"], [], []])
        lines += choose.choice([["<last>.clamp_min(1e-6)"], ["<last>.clamp(min=0.5)"], ["<last>.clamp_(min=1e-3)"],
                                ["<last> + 1e-5"], ["<last>.clamp(1e-4, 2)"], []])
        if choose.random() < 0.15:
            lines.append(f"{choose.choice([given, '<last>'])}.mul_(2)")
        lines += choose.choice([[f"{given} / <last>"], [f"{given}.div(<last>.expand_as({given}))"],
                                ["<last>.rsqrt()", f"{given} * <last>"]])
        return lines + choose.choice([[], [], ["<last> * 2"], ["<last>.mT"], ["<last>.contiguous().view(-1)"]])

    def nested(self, given):
        """What torch.export writes a nested program for."""
        choose = self.random
        one, *more = (
            choose.choice(["a.cos()", "a * 2", "a.relu().sum(-1, True)", "a.transpose(0, 1)", "a", "a.exp().clone().add_(1)",
                           "without_gradients(lambda c: c.tanh() + b, a)"])
            for _ in range(choose.choice([1, 1, 2]))
        )
        gives = f"({one}, {more[0]} * b)" if more else f"{one}{choose.choice([' + b', ' * b', ''])}"
        around = choose.choice(["without_gradients", "without_gradients", "without_autocast"])
        lines = [f"{around}(lambda a, b: {gives}, {given}, {choose.choice([given, f'{given}.abs()', self.weight()])})"]
        if more:
            lines += [f"<last>[{choose.choice([0, 1])}]", "<last> + 1"]
        return lines + choose.choice([[], ["<last> * 2"], ["<last>.add_(1)"], ["<last>.reshape(-1)"]])

    def mask(self, given):
        """A mask by torch.vmap, as transformers make them: only torch.export can follow it. Without a table that is looked up:
        that becomes a call of an object, which no document holds (tests/python/test_inline.py tries those)."""
        choose = self.random
        if self.dialect.startswith("fx"):
            return []
        sizes = list(self.values[given].shape[-choose.choice([1, 2, 2, 3]):])
        if len(sizes) == self.values[given].dim():
            sizes = sizes[1:]
        first, last = "i", "ijk"[len(sizes) - 1]
        tests = [
            f"{last} <= {first}", f"({last} <= {first}) & ({last} > {first} - 3)", f"{last} + 1 > 2", f"{first} == 1",
            f"{last} * 2 - {first} < 3",
            f"torch.where({last} > 1, {first}, {last})", f"{given}[0].sum() > {last}", f"{last}.float() * {last} >= {first}",
            f"{last}.new_ones(()) > {first}",
            f"{self.weight()}.sum() > {last}", f"({last} <= {first}) | ({given}.flatten()[0] > {first})",
        ]
        lines = [f"for_all(lambda {', '.join('ijk'[: len(sizes)])}: {choose.choice(tests)}, {', '.join(map(str, sizes))})"]
        lines.append(choose.choice([f"torch.where(<last> > 0, {given}, 0)", f"{given} * <last>",
                                    f"{given}.masked_fill(~(<last> > 0), -1e9)"]))
        return lines + choose.choice([[], ["<last>.add_(1)"], ["<last>.view(-1)"]])

    def images(self, given):
        """A convolution whose image may lie in channels_last, a pool that pays for that, and readers that may notice."""
        choose, index = self.random, len(self.init)
        if self.values[given].dim() != 4:
            return []
        channels, dtype = self.values[given].shape[1], self.values[given].dtype
        self.add_init(f"self.c{index} = nn.Conv2d({channels}, 8, 3, padding=1, dtype={dtype}).eval()")
        self.add_init(f"self.d{index} = nn.Conv2d(8, 8, {choose.choice([1, 3])}, groups={choose.choice([1, 8])}, padding=1, "
                      f"dtype={dtype}).eval()")
        for name in choose.sample("cd", choose.choice([0, 0, 1, 2])):
            self.add_init(f"self.{name}{index}.to(memory_format=torch.channels_last)")
        lines = [f"self.c{index}({given})", "F.max_pool2d(<last>, 3, 1, 1)", f"self.d{index}(<last>)"]
        steps = [
            "<last>.relu()", "F.relu(<last>, inplace=True)", "<last>.add_(1)", "torch.cat([<last>, <last> * 2], 1)",
            "<last>.contiguous()", "<last>.mul_(2)",
            "<last>.permute(0, 2, 3, 1)", "<last>.flatten(2)", "<last>.flatten(1)", "<last>.reshape(-1)", "<last>.view(2, -1)",
            "<last>[:, ::2]",
            "F.adaptive_avg_pool2d(<last>, 1)", "<last>.mean((2, 3))", "<last>.chunk(2, 1)[1]", "<last>.transpose(1, 2)",
            "<last>.view(-1, 4, 2, 6, 6)", "<last>.tanh()",
            "F.relu6(<last>)", "F.hardswish(<last>)", "F.silu(<last>)", "F.pixel_shuffle(<last>, 2)", "<last>.clone()",
            "<last>.softmax(1)", "torch.rand_like(<last>) * 0 + <last>",
            "<last>.squeeze()", "F.interpolate(<last>, scale_factor=2)",
        ]
        lines += choose.choices(steps, k=choose.randint(0, 4))
        return lines + [choose.choice(["<last>.sum()", "<last>.mean(-1)", "F.adaptive_avg_pool2d(<last>, 1)",
                                       "<last>.sum((2, 3))", "<last>.amax(1)", "<last> + 1"])]

    def reads_beyond(self, text):
        """Of `a.as_strided((2,2),(1,1))`: whether `a` has fewer numbers than it asks for. PyTorch then reads what lies behind
        them."""
        owner, found, asked = text.partition(".as_strided(")
        if not found:
            return False
        size, stride = eval(f"({asked}", {})[:2]
        try:
            with torch.no_grad():
                given = eval(owner, {**self.space, **self.values})
        except Exception:
            return True
        return 1 + sum((extent - 1) * step for extent, step in zip(size, stride)) > given.numel()

    def program(self):
        choose = self.random
        wanted = choose.choice([2, 4, 6, 8, 12, 16])
        if self.theme:
            try:
                self.patterns(self.theme)
            except Unfit:
                pass
            if choose.random() < 0.85:
                self.inner = {line.partition(" = ")[0] for line in self.body[:-1]}
        for _ in range(wanted * 8):
            if len(self.body) >= wanted:
                break
            try:
                if choose.random() < 0.2:
                    self.patterns()
                else:
                    self.statement()
            except Unfit:
                pass
            except Exception as error:
                if "must be" in str(error):
                    raise
        return Program(
            self.seed, self.dialect, self.batch, tuple(self.inputs), tuple(self.init), tuple(self.body), self.result()
        )

    def result(self):
        choose = self.random
        names = [line.partition(" = ")[0] for line in self.body] or ["x0"]
        tensors = [name for name in names if isinstance(self.values[name], torch.Tensor) and name not in self.inner] or ["x0"]
        used = {name for line in self.body for name in NAME.findall(line.partition(" = ")[2])}
        unread = [name for name in tensors if name not in used]
        chosen = choose.sample(unread, min(len(unread), choose.randint(1, 4)))
        chosen += choose.sample(tensors, min(len(tensors), choose.choice([0, 0, 1, 2])))
        chosen = list(dict.fromkeys(chosen)) or tensors[:1]
        kind = choose.randrange(12)
        if kind == 0:
            return "{" + ", ".join(f"'{name}': {name}" for name in chosen) + "}"
        if kind == 1:
            return f"({', '.join(chosen)}, None)"
        if kind == 2:
            return f"[{', '.join(chosen)}]"
        if kind == 3:
            return chosen[0]
        if kind == 4:
            return f"({', '.join(chosen)}, {choose.choice(names)}, x0)"
        if kind == 5:
            return f"({', '.join(chosen)}, ({chosen[0]}, {{'n': {choose.choice(names)}}}))"
        return f"({', '.join(chosen)},)"


AVOIDED = set(
    """geqrf empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize resize_ resize_as_ resize_as set_
    set rename rename_ refine_names align_to empty_quantized record_stream pin_memory is_pinned from_file to_mkldnn
    cudnn_affine_grid_generator data set_data retain_grad requires_grad_ backward item equal unsafe_chunk unsafe_split
    unsafe_split_with_sizes as_strided_scatter sym_storage_offset to_sparse to_dense to_padded_tensor nested_to_padded_tensor
    to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc to_sparse_coo coalesce values indices crow_indices col_indices
    ccol_indices row_indices sparse_dim dense_dim is_coalesced size stride sym_size sym_stride sym_numel numel storage_offset
    is_contiguous output_nr is_leaf cudnn_is_acceptable miopen_batch_norm split_with_sizes_copy quantize_per_tensor
    quantize_per_channel dequantize fake_quantize_per_tensor_affine q_scale q_zero_point int_repr fbgemm_linear_int8_weight
    as_strided as_strided_ as_strided_copy histogramdd binary_cross_entropy gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell
    choose_qparams_optimized lift lift_fresh embedding_renorm_ embedding_dense_backward""".split()
)
FOUND = []


def overloads():
    if not FOUND:
        for name in dir(torch.ops.aten):
            packet = getattr(torch.ops.aten, name)
            if name.startswith("_") or not isinstance(packet, torch._ops.OpOverloadPacket) or name in AVOIDED:
                continue
            if any(
                word in name
                for word in ("backward", "sparse", "quant", "cudnn", "miopen", "mkldnn", "_copy", "fbgemm", "nested", "names")
            ):
                continue
            for key in packet.overloads():
                overload = getattr(packet, key)
                types = {str(argument.type) for argument in overload._schema.arguments}
                text = " ".join(types)
                if (
                    key in ("out", "Dimname")
                    or key.endswith("out")
                    or "dimname" in key
                    or "Dimname" in text
                    or "Generator" in text
                    or "Stream" in text
                ):
                    continue
                if "Tensor" in text and all(
                    "Tensor" in str(item.type) or "List[Tensor]" in str(item.type) for item in overload._schema.returns
                ):
                    FOUND.append(overload)
    return FOUND


def generate(seed):
    return Generator(seed).program()
