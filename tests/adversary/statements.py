"""Random programs. A statement is a template; what PyTorch refuses is not added, so templates need not know shapes."""

import random
import re

import torch
from program import NAME, Program, environment

SLOT = re.compile(r"<(\w+)>")
LARGEST = 4096  # elements
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool", "complex64"]

UNARY = """relu tanh sigmoid exp neg abs sqrt rsqrt square sin cos floor ceil round sign log1p erf reciprocal trunc frac isnan isfinite expm1
log atan sgn signbit logical_not nan_to_num softmax(-1) log_softmax(-1) cumsum(-1) cumprod(-1) sum mean amax amin prod std var norm argmax
argmin any all sum(-1) mean(-1) mean(0) sum((0,-1)) amax(-1) sum(-1,keepdim=True) mean(-1,keepdim=True) var(-1,unbiased=False) std(-1)
logsumexp(-1) flip(0) flip(-1) sort(-1).values max(-1).values min(-1).indices topk(2).values median(-1).values count_nonzero
nonzero tril triu diff cummax(-1).values argsort(-1) norm(dim=-1) clamp(-1,1) clamp(min=0) clamp(max=0.5) clamp_min(0) pow(2) pow(0.5) pow(3)
roll(1,0) unique""".split()
FUNCTIONS = """torch.relu F.relu F.gelu F.silu F.softplus F.leaky_relu F.elu F.hardtanh F.hardswish F.hardsigmoid F.mish F.selu F.celu F.logsigmoid
F.relu6 F.tanhshrink F.softsign torch.erf torch.special.expit torch.sinc torch.rad2deg torch.positive torch.conj torch.real torch.angle torch.atleast_3d
torch.zeros_like torch.ones_like torch.logcumsumexp(,dim=-1) F.softmax(,dim=-1) F.softmax(,dim=0,dtype=torch.float32) F.normalize(,dim=-1) F.glu F.pad(,(1,1))
F.pad(,(0,1),value=2.0) torch.flatten torch.flatten(,1) torch.t torch.ravel torch.squeeze torch.numel F.layer_norm(,(<c>,)) F.gelu(,approximate='tanh')
F.threshold(,0.1,20) F.dropout(,0.5,training=False) F.dropout(,0.5) F.rrelu F.alpha_dropout(,0.5) torch.full_like(,2) torch.rand_like torch.bernoulli torch.is_floating_point
torch.var_mean(,dim=-1)[0] torch.std_mean(,dim=-1)[1] torch.aminmax(,dim=-1)[0] torch.stft(,4,return_complex=False) torch.fft.rfft torch.cdist(,<f>) torch.linalg.norm
torch.nn.functional.adaptive_avg_pool1d(,2) F.max_pool2d(,2) F.avg_pool2d(,2) F.adaptive_avg_pool2d(,1) F.interpolate(,scale_factor=2) F.unfold(,2) F.pixel_shuffle(,1)
F.max_pool1d(,2) F.avg_pool1d(,2) F.avg_pool1d(,3,padding=1) F.lp_pool1d(,2,2) torch.linalg.vector_norm(,dim=-1) torch.triu(,1) torch.movedim(,0,-1)""".split()
BINARY = """add sub mul true_divide div maximum minimum atan2 hypot fmod remainder floor_divide pow copysign eq ne lt le gt ge logical_and
logical_or logical_xor logaddexp fmax fmin nextafter heaviside xlogy dist allclose equal cross kron outer inner dot mv rsub bitwise_and
bitwise_or matmul""".split()
INFIX = "+ - * / // % ** @ > < == & | + * / - + *".split()
IN_PLACE = """relu_() tanh_() neg_() mul_(2) add_(1) add_(<s>) mul_(<s>) sub_(<f>) div_(3) zero_() fill_(0.5) copy_(<s>) clamp_(-1,1) abs_() exp_()
masked_fill_(<b>,0.25) masked_fill_(<s>>0,-1) bernoulli_() bernoulli_(0.3) normal_() uniform_() random_(5) dropout_ t_() transpose_(0,-1) squeeze_(0)
unsqueeze_(0) floor_() sigmoid_() sqrt_() square_() index_fill_(-1,call(torch.tensor,[0]),3.0) cumsum_(-1) addcmul_(<s>,<s>,value=0.5) lerp_(<s>,0.3)
resize_(2) detach_() requires_grad_(False) set_(<f>) pow_(2) tril_() sub_(0.5,alpha=2) add_(<s>,alpha=2) floor_divide_(2) round_() scatter_(0,<i>,1.0)
index_add_(0,<i>,<s>) put_(<i>,<f>) index_copy_(0,<i>,<s>) exponential_() clamp_min_(0) logical_not_() swapaxes_(0,1) as_strided_((2,),(1,))""".split()
VIEWS = """view(-1) view(<B>,-1) view(<n>,-1) view(-1,<c>) reshape(-1) reshape(<B>,-1) reshape(<n>,-1,<c>) view(<shape>) reshape(<shape>) view_as(<s>) transpose(0,1) transpose(-1,-2)
transpose(1,2) permute(<perm>) permute(*<perm>) flatten(1) flatten(0,1) flatten() unflatten(-1,(2,-1)) unflatten(0,(-1,1)) unsqueeze(0) unsqueeze(-1) unsqueeze(1) squeeze() squeeze(0)
squeeze(-1) expand(2,<rest>) expand_as(<f>) expand(<B>,-1) expand(-1,-1) expand(<shape>) repeat(1,2) narrow(-1,0,2) select(0,0) select(-1,1) chunk(2,-1)[1] split(1,-1)[0] split([1,<cm1>],-1)[1] unbind(0)[0] unbind(-1)[-1]
t() T mT contiguous() clone() detach() movedim(0,-1) swapaxes(0,-1) diagonal() unfold(-1,2,1) as_strided((2,2),(1,1)) view(<B>,2,-1) view(<B>,-1,2)
to(memory_format=torch.channels_last) contiguous(memory_format=torch.channels_last) clone(memory_format=torch.contiguous_format) tensor_split(2)[0] ravel()
__getitem__(0) data real imag view(torch.int32) view(torch.float32) view(torch.int64) adjoint() type(torch.float32) hsplit(2)[0] index_select(0,<i>) repeat_interleave(2,0) tile((2,)) gather(0,<i>) take(<i>)""".split()
SUBSCRIPTS = """[0] [-1] [:,0] [...,0] [:,1:] [...,:-1] [::2] [...,::2] [None] [:,None] [...,None] [1:2] [<i>] [<b>] [:,:2] [0:0] [:<n>] [...,:<n>//2]
[<s>>0] [[0]] [:,[0,1]] [(0,)] [...]""".split()
OTHER = """torch.addcmul(<f>,<s>,<s>,value=0.5)
torch.addcdiv(<f>,<s>,<w>)
torch.lerp(<f>,<s>,0.3)
torch.lerp(<f>,<s>,<s>)
torch.lerp(<f>,<s>,<n>)
torch.where(<b>,<f>,<f>)
torch.where(<b>,<f>,0.5)
torch.where(<s>>0,<f>,<s>)
torch.clamp(<f>,min=<s>)
torch.clamp(<f>,<num>,<num>)
torch.div(<f>,<num>,rounding_mode='floor')
torch.div(<f>,<s>,rounding_mode='trunc')
torch.add(<f>,<s>,alpha=2)
torch.sub(<f>,<num>,alpha=<num>)
torch.rsub(<f>,1)
torch.cat([<f>,<s>],-1)
torch.cat((<f>,<s>),dim=0)
torch.stack([<f>,<s>],0)
torch.stack([<f>,<s>],dim=-1)
torch.addmm(<f>,<f>,<f>)
torch.addmm(<f>,<f>,<f>,beta=0)
torch.addmm(<w>,<f>,<w>,beta=<num>,alpha=<num>)
torch.baddbmm(<f>,<f>,<f>)
torch.bmm(<f>,<f>.transpose(1,2))
torch.matmul(<f>,<s>.transpose(-1,-2))
<f>@<s>.mT/<num>
torch.einsum('ij,kj->ik',<f>,<f>)
torch.einsum('...i,...i->...',<f>,<s>)
F.linear(<f>,<w>)
F.linear(<f>,<w>,<w>)
F.linear(<f>,<w>*<num>)
F.linear(<f>,<w>.long()*0.5)
<f>*<w>
<f>+<w>
<f>/<w>
<w>-<f>
<w>+<w>*<num>
<w>@<w>
<w>.t()
<w>.to(torch.<dtype>)
<w>.to(torch.<dtype>)*<num>
<f>*<w>.to(torch.<dtype>)
<f>+<w>.<cast>()
<w>.<cast>()*0.5
<w>.<cast>().<cast>()
<f>.masked_fill(~<w>.bool(),-1e9)
<f>.masked_fill(<b>,<num>)
<f>.masked_fill(<w>>0,float('-inf')).softmax(-1)
<w>.expand(2,<rest>)
torch.maximum(<f>,<w>)
torch.maximum(<w>,<f>)
torch.lerp(<f>,<w>,0.5)
<f>.to(torch.<dtype>)
<f>.to(torch.<dtype>)
<t>.to(<f>.dtype)
<t>.to(<t>)
<t>.to(<t>.dtype,copy=True)
<t>.type_as(<t>)
<t>.<cast>()
<f>.<cast>().<cast>()
<f>.type(torch.<dtype>)
<f>*<num>
<num>*<f>
<f>/<num>
<f>+<num>
<f>-<num>
<num>-<f>
<num>/<f>
<f>**<num>
<i>*<num>
<i>//2
<i>/3
<f>//<num>
<f>%<num>
<f>/<n>
<f>*<n>
<f>/<n>**0.5
<f>*<n>**-0.5
<f>+<f>.size(-1)
<f>*(<n>>2)
<f>.new_zeros(<f>.shape)
<f>.new_full((<n>,2),0.5)
<f>.new_ones(<n>)
<f>.new_tensor([1.0,2.0])
call(torch.arange,<n>)
call(torch.arange,<n>,dtype=torch.<dtype>)
call(torch.arange,0,<n>,1)
call(torch.zeros,<n>,2)
call(torch.full,(<n>,),0.5)
call(torch.ones,[<n>,<n>]).tril()
call(torch.rand,<n>,3)
call(torch.tensor,[1.0,2.0])
call(torch.randn,2,<c>)
torch.zeros(2,<c>)
torch.full((2,2),<num>)
torch.tensor(<num>)
torch.tensor([0,1])
torch.eye(<c>)
torch.arange(<c>)
torch.arange(<c>)[None]<torch.arange(<c>)[:,None]
F.scaled_dot_product_attention(<f>,<s>,<s>)
F.scaled_dot_product_attention(<f>,<s>,<s>,is_causal=True)
F.scaled_dot_product_attention(<f>,<s>,<s>,dropout_p=0.5)
F.embedding(<i>,<w>)
F.one_hot(<i>.clamp(0,5))
F.one_hot(<i>%4,4)
F.cross_entropy(<f>,<i>)
F.mse_loss(<f>,<s>)
F.batch_norm(<f>,<w>,<w>.abs())
F.layer_norm(<f>,(<c>,),<w>,<w>)
F.group_norm(<f>,1)
F.rms_norm(<f>,(<c>,),<w>)
F.conv1d(<f>,<w>)
F.bilinear(<f>,<s>,<w>,None)
F.cosine_similarity(<f>,<s>)
F.relu(<f>,inplace=True)
F.silu(<f>,inplace=True)
F.dropout(<f>,0.5,True,True)
F.hardtanh(<f>,inplace=True)
F.elu_(<f>)
torch.relu_(<f>)
torch.dropout_(<f>,0.5,True)
torch.feature_dropout_(<f>,0.5,True)
torch.index_select(<f>,0,<i>%2)
torch.gather(<f>,-1,<i>%2)
torch.add(<f>,<s>,out=<s>)
torch.mul(<f>,2,out=<f>)
torch.multinomial(<f>.abs()+1,2)
torch.normal(<f>,1.0)
torch.randperm(4)
torch.broadcast_tensors(<f>,<f>)[1]
torch.meshgrid(<f>.flatten()[:2],<f>.flatten()[:3],indexing='ij')[0]
torch.tensordot(<f>,<f>,1)
torch.nn.functional.pad(<f>,(1,0),mode='replicate')
torch.searchsorted(<f>,<s>)
torch.bucketize(<f>,torch.tensor([0.0,1.0]))
torch.histc(<f>,4)
torch.scatter_add(<f>,0,<i>%2,<s>)
torch.isclose(<f>,<s>)
torch.polygamma(1,<f>)
torch.complex(<f>,<s>)
torch.view_as_real(torch.complex(<f>,<s>))
torch.view_as_complex(<f>.reshape(-1,2))
torch.linalg.inv(<f>@<f>.mT+torch.eye(<c>,dtype=<f>.dtype))
call(doubled,<f>)
torch.clone(<f>)
torch.empty_like(<f>).fill_(1)
torch.logical_not(<b>)
~<b>
<b>*<f>
<b>.sum()
<b>.to(<f>.dtype)
<b>.float()*<num>
<f>>0
<f>.gt(0)&<s>.lt(1)
<f>==<f>
<f>!=<f>
<i>+1
(<i>%3).long()
<i>.clamp(0,3)
<f>.argmax(-1)
<f>.long()
(<f>*3).to(torch.int8)
(<f>*3).int()//2
<f>.sum().item()
<f>.tolist()
getattr(<t>,'dtype')
<f>.dtype
<t>.device
torch.finfo(<f>.dtype).min
call(torch.finfo,<f>.dtype).max""".splitlines()
NO_OPS = """<f>*1
<f>+0
<f>-0
<f>/1
<f>**1
<f>*1.0
<f>+0.0
<f>.to(<same>)
<f>.view(<f>.shape)
<f>.reshape(<f>.shape)
<f>.view(<f>.size())
<f>.view(<shape>)
<f>.expand_as(<f>)
<f>.transpose(0,1).transpose(0,1)
<f>.permute(<perm>).permute(<perm>)
<f>.contiguous()
<f>.float().float()
<f>.double().double()
<f>[:]
<f>[...]
<f>.squeeze(0).unsqueeze(0)
F.dropout(<f>,0.0,training=True)
F.dropout(<f>,0.5,False)
<f>.clone()
<f>.detach()
torch.cat([<f>])
torch.cat([<f>],dim=0)
torch.stack([<f>])[0]
<f>.type_as(<f>)
-(-<f>)
<f>.relu().relu()
<f>.to(torch.float64).to(<f>.dtype)
<f>.reshape(-1).reshape(<shape>)
<f>.flatten().view(<shape>)
<f>.repeat(1,1)
<f>.pow(1)
torch.mul(<f>,1)
torch.add(<f>,<s>,alpha=1)
<f>.clamp()
<f>.clamp(None,None)
<f>.mean(())
<f>.sum(())
<f>.expand(-1,-1)
<f>.narrow(0,0,<f>.size(0))
<f>.flip(())
<f>.roll(0,0)
<f>.masked_fill(<f>!=<f>,0)""".splitlines()
SIZES = """<t>.size(0)
<t>.size(-1)
<t>.shape[0]
<t>.shape[-1]
<t>.shape
<t>.size()
<t>.numel()
<t>.dim()
<t>.ndim
len(<t>.shape)
<n>*2
<n>//2
<n>+1
<n>-1
<n>**0.5
<n>*0.5
<n>/2
<n>%3
-<n>
<n>*<n>
<n>+<n>
call(int,<n>*0.5)
call(float,<n>)
call(math.sqrt,<n>)
call(math.floor,<n>*0.5)
call(max,<n>,2)
call(operator.mul,<n>,2)
call(torch.sym_max,<n>,2)
<t>.stride(0)
<t>.stride()
<t>.storage_offset()
<t>.is_contiguous()
<t>.shape[:-1]
<t>.shape[1:]
<t>.shape[:1]+<t>.shape[1:]
<n>>2
<n>==4""".splitlines()
WEIGHTS = """nn.Parameter(torch.randn(<c>,dtype=<dt>))
nn.Parameter(torch.randn(<c>,<c>,dtype=<dt>))
nn.Parameter(torch.randn(6,<c>,dtype=<dt>))
nn.Parameter(torch.randn(1,dtype=<dt>))
nn.Parameter(torch.randn((),dtype=<dt>))
nn.Parameter(torch.randn(<c1>,1,dtype=<dt>))
nn.Parameter(torch.randn(<c1>,1,1,dtype=<dt>))
nn.Parameter(torch.randn(<c>,dtype=<dt>),requires_grad=False)
nn.Parameter(torch.randint(-3,4,(<c>,)),requires_grad=False)
nn.Parameter(torch.randn(<c>,dtype=torch.complex64))
nn.Parameter(torch.randn(<c>).half())
nn.Parameter(torch.randn(<c>).bfloat16())
torch.randint(0,2,(<c>,)).bool()
torch.randint(0,2,(<c>,))
torch.randint(0,2,(<c>,)).to(torch.uint8)
torch.randint(-3,4,(<c>,),dtype=torch.int32)
torch.randint(0,4,(1,<c>))
torch.ones(<c>,<c>).tril().bool()
torch.arange(<c>)
torch.arange(<c>)[None]
torch.randn(<c>,dtype=<dt>)
torch.randn(<c>,dtype=torch.float32)
torch.randn(<c>).half()
torch.tensor(<num>)
torch.tensor([0.0,1.0,-0.0,float('inf'),float('nan')])
torch.zeros(<c>,dtype=<dt>)
torch.randn(<c>,<c>,3,dtype=<dt>)
torch.randn(<c1>,dtype=<dt>)""".splitlines()
LAST = """nn.Linear(<c>,6,dtype=<dt>)
nn.Linear(<c>,<c>,dtype=<dt>)
nn.Linear(<c>,<c>,dtype=<dt>)
nn.Linear(<c>,4,bias=False,dtype=<dt>)
nn.Linear(<c>,1,dtype=<dt>)
stats(nn.LayerNorm(<c>,dtype=<dt>))
nn.LayerNorm(<c>,elementwise_affine=False,dtype=<dt>)
stats(nn.LayerNorm(<c>,bias=False,dtype=<dt>))
stats(nn.RMSNorm(<c>,dtype=<dt>))
Scaled(<c>,<c>,dtype=<dt>)
Gate(<c>,<dt>)
nn.Softmax(-1)
nn.Sequential(nn.Linear(<c>,4,dtype=<dt>),nn.ReLU(inplace=True),nn.Linear(4,<c>,dtype=<dt>))
nn.Sequential(nn.Linear(<c>,4,dtype=<dt>),stats(nn.BatchNorm1d(4,dtype=<dt>)),nn.ReLU())
parametrizations.weight_norm(nn.Linear(<c>,<c>,dtype=<dt>))
prune.l1_unstructured(nn.Linear(<c>,<c>,dtype=<dt>),'weight',2)
nn.GRU(<c>,4,batch_first=True,dtype=<dt>)
nn.Identity()
nn.Flatten()
nn.Flatten(0,1)
nn.PReLU(dtype=<dt>)
nn.Dropout(0.5)
nn.Dropout(0.5,inplace=True)
nn.Dropout1d(0.5)
nn.ReLU()
nn.ReLU(inplace=True)
nn.GELU()
nn.SiLU(inplace=True)
nn.Hardtanh(inplace=True)
nn.LeakyReLU(0.1)
nn.Unflatten(-1,(2,-1))
nn.AvgPool1d(2)""".splitlines()
CHANNELS = """stats(nn.BatchNorm1d(<c1>,dtype=<dt>))
stats(nn.BatchNorm1d(<c1>,affine=False,dtype=<dt>))
nn.BatchNorm1d(<c1>,track_running_stats=False,dtype=<dt>)
stats(nn.BatchNorm2d(<c1>,dtype=<dt>))
stats(nn.BatchNorm2d(<c1>,momentum=None,dtype=<dt>))
stats(nn.BatchNorm3d(<c1>,dtype=<dt>))
stats(nn.InstanceNorm1d(<c1>,affine=True,track_running_stats=True,dtype=<dt>))
nn.InstanceNorm2d(<c1>)
stats(nn.GroupNorm(1,<c1>,dtype=<dt>))
nn.Conv1d(<c1>,6,3,padding=1,dtype=<dt>)
nn.Conv1d(<c1>,<c1>,1,bias=False,dtype=<dt>)
nn.Conv1d(<c1>,4,1,dtype=<dt>)
nn.Conv1d(<c1>,<c1>,2,groups=<c1>,dtype=<dt>)
nn.Conv2d(<c1>,4,3,padding=1,dtype=<dt>)
nn.Conv2d(<c1>,<c1>,1,dtype=<dt>)
nn.Conv2d(<c1>,4,3,padding='same',padding_mode='reflect',dtype=<dt>)
nn.Conv2d(<c1>,4,2,stride=2,bias=False,dtype=<dt>)
nn.Conv2d(<c1>,<c1>*2,3,padding=2,dilation=2,groups=<c1>,dtype=<dt>)
nn.Conv1d(<c1>,4,3,padding=1,padding_mode='circular',dtype=<dt>)
nn.Conv3d(<c1>,4,1,dtype=<dt>)
nn.ConvTranspose1d(<c1>,4,2,dtype=<dt>)
nn.ConvTranspose1d(<c1>,<c1>*2,2,groups=<c1>,dtype=<dt>)
nn.ConvTranspose2d(<c1>,4,2,stride=2,output_padding=1,dtype=<dt>)
nn.ConvTranspose2d(<c1>,4,1,bias=False,dtype=<dt>)
nn.Dropout2d(0.5)
nn.AdaptiveAvgPool2d(1)
nn.MaxPool2d(2)
nn.Upsample(scale_factor=2)
nn.PixelShuffle(1)""".splitlines()
INTEGER = """nn.Embedding(8,6,dtype=<dt>)
nn.Embedding(8,4,padding_idx=0,dtype=<dt>)
nn.Embedding(8,4,max_norm=1.0,dtype=<dt>)
nn.EmbeddingBag(8,4,dtype=<dt>)""".splitlines()


