"""What a call does: results, what it writes into, what shares memory, random numbers drawn; and whether two calls do the
same."""

import contextlib
import copy
import dataclasses
import io
import weakref

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8, torch.complex64: 24, torch.complex128: 53}


class Difference(Exception):
    def __init__(self, kind, detail):
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


@dataclasses.dataclass
class Outcome:
    error: Exception | None
    leaves: list = ()
    spec: object = None
    inputs: list = ()
    buffers: dict = None
    aliases: list = ()
    state: object = None


def storage(value):
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


COPIES = weakref.WeakKeyDictionary()  # of modules, which take long to copy: a copy is used again until a call changes it


def copy_of(module):
    if module not in COPIES:
        COPIES[module] = another(module)
    return COPIES[module]


def another(module):
    """A copy whose graph and code, which no call changes, are shared; and weights in oneDNN's order, which PyTorch does not
    copy."""
    if not isinstance(module, torch.fx.GraphModule):
        return copy.deepcopy(module)
    opaque = {id(tensor): tensor for tensor in module.buffers() if tensor.is_mkldnn}
    made = object.__new__(type(module))  # GraphModule.__new__ makes a class without the code
    shared = {key: module.__dict__[key] for key in ("_graph", "meta") if key in module.__dict__}
    rest = {key: value for key, value in module.__dict__.items() if key not in shared}
    made.__dict__.update(copy.deepcopy(rest, opaque | {id(module): made}) | shared)
    return made


def state_of(module):
    """Parameters and buffers by key, those that a checkpoint lacks among them; not weights in oneDNN's order, which have no
    strides."""
    held = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return {key: tensor for key, tensor in held if not tensor.is_mkldnn}


def state_after(module, original):
    """By key the tensors of a copy after a call; those that it did not change are the original's."""
    now, before = state_of(module), state_of(original)
    return {
        key: before[key]
        if key in before and tensor.stride() == before[key].stride() and is_same_bits(tensor, before[key])
        else tensor
        for key, tensor in now.items()
    }


def call(module, inputs, seed=0, runner=None):
    """On copies. `runner(module, inputs)` does the call, if it is not the module itself."""
    original, module, inputs = module, copy_of(module), copy.deepcopy(inputs)
    if runner is not None:
        del COPIES[original]
    torch.default_generator.manual_seed(seed)
    try:
        with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):  # where torch.fx tells the line that raised
            result = module(*inputs) if runner is None else runner(module, inputs)
    except Exception as error:
        # An exported torch.vmap that raises leaves its levels open
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(0)
        COPIES.pop(original, None)
        return Outcome(error)
    state = torch.get_rng_state()
    leaves, spec = pytree.tree_flatten(result)
    owned = {storage(tensor): key for key, tensor in state_of(module).items()}
    places = {}
    inputs = pytree.tree_leaves(inputs)
    for index, tensor in enumerate(inputs):
        places[storage(tensor)] = f"input {index}"
    aliases = []
    for index, leaf in enumerate(leaves):
        place = storage(leaf)
        if place is None or leaf.numel() == 0:
            aliases.append(None)
            continue
        if place in places:
            aliases.append(places[place])
        elif place in owned:
            aliases.append("state")
        else:
            places[place] = f"output {index}"
            aliases.append(None)
    after = state_after(module, original)
    before = state_of(original)
    if list(after) != list(before) or any(after[key] is not before[key] for key in after) or "state" in aliases:
        COPIES.pop(original, None)
    return Outcome(None, leaves, spec, inputs, after, aliases, state)


class Floats(TorchDispatchMode):
    """Which floating-point dtypes a program computes in."""

    def __init__(self):
        super().__init__()
        self.dtypes = set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        self.dtypes |= {leaf.dtype for leaf in pytree.tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)}
        return result


def is_in_float64(module, inputs):
    """Nothing is computed in, or read from, a narrower floating-point dtype."""
    with Floats() as floats, torch.no_grad():
        call(module, inputs)
    return not any(dtype.is_floating_point and dtype != torch.float64 for dtype in floats.dtypes)


