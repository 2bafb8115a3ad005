"""Operators of a model: names, sizes and work, the same from ONNX and from PyTorch; and what is refused."""

import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcd.errors import BadInput
from mlcd.graphs import Graph, Operator, onnx_graph, read_onnx, read_torch, time_shares
from mlcd.graphs.grammar import work
from mlcd.server.quantise import quantised

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

serving_models = import_module("benchmarks.serving_models")


def save(
    path: Path, nodes: list[Any], weights: dict[str, Any], shape: list[Any], *, kind: int = TensorProto.FLOAT
) -> Path:
    """A model with one input x and one output y."""
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "test", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def dense(path: Path, shape: list[Any], inside: int = 6) -> Path:
    weights = {"w": np.ones((inside, 4), dtype=np.float32)}
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], weights, shape)


def summary(graph: Graph) -> dict[tuple[str, str], int]:
    return {(operator.name, operator.shape): operator.count for operator in graph.operators}


class TestWork:
    @pytest.mark.parametrize(
        ("name", "shape", "flops", "numbers"),
        [
            ("Conv", "3x8x8>4x8x8 k3x3 s1x1 g1", 2 * 3 * 4 * 9 * 64, 3 * 64 + 4 * 64 + 3 * 4 * 9),
            ("Conv", "4x8x8>4x4x4 k3x3 s2x2 g4", 2 * 4 * 9 * 16, 4 * 64 + 4 * 16 + 4 * 9),
            ("ConvTranspose", "8x4x4>2x8x8 k4x4 s2x2 g1", 2 * 8 * 2 * 16 * 16, 8 * 16 + 2 * 64 + 8 * 2 * 16),
            ("Gemm", "5x6x7", 2 * 5 * 6 * 7, 30 + 35 + 42),
            ("MatMul", "2x5x6x7", 2 * 2 * 5 * 6 * 7, 2 * (30 + 42 + 35)),
            ("Attention", "2x5x7x8", 4 * 2 * 5 * 7 * 8, 2 * 2 * 8 * (5 + 7)),
            ("LSTM", "10x3>4 l1 d1", 2 * 10 * 4 * 4 * (3 + 4), 4 * 4 * (3 + 4) + 10 * (3 + 4)),
            ("Add", "5x6", 30, 3 * 30),
            ("Relu", "5x6", 30, 2 * 30),
            ("Transpose", "5x6", 0, 2 * 30),
        ],
    )
    def test_flops_and_bytes_by_hand(self, name: str, shape: str, flops: float, numbers: float) -> None:
        assert work(name, shape) == (flops, 4 * numbers)

    def test_an_operator_does_no_negative_work(self) -> None:
        with pytest.raises(ValueError, match="negative"):
            Operator(name="Add", shape="1", count=1, flops=-1, bytes=0)


