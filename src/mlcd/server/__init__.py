"""A server for one ONNX model: ONNX Runtime behind the Open Inference Protocol v2 over HTTP.

    python -m mlcd.server MODEL.onnx --batch 8 --threads 1 --replicas 2 --port 0

Its parts, from the wire to the model: `app` (the endpoints), `protocol` (tensors on the wire), `batching` (requests
become batches), `model` (ONNX Runtime). `process` starts a server as a separate process and makes sure that it ends.
"""

from mlcd.server.options import Precision, ServerOptions
from mlcd.server.process import RunningServer, start_server
from mlcd.server.tensors import TensorSpec

__all__ = ["Precision", "RunningServer", "ServerOptions", "TensorSpec", "start_server"]
