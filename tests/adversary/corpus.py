"""Small programs that somebody thought of: each is tried with every pass, rule and preset alone (hunt.py --corpus)."""

from program import Program

X = "torch.randn(B, 3, 6, dtype=torch.float64)"
LINEAR = "self.a = nn.Linear(6, 6, dtype=torch.float64).eval()"
OTHER = "self.b = nn.Linear(6, 4, dtype=torch.float64).eval()"
TEXTS = [  # inputs; init; body; result
    ([X], [LINEAR, OTHER, "self.a.register_forward_hook(after_double)"], ["v0 = self.a(x0)", "v1 = self.b(x0)"], "(v0, v1)"),
    ([X], [LINEAR, "self.n = stats(nn.LayerNorm(6, dtype=torch.float64)).eval()", "self.a.register_forward_pre_hook(before_shift)"],
     ["v0 = self.n(x0)", "v1 = self.a(v0)", "v2 = v1 * 2"], "(v2,)"),
    (["torch.randint(0, 8, (B, 6))"], ["self.e = nn.Embedding(8, 6, max_norm=0.5).eval()"],
     ["v0 = self.e(x0)", "v1 = F.embedding(x0, self.e.weight)", "v2 = self.e(x0)"], "(v1, v2)"),
    ([X], ["self.n = stats(nn.BatchNorm1d(3, dtype=torch.float64)).train()"], ["v0 = self.n(x0)", "v1 = self.n(x0)"], "(v1,)"),
    ([X], [], ["v0 = F.dropout(x0, 0.5)", "v1 = F.dropout(x0, 0.5)", "v2 = F.dropout(x0, 0.0, training=True)"], "(v1, v2)"),
    ([X], ["self.d = nn.Dropout(0.5).train()"], ["v0 = self.d(x0)", "v1 = torch.rand_like(x0)", "v2 = self.d(x0)"], "(v2,)"),
    ([X], [LINEAR, OTHER], ["v0 = self.a(x0)", "v1 = x0.add_(1)", "v2 = self.b(x0)"], "(v0, v2)"),
    ([X], [LINEAR, OTHER], ["v0 = self.a(x0)", "v1 = x0.bernoulli_()", "v2 = self.b(x0)"], "(v0, v2)"),
    ([X], [LINEAR], ["v0 = self.a(x0)", "v1 = v0.view(-1)", "v2 = v1.mul_(2)", "v3 = v0 * 2"], "(v3,)"),
    ([X], [], ["v0 = x0.view(-1)", "v1 = x0.view(-1)", "v2 = v1.add_(1)", "v3 = v0 + 0"], "(v0, v3)"),
    ([X], [], ["v0 = call(torch.zeros, x0.size(0), 6)", "v1 = call(torch.zeros, x0.size(0), 6)", "v2 = v0.add_(1)"], "(v0, v1)"),
    ([X], [], ["v0 = x0.size(0)", "v1 = x0.transpose_(0, 1)", "v2 = x0.size(0)", "v3 = x0 * v0 + v2"], "(v3, v0, v2)"),
    (["torch.randint(-4, 4, (B, 6))"], [], ["v0 = x0 + 0", "v1 = x0 + 0.0", "v2 = x0 * 1", "v3 = x0 * 1.0", "v4 = x0 / 1", "v5 = x0 ** 1",
     "v6 = x0 * True", "v7 = x0 - 0", "v8 = x0 // 1", "v9 = x0 - False"], "(v0, v1, v2, v3, v4, v5, v6, v7, v8, v9)"),
    (["torch.randn(B, 6) > 0"], [], ["v0 = x0 + 0", "v2 = x0 * 1", "v3 = x0 * 1.0", "v4 = x0 / 1", "v5 = x0 * True", "v6 = x0 | x0"], "(v0, v2, v3, v4, v5, v6)"),
    (["torch.randn(B, 6).half()"], [], ["v0 = x0 + 0.0", "v1 = x0 * 1", "v2 = x0 / 3", "v3 = -(-x0)", "v4 = x0 / 1e-7", "v5 = x0 * 1.0", "v6 = x0 / 65504"], "(v0, v1, v2, v3, v4, v5, v6)"),
    ([X], [], ["v0 = -(-x0)", "v1 = v0.add_(1)"], "(v0, x0)"),
    ([X], [], ["v0 = x0.mT", "v1 = -(-v0)", "v2 = v1 * 1", "v3 = v2.contiguous()", "v4 = v0 + 0", "v5 = v0.clone()"], "(v1, v2, v3, v4, v5)"),
    ([X], [], ["v0 = x0 * 1", "v1 = v0.mul_(2)", "v2 = x0.to(torch.float64)", "v3 = v2.add_(1)"], "(v0, v2)"),
    ([X], [], ["v0 = torch.cat([x0])", "v1 = v0.add_(1)", "v2 = torch.stack([x0])[0]", "v3 = v2.add_(1)"], "(v0, v2)"),
    ([X], [], ["v0 = x0.mT.reshape(-1)", "v1 = v0.add_(1)", "v2 = v0.view(-1, 3, 6)"], "(v0, v2)"),
    ([X], [], ["v0 = x0.transpose(0, 1)", "v1 = v0.transpose(1, 2)", "v2 = v1.transpose(0, 2)", "v3 = v2.add_(1)", "v4 = x0.permute(2, 0, 1).permute(1, 2, 0)"], "(v2, v4)"),
    ([X], [], ["v0 = x0.flatten().view(-1, 3, 6)", "v1 = x0.mT.flatten().view(-1, 3, 6)", "v2 = v1.add_(1)", "v3 = v0.add_(1)"], "(v0, v1)"),
    ([X], [LINEAR], ["v0 = x0 * x0.size(-1) ** -0.5", "v1 = torch.maximum(x0, call(torch.full, (x0.size(0), 1, 1), 0.5))", "v2 = torch.lerp(x0, v1, x0.size(1))"], "(v0, v1, v2)"),
    ([X], ["self.c = nn.Conv1d(3, 4, 1, dtype=torch.float64).eval()", "self.n = stats(nn.BatchNorm1d(4, dtype=torch.float64)).eval()", "self.n.weight.data[0] = 0"],
     ["v0 = self.c(x0)", "v1 = v0.size(0)", "v2 = self.n(v0)", "v3 = v2 * v1"], "(v3,)"),
    ([X], ["self.c = nn.ConvTranspose1d(3, 6, 2, groups=3, dtype=torch.float64).eval()", "self.n = stats(nn.BatchNorm1d(6, affine=False, dtype=torch.float64)).eval()"],
     ["v0 = self.c(x0)", "v2 = self.n(v0)", "v3 = self.c(x0)"], "(v2, v3)"),
    ([X], ["self.n = stats(nn.LayerNorm((3, 6), dtype=torch.float64)).eval()", LINEAR], ["v0 = self.n(x0)", "v1 = self.a(v0)"], "(v1,)"),
    ([X], ["self.n = stats(nn.LayerNorm(6, bias=False, dtype=torch.float64)).eval()", LINEAR, OTHER], ["v0 = self.n(x0)", "v1 = self.a(v0)", "v2 = self.b(v0)"], "(v1, v2)"),
    ([X], ["self.n = stats(nn.LayerNorm(6, dtype=torch.float64)).eval()", LINEAR, OTHER, "self.a.weight = nn.Parameter(torch.cat([self.b.weight.data, torch.randn(2, 6).double()]))"],
     ["v0 = self.n(x0)", "v1 = F.linear(v0, self.a.weight)", "v2 = F.linear(v0, self.a.weight, self.a.bias)"], "(v1, v2)"),
    (["torch.randn(B, 6).half()"], ["self.w = nn.Parameter(torch.randn(6).half() * 100)"], ["v0 = self.w * 8 * 0.25", "v1 = (self.w * 0.1) * 3", "v2 = x0 * v0", "v3 = x0 + v1"], "(v2, v3)"),
    (["torch.randn(B, 6)"], ["self.w = nn.Parameter(torch.randn(6) * 3)", "self.register_buffer('i', torch.randint(-3, 4, (6,)))", "self.register_buffer('m', torch.randint(0, 2, (6,)))"],
     ["v0 = self.w.long() * 0.5", "v1 = self.i / 3", "v2 = self.i // 2", "v3 = x0 * v0 + v1 - v2", "v4 = x0.masked_fill(~self.m.bool(), -1e9)", "v5 = self.i.float() ** 2"], "(v3, v4, x0 + v5)"),
    (["torch.randn(B, 6)"], ["self.w = nn.Parameter(torch.randn(6, 6) * 3)"], ["v0 = F.linear(x0, self.w.half().float())", "v1 = F.linear(x0, self.w.int().float())",
     "v2 = x0 * self.w.bool()", "v3 = x0 + self.w.to(torch.complex64)", "v4 = x0 @ self.w.double().float()"], "(v0, v1, v2[0], v3, v4)"),
    ([X], [LINEAR, OTHER, "self.c = nn.Linear(6, 6, dtype=torch.float64).eval()", "self.c.weight = self.a.weight"], ["v0 = self.a(x0) * 2", "v1 = self.c(x0)"], "(v0, v1)"),
    ([X], [LINEAR], ["v0 = self.a(x0) * 2", "v1 = self.a.weight * 1"], "(v0, v1, self.a.weight)"),
    ([X], ["self.register_buffer('s', torch.ones(6, dtype=torch.float64))"], ["v0 = self.s * 2", "v1 = self.s.add_(1)", "v2 = self.s * 2", "v3 = x0 * v0 + v2"], "(v3,)"),
    ([X], [LINEAR], ["v0 = self.a(x0) / 0.5", "v1 = self.a(x0) * True", "v2 = self.a(x0) * 0"], "(v0, v1, v2)"),
    ([X], [LINEAR], ["v0 = F.relu(x0, inplace=True)", "v1 = self.a(x0)", "v2 = torch.relu(v1)", "v3 = v2 * torch.sigmoid(v2)"], "(v0, v3)"),
    ([X], [LINEAR, "self.w = nn.Parameter(torch.tensor([1.0, 0.0, 2.0, 3.0, 1.0, 1.0], dtype=torch.float64))"], ["v0 = self.a(x0) / self.w", "v1 = self.a.bias / self.w"], "(v0, v1)"),
    ([X], ["self.w = nn.Parameter(torch.randn(6, 4, dtype=torch.float64))", "self.v = nn.Parameter(torch.randn(4, dtype=torch.float64))"],
     ["v0 = x0.reshape(-1, 6)", "v1 = torch.addmm(self.v, v0, self.w, beta=0)", "v2 = v1.view(-1, 3, 4) * 2", "v3 = torch.addmm(self.v, v0, self.w, beta=2, alpha=0.5) / 3"], "(v2, v3)"),
    ([X], [], ["v0 = torch.sin(x0)", "v1 = torch.cos(x0)", "v2 = torch.sin(x0)", "v3 = v0 is v2", "v4 = torch.sin(x0, out=v0)"], "(v1, v2, v4)"),
    (["torch.randn(B, 6)"], [], ["v0 = x0 * 1.5", "v1 = v0.bfloat16()", "v2 = v0.add_(1)", "v3 = v1 * v1"], "(v3,)"),
    (["torch.randn(B, 6)"], [], ["v0 = x0.bfloat16()", "v1 = v0.float()", "v2 = v1.add_(1)", "v3 = v0 * v0"], "(v3,)"),
    ([X], [LINEAR], ["v0 = self.a(x0).detach()", "v1 = self.a(x0.detach())", "v2 = v0 + v1"], "(v2,)"),
    (["torch.randn(B, 6)"], ["self.a = nn.Linear(6, 4).eval()", "self.b = nn.Linear(6, 4).half().eval()"], ["v0 = self.a(x0)", "v1 = self.b(x0.half())", "v2 = v0 + v1", "v3 = torch.cdist(v0, v0)", "v4 = torch.linalg.inv(v3 + torch.eye(4)[:1, :1])"], "(v2, v3)"),
    (["torch.randn(B, 4)"], ["self.a = nn.Linear(4, 4).eval()"], ["v0 = self.a(x0)", "v1 = v0.T @ v0 + torch.eye(4)", "v2 = torch.linalg.inv(v1)", "v3 = torch.linalg.det(v1)", "v4 = torch.cdist(v0, v0)"], "(v2, v3, v4)"),
    (["torch.randn(B, 4)"], ["self.a = nn.Linear(4, 4).eval()", "self.b = nn.Linear(4, 4).eval()"], ["v0 = call(doubled, self.a(x0)).float()", "v1 = self.b(v0)"], "(v1,)"),
    ([X], ["self.w = nn.Parameter(torch.randn(6, 3, dtype=torch.float64))"], ["v0 = x0[0, 0, 0] * (self.w.t() * 2).contiguous()", "v1 = v0.view(-1)",
     "v2 = (x0[0, 0, 0] * (self.w.t() * 2)).t()", "v3 = v2.view(-1)"], "(v1, v3)"),
    ([X], [], ["v0 = call(torch.eye, 6)", "v1 = v0.t()", "v2 = v1.add_(1)"], "(v2, x0)"),
    ([X], [], ["v0 = torch.amax(x0)", "v1 = v0.adjoint()", "v2 = v0.mT + v0.H"], "(v1, v2)"),
    ([X], ["self.register_buffer('m', torch.randint(0, 2, (8,)).bool())"], ["v0 = self.m * 0.5", "v1 = torch.view_as_complex(v0.reshape(-1, 2))"], "(v1, x0)"),
]  # fmt: skip
FOUND = [
    Program(index, dialect, 4, tuple(inputs), tuple(init), tuple(body), result)
    for index, (inputs, init, body, result) in enumerate(TEXTS)
    for dialect in ("fx", "decomposed")
]