class Unfit(Exception):
    """A slot has nothing to be filled with, or a result is of no use."""


class Generator:
    def __init__(self, seed):
        self.seed, self.random = seed, random.Random(seed)
        choose = self.random
        self.dialect = choose.choice(["fx"] * 5 + ["fx-shapeless"] * 2 + ["export", "dynamic", "decomposed"])
        self.dtype = choose.choice(["torch.float64"] * 5 + ["torch.float32"] * 3 + ["torch.bfloat16", "torch.float16"])
        self.batch = choose.choice([2, 3, 4, 5])
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
        shape = choose.choice(shapes)
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
        torch.manual_seed(self.seed)
        for index, text in enumerate(texts):
            self.values[f"x{index}"] = eval(text, self.space | {"B": self.batch})
        return texts

    # ---- slots -----------------------------------------------------------------------------------------------------------

    def pick(self, condition):
        found = [name for name, value in self.values.items() if isinstance(value, torch.Tensor) and condition(value)]
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
        """Ties, hooks, frozen weights."""
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
                        ]  # fmt: skip
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
        view = choose.choice(["", "", "", ".view(-1)", "[0]", "[..., 1:]", ".detach()", ".t()" if self.values[given].dim() == 2 else ".mT", ".data"])
        target = given + view if choose.random() < 0.85 else f"{layer}.weight"
        write = choose.choice(["add_(1)", "mul_(2)", "bernoulli_()", "normal_()", "zero_()", "neg_()", "copy_(T * 3)", "masked_fill_(T > 0, 0.5)", ""])
        return f"{target}.{write.replace('T', target)}" if write else f"call(operator.iadd, {target}, 1)"

    def patterns(self):
        """What passes look for, so that they find something."""
        choose = self.random
        given = self.pick(lambda value: value.dim() > 1 and value.is_floating_point())
        width, channels, dtype = self.values[given].shape[-1], self.values[given].shape[1], self.values[given].dtype
        index = len(self.init)
        kind = choose.choice([0, 0, 1, 2, 3, 4, 5, 6, 7])
        lines, made = [], []
        if kind == 0:
            for item in range(choose.choice([2, 3])):
                if item and choose.random() < 0.3:
                    lines.append(self.write(given, f"self.q{index}_{choose.randrange(item)}"))
                made.append(
                    f"self.q{index}_{item} = nn.Linear({width}, {choose.choice([width, 4])}, bias={choose.random() < 0.8}, dtype={dtype}).eval()"
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
            if rank == 2:
                made = [
                    f"self.l{index} = nn.Linear({width}, 4, dtype={dtype}).eval()",
                    f"self.n{index} = stats(nn.BatchNorm1d(4, dtype={dtype})).eval()",
                ]
            elif rank in (3, 4):
                made = [
                    f"self.l{index} = nn.Conv{rank - 2}d({channels}, 4, 1, dtype={dtype}).eval()",
                    f"self.n{index} = stats(nn.BatchNorm{rank - 2}d(4, dtype={dtype})).eval()",
                ]
            lines = [f"self.l{index}({given})", f"self.n{index}(<last>)"]
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

    def reads_beyond(self, text):
        """Of `a.as_strided((2,2),(1,1))`: whether `a` has fewer numbers than it asks for. PyTorch then reads what lies behind them."""
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
        tensors = [name for name in names if isinstance(self.values[name], torch.Tensor)] or ["x0"]
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
    """empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize resize_ resize_as_ resize_as set_ set rename rename_ refine_names align_to
    empty_quantized record_stream pin_memory is_pinned from_file to_mkldnn cudnn_affine_grid_generator data set_data retain_grad requires_grad_ backward
    item equal unsafe_chunk unsafe_split unsafe_split_with_sizes as_strided_scatter sym_storage_offset to_sparse to_dense to_padded_tensor nested_to_padded_tensor to_sparse_csr to_sparse_csc
    to_sparse_bsr to_sparse_bsc to_sparse_coo coalesce values indices crow_indices col_indices ccol_indices row_indices sparse_dim dense_dim is_coalesced size stride
    sym_size sym_stride sym_numel numel storage_offset is_contiguous output_nr is_leaf cudnn_is_acceptable miopen_batch_norm split_with_sizes_copy
    quantize_per_tensor quantize_per_channel dequantize fake_quantize_per_tensor_affine q_scale q_zero_point int_repr fbgemm_linear_int8_weight as_strided as_strided_ as_strided_copy
    histogramdd binary_cross_entropy gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell choose_qparams_optimized lift lift_fresh embedding_renorm_ embedding_dense_backward""".split()
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