class TestOnnx:
    def test_the_batch_is_separated_from_other_axes(self, tmp_path: Path) -> None:
        """Where the batch is merged with rows, sizes are still those of one item."""
        nodes = [
            helper.make_node("Reshape", ["x", "flat"], ["rows"]),
            helper.make_node("MatMul", ["rows", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["y"]),
        ]
        weights = {"flat": np.array([-1, 6]), "w": np.ones((6, 4), dtype=np.float32)}
        graph = read_onnx(save(tmp_path / "m.onnx", nodes, weights, ["batch", 5, 6]))
        assert summary(graph) == {("Gemm", "5x6x4"): 1, ("Relu", "5x4"): 1}
        assert graph.fixed_batch is None
        assert graph.inputs[0].sizes == (5, 6)

    def test_a_fixed_batch_gives_the_same_operators(self, tmp_path: Path) -> None:
        fixed = read_onnx(dense(tmp_path / "fixed.onnx", [3, 6]))
        assert summary(fixed) == summary(read_onnx(dense(tmp_path / "free.onnx", ["n", 6])))
        assert fixed.fixed_batch == 3

    def test_norms_biases_and_activations_are_merged(self, tmp_path: Path) -> None:
        path = serving_models.build(tmp_path, "bert-tiny")["bert-tiny"]
        names = {operator.name for operator in read_onnx(path).operators}
        assert names == {
            "Gemm",
            "Attention",
            "Gelu",
            "LayerNormalization",
            "Add",
            "Transpose",
            "Gather",
            "ReduceMean",
            "Tanh",
        }

    def test_a_layer_norm_in_nine_nodes_is_merged(self, tmp_path: Path) -> None:
        nodes = [
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]),
            helper.make_node("Sub", ["x", "mean"], ["centred"]),
            helper.make_node("Pow", ["centred", "two"], ["squares"]),
            helper.make_node("ReduceMean", ["squares"], ["variance"], axes=[-1]),
            helper.make_node("Add", ["variance", "small"], ["padded"]),
            helper.make_node("Sqrt", ["padded"], ["deviation"]),
            helper.make_node("Div", ["centred", "deviation"], ["normal"]),
            helper.make_node("Mul", ["normal", "g"], ["scaled"]),
            helper.make_node("Add", ["scaled", "b"], ["y"]),
        ]
        weights = {name: np.ones(8, dtype=np.float32) for name in ("g", "b")}
        weights |= {"two": np.array(2, dtype=np.float32), "small": np.array(1e-5, dtype=np.float32)}
        graph = read_onnx(save(tmp_path / "m.onnx", nodes, weights, ["batch", 4, 8]))
        assert summary(graph) == {("LayerNormalization", "4x8"): 1}

    def test_every_kind_of_model_is_known(self, tmp_path: Path) -> None:
        for name, path in serving_models.build(
            tmp_path, "resnet18-like", "efficientnet-like", "yolo-like", "lstm", "dcn"
        ).items():
            graph = read_onnx(path)
            assert graph.unknown == (), name
            assert graph.flops > 0

    def test_indices_have_a_bound(self, tmp_path: Path) -> None:
        graph = read_onnx(serving_models.build(tmp_path, "dcn")["dcn"])
        assert {given.name: given.high for given in graph.inputs} == {"dense": None, "ids": 20000}

    def test_a_quantised_model_has_the_same_large_operators(self, tmp_path: Path) -> None:
        path = serving_models.build(tmp_path, "mlp-small")["mlp-small"]
        whole, small = read_onnx(path), read_onnx(quantised(path, tmp_path / "cache"))
        gemms = [{key: n for key, n in summary(graph).items() if key[0] == "Gemm"} for graph in (whole, small)]
        assert gemms[0] == gemms[1]
        assert small.unknown == ()
        assert small.parameters_bytes < whole.parameters_bytes / 2

    def test_branches_are_flagged_and_the_other_name_of_the_domain_is_read(self, tmp_path: Path) -> None:
        def branch(kind: str, name: str) -> Any:
            output = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            return helper.make_graph([helper.make_node(kind, ["x"], [name])], name, [], [output])

        choice = helper.make_node("If", ["c"], ["y"], then_branch=branch("Relu", "t"), else_branch=branch("Tanh", "e"))
        nodes = [
            helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0, domain="ai.onnx"),
            helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
            choice,
        ]
        graph = read_onnx(save(tmp_path / "m.onnx", nodes, {}, ["batch", 4]))
        assert graph.unknown == ("If",)
        assert ("ReduceSum", "4") in summary(graph)

    def test_parameters(self, tmp_path: Path) -> None:
        assert read_onnx(dense(tmp_path / "m.onnx", ["batch", 6])).parameters_bytes == 6 * 4 * 4


