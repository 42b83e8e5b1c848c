"""Time a GPU's sampler by vocabulary and rows, and its GEMMs alone and without a pause.

    python benches/record_sampler.py FOLDER sampler fused formats gemms mixes

Needs torch and a GPU; nothing else of kvsim. ``sampler.csv``: median ms of vLLM's PyTorch paths (``greedy``,
the ``draw`` by exponential noise, ``top_p`` and ``top_k_top_p`` by a sort, ``top_k``). ``fused.csv`` needs
vllm and flashinfer too: the filters of vLLM's Triton kernel, and FlashInfer's, which draw as well.
``formats.csv``: ms of GEMMs with 8 and 16 bits (``torch._scaled_mm``), in a CUDA graph over eight weights.
``gemms.csv``: ms of the GEMMs of 32 layers of Llama-3.1-8B by tokens, in one CUDA graph, after a pause and
after seconds without one, with the SM clock and the power then. ``mixes.csv``: the same, each followed by
steps of few tokens.
benches/measured has them with a column for the GPU (``sampler``, ``gemm-formats``, ``sustained-gemms``,
``sustained-mixes``).
"""

import subprocess
import sys
import time
from functools import partial

import torch

F = torch.float32


def draw(x):
    p = x.div_(0.7).softmax(-1, dtype=F)
    return p.div_(torch.empty_like(p).exponential_()).argmax(-1)


def sorted_mask(x, k, p):
    s, index = x.sort(-1)
    if k is not None:
        s.masked_fill_(s < s.gather(1, (s.size(1) - k).unsqueeze(1)), -torch.inf)
    if p is not None:
        total = s.softmax(-1)
        total = torch.cumsum(total, -1, out=total)
        mask = total <= 1 - p.unsqueeze(1)
        mask[:, -1] = False
        s.masked_fill_(mask, -torch.inf)
    return s.scatter(-1, index, s)


def top_k(x, k):
    top = x.topk(int(k.max()), -1).values
    x.masked_fill_(x < top.gather(1, (k - 1).unsqueeze(1)), -torch.inf)


