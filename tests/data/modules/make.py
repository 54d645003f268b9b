"""Writes bert.onnx beside this file: a small BERT of random weights as torch's dynamo exporter writes it, with the modules in the metadata of nodes. Made with
torch 2.13, transformers and onnxscript; what the metadata says of Python's own files and lines is taken out.
"""

import pathlib

import onnx
import torch
from transformers import BertConfig, BertModel

torch.manual_seed(0)
config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=32)
model = BertModel(config, add_pooling_layer=False).eval()
sizes = {name: {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=32)} for name in ("input_ids", "attention_mask")}
inputs = (torch.ones(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long))
made = torch.onnx.export(model, inputs, dynamo=True, opset_version=18, input_names=list(sizes), dynamic_shapes=sizes).model_proto
for node in made.graph.node:
    kept = [entry for entry in node.metadata_props if entry.key.rsplit(".", 1)[-1] not in ("stack_trace", "fx_node")]
    del node.metadata_props[:]
    node.metadata_props.extend(kept)
onnx.save(made, pathlib.Path(__file__).parent / "bert.onnx")
