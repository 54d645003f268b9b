"""Mixtures whose experts are computed one by one, as libraries write them in torch and torch's exporters write that: NAME.EXPORTER.onnx, and NAME.npz with x and
what torch gives (0/in/x, 0/out/y, 1/..). Needs torch and onnx.

    python3 tests/data/experts/make.py tests/data/experts
"""
import pathlib
import sys
import warnings

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn

HIDDEN, INNER, EXPERTS, BEST = 32, 24, 4, 2
EXPORTERS = {"ts17": (False, 17), "dyn18": (True, 18)}


class Softmax(nn.Module):
    """Mixtral, Qwen3-MoE: the best of a softmax, divided by their sum."""

    def __init__(self, best=BEST, norm=True):
        super().__init__()
        self.gate, self.best, self.norm = nn.Linear(HIDDEN, EXPERTS, bias=False), best, norm

    def forward(self, x):
        shares, index = self.gate(x).softmax(-1).topk(self.best, -1)
        return index, shares / shares.sum(-1, keepdim=True) if self.norm else shares


class Groups(nn.Module):
    """DeepSeek V3: chosen by sigmoids with a correction, of the best of two groups."""

    def __init__(self):
        super().__init__()
        self.gate, self.correction = nn.Linear(HIDDEN, EXPERTS, bias=False), nn.Parameter(torch.zeros(EXPERTS))

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        corrected = scores + self.correction
        group = corrected.view(-1, 2, EXPERTS // 2).topk(2, -1)[0].sum(-1).topk(1, -1, sorted=False)[1]
        kept = torch.zeros(x.shape[0], 2).scatter_(1, group, 1).unsqueeze(-1).expand(-1, 2, EXPERTS // 2).reshape(-1, EXPERTS)
        index = corrected.masked_fill(~kept.bool(), 0.0).topk(BEST, -1, sorted=False)[1]
        shares = scores.gather(1, index)
        return index, shares / (shares.sum(-1, keepdim=True) + 1e-20) * 2.5


class Expert(nn.Module):
    def __init__(self, bias=False):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(HIDDEN, INNER, bias), nn.Linear(HIDDEN, INNER, bias), nn.Linear(INNER, HIDDEN, bias)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Loop(nn.Module):
    """Optimum's patches of Mixtral, Qwen3-MoE and DeepSeek V3, transformers until 4.50: rows of each expert, index_add_."""

    def __init__(self, router, shared=False, tokens_first=False):
        super().__init__()
        self.router, self.experts, self.own = router, nn.ModuleList([Expert() for _ in range(EXPERTS)]), Expert() if shared else None
        self.tokens_first = tokens_first

    def forward(self, x):
        flat = x.view(-1, HIDDEN)
        index, shares = self.router(flat)
        y, mask = torch.zeros_like(flat), F.one_hot(index, num_classes=EXPERTS).permute(*((2, 0, 1) if self.tokens_first else (2, 1, 0)))
        for e, expert in enumerate(self.experts):
            first, second = torch.where(mask[e])
            token, place = (first, second) if self.tokens_first else (second, first)
            rows = flat[token] if self.tokens_first else flat[None, token].reshape(-1, HIDDEN)
            y.index_add_(0, token, expert(rows) * shares[token, place, None])
        return (y if self.own is None else y + self.own(flat)).view(x.shape)


class Hits(nn.Module):
    """transformers 5, eager: the experts that were hit, out of one tensor; clamped: gpt-oss."""

    def __init__(self, clamped=False):
        super().__init__()
        self.router, self.clamped = Softmax(), clamped
        self.gate_up = nn.Parameter(torch.zeros(EXPERTS, HIDDEN, 2 * INNER) if clamped else torch.zeros(EXPERTS, 2 * INNER, HIDDEN))
        self.down = nn.Parameter(torch.zeros(EXPERTS, INNER, HIDDEN) if clamped else torch.zeros(EXPERTS, HIDDEN, INNER))
        if clamped:
            self.gate_up_bias, self.down_bias = nn.Parameter(torch.zeros(EXPERTS, 2 * INNER)), nn.Parameter(torch.zeros(EXPERTS, HIDDEN))

    def expert(self, e, rows):
        if not self.clamped:
            gate, up = F.linear(rows, self.gate_up[e]).chunk(2, dim=-1)
            return F.linear(F.silu(gate) * up, self.down[e])
        both = rows @ self.gate_up[e] + self.gate_up_bias[e]
        gate, up = both[..., ::2].clamp(max=0.7), both[..., 1::2].clamp(min=-0.7, max=0.7)
        return ((up + 1) * (gate * torch.sigmoid(gate * 1.702))) @ self.down[e] + self.down_bias[e]

    def forward(self, x):
        flat = x.view(-1, HIDDEN)
        index, shares = self.router(flat)
        y, mask = torch.zeros_like(flat), F.one_hot(index, num_classes=EXPERTS + 1).permute(2, 1, 0)
        for e in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            place, token = torch.where(mask[e[0]])
            y.index_add_(0, token, self.expert(e[0], flat[token]) * shares[token, place, None])
        return y.view(x.shape)


class Sum(nn.Module):
    """Every expert for every token, those that were not chosen times 0."""

    def __init__(self, how, router=None):
        super().__init__()
        self.router, self.how, self.experts = router or Softmax(), how, nn.ModuleList([Expert(bias=True) for _ in range(EXPERTS)])

    def forward(self, x):
        index, shares = self.router(x)
        if self.how == "where":
            return sum(expert(x) * torch.where(index == e, shares, 0.0).sum(-1, keepdim=True) for e, expert in enumerate(self.experts))
        if self.how == "onehot":
            dense = (F.one_hot(index, EXPERTS).to(x.dtype) * shares.unsqueeze(-1)).sum(-2)
        else:
            dense = torch.zeros(*x.shape[:2], EXPERTS).scatter(-1, index, shares)
        if self.how == "stack":
            return (torch.stack([expert(x) for expert in self.experts], -2) * dense.unsqueeze(-1)).sum(-2)
        return sum(expert(x) * dense[..., e : e + 1] for e, expert in enumerate(self.experts))


MODELS = {
    "loop": (lambda: Loop(Softmax()), ["ts17", "dyn18"]), "loop_groups": (lambda: Loop(Groups(), True, True), ["ts17"]),
    "hits": (Hits, ["ts17"]), "hits_clamped": (lambda: Hits(True), ["ts17"]),
    "sum_scatter": (lambda: Sum("scatter"), ["dyn18"]), "sum_where": (lambda: Sum("where"), ["dyn18"]),
    "sum_onehot": (lambda: Sum("onehot"), ["dyn18"]), "sum_stack": (lambda: Sum("stack"), ["dyn18"]),
    "sum_top1": (lambda: Sum("scatter", Softmax(1, False)), ["ts17"]),
}


def main(out):
    warnings.simplefilter("ignore")
    for name, (make, exporters) in MODELS.items():
        torch.manual_seed(5)
        model, cases = make().eval(), [torch.randn(2, 24, HIDDEN), torch.randn(3, 13, HIDDEN)]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.1 if parameter.dim() < 2 else parameter.shape[-1] ** -0.5)
            arrays = {f"{i}/in/x": x.numpy() for i, x in enumerate(cases)} | {f"{i}/out/y": model(x).numpy() for i, x in enumerate(cases)}
            np.savez_compressed(out / f"{name}.npz", **arrays)
            for exporter in exporters:
                dynamo, opset = EXPORTERS[exporter]
                path, names = out / f"{name}.{exporter}.onnx", {"input_names": ["x"], "output_names": ["y"], "opset_version": opset}
                if dynamo:
                    sizes = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
                    torch.onnx.export(model, (cases[0],), path, dynamo=True, dynamic_shapes=sizes, external_data=False, verbose=False, **names)
                else:
                    torch.onnx.export(model, (cases[0],), path, dynamo=False, dynamic_axes={"x": {0: "batch", 1: "tokens"}}, **names)
                file = onnx.load(path)
                for node in file.graph.node:  # where it stood in Python, by the machine's paths
                    del node.metadata_props[:]
                onnx.save(file, path)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
