#!/bin/sh
# torch.compile walks through the whole window of an average pool, also where that is far larger than the image.
#
# Guess:    a pool with ceil_mode whose window is larger than the image averages the image: the generated loop is clipped to it,
#           as in eager PyTorch, and a compiled pool takes about as long.
# Seen:     the loop that Inductor writes goes over each place of the window, and asks of each if it is in the image: 512 x 512
#           for 4 x 4 pixels. More than 20 times as slow as eager; transformers' EfficientNet ends with AvgPool2d(1280,
#           ceil_mode=True) on 7 x 7 pixels, which takes nine tenths of the compiled model's time.
# Versions: torch 2.13.0
# Changed:  docs/performance.md, "Time that is saved".
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import statistics
import time

import torch

torch.set_num_threads(1)
pool, image = torch.nn.AvgPool2d(512, ceil_mode=True), torch.randn(1, 64, 4, 4)
compiled = torch.compile(pool)


def seconds(call):
    def once():
        start = time.process_time()
        call(image)
        return time.process_time() - start
    return statistics.median(once() for _ in range(11))


with torch.no_grad():
    print("the same numbers:", torch.allclose(compiled(image), pool(image), atol=1e-6))
    print("more than 20 times as slow:", seconds(compiled) > 20 * seconds(pool))
END
expect <<'END'
the same numbers: True
more than 20 times as slow: True
END
