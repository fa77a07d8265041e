#!/usr/bin/python3
"""Writes the vectors beside this file: NAME.onnx, a model, and NAME.data, a GraphProto whose initializers are the
values of its inputs and outputs by name. They cover what ONNX's own vectors in Debian do not: attributes of recurrent
operators, and the forms of operator sets 18 to 20.

usage: make_vectors.py FOLDER-WITH-onnxruntime-node [NAME...]

Needs python3-onnx, python3-numpy, Node and onnxruntime-node (`npm install --ignore-scripts onnxruntime-node@1.30.0` in
that folder), which computes the outputs. Inputs come from a formula, so a second run writes the same bytes.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper, save

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {np.dtype("float32"): "float32", np.dtype("float64"): "float64", np.dtype("int64"): "int64",
         np.dtype("int32"): "int32", np.dtype("uint8"): "uint8", np.dtype("int8"): "int8", np.dtype("bool"): "bool"}
ARRAYS = {"float32": np.float32, "float64": np.float64, "int64": np.int64, "int32": np.int32, "uint8": np.uint8,
          "int8": np.int8, "bool": bool}


def wave(shape, seed, scale=0.8):
    count = int(np.prod(shape))
    return (np.sin(1.7 * np.arange(count) + seed) * scale).astype(np.float32).reshape(shape)


def ints(*values):
    return np.array(values, np.int64)


class Case:
    """One node. `inputs`: (name, array) or None for one left out; names in `constants` become initializers."""

    def __init__(self, name, opset, op, inputs, outputs=("y",), constants=(), **attributes):
        self.name, self.inputs, self.outputs = name, [i for i in inputs if i], list(outputs)
        node = helper.make_node(op, [i[0] if i else "" for i in inputs], self.outputs, **attributes)
        graph = helper.make_graph(
            [node], name,
            [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype) if hasattr(
                helper, "np_dtype_to_tensor_dtype") else numpy_helper.from_array(a).data_type, a.shape)
             for n, a in self.inputs if n not in constants],
            [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in self.outputs],
            [numpy_helper.from_array(a, n) for n, a in self.inputs if n in constants])
        for output in graph.output:
            output.ClearField("type")
        self.inputs = [(n, a) for n, a in self.inputs if n not in constants]
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        self.model.ir_version = 8
        self.model.producer_name = ""


def recurrent(name, op, given, **attributes):
    """`given`: which optional inputs there are: Bias, Sequence lengths, H and C (initial states), Peepholes."""
    steps, batch, size, hidden = 4, 2, 2, 3
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    shapes = [("B", (directions, 2 * gates * hidden), 4), ("S", None, 0), ("H", (directions, batch, hidden), 5)]
    if op == "LSTM":
        shapes += [("C", (directions, batch, hidden), 6), ("P", (directions, 3 * hidden), 7)]
    inputs = [("X", wave((steps, batch, size), 1)), ("W", wave((directions, gates * hidden, size), 2)),
              ("R", wave((directions, gates * hidden, hidden), 3))]
    for key, shape, seed in shapes:
        value = np.array([4, 2], np.int32) if key == "S" else wave(shape, seed)
        inputs.append((key, value) if key in given else None)
    while inputs[-1] is None:
        inputs.pop()
    outputs = ["Y", "Y_h"] + (["Y_c"] if op == "LSTM" else [])
    return Case(name, 14, op, inputs, outputs, hidden_size=hidden, **attributes)


def cases():
    yield recurrent("lstm_bidirectional", "LSTM", "BSHCP", direction="bidirectional")
    yield recurrent("lstm_reverse_clip_activations", "LSTM", "BC", direction="reverse", clip=0.5,
                    activations=["HardSigmoid", "ScaledTanh", "Softsign"], activation_alpha=[0.3, 1.2],
                    activation_beta=[0.4, 0.7])
    yield recurrent("lstm_input_forget", "LSTM", "BHC", input_forget=1)
    yield recurrent("gru_bidirectional_linear", "GRU", "BSH", direction="bidirectional", linear_before_reset=1)
    yield recurrent("gru_reverse_clip", "GRU", "BH", direction="reverse", clip=0.4)
    yield recurrent("gru_activations", "GRU", "BSH", activations=["Affine", "Elu"], activation_alpha=[0.5, 0.9],
                    activation_beta=[0.1])
    yield recurrent("rnn_bidirectional_activations", "RNN", "B", direction="bidirectional",
                    activations=["ThresholdedRelu", "Softplus"], activation_alpha=[0.2])
    yield recurrent("rnn_reverse", "RNN", "BSH", direction="reverse", activations=["LeakyRelu"],
                    activation_alpha=[0.3])
    yield from cases_18()
    yield from cases_19()
    yield from cases_20()


def cases_18():
    """Forms that operator set 18 brought."""
    x = ("x", wave((2, 3, 4), 1, 2))
    positive = ("x", np.abs(wave((2, 3, 4), 1, 2)) + np.float32(0.1))
    axes = ("axes", ints(-1, 0))
    for op in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"):
        data = positive if op == "LogSum" else x
        lower = "reduce_" + op.lower() + "_18"
        yield Case(lower, 18, "Reduce" + op, [data, axes], constants=["axes"], keepdims=0)
        yield Case(lower + "_all", 18, "Reduce" + op, [data])
        yield Case(lower + "_noop", 18, "Reduce" + op, [data], noop_with_empty_axes=1)
    yield Case("split_18_uneven", 18, "Split", [("x", wave((2, 7), 1))], ["a", "b", "c"], axis=1, num_outputs=3)
    yield Case("pad_18_axes", 18, "Pad", [("x", wave((2, 3, 4), 1)), ("pads", ints(1, 0, 2, 1)),
                                          ("value", np.array(1.5, np.float32)), ("axes", ints(0, -1))],
               constants=["pads", "value", "axes"])
    image = ("x", wave((1, 2, 4, 5), 1))
    for name, attributes in (("antialias", {"mode": "linear", "antialias": 1}),
                             ("cubic", {"mode": "cubic", "cubic_coeff_a": -0.5}),
                             ("half_pixel_symmetric", {"mode": "linear",
                                                       "coordinate_transformation_mode": "half_pixel_symmetric"})):
        yield Case("resize_19_" + name, 19, "Resize", [image, None, None, ("sizes", ints(1, 2, 3, 3))],
                   constants=["sizes"], **attributes)
    for policy in ("not_larger", "not_smaller"):
        yield Case("resize_18_" + policy, 18, "Resize", [image, None, None, ("sizes", ints(7, 8))],
                   constants=["sizes"], mode="nearest", axes=[2, 3], keep_aspect_ratio_policy=policy)
    a, b = np.array([[5, -3, 7], [0, -1, 100]], np.int32), np.array([3, 6, -7], np.int32)
    for op in ("And", "Or", "Xor"):
        yield Case(f"bitwise_{op.lower()}_18", 18, "Bitwise" + op, [("a", a), ("b", b)])
    yield Case("bitwise_not_18", 18, "BitwiseNot", [("a", a)])
    yield Case("mish_18", 18, "Mish", [x])
    yield Case("center_crop_pad_18", 18, "CenterCropPad", [("x", wave((5, 4, 3), 1)), ("shape", ints(3, 7))],
               constants=["shape"], axes=[0, 1])
    yield Case("col2im_18", 18, "Col2Im", [("x", wave((1, 8, 9), 1)), ("image", ints(4, 4)), ("block", ints(2, 2))],
               constants=["image", "block"])
    yield Case("group_normalization_18", 18, "GroupNormalization",
               [("x", wave((2, 4, 3, 2), 1)), ("scale", wave((2,), 2)), ("bias", wave((2,), 3))], num_groups=2)
    yield Case("lp_pool_18", 18, "LpPool", [("x", wave((1, 2, 7, 6), 1))], kernel_shape=[2, 3], strides=[2, 1],
               dilations=[2, 1], p=3)
    updates = ("updates", wave((2, 2), 3))
    for reduction in ("max", "min"):
        yield Case("scatter_elements_18_" + reduction, 18, "ScatterElements",
                   [("x", wave((2, 3), 1)), ("indices", np.array([[0, 2], [1, 1]], np.int64)), updates], axis=1,
                   reduction=reduction)
        yield Case("scatter_nd_18_" + reduction, 18, "ScatterND",
                   [("x", wave((3, 2), 1)), ("indices", np.array([[2], [0]], np.int64)), updates], reduction=reduction)


def cases_19():
    image = ("x", wave((1, 2, 7, 6), 1))
    yield Case("average_pool_19_dilations", 19, "AveragePool", [image], kernel_shape=[2, 2], dilations=[2, 3],
               strides=[1, 2], pads=[1, 1, 0, 1], count_include_pad=1)
    yield Case("average_pool_19_ceil", 19, "AveragePool", [image], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    yield Case("pad_19_wrap", 19, "Pad", [("x", wave((2, 4), 1)), ("pads", ints(1, 2, 0, 3))], constants=["pads"],
               mode="wrap")
    yield Case("quantize_19", 19, "QuantizeLinear",
               [("x", wave((2, 6), 1, 300)), ("scale", np.array(1.5, np.float32)), ("zero", np.array(7, np.int8))])
    yield Case("reshape_19", 19, "Reshape", [("x", wave((2, 3, 4), 1)), ("shape", ints(0, -1))], constants=["shape"])


def cases_20():
    x = np.array([[1, np.inf, -np.inf], [np.nan, 0, -5]], np.float32)
    yield Case("gelu_20", 20, "Gelu", [("x", wave((3, 4), 1, 3))])
    yield Case("gelu_20_tanh", 20, "Gelu", [("x", wave((3, 4), 1, 3))], approximate="tanh")
    yield Case("is_nan_20", 20, "IsNaN", [("x", x)])
    yield Case("is_inf_20", 20, "IsInf", [("x", x)], detect_negative=0)
    flags = np.array([[True, False, True], [False, False, True]])
    for op in ("Max", "Min"):
        yield Case(f"reduce_{op.lower()}_20_bool", 20, "Reduce" + op, [("x", flags), ("axes", ints(1))],
                   constants=["axes"])
    yield Case("affine_grid_20", 20, "AffineGrid", [("theta", wave((1, 2, 3), 1)), ("size", ints(1, 1, 3, 4))],
               constants=["size"], align_corners=1)
    grid = ("grid", wave((1, 3, 4, 2), 2, 1.2))
    for mode in ("linear", "nearest", "cubic"):
        yield Case("grid_sample_20_" + mode, 20, "GridSample", [("x", wave((1, 2, 4, 5), 1)), grid], mode=mode,
                   padding_mode="border")
    # In f64 where an output is zero but for rounding, which in f32 would be beyond what is compared.
    signal = wave((2, 3, 5, 2), 1, 2)
    yield Case("dft_20", 20, "DFT", [("x", signal)])
    yield Case("dft_20_axis_length_onesided", 20, "DFT",
               [("x", signal[..., :1].astype(np.float64)), ("length", np.array(4, np.int64)),
                ("axis", np.array(-3, np.int64))], constants=["length", "axis"], onesided=1)
    yield Case("dft_20_inverse", 20, "DFT", [("x", signal), None, ("axis", np.array(1, np.int64))],
               constants=["axis"], inverse=1)
    yield Case("constant_of_shape_20", 20, "ConstantOfShape", [("shape", ints(2, 3))], constants=["shape"])


RUN = """
import {createRequire} from 'module'; import fs from 'fs';
const ort = createRequire(process.argv[2] + '/')('onnxruntime-node');
const arrays = {float32: Float32Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array, uint8: Uint8Array,
                int8: Int8Array, bool: Uint8Array};
