#!/usr/bin/env python3
"""Trains the demo model: a small Mixture-of-Experts language model in the qwen3moe layout.

usage: train.py HOURS STEPS [--resume ckpt.pt] [--lr 2e-3]

Reads train.bin and val.bin (made by encode.py) from the current folder and writes ckpt.pt there: every 50 steps the
latest, and at the end. The learning rate warms up over 50 steps and falls along a cosine to 5 % by the last step, or by
the end of the time, whichever comes first.
"""
import argparse
import json
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = dict(
    vocab=4096, d=256, layers=4, heads=4, kv=1, hd=64, experts=16, topk=2, ff=256, ctx=256, theta=10000.0, eps=1e-6
)
BATCH = 16
BALANCE = 0.005  # weight of the load-balancing loss


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + CONFIG["eps"]) * self.w


def rotary(positions, head, theta):
    frequencies = 1.0 / theta ** (torch.arange(0, head, 2).float() / head)
    angles = torch.outer(torch.arange(positions).float(), frequencies)
    return angles.cos(), angles.sin()


COS, SIN = rotary(1024, CONFIG["hd"], CONFIG["theta"])


def rotate(x):
    """x [..., positions, head]: pairs (i, i + head/2)."""
    n, half = x.shape[-2], x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * COS[:n] - b * SIN[:n], a * SIN[:n] + b * COS[:n]], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        d, h, k, hd = (CONFIG[key] for key in ("d", "heads", "kv", "hd"))
        self.q = nn.Linear(d, h * hd, bias=False)
        self.k = nn.Linear(d, k * hd, bias=False)
        self.v = nn.Linear(d, k * hd, bias=False)
        self.o = nn.Linear(h * hd, d, bias=False)
        self.qn, self.kn = RMSNorm(hd), RMSNorm(hd)

    def forward(self, x):
        b, t, _ = x.shape
        h, k, hd = CONFIG["heads"], CONFIG["kv"], CONFIG["hd"]
        q = rotate(self.qn(self.q(x).view(b, t, h, hd)).transpose(1, 2))
        key = rotate(self.kn(self.k(x).view(b, t, k, hd)).transpose(1, 2)).repeat_interleave(h // k, 1)
        value = self.v(x).view(b, t, k, hd).transpose(1, 2).repeat_interleave(h // k, 1)
        scores = (q @ key.transpose(-1, -2)) / math.sqrt(hd)
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -1e9).softmax(-1)
        return self.o((scores @ value).transpose(1, 2).reshape(b, t, h * hd))


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        e, d, f = CONFIG["experts"], CONFIG["d"], CONFIG["ff"]
        self.r = nn.Linear(d, e, bias=False)
        self.g = nn.Parameter(torch.randn(e, f, d) * d**-0.5)
        self.u = nn.Parameter(torch.randn(e, f, d) * d**-0.5)
        self.dn = nn.Parameter(torch.randn(e, d, f) * f**-0.5 / math.sqrt(2 * CONFIG["layers"]))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        probabilities = self.r(rows).softmax(-1)
        weights, picks = probabilities.topk(CONFIG["topk"], -1)
        weights = (weights / weights.sum(-1, keepdim=True)).reshape(-1)
        flat = picks.reshape(-1)
        token = torch.arange(rows.shape[0]).repeat_interleave(CONFIG["topk"])
        order = flat.argsort()
        counts = torch.bincount(flat, minlength=CONFIG["experts"]).tolist()
        gate, up, down = self.g.unbind(0), self.u.unbind(0), self.dn.unbind(0)
        outputs, tokens, start = [], [], 0
        for expert, count in enumerate(counts):
            if count == 0:
                continue
            chosen = order[start : start + count]
            start += count
            h = rows[token[chosen]]
            y = F.linear(F.silu(F.linear(h, gate[expert])) * F.linear(h, up[expert]), down[expert])
            outputs.append(y * weights[chosen].unsqueeze(1))
            tokens.append(token[chosen])
        share = torch.tensor(counts, dtype=torch.float) / flat.numel()
        self.balance = (share * probabilities.mean(0)).sum() * CONFIG["experts"]
        return torch.zeros_like(rows).index_add(0, torch.cat(tokens), torch.cat(outputs)).view_as(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.a, self.n2, self.m = RMSNorm(CONFIG["d"]), Attention(), RMSNorm(CONFIG["d"]), MoE()

    def forward(self, x):
        x = x + self.a(self.n1(x))
        return x + self.m(self.n2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(CONFIG["vocab"], CONFIG["d"])
        nn.init.normal_(self.e.weight, std=0.02)
        self.b = nn.ModuleList(Block() for _ in range(CONFIG["layers"]))
        self.n = RMSNorm(CONFIG["d"])
        for name, parameter in self.named_parameters():
            if name.endswith("o.weight"):
                parameter.data.mul_(1 / math.sqrt(2 * CONFIG["layers"]))

    def forward(self, tokens):
        x = self.e(tokens)
        for block in self.b:
            x = block(x)
        return F.linear(self.n(x), self.e.weight)


def loss_of(model, x, y):
    return F.cross_entropy(model(x).view(-1, CONFIG["vocab"]), y.reshape(-1))


def validate(model, data, windows):
    t = CONFIG["ctx"]
    with torch.no_grad():
        losses = [
            loss_of(model, data[i : i + t].unsqueeze(0), data[i + 1 : i + t + 1]).item()
            for i in range(0, windows * t, t)
        ]
    return sum(losses) / len(losses)


def batches(data):
    """Endless batches; each pass cuts the text at other places and shuffles."""
    t, queue = CONFIG["ctx"], []
    while True:
        if len(queue) < BATCH:
            offset = int(torch.randint(0, t, (1,)))
            queue = (torch.randperm((len(data) - offset - 1) // t) * t + offset).tolist()
        starts = [queue.pop() for _ in range(BATCH)]
        yield torch.stack([data[i : i + t] for i in starts]), torch.stack([data[i + 1 : i + t + 1] for i in starts])


def save(model, step, val):
    torch.save({"c": CONFIG, "sd": model.state_dict(), "step": step, "val": val}, "ckpt.pt.tmp")
    os.replace("ckpt.pt.tmp", "ckpt.pt")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hours", type=float)
    parser.add_argument("steps", type=int)
    parser.add_argument("--resume")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(2)
    train, val = (
        torch.from_numpy(np.fromfile(name, dtype=np.uint16).astype(np.int64)) for name in ("train.bin", "val.bin")
    )
    model, first = Model(), 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu")
        model.load_state_dict(checkpoint["sd"])
        first = checkpoint["step"]
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.95),
    )
    start, source = time.time(), batches(train)
    for step in range(first + 1, first + args.steps + 1):
        elapsed = time.time() - start
        done = max((step - first) / args.steps, elapsed / (args.hours * 3600))
        if done >= 1 and elapsed >= args.hours * 3600:
            step -= 1
            break
        rate = args.lr * min(1, (step - first) / 50) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1, done))))
        for group in optimizer.param_groups:
            group["lr"] = rate
        x, y = next(source)
        cross_entropy = loss_of(model, x, y)
        balance = sum(b.m.balance for b in model.b) / CONFIG["layers"]
        optimizer.zero_grad(set_to_none=True)
        (cross_entropy + BALANCE * balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            speed = (step - first) * BATCH * CONFIG["ctx"] / (time.time() - start)
            print(
                f"{step} loss {cross_entropy.item():.3f} balance {balance.item():.2f} lr {rate:.5f} {speed:.0f} tok/s {time.time() - start:.0f} s",
                flush=True,
            )
        if step % 50 == 0:
            value = validate(model, val, 30)
            print("val", round(value, 4), flush=True)
            save(model, step, value)
    value = validate(model, val, 100)
    save(model, step, value)
    print(json.dumps({"step": step, "val": value}), flush=True)


if __name__ == "__main__":
    main()
