"""A model as its operators, under one set of names, whether it comes as an ONNX file or as a PyTorch module.

`onnx_graph` and `torch_graph` read a model; `patterns` merges operators that were exported as several nodes; `grammar`
defines names and sizes; `shares` measures where the time goes. docs/server.md lists the names.
"""

from mlcd.graphs.graph import Graph, GraphInput, Operator
from mlcd.graphs.onnx_graph import read_onnx
from mlcd.graphs.shares import time_shares
from mlcd.graphs.torch_graph import read_program, read_pt2, read_torch

__all__ = ["Graph", "GraphInput", "Operator", "read_onnx", "read_program", "read_pt2", "read_torch", "time_shares"]