def gradients(module, inputs, error=None):
    """Of a sum of all results by each input; None where autograd says no, and why in `error`, a list."""
    module, inputs = another(module), copy.deepcopy(inputs)
    tensors = {id(tensor): tensor for tensor in pytree.tree_leaves(inputs)}.values()
    given = [tensor.requires_grad_() for tensor in tensors if tensor.dtype == torch.float64]
    torch.default_generator.manual_seed(0)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            leaves = [leaf for leaf in pytree.tree_leaves(module(*inputs)) if isinstance(leaf, torch.Tensor)]
        leaves = [leaf for leaf in leaves if leaf.requires_grad and leaf.dtype == torch.float64]
        total = sum((leaf * (torch.arange(leaf.numel()) % 7 + 1).view(leaf.shape)).sum() for leaf in leaves)
        return torch.autograd.grad(total, given, allow_unused=True, materialize_grads=True) if given and leaves else None
    except RuntimeError as refused:
        if error is not None:
            error.append(str(refused))
        return None


class Noisy(torch.fx.Interpreter):
    """Rounds worse than PyTorch does: what this changes, another order of sums may change, too."""

    AMPLITUDE = 8

    def __init__(self, module, seed, bits=BITS):
        super().__init__(module)
        self.generator, self.bits = torch.Generator().manual_seed(seed), bits
        self.largest = torch.finfo(torch.float16).max if bits[torch.float32] == BITS[torch.float16] else torch.inf

    def run_node(self, node):
        self.assert_squares(node)
        given = {storage(item) for item in pytree.tree_leaves([self.env.get(item) for item in node.all_input_nodes])}
        result = super().run_node(node)
        for leaf in pytree.tree_leaves(result):
            if not isinstance(leaf, torch.Tensor) or leaf.dtype not in BITS or storage(leaf) in given or node.op == "output":
                continue
            if leaf.dtype == torch.float32 and bool((leaf.abs() > self.largest).any()):
                raise OverflowError(f"{node.name} is beyond the range of float16")
            if leaf.is_complex() or any(size == 0 and extent > 1 for size, extent in zip(leaf.stride(), leaf.shape)):
                continue
            noise = torch.randn(leaf.shape, generator=self.generator, dtype=torch.float64)
            noise *= (self.AMPLITUDE if self.bits is BITS else 1) * 2.0 ** -self.bits[leaf.dtype]
            # What is lost is of x - tanh(x), which is far less than x.
            scale = self.env.get(node.all_input_nodes[0]) if "tanhshrink" in str(node.target) else leaf
            scale = scale if isinstance(scale, torch.Tensor) and scale.shape == leaf.shape else leaf
            leaf.copy_((leaf.double() + scale.double() * noise).to(leaf.dtype))
        return result


    def assert_squares(self, node):
        """A norm sums squares: where these overflow in the dtype that PyTorch computes in, its result says nothing."""
        kind = type(self.fetch_attr(node.target)).__name__ if node.op == "call_module" else str(node.target)
        for leaf in pytree.tree_leaves([self.env.get(item) for item in node.all_input_nodes]) if "norm" in kind.lower() else []:
            if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
                continue
            finite = leaf.double()[leaf.isfinite()]
            if float((finite**2).sum()) > torch.finfo(torch.promote_types(leaf.dtype, torch.float32)).max:
                raise OverflowError(f"squares of {node.name}'s input overflow")


def noisy(module, inputs, seed, bits=BITS):
    return call(module, inputs, 0, lambda copied, given: Noisy(copied, seed, bits).run(*given))


def is_same_bits(one, other):
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_complex():
        return is_same_bits(torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj()))
    if not one.is_floating_point():
        return torch.equal(one, other)
    is_both_nan = one.isnan() & other.isnan()
    return bool((((one == other) & (one.signbit() == other.signbit())) | is_both_nan).all())


def distance(one, other):
    """The largest difference of finite numbers."""
    if one.numel() == 0:
        return 0.0
    wide = torch.complex128 if one.is_complex() else torch.float64
    apart = (one.to(wide) - other.to(wide)).abs()
    apart = apart[apart.isfinite()]
    return float(apart.max()) if apart.numel() else 0.0


def pattern(value):
    """Where it is not finite: nan, or an infinity."""
    if not (value.is_floating_point() or value.is_complex()):
        return torch.zeros(value.shape, dtype=torch.int8)
    return (
        value.isnan().to(torch.int8)
        if value.is_complex()
        else value.isnan().to(torch.int8) + 2 * (value == torch.inf).to(torch.int8) + 3 * (value == -torch.inf).to(torch.int8)
    )


