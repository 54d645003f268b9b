"""Models of vit-pytorch, each class made small by the arguments that it names: python3 vit_pytorch_models.py OUT [NAME...].
Needs torch and vit-pytorch. A name is that of the module and the class."""
import importlib
import inspect
import pkgutil
import sys

import torch
import vit_pytorch

import export

SMALL = dict(image_size=32, patch_size=8, num_classes=7, dim=32, depth=2, heads=2, dim_head=16, mlp_dim=64, channels=3, frames=4, frame_patch_size=2,
             image_patch_size=8, seq_len=32, spatial_depth=1, temporal_depth=1, window_size=4, local_patch_size=4, global_patch_size=8, num_register_tokens=2,
             cls_depth=1, patch_depth=2, num_memory_tokens=2, num_residual_streams=2, cross_attn_depth=1, num_latents=4)
# What a class wants beside or instead of these.
OWN = {
    "CaiT": dict(depth=1), "CrossViT": dict(sm_dim=32, lg_dim=32, sm_patch_size=8, lg_patch_size=16, sm_enc_heads=2, lg_enc_heads=2, cross_attn_heads=2, depth=1),
    "CvT": dict(s1_emb_dim=16, s2_emb_dim=32, s3_emb_dim=32, s3_depth=1, s3_heads=2, s2_heads=2), "PiT": dict(depth=(1, 1), patch_size=8),
    "LeViT": dict(image_size=64, dim=(16, 24, 32), heads=(2, 2, 2), depth=1, stages=3, mlp_mult=2), "NesT": dict(num_hierarchies=2, block_repeats=(1, 1), patch_size=4),
    "TwinsSVT": dict(image_size=64, s1_emb_dim=16, s2_emb_dim=16, s3_emb_dim=32, s4_emb_dim=32, s3_depth=1, s4_local_patch_size=2, s3_local_patch_size=4, s1_local_patch_size=4, s2_local_patch_size=4),
    "RegionViT": dict(image_size=64, dim=(16, 16, 32, 32), depth=(1, 1, 1, 1), window_size=4), "CrossFormer": dict(image_size=64, dim=(16, 16, 32, 32), depth=(1, 1, 1, 1), global_window_size=(4, 2, 1, 1), local_window_size=4),
    "ScalableViT": dict(image_size=64, dim=16, heads=(1, 2), depth=(1, 1), ssa_dim_key=16, reduction_factor=(2, 1), window_size=(4, None)),
    "SepViT": dict(image_size=64, dim=16, heads=(1, 2), depth=(1, 1), window_size=4), "MaxViT": dict(dim=16, depth=(1,), window_size=4, dim_conv_stem=16),
    "XCiT": dict(depth=1, local_patch_kernel_size=3), "ATSViT": dict(max_tokens_per_depth=(12, 8)), "MobileViT": dict(image_size=(64, 64), dims=[16, 16, 16], channels=[8] * 11),
    "T2TViT": dict(dim=32, t2t_layers=((7, 4), (3, 2))), "ViViT": dict(image_size=32), "RvT": dict(),
}


def classes():
    for module in pkgutil.iter_modules(vit_pytorch.__path__):
        try:
            loaded = importlib.import_module(f"vit_pytorch.{module.name}")
        except Exception:  # it needs a package that is not there
            continue
        for name, kind in vars(loaded).items():
            if not inspect.isclass(kind) or not issubclass(kind, torch.nn.Module) or kind.__module__ != loaded.__name__:
                continue
            names = inspect.signature(kind).parameters
            if {"image_size", "seq_len"} & set(names) and "net" not in names and "encoder" not in names:
                yield f"{module.name}.{name}", kind


def family(kind):
    def make():
        names = inspect.signature(kind).parameters
        given = {key: value for key, value in (SMALL | OWN.get(kind.__name__, {})).items() if key in names}
        size = given.get("image_size", 32)
        size = size if isinstance(size, int) else size[0]
        if "seq_len" in names:
            shape = (3, given["seq_len"])
        elif "frames" in names:
            shape = (3, given["frames"], size, size)
        else:
            shape = (3, size, size)
        return {"model": export.Positional(kind(**given)), "cases": [{"x": torch.randn(b, *shape)} for b in (2, 3)], "axes": {"x": {0: "batch"}}}

    return make


if __name__ == "__main__":
    sys.exit(export.main({name: family(kind) for name, kind in classes()}, __doc__))