def median_ms(work, times, pause_s=0.0):
    found = []
    for _ in range(times):
        time.sleep(pause_s)
        a, b = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        a.record()
        work()
        b.record()
        b.synchronize()
        found.append(a.elapsed_time(b))
    return sorted(found)[times // 2]


def sampler(out):
    print("vocabulary,rows,path,ms", file=out)
    for vocab in (32000, 65536, 100352, 128256, 151936, 201088, 262144):
        for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
            x = torch.randn(rows, vocab, device="cuda") * 4
            k, p = torch.full((rows,), 20, device="cuda"), torch.full((rows,), 0.95, device="cuda")
            for name, work in {
                "greedy": partial(x.argmax, -1),
                "draw": partial(draw, x),
                "top_p": partial(sorted_mask, x, None, p),
                "top_k_top_p": partial(sorted_mask, x, k, p),
                "top_k": partial(top_k, x, k),
            }.items():
                x.normal_().mul_(4)
                median_ms(work, 3)
                print(f"{vocab},{rows},{name},{median_ms(work, 21):.4f}", file=out, flush=True)


def flashinfer(x, k, p):
    from flashinfer.sampling import (
        top_k_sampling_from_probs,
        top_k_top_p_sampling_from_logits,
        top_p_sampling_from_probs,
    )

    if k is not None and p is not None:
        return top_k_top_p_sampling_from_logits(x, k, p, deterministic=True)
    probs = x.softmax(-1, dtype=F)
    if k is None:
        return top_p_sampling_from_probs(probs, p, deterministic=True)
    return top_k_sampling_from_probs(probs, k, deterministic=True)


def fused(out):
    from vllm.v1.sample.ops.topk_topp_triton import apply_top_k_top_p_triton as triton

    print("vocabulary,rows,path,ms", file=out)
    for vocab in (32000, 128256, 151936, 262144):
        for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
            k, p = torch.full((rows,), 20, device="cuda"), torch.full((rows,), 0.95, device="cuda")
            k = k.to(torch.int32)
            for name, (by_k, by_p) in {
                "top_p": (None, p),
                "top_k_top_p": (k, p),
                "top_k": (k, None),
            }.items():
                for kind, work in {"triton": triton, "flashinfer": flashinfer}.items():
                    # The Triton filter works in place: each round gets logits of its own.
                    found = []
                    for _ in range(24):
                        x = torch.randn(rows, vocab, device="cuda") * 4
                        found.append(median_ms(partial(work, x, by_k, by_p), 1))
                    print(f"{vocab},{rows},{kind}_{name},{sorted(found[3:])[10]:.4f}", file=out, flush=True)


def products(x, weights):
    return [torch.mm(x, w.T) for w in weights]


def scaled_products(x, weights, by_token, by_row):
    return [torch._scaled_mm(x, w.T, by_token, by_row, out_dtype=torch.bfloat16) for w in weights]


def formats(out):
    print("m,n,k,dtype,ms", file=out)
    fp8, bf16 = torch.float8_e4m3fn, torch.bfloat16
    for n, k in (
        (6144, 4096),
        (4096, 4096),
        (28672, 4096),
        (4096, 14336),
        (10240, 8192),
        (57344, 8192),
        (8192, 28672),
    ):
        plain = [torch.randn(n, k, device="cuda", dtype=bf16) for _ in range(8)]
        small = [each.to(fp8) for each in plain]
        by_row = torch.rand(1, n, device="cuda")
        for m in (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192):
            x = torch.randn(m, k, device="cuda", dtype=bf16)
            y, scale = x.to(fp8), torch.rand(m, 1, device="cuda")
            for dtype, work in {
                "bf16": partial(products, x, plain),
                "fp8": partial(scaled_products, y, small, scale, by_row),
            }.items():
                work()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    _kept = work()
                median_ms(graph.replay, 3, 0.05)
                print(f"{m},{n},{k},{dtype},{median_ms(graph.replay, 7, 0.05) / 8:.5f}", file=out, flush=True)


def layers(tokens, w):
    graph = torch.cuda.CUDAGraph()
    x = {k: torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16) for k in (4096, 14336)}
    torch.mm(x[4096], w[0].T)
    with torch.cuda.graph(graph):
        for each in w:
            torch.mm(x[each.shape[1]], each.T)
    graph.replay()
    return graph, x


def weights():
    shapes = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
    return [torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in shapes * 32]


def gemms(out):
    print("tokens,pause_ms,continuous_ms,sm_mhz,watts", file=out)
    w = weights()
    for m in (1, 8, 32, 64, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192):
        graph, _x = layers(m, w)
        alone = median_ms(graph.replay, 11, 0.1)
        end = time.time() + 3
        while time.time() < end:
            ms = median_ms(graph.replay, 11)
        for _ in range(int(1500 / ms)):
            graph.replay()
        query = "nvidia-smi --query-gpu=clocks.sm,power.draw --format=csv,noheader,nounits"
        seen = subprocess.run(query.split(), capture_output=True, text=True).stdout.strip()
        torch.cuda.synchronize()
        print(f"{m},{alone:.3f},{ms:.3f},{seen.replace(' ', '')}", file=out, flush=True)


def mixes(out):
    print("tokens,light_tokens,light_steps,ms,light_ms", file=out)
    w = weights()
    graphs = {m: layers(m, w) for m in (32, 128, 256, 512, 1024, 2048)}
    for light in (32, 128, 256):
        for m in (512, 1024, 2048):
            for many in (0, 1, 2, 4, 8, 16, 32):
                end, found, rest = time.time() + 1, [], [0.0]
                while time.time() < end:
                    found.append(median_ms(graphs[m][0].replay, 1))
                    rest += [median_ms(graphs[light][0].replay, 1) for _ in range(many)]
                a, b = (sorted(each)[len(each) // 2] for each in (found, rest))
                print(f"{m},{light},{many},{a:.3f},{b:.3f}", file=out, flush=True)


for job in (sampler, fused, formats, gemms, mixes):
    if job.__name__ in sys.argv[2:]:
        with open(f"{sys.argv[1]}/{job.__name__}.csv", "w") as out, torch.inference_mode():
            job(out)