def describe(one, other):
    return f"{one.flatten()[:8].tolist()} where PyTorch gives {other.flatten()[:8].tolist()}"


class Judge:
    """Compares outcomes of a rewritten program with those of the original on the same inputs."""

    def __init__(self, original, inputs):
        self.original, self.inputs = original, inputs
        self.expected = call(original, inputs)
        self.worse = None

    def noisy(self):
        if self.worse is None:
            self.worse = [noisy(self.original, self.inputs, seed) for seed in range(4)]
        return self.worse

    @torch.no_grad()
    def magnifies_rounding(self):
        """Does noise change a result by more than validation takes for rounding (fb_tolerance_of in core/evaluator)?"""
        for index, expected in enumerate(self.expected.leaves):
            if not isinstance(expected, torch.Tensor) or expected.dtype not in BITS or not expected.isfinite().any():
                continue
            bits = BITS[expected.dtype]
            allowed = 2.0 ** ((9 if bits >= 24 else 4) - bits) * float(expected.abs()[expected.isfinite()].max())
            others = [outcome.leaves[index] for outcome in self.noisy() if outcome.error is None
                      and outcome.spec == self.expected.spec]
            if any(other.shape == expected.shape and distance(other, expected) > allowed for other in others):
                return True
        return False

    @torch.no_grad()  # nothing is asked of how a view came about
    def assert_values(self, found, get, what, level):
        """`level`: "bits", "close" (rounding), "finite" (only what is finite in both), "none"."""
        expected = get(self.expected)
        if is_same_bits(found, expected) or level == "none":
            return
        if level == "bits":
            raise Difference("bits", f"{what} is {describe(found, expected)}")
        others = [outcome for outcome in self.noisy() if outcome.error is None]
        others = [get(outcome) for outcome in others if outcome.spec == self.expected.spec]
        others = [other for other in others if isinstance(other, torch.Tensor) and other.shape == expected.shape]
        if len(others) < 4:
            return  # rounding decides whether it runs, or about shapes
        if not torch.equal(pattern(found), pattern(expected)):
            if level == "finite" or any(not torch.equal(pattern(other), pattern(expected)) for other in others):
                return
            is_wider = expected.dtype == torch.float16 and not bool(
                (found.isfinite() < expected.isfinite()).any() or expected.isnan().any()
            )
            if is_wider:
                return  # what overflowed on the way, and is a factor of a weight now, does not
            raise Difference("not-finite", f"{what} is {describe(found, expected)}")
        allowed = 32 * max(distance(other, expected) for other in others)
        if expected.dtype in BITS and expected.numel():
            finite = expected.abs()[expected.isfinite()]
            allowed += 2.0 ** (6 - BITS[expected.dtype]) * (float(finite.max()) if finite.numel() else 0)
        apart = distance(found, expected)
        if apart > allowed:
            if level == "finite":
                return
            raise Difference(
                "values", f"{what} is {describe(found, expected)}, off by {apart:.3g}, where rounding explains {allowed:.3g}"
            )

    def assert_same(self, module, level="close", may_run=False, are_slices=False, are_sizes_tuples=False):
        """`may_run`: also where the original raises. `are_slices`: results may be parts of a merged one, with its strides.
        `are_sizes_tuples`: of the original, as torch.export makes them."""
        found, expected = call(module, self.inputs), self.expected
        if expected.error is not None:
            if found.error is None and not may_run:
                raise Difference("runs", f"it runs where the original raises {type(expected.error).__name__}: {expected.error}")
            return
        if found.error is not None:
            raise Difference("raises", f"{type(found.error).__name__}: {str(found.error)[:300]}")
        spec = str(found.spec).replace("(Size,", "(tuple,") if are_sizes_tuples else str(found.spec)
        if spec != str(expected.spec) or len(found.leaves) != len(expected.leaves):
            raise Difference("structure", f"the result is {found.spec} instead of {expected.spec}")
        for index, (one, other) in enumerate(zip(found.leaves, expected.leaves)):
            self.assert_leaf(one, other, index, level, are_slices)
        shared = [self.shared(outcome.aliases, are_slices) for outcome in (found, expected)]
        if shared[0] != shared[1]:
            raise Difference("aliases", f"results share memory with {found.aliases} instead of {expected.aliases}")
        for index, (one, other) in enumerate(zip(found.inputs, expected.inputs)):
            if one.shape != other.shape:
                raise Difference("input-shape", f"input {index} has shape {list(one.shape)} after the call")
            self.assert_values(one, lambda outcome: outcome.inputs[index], f"input {index} after the call", level)
        before = state_of(self.original)
        for key, other in expected.buffers.items():
            if before.get(key) is other:
                continue
            if key not in found.buffers:
                raise Difference("buffer-lost", f"{key} is written by the original, and is not there")
            self.assert_values(found.buffers[key], lambda outcome: outcome.buffers[key], f"{key} after the call", level)
        for key, now in found.buffers.items():
            if key in before and expected.buffers.get(key) is before[key]:
                if now is not state_of(module)[key]:
                    raise Difference("buffer-written", f"{key} is written, and the original does not")
        if not torch.equal(found.state, expected.state) and level != "none":
            raise Difference("random-state", "it draws other random numbers")

    @staticmethod
    def shared(aliases, are_slices):
        """With inputs and state each result shares as much memory as ever; slices share that of one result."""
        return [None if alias and are_slices and alias.startswith("output") else alias for alias in aliases]

    def assert_gradients(self, module):
        """In float64 alone: elsewhere rounding hides more than it shows."""
        expected = gradients(self.original, self.inputs)
        if expected is None or self.expected.error is not None or not is_in_float64(self.original, self.inputs):
            return
        refused = []
        found = gradients(module, self.inputs, refused)
        if found is None:
            raise Difference("gradients", f"there are none: {refused}")
        for index, (one, other) in enumerate(zip(found, expected)):
            if other.isfinite().all() and distance(one, other) > 1e-6 * (1 + float(other.abs().max() if other.numel() else 0)):
                raise Difference("gradients", f"of input {index}: {describe(one, other)}")

    @torch.no_grad()
    def wrong_when_narrow(self, module, bits):
        """A result most of whose numbers are others than rounding to so few bits, by dtype, explains; or None. What draws
        random numbers draws others."""
        found, expected = call(module, self.inputs), self.expected
        drawn = torch.Generator().manual_seed(0).get_state()
        if expected.error is not None or found.error is not None or not torch.equal(expected.state, drawn):
            return None
        others = [noisy(self.original, self.inputs, seed, BITS | bits) for seed in range(4)]
        if any(other.error is not None or other.spec != expected.spec for other in others) or found.spec != expected.spec:
            return None
        for one, right, *rest in zip(found.leaves, expected.leaves, *(other.leaves for other in others)):
            if not isinstance(right, torch.Tensor) or not right.is_floating_point() or right.numel() < 4:
                continue
            if any(other.shape != right.shape or not other.isfinite().all() for other in (one, right, *rest)):
                continue
            allowed = 4 * max(distance(other, right)
                              for other in rest) + 2.0 ** (3 - min(bits.values())) * max(float(right.abs().max()), 0.1)
            if float((one.double() - right.double()).abs().median()) > allowed:
                return f"{describe(one, right)}, where rounding explains {allowed:.3g}"
        return None

    def assert_leaf(self, one, other, index, level, are_slices):
        what = f"output {index}"
        if not isinstance(other, torch.Tensor):
            is_same = type(one) is type(other) and (one == other or one != one)
            if isinstance(other, float) and level in ("close", "finite") and type(one) is float:
                is_same = abs(one - other) <= 1e-4 * max(1, abs(other)) or one != one or level == "finite"
            if not is_same and level != "none":
                raise Difference("number", f"{what} is {one!r} instead of {other!r}")
            return
        if not isinstance(one, torch.Tensor):
            raise Difference("structure", f"{what} is {one!r} and no tensor")
        if one.dtype != other.dtype:
            raise Difference("dtype", f"{what} is {one.dtype} instead of {other.dtype}")
        if one.shape != other.shape:
            raise Difference("shape", f"{what} is {list(one.shape)} instead of {list(other.shape)}")
        strides = [[stride for stride, size in zip(item.stride(), item.shape) if size > 1] for item in (one, other)]
        if strides[0] != strides[1] and other.numel() and not are_slices:
            raise Difference("strides", f"{what} has strides {one.stride()} instead of {other.stride()}")
        if one.storage_offset() != other.storage_offset() and self.expected.aliases[index] and not are_slices:
            raise Difference("offset", f"{what} begins at {one.storage_offset()} instead of {other.storage_offset()}")
        self.assert_values(one, lambda outcome: outcome.leaves[index], what, level)
