#!/bin/sh
# scaled_dot_product_attention with is_causal and a negative scale gives nan; with the same mask given as a tensor it does not.
#
# Guess:    is_causal=True is the lower triangular mask, and the scale multiplies the scores before the mask is applied. So
#           a negative scale, which is scores times -1, is as good as any.
# Seen:     the fused kernel multiplies its own mask as well: -inf becomes inf. All rows but the last, of which nothing is
#           masked, are nan.
# Versions: torch 2.13.0 (CPU)
# Changed:  core/evaluator/kernels_attention.c: such a call is refused, and other negative scales are computed.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import torch
import torch.nn.functional as F

torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 1, 4, 8)
mask = torch.ones(4, 4, dtype=torch.bool).tril()
for scale in 0.5, -0.5:
    causal = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    masked = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    spelled = (q @ k.mT * scale).masked_fill(~mask, float("-inf")).softmax(-1) @ v
    rows = [x.isnan().any(-1).sum().item() for x in (causal, masked)]
    print(f"scale {scale}: rows of nan, causal: {rows[0]}, masked: {rows[1]};",
          f"masked as spelled out: {torch.allclose(masked, spelled, atol=1e-6)}")
END
expect <<'END'
scale 0.5: rows of nan, causal: 0, masked: 0; masked as spelled out: True
scale -0.5: rows of nan, causal: 3, masked: 0; masked as spelled out: True
END
