"""What random programs say: templates of expressions, writes, layers and weights. statements.py fills the slots (<t>, <f>, <s>,
…) and says what each stands for."""

UNARY = """relu tanh sigmoid exp neg abs sqrt rsqrt square sin cos floor ceil round sign log1p erf reciprocal trunc frac isnan
isfinite expm1 log atan sgn signbit logical_not nan_to_num softmax(-1) log_softmax(-1) cumsum(-1) cumprod(-1) sum mean amax amin
prod std var norm argmax argmin any all sum(-1) mean(-1) mean(0) sum((0,-1)) amax(-1) sum(-1,keepdim=True) mean(-1,keepdim=True)
var(-1,unbiased=False) std(-1) logsumexp(-1) flip(0) flip(-1) sort(-1).values max(-1).values min(-1).indices topk(2).values
median(-1).values count_nonzero nonzero tril triu diff cummax(-1).values argsort(-1) argsort(dim=-1,stable=True) norm(dim=-1)
clamp(-1,1) clamp(min=0) clamp(max=0.5) clamp_min(0) pow(2) pow(0.5) pow(3) roll(1,0) unique""".split()
FUNCTIONS = """torch.relu F.relu F.gelu F.silu F.softplus F.leaky_relu F.elu F.hardtanh F.hardswish F.hardsigmoid F.mish F.selu
F.celu F.logsigmoid F.relu6 F.tanhshrink F.softsign torch.erf torch.special.expit torch.sinc torch.rad2deg torch.positive
torch.conj torch.real torch.angle torch.atleast_3d torch.zeros_like torch.ones_like torch.logcumsumexp(,dim=-1)
F.softmax(,dim=-1) F.softmax(,dim=0,dtype=torch.float32) F.normalize(,dim=-1) F.glu F.pad(,(1,1)) F.pad(,(0,1),value=2.0)
torch.flatten torch.flatten(,1) torch.t torch.ravel torch.squeeze torch.numel F.layer_norm(,(<c>,)) F.gelu(,approximate='tanh')
F.threshold(,0.1,20) F.dropout(,0.5,training=False) F.dropout(,0.5) F.rrelu F.alpha_dropout(,0.5) torch.full_like(,2)
torch.rand_like torch.bernoulli torch.is_floating_point torch.var_mean(,dim=-1)[0] torch.std_mean(,dim=-1)[1]
torch.aminmax(,dim=-1)[0] torch.stft(,4,return_complex=False) torch.fft.rfft torch.cdist(,<f>) torch.linalg.norm
torch.nn.functional.adaptive_avg_pool1d(,2) F.max_pool2d(,2) F.avg_pool2d(,2) F.adaptive_avg_pool2d(,1)
F.interpolate(,scale_factor=2) F.unfold(,2) F.pixel_shuffle(,1) F.max_pool1d(,2) F.avg_pool1d(,2) F.avg_pool1d(,3,padding=1)
F.lp_pool1d(,2,2) torch.linalg.vector_norm(,dim=-1) torch.triu(,1) torch.movedim(,0,-1)""".split()
BINARY = """add sub mul true_divide div maximum minimum atan2 hypot fmod remainder floor_divide pow copysign eq ne lt le gt ge
logical_and logical_or logical_xor logaddexp fmax fmin nextafter heaviside xlogy dist allclose equal cross kron outer inner dot
mv rsub bitwise_and bitwise_or matmul""".split()
INFIX = "+ - * / // % ** @ > < == & | + * / - + *".split()
IN_PLACE = """relu_() tanh_() neg_() mul_(2) add_(1) add_(<s>) mul_(<s>) sub_(<f>) div_(3) zero_() fill_(0.5) copy_(<s>)
clamp_(-1,1) abs_() exp_() masked_fill_(<b>,0.25) masked_fill_(<s>>0,-1) bernoulli_() bernoulli_(0.3) normal_() uniform_()
random_(5) dropout_ t_() transpose_(0,-1) squeeze_(0) unsqueeze_(0) floor_() sigmoid_() sqrt_() square_()
index_fill_(-1,call(torch.tensor,[0]),3.0) cumsum_(-1) addcmul_(<s>,<s>,value=0.5) lerp_(<s>,0.3) resize_(2) detach_()
requires_grad_(False) set_(<f>) pow_(2) tril_() sub_(0.5,alpha=2) add_(<s>,alpha=2) floor_divide_(2) round_()
scatter_(0,<i>,1.0) index_add_(0,<i>,<s>) put_(<i>,<f>) index_copy_(0,<i>,<s>) exponential_() clamp_min_(0) logical_not_()
swapaxes_(0,1) as_strided_((2,),(1,))""".split()
VIEWS = """view(-1) view(<B>,-1) view(<n>,-1) view(-1,<c>) reshape(-1) reshape(<B>,-1) reshape(<n>,-1,<c>) view(<shape>)
reshape(<shape>) view_as(<s>) transpose(0,1) transpose(-1,-2) transpose(1,2) permute(<perm>) permute(*<perm>) flatten(1)
flatten(0,1) flatten() unflatten(-1,(2,-1)) unflatten(0,(-1,1)) unsqueeze(0) unsqueeze(-1) unsqueeze(1) squeeze() squeeze(0)
squeeze(-1) expand(2,<rest>) expand_as(<f>) expand(<B>,-1) expand(-1,-1) expand(<shape>) repeat(1,2) narrow(-1,0,2) select(0,0)
select(-1,1) chunk(2,-1)[1] split(1,-1)[0] split([1,<cm1>],-1)[1] unbind(0)[0] unbind(-1)[-1] t() T mT contiguous() clone()
detach() movedim(0,-1) swapaxes(0,-1) diagonal() unfold(-1,2,1) as_strided((2,2),(1,1)) view(<B>,2,-1) view(<B>,-1,2)
to(memory_format=torch.channels_last) contiguous(memory_format=torch.channels_last) clone(memory_format=torch.contiguous_format)
tensor_split(2)[0] ravel() __getitem__(0) data real imag view(torch.int32) view(torch.float32) view(torch.int64) adjoint()
type(torch.float32) hsplit(2)[0] index_select(0,<i>) repeat_interleave(2,0) tile((2,)) gather(0,<i>) take(<i>)""".split()
SUBSCRIPTS = """[0] [-1] [:,0] [...,0] [:,1:] [...,:-1] [::2] [...,::2] [None] [:,None] [...,None] [1:2] [<i>] [<b>] [:,:2]
[0:0] [:<n>] [...,:<n>//2] [<s>>0] [[0]] [:,[0,1]] [(0,)] [...]""".split()
OTHER = """<f>@<w>.t()+<w>
torch.matmul(<f>,<w>.transpose(0,1))
<w>+torch.mm(<f>,<w>)
(lambda v:v*torch.rsqrt(v.pow(2).mean(-1,keepdim=True)+1e-6))(<f>)*<w>
(lambda v:(v.float()*torch.rsqrt(v.float().pow(2).mean(-1,keepdim=True)+1e-6)).to(v.dtype)*<w>)(<f>)
(lambda v:v/(v.square().mean(-1,keepdim=True)+1e-3).sqrt())(<f>)
(lambda v:v/(v.square().mean(-1,keepdim=True).sqrt()+1e-3))(<f>)
(lambda v,m:(v-m)*torch.rsqrt((v-m).pow(2).mean(-1,keepdim=True)+1e-5)*<w>+<w>)(*(lambda v:(v,v.mean(-1,keepdim=True)))(<f>))
(lambda v:(v-v.mean(-1,True))/(v.var(-1,False,True)+1e-5).sqrt())(<f>)
(lambda v:(v-v.mean(0,True))/(v.var(0,False,True)+1e-5).sqrt())(<f>)
(lambda e:e/e.sum(-1,keepdim=True))((lambda v:torch.exp(v-v.amax(-1,keepdim=True)))(<f>))
(lambda e:e/e.sum(-1,keepdim=True))(torch.exp(<f>))
(lambda v:v-v.exp().sum(-1,keepdim=True).log())((lambda v:v-v.amax(-1,True))(<f>))
(lambda v:0.5*v*(1+torch.tanh(0.7978845608028654*(v+0.044715*torch.pow(v,3.0)))))(<f>)
(lambda v:v*0.5*(1.0+torch.tanh(v*0.7978845608*(1.0+0.044715*v*v))))(<f>)
(lambda v:v*0.5*(1.0+torch.erf(v/1.4142135623730951)))(<f>)
(lambda v:v*torch.sigmoid(<num>*v))(<f>)
(lambda v:torch.sigmoid(v)*v)(<f>)
(lambda v:v/(1+torch.exp(-v)))(<t>)
(lambda v:v*torch.tanh(F.softplus(v)))(<f>)
(lambda v:v*F.relu6(v+3)/6)(<f>)
(lambda v,g:v*g+g)(<f>,torch.sigmoid(<s>))
(lambda v:torch.clamp(v+3,0,6)*v*<num>)(<f>)
torch.addcmul(<f>,<s>,<s>,value=0.5)
torch.addcdiv(<f>,<s>,<w>)
torch.fft.irfft(torch.fft.rfft(<f>)*<num>)
torch.fft.fft(<f>).real/<num>
torch.fft.fft2(<f>,norm='ortho').imag+<f>
(torch.fft.fftn(<f>)*torch.complex(<w>,<w>)).abs()
torch.view_as_real(torch.fft.rfft(<f>,dim=0)/<num>)
torch.polar(<f>,<s>).imag.mul_(<num>)
torch.fft.fftshift(<f>,dim=-1)*<w>
(torch.complex(<f>,<s>)*torch.complex(<s>,<f>).conj()).real
torch.fft.ifft(<w>*<num>).abs()
(<w>.to(torch.complex64)*<num>).real
torch.view_as_complex(torch.stack([<f>,<s>],-1)).sum(-1).angle()
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