const number = v => v == 'inf' ? Infinity : v == '-inf' ? -Infinity : v == 'nan' ? NaN : Number(v);
const results = {};
for (const c of JSON.parse(fs.readFileSync('cases.json'))) {
  try {
    const session = await ort.InferenceSession.create(c.name + '.onnx', {graphOptimizationLevel: 'disabled'});
    const feeds = {};
    for (const [name, v] of Object.entries(c.inputs))
      feeds[name] = new ort.Tensor(v.type, arrays[v.type].from(v.data.map(v.type == 'int64' ? BigInt : number)),
                                   v.shape);
    const outputs = await session.run(feeds);
    results[c.name] = c.outputs.map(name => ({type: outputs[name].type, shape: outputs[name].dims,
                                              data: Array.from(outputs[name].data, Number)}));
  } catch (error) { results[c.name] = error.message; }
}
const finite = (key, v) => typeof v == 'number' && !isFinite(v) ? String(v) : v;
fs.writeFileSync('results.json', JSON.stringify(results, finite));
"""


def plain(array):
    """As a list; JSON has no infinities."""
    return [v if np.isfinite(v) else str(v) for v in array.flatten().tolist()]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    wanted = [c for c in cases() if len(sys.argv) == 2 or c.name in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as scratch:
        with open(os.path.join(scratch, "cases.json"), "w", encoding="utf-8") as file:
            json.dump([{"name": c.name, "outputs": c.outputs,
                        "inputs": {n: {"type": TYPES[a.dtype], "shape": list(a.shape), "data": plain(a)}
                                   for n, a in c.inputs}} for c in wanted], file)
        for case in wanted:
            save(case.model, os.path.join(scratch, case.name + ".onnx"))
        with open(os.path.join(scratch, "run.mjs"), "w", encoding="utf-8") as file:
            file.write(RUN)
        subprocess.run(["node", "run.mjs", os.path.abspath(sys.argv[1])], cwd=scratch, check=True)
        with open(os.path.join(scratch, "results.json"), encoding="utf-8") as file:
            results = json.load(file)
    failed = 0
    for case in wanted:
        result = results[case.name]
        if isinstance(result, str):
            print(f"{case.name}: {result}")
            failed += 1
            continue
        data = GraphProto()
        data.initializer.extend(numpy_helper.from_array(a, n) for n, a in case.inputs)
        for name, tensor in zip(case.outputs, result):
            values = np.array([float(str(v).replace("Infinity", "inf")) for v in tensor["data"]], np.float64)
            array = values.astype(ARRAYS[tensor["type"]]).reshape(tensor["shape"])
            data.initializer.append(numpy_helper.from_array(array, name))
        save(case.model, os.path.join(HERE, case.name + ".onnx"))
        with open(os.path.join(HERE, case.name + ".data"), "wb") as file:
            file.write(data.SerializeToString(deterministic=True))
    print(f"{len(wanted) - failed} written, {failed} failed")


if __name__ == "__main__":
    main()