class TestRefusals:
    def test_unknown_operator_is_named_and_allowed(self, tmp_path: Path) -> None:
        nodes = [helper.make_node("Wobble", ["x"], ["h"], domain="my.own"), helper.make_node("Relu", ["h"], ["y"])]
        graph = read_onnx(save(tmp_path / "m.onnx", nodes, {}, ["batch", 6]))
        assert graph.unknown == ("Wobble",)
        assert summary(graph) == {("Wobble", "6"): 1, ("Relu", "6"): 1}

    def test_not_onnx(self, tmp_path: Path) -> None:
        (tmp_path / "m.onnx").write_text("hello")
        with pytest.raises(BadInput, match="not an ONNX file"):
            read_onnx(tmp_path / "m.onnx")

    def test_empty_and_missing(self, tmp_path: Path) -> None:
        (tmp_path / "m.onnx").write_bytes(b"")
        with pytest.raises(BadInput, match="empty"):
            read_onnx(tmp_path / "m.onnx")
        with pytest.raises(BadInput, match="no such file"):
            read_onnx(tmp_path / "n.onnx")

    @pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
    def test_cut_off(self, tmp_path: Path, kept: float) -> None:
        whole = serving_models.build(tmp_path, "cnn-small")["cnn-small"].read_bytes()
        (tmp_path / "m.onnx").write_bytes(whole[: int(kept * len(whole))])
        with pytest.raises(BadInput, match="cut off"):
            read_onnx(tmp_path / "m.onnx")

    def test_an_axis_without_a_size_names_the_option(self, tmp_path: Path) -> None:
        path = dense(tmp_path / "m.onnx", ["batch", "sequence", 6])
        with pytest.raises(BadInput, match="--size sequence=128"):
            read_onnx(path)
        assert summary(read_onnx(path, sizes={"sequence": 7})) == {("Gemm", "7x6x4"): 1}

    def test_larger_than_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = dense(tmp_path / "m.onnx", ["batch", 6])
        monkeypatch.setattr(onnx_graph, "free_memory_bytes", lambda: 100.0)
        with pytest.raises(BadInput, match="larger than memory"):
            read_onnx(path)

    def test_no_operators(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="no operators"):
            read_onnx(save(tmp_path / "m.onnx", [], {}, ["batch", 6]))


def _modules() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """By name: a module and an example of one item."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Words(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.lstm = (
                nn.Embedding(50, 16),
                nn.LSTM(16, 12, num_layers=2, batch_first=True, bidirectional=True),
            )
            self.head = nn.Linear(24, 3)

        def forward(self, ids: Any) -> Any:
            return self.head(self.lstm(self.table(ids))[0].mean(1))

    class Encoder(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.parts, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
            self.inner = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

        def forward(self, x: Any) -> Any:
            parts = [part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.parts(self.norm(x)).chunk(3, -1)]
            mixed = nn.functional.scaled_dot_product_attention(*parts)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.inner(x)

    def pictures() -> tuple[Any, Any]:
        layers = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        layers += [
            nn.Conv2d(8, 8, 3, groups=8, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(8, 4, 4, 2, 1),
            nn.Hardswish(),
        ]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5), nn.Softmax(-1)]
        return nn.Sequential(*layers), torch.randn(1, 3, 32, 32)

    def encoder() -> tuple[Any, Any]:
        return Encoder(), torch.randn(1, 10, 32)

    def words() -> tuple[Any, Any]:
        return Words(), torch.zeros(1, 7, dtype=torch.long)

    return {"pictures": pictures, "encoder": encoder, "words": words}


@pytest.mark.parametrize("name", ["pictures", "encoder", "words"])
def test_onnx_and_pytorch_give_the_same_operators(tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    module, example = _modules()[name]()
    module.eval()
    path = tmp_path / "m.onnx"
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(
            module,
            (example,),
            path,
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes=axes,
        )
        by_torch = read_torch(module, example)
    by_onnx = read_onnx(path)
    assert summary(by_torch) == summary(by_onnx)
    assert len(by_onnx.operators) > 2
    assert by_onnx.unknown == ()
    assert [(i.sizes, i.datatype, i.high) for i in by_torch.inputs] == [
        (i.sizes, i.datatype, i.high) for i in by_onnx.inputs
    ]


class TestShares:
    def test_shares_add_up_to_one_and_follow_the_work(self, tmp_path: Path) -> None:
        path = serving_models.build(tmp_path, "mlp-deep")["mlp-deep"]
        shares = time_shares(path, read_onnx(path))
        assert sum(shares.values()) == pytest.approx(1)
        assert sum(share for operator, share in shares.items() if operator.name == "Gemm") > 0.8

    def test_attention_and_convolutions_get_their_time(self, tmp_path: Path) -> None:
        for name, operator in (("bert-tiny", "Attention"), ("cnn-small", "Conv")):
            path = serving_models.build(tmp_path, name)[name]
            shares = time_shares(path, read_onnx(path), runs=2)
            assert sum(share for each, share in shares.items() if each.name == operator) > 0

    def test_a_model_that_does_not_run(self, tmp_path: Path) -> None:
        nodes = [helper.make_node("Wobble", ["x"], ["y"], domain="my.own")]
        path = save(tmp_path / "m.onnx", nodes, {}, ["batch", 6])
        with pytest.raises(BadInput, match="does not run: ONNX Runtime has no operator"):
            time_shares(path, read_onnx(path))
