"""Numbers in JSON: the same as Python's own parser reads, in slices, and nothing that is no number."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcd.server import numbers as module
from mlcd.server.numbers import MOST_OTHER_BYTES, numbers, span_of, split, text_of
from mlcd.server.tensors import DATATYPES
from mlcd.untrusted import Malformed


def read(text: str, shape: tuple[int, ...] = (1, 4), datatype: str = "FP32") -> Any:
    data = text.encode()
    return numbers(data, (0, len(data)), name="x", datatype=datatype, shape=shape)


@pytest.fixture(params=[16, 40, 16 * 1024])
def slice_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "SLICE_BYTES", request.param)
    return int(request.param)


class TestNumbers:
    @pytest.mark.usefixtures("slice_bytes")
    @pytest.mark.parametrize("text", ["[1,2.5,-3,4e1]", "[[1,2.5,-3,4e1]]", " [ [ 1 ,2.5,\n-3 , 4e1 ] ]".strip()])
    def test_flat_and_nested(self, text: str) -> None:
        assert read(text).tolist() == [[1, 2.5, -3, 40]]

    @pytest.mark.usefixtures("slice_bytes")
    @pytest.mark.parametrize(
        "number",
        [
            "NaN",
            "Infinity",
            "-Infinity",
            "1e999",
            "1e40",
            "true",
            "null",
            '"1"',
            "{}",
            "[]",
            "1.",
            ".5",
            "+1",
            "01",
            "0x1",
            "1 2",
            "",
            "[3]",
            "3]",
            "[3",
            "9" * 400,
            "9" * 5000,
            "1_0",
            "- 1",
        ],
    )
    def test_what_is_no_number_of_its_type_is_refused_by_name(self, number: str) -> None:
        for text in (f"[1,{number},2,3]", f"[[1,2,3,{number}]]", f"[{number},1,2,3]"):
            with pytest.raises(Malformed, match="inputs: x: "):
                read(text)

    @pytest.mark.parametrize(
        ("datatype", "fits", "unfit"),
        [
            ("UINT8", ["0", "255"], ["-1", "256", "300", "1.0", "true"]),
            ("INT8", ["-128", "127"], ["-129", "128"]),
            ("INT64", ["-9223372036854775808", "9223372036854775807"], ["9223372036854775808", "1e3"]),
            ("UINT64", ["18446744073709551615"], ["18446744073709551616", "-1"]),
            ("FP16", ["65504", "1e-9"], ["70000"]),
            ("FP32", ["3.4e38", "1180591620717411303424"], ["1e40", "-3.5e38", "false"]),
            ("FP64", ["1e308", "9" * 300], ["1e309", "9" * 400]),
            ("BOOL", ["true", "false"], ["1", "0", "1.0", "null"]),
        ],
    )
    def test_limits_of_types(self, datatype: str, fits: list[str], unfit: list[str]) -> None:
        for text in fits:
            (value,) = read(f"[{text}]", (1,), datatype).tolist()
            assert value == np.dtype(DATATYPES[datatype]).type(json.loads(text))
        for text in unfit:
            with pytest.raises(Malformed, match=datatype):
                read(f"[{text}]", (1,), datatype)

    @pytest.mark.usefixtures("slice_bytes")
    @pytest.mark.parametrize(
        "text",
        [
            "[[1,2],[3,]4]",
            "[[1,2],3,[4]]",
            "[[1,2]3,4]",
            "[[1,2],[3,4]",
            "[1,2],[3,4]",
            "[1,2] [3,4]",
            "[[1,2],[3,4]]]",
            "[[1,2,3],[4]]",
            "[[[1,2],[3,4]]]",
            "[[1],[2],[3],[4]]",
            "[[],[1,2,3,4]]",
            "[[1,2],,[3,4]]",
            "[,1,2,3,4]",
            "[1,2,3,4,]",
        ],
    )
    def test_brackets_must_be_those_of_the_shape(self, text: str) -> None:
        with pytest.raises(Malformed):
            read(text, (2, 2))

    @pytest.mark.parametrize("slice_size", range(3, 13))
    @pytest.mark.parametrize(
        "text", ["[1,2,,3,4]", "[,1,2,3,4]", "[1,2,3,4,]", "[[1,2,,3,4]]", "[[1,2,3,4],]", "[1,,,2,3,4]"]
    )
    def test_nothing_between_commas_wherever_it_is_cut(
        self, text: str, slice_size: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "SLICE_BYTES", slice_size)
        with pytest.raises(Malformed):
            read(text)

    def test_counts(self) -> None:
        with pytest.raises(Malformed, match="data has 3 numbers"):
            read("[1,2,3]")
        with pytest.raises(Malformed, match="more than 4"):
            read("[1,2,3,4,5]")

    @pytest.mark.parametrize("shape", [(10**12, 10**12), (1, 2**63), (10**40,)])
    def test_absurd_shapes_allocate_nothing(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(Malformed, match="fewer"):
            read("[1,2,3]", shape)

    def test_no_numbers(self) -> None:
        assert read("[ ]", (1, 0)).shape == (1, 0)
        assert read("[[],[ ]]", (2, 0)).shape == (2, 0)
        for text, shape in (("[1]", (1, 0)), ("[[]]", (2, 0)), ("[[]]", (10**9, 0))):
            with pytest.raises(Malformed):
                read(text, shape)

    def test_a_long_stretch_without_a_comma(self) -> None:
        with pytest.raises(Malformed, match="without a comma"):
            read("[1" + " " * 50_000 + ",2,3,4]")

    @settings(max_examples=150, deadline=None)
    @given(
        rows=st.integers(1, 5),
        width=st.integers(1, 7),
        nested=st.booleans(),
        indent=st.sampled_from([None, 1]),
        data=st.data(),
    )
    def test_equals_pythons_parser(
        self, rows: int, width: int, nested: bool, indent: int | None, data: st.DataObject
    ) -> None:
        values = data.draw(
            st.lists(
                st.floats(-1e30, 1e30) | st.integers(-(2**70), 2**70), min_size=rows * width, max_size=rows * width
            )
        )
        given_values: list[Any] = [values[at : at + width] for at in range(0, len(values), width)] if nested else values
        text = json.dumps(given_values, indent=indent)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "SLICE_BYTES", data.draw(st.integers(64, 200)))
            found = read(text, (rows, width), "FP64")
        assert np.array_equal(found, np.array(values, dtype=np.float64).reshape(rows, width))


class TestSplit:
    def test_numbers_are_taken_out(self) -> None:
        text = b'{"a": {"data" : [1, [2]] }, "data":[3],"b":{"data": ["x"]}, "data": [4]}'
        document, spans = split(text, len(text))
        assert [text[start:end] for start, end in spans] == [b"[1, [2]]", b"[3]", b"[4]"]
        found = json.loads(document)
        assert span_of(found["a"]["data"], spans) == spans[0]
        assert found["b"]["data"] == ["x"]
        assert span_of("x", spans) is None
        assert span_of(["x"], spans) is None

    def test_what_is_not_after_the_key_is_left_alone(self) -> None:
        for text in (
            b'{"data": "[1]"}',
            b'{"x\\"data": [1]}',
            b'{"data": [[1],["x"]]}',
            b'["data", [1]]',
        ):
            assert split(text, len(text)) == (text, [])

    @pytest.mark.parametrize("filler", [b" ", b"a", b'"data":["x"],'])
    def test_much_else_is_refused(self, filler: bytes) -> None:
        text = b'{"data": [1],' + filler * (MOST_OTHER_BYTES // len(filler) + 1)
        with pytest.raises(Malformed, match="besides the numbers"):
            split(text, len(text))

    def test_many_tensors_are_refused(self) -> None:
        text = b"[" + b'{"data":[1]},' * 2000 + b"1]"
        with pytest.raises(Malformed, match="tensors"):
            split(text, len(text))


class TestTextOf:
    @pytest.mark.parametrize("count", [0, 1, 2048, 5000])
    def test_equals_pythons_writer(self, count: int) -> None:
        array = np.arange(count, dtype=np.float32) / 3
        assert json.loads(b"".join(text_of(array, "y"))) == array.tolist()

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_what_json_lacks_is_refused(self, value: float) -> None:
        with pytest.raises(Malformed, match="outputs: y: has NaN or infinite numbers"):
            text_of(np.array([1.0, value]), "y")
