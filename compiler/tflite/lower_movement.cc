// Operators that move elements: shapes, slices, joins, padding. Quantized values stay as stored
// where all tensors have the same quantization.
#include <algorithm>

#include "compiler/tflite/context.h"

namespace whet::tflite {
namespace {

Status ReshapeTo(OpContext& c, const Shape& shape) {
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Moved(0, Order::kFile));
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Reshape(x, shape));
  return c.SetMoved(0, y, Order::kFile);
}

// -1 stands for what is left.
Status LowerReshape(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 2));
  Shape shape;
  if (c.Has(1)) {
    WHET_ASSIGN_OR_RETURN(shape, c.ConstInts(1, "shape"));
  } else {
    WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_Reshape()));
    if (o->new_shape() != nullptr && o->new_shape()->size() > graph::kMaxRank)
      return ResourceExhausted("a shape of rank {}; the limit is {}", o->new_shape()->size(),
                               graph::kMaxRank);
    if (o->new_shape() != nullptr) shape.assign(o->new_shape()->begin(), o->new_shape()->end());
  }
  int64_t elements = 1, known = 1;
  for (int64_t d : c.shape(0)) elements *= d;  // within the cap on tensors
  int64_t* open = nullptr;
  for (int64_t& d : shape) {
    if (d == -1 && open == nullptr) {
      open = &d;
    } else if (d < 0 || __builtin_mul_overflow(known, d, &known)) {
      return InvalidArgument("extent {} of the shape", d);
    }
  }
  if (open != nullptr) {
    if (known == 0 || elements % known != 0)
      return InvalidArgument("{} elements do not fill a shape of {}", elements, known);
    *open = elements / known;
  }
  return ReshapeTo(c, shape);
}

Status LowerSqueeze(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  const auto* o = c.op.options_as_Squeeze();
  const Shape x = c.shape(0);
  std::vector<bool> drop(x.size(), false);
  const bool all = o == nullptr || o->squeeze_dims() == nullptr || o->squeeze_dims()->size() == 0;
  if (!all && o->squeeze_dims()->size() > graph::kMaxRank)
    return ResourceExhausted("{} dimensions to squeeze; the limit is {}", o->squeeze_dims()->size(),
                             graph::kMaxRank);
  for (size_t d = 0; all && d < x.size(); ++d) drop[d] = x[d] == 1;
  for (size_t i = 0; !all && i < o->squeeze_dims()->size(); ++i) {
    WHET_ASSIGN_OR_RETURN(const int64_t axis,
                          c.Axis(o->squeeze_dims()->Get(static_cast<uint32_t>(i)), c.rank(0)));
    if (x[axis] != 1) return InvalidArgument("axis {} has extent {}, not 1", axis, x[axis]);
    drop[axis] = true;
  }
  Shape shape;
  for (size_t d = 0; d < x.size(); ++d) {
    if (!drop[d]) shape.push_back(x[d]);
  }
  return ReshapeTo(c, shape);
}

Status LowerExpandDims(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> axis, c.ConstInts(1, "axis"));
  if (axis.size() != 1) return InvalidArgument("{} axes, not 1", axis.size());
  WHET_ASSIGN_OR_RETURN(const int64_t at, c.Axis(axis[0], c.rank(0) + 1));
  Shape shape = c.shape(0);
  shape.insert(shape.begin() + at, 1);
  return ReshapeTo(c, shape);
}

Status LowerTranspose(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> perm, c.ConstInts(1, "permutation"));
  for (int64_t& p : perm) {
    WHET_ASSIGN_OR_RETURN(p, c.Axis(p, c.rank(0)));
  }
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Moved(0, Order::kFile));
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Transpose(x, perm));
  return c.SetMoved(0, y, Order::kFile);
}

Status LowerConcatenation(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, -1));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_Concatenation()));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.Axis(o->axis(), c.rank(0)));
  const Order order = c.PreferredOrder();
  // An activation is one of real numbers: 0 is not where stored integers have it.
  const bool moves = o->activation() == fb::Activation::NONE;
  std::vector<ValueId> in;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.Has(i)) return InvalidArgument("input {} is missing", i);
    if (c.rank(i) != c.rank(0))
      return InvalidArgument("input {} has rank {}, not {}", i, c.rank(i), c.rank(0));
    WHET_ASSIGN_OR_RETURN(const ValueId v, moves ? c.Moved(i, order) : c.Real(i, order));
    in.push_back(v);
  }
  if (order == Order::kChannelsFirst) axis = kChannelsFirstAxis[axis];
  WHET_ASSIGN_OR_RETURN(ValueId y, c.Emit("Concat", in, {{"axis", axis}}));
  return moves ? c.SetMoved(0, y, order) : c.Finish(y, order, o->activation());
}

Status LowerPack(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, -1));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_Pack()));
  WHET_ASSIGN_OR_RETURN(const int64_t axis, c.Axis(o->axis(), c.rank(0) + 1));
  std::vector<ValueId> in;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.Has(i)) return InvalidArgument("input {} is missing", i);
    if (c.rank(i) != c.rank(0))
      return InvalidArgument("input {} has rank {}, not {}", i, c.rank(i), c.rank(0));
    Shape shape = c.shape(i);
    shape.insert(shape.begin() + axis, 1);
    WHET_ASSIGN_OR_RETURN(ValueId v, c.Moved(i, Order::kFile));
    WHET_ASSIGN_OR_RETURN(v, c.Reshape(v, shape));
    in.push_back(v);
  }
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Emit("Concat", in, {{"axis", axis}}));
  return c.SetMoved(0, y, Order::kFile);
}

struct Cut {
  std::vector<int64_t> starts, ends, steps;  // one per axis of the file
};

// ONNX's Slice; ends beyond an extent stop at it.
StatusOr<ValueId> SliceOf(OpContext& c, ValueId x, Cut cut, Order order) {
  std::vector<int64_t> axes;
  for (size_t d = 0; d < cut.starts.size(); ++d)
    axes.push_back(order == Order::kFile ? static_cast<int64_t>(d) : kChannelsFirstAxis[d]);
  return c.Emit("Slice",
                {x, c.Ints(cut.starts), c.Ints(cut.ends), c.Ints(axes), c.Ints(cut.steps)});
}

// The whole of a tensor.
Cut Whole(const Shape& shape) { return {Shape(shape.size(), 0), shape, Shape(shape.size(), 1)}; }

Status LowerSlice(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(3, 3));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> begin, c.ConstInts(1, "begin"));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> size, c.ConstInts(2, "size"));
  const Shape x = c.shape(0);
  if (begin.size() != x.size() || size.size() != x.size())
    return InvalidArgument("{} begins and {} sizes for rank {}", begin.size(), size.size(),
                           x.size());
  Cut cut = Whole(x);
  for (size_t d = 0; d < x.size(); ++d) {
    const bool fits = begin[d] >= 0 && begin[d] <= x[d] &&
                      (size[d] == -1 || (size[d] >= 0 && size[d] <= x[d] - begin[d]));
    if (!fits)
      return InvalidArgument("begin {} and size {} for extent {}", begin[d], size[d], x[d]);
    cut.starts[d] = begin[d];
    if (size[d] != -1) cut.ends[d] = begin[d] + size[d];
  }
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const ValueId v, c.Moved(0, order));
  WHET_ASSIGN_OR_RETURN(const ValueId y, SliceOf(c, v, cut, order));
  return c.SetMoved(0, y, order);
}

Status LowerStridedSlice(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(4, 4));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_StridedSlice()));
  if (o->ellipsis_mask() != 0 || o->new_axis_mask() != 0)
    return Unimplemented("ellipsis and new axes are not supported");
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> begin, c.ConstInts(1, "begin"));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> end, c.ConstInts(2, "end"));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, c.ConstInts(3, "strides"));
  const Shape x = c.shape(0);
  if (begin.size() > x.size() || end.size() != begin.size() || steps.size() != begin.size())
    return InvalidArgument("{} begins, {} ends and {} strides for rank {}", begin.size(),
                           end.size(), steps.size(), x.size());
  Cut cut = Whole(x);
  Shape left;
  for (size_t d = 0; d < x.size(); ++d) {
    const auto has = [d](int32_t mask) { return (mask >> d & 1) != 0; };
    const bool shrunk = d < begin.size() && has(o->shrink_axis_mask());
    if (d < begin.size()) {
      if (steps[d] == 0) return InvalidArgument("stride 0 of axis {}", d);
      cut.steps[d] = shrunk ? 1 : steps[d];
      // Open ends: ONNX clamps what lies beyond, either way.
      cut.starts[d] = has(o->begin_mask()) ? (steps[d] > 0 ? 0 : INT32_MAX) : begin[d];
      cut.ends[d] = has(o->end_mask()) ? (steps[d] > 0 ? INT32_MAX : INT32_MIN) : end[d];
    }
    if (shrunk) {
      const int64_t at = begin[d] < 0 ? begin[d] + x[d] : begin[d];
      if (at < 0 || at >= x[d])
        return InvalidArgument("index {} is outside of extent {}", begin[d], x[d]);
      cut.starts[d] = at;
      cut.ends[d] = at + 1;
    }
  }
  const Order order = o->shrink_axis_mask() != 0 ? Order::kFile : c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const ValueId v, c.Moved(0, order));
  WHET_ASSIGN_OR_RETURN(ValueId y, SliceOf(c, v, cut, order));
  if (order == Order::kFile) {
    const Shape kept = c.builder.type(y).shape;
    for (size_t d = 0; d < kept.size(); ++d) {
      if (d >= begin.size() || (o->shrink_axis_mask() >> d & 1) == 0) left.push_back(kept[d]);
    }
    WHET_ASSIGN_OR_RETURN(y, c.Reshape(y, left));
  }
  return c.SetMoved(0, y, order);
}

// Consecutive parts of one axis, of the given sizes.
Status SplitInto(OpContext& c, int value, int64_t axis, const std::vector<int64_t>& sizes) {
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const ValueId v, c.Real(value, order));
  Cut cut = Whole(c.shape(value));
  cut.ends[axis] = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    cut.starts[axis] = cut.ends[axis];
    cut.ends[axis] += sizes[i];
    WHET_ASSIGN_OR_RETURN(const ValueId part, SliceOf(c, v, cut, order));
    WHET_RETURN_IF_ERROR(c.SetReal(static_cast<int>(i), part, order));
  }
  return OkStatus();
}

Status LowerSplit(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2, -1));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> given, c.ConstInts(0, "axis"));
  if (given.size() != 1) return InvalidArgument("{} axes, not 1", given.size());
  WHET_ASSIGN_OR_RETURN(const int64_t axis, c.Axis(given[0], c.rank(1)));
  const int64_t extent = c.shape(1)[axis], parts = c.num_outputs();
  if (extent % parts != 0) return InvalidArgument("extent {} in {} parts", extent, parts);
  return SplitInto(c, 1, axis, std::vector<int64_t>(static_cast<size_t>(parts), extent / parts));
}

Status LowerSplitV(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(3, 3, -1));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, c.ConstInts(1, "sizes"));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> given, c.ConstInts(2, "axis"));
  if (given.size() != 1) return InvalidArgument("{} axes, not 1", given.size());
  WHET_ASSIGN_OR_RETURN(const int64_t axis, c.Axis(given[0], c.rank(0)));
  int64_t left = c.shape(0)[axis];
  int64_t* open = nullptr;
  for (int64_t& s : sizes) {
    if (s == -1 && open == nullptr) {
      open = &s;
    } else if (s < 0 || s > left) {
      return InvalidArgument("size {} of a part of {}", s, c.shape(0)[axis]);
    } else {
      left -= s;
    }
  }
  if (open != nullptr) *open = std::exchange(left, 0);
  if (left != 0 || static_cast<int>(sizes.size()) != c.num_outputs())
    return InvalidArgument("{} sizes that leave {} of {} for {} outputs", sizes.size(), left,
                           c.shape(0)[axis], c.num_outputs());
  return SplitInto(c, 0, axis, sizes);
}

Status LowerUnpack(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1, -1));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_Unpack()));
  WHET_ASSIGN_OR_RETURN(const int64_t axis, c.Axis(o->axis(), c.rank(0)));
  Shape shape = c.shape(0);
  if (shape[axis] != c.num_outputs())
    return InvalidArgument("extent {} for {} outputs", shape[axis], c.num_outputs());
  WHET_ASSIGN_OR_RETURN(const ValueId v, c.Real(0, Order::kFile));
  Cut cut = Whole(shape);
  shape.erase(shape.begin() + axis);
  for (int i = 0; i < c.num_outputs(); ++i) {
    cut.starts[axis] = i;
    cut.ends[axis] = i + 1;
    WHET_ASSIGN_OR_RETURN(ValueId part, SliceOf(c, v, cut, Order::kFile));
    WHET_ASSIGN_OR_RETURN(part, c.Reshape(part, shape));
    WHET_RETURN_IF_ERROR(c.SetReal(i, part, Order::kFile));
  }
  return OkStatus();
}

// Paddings (rank, 2) as ONNX's: all begins, then all ends.
StatusOr<std::vector<int64_t>> OnnxPads(OpContext& c, Order order) {
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> given, c.ConstInts(1, "paddings"));
  const int64_t rank = c.rank(0);
  if (static_cast<int64_t>(given.size()) != 2 * rank)
    return InvalidArgument("{} paddings for rank {}", given.size(), rank);
  std::vector<int64_t> pads(given.size());
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t to = order == Order::kFile ? d : kChannelsFirstAxis[d];
    if (given[2 * d] < 0 || given[2 * d + 1] < 0)
      return InvalidArgument("paddings {} and {} of axis {}", given[2 * d], given[2 * d + 1], d);
    pads[to] = given[2 * d];
    pads[to + rank] = given[2 * d + 1];
  }
  return pads;
}

// A quantized tensor is padded with its zero point, which the real 0 becomes.
Status LowerPad(OpContext& c, const char* onnx) {
  const bool with_value = std::string_view(onnx) == "value";
  WHET_RETURN_IF_ERROR(c.Need(with_value ? 3 : 2, with_value ? 3 : 2));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> pads, OnnxPads(c, order));
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Real(0, order));
  ValueId fill = kNoValue;
  if (with_value) {
    WHET_ASSIGN_OR_RETURN(fill, c.Real(2, Order::kFile));
  }
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Emit("Pad", {x, c.Ints(pads), fill}));
  return c.Finish(y, order);
}

Status LowerMirrorPad(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_MirrorPad()));
  if (o->mode() != fb::MirrorPadMode::REFLECT)
    return Unimplemented("mode {} is not supported; REFLECT is", static_cast<int>(o->mode()));
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> pads, OnnxPads(c, order));
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Moved(0, order));
  WHET_ASSIGN_OR_RETURN(const ValueId y,
                        c.Emit("Pad", {x, c.Ints(pads)}, {{"mode", std::string("reflect")}}));
  return c.SetMoved(0, y, order);
}

// Blocks of b x b positions and the channels change places: a reshape, a transpose and a reshape.
Status LowerSpaceToDepth(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_SpaceToDepth()));
  const Shape x = c.shape(0);
  const int64_t b = o->block_size();
  if (x.size() != 4 || b < 1 || b > 32768 || x[1] % b != 0 || x[2] % b != 0)
    return InvalidArgument("block size {} for an input of rank {}", b, x.size());
  WHET_ASSIGN_OR_RETURN(ValueId v, c.Moved(0, Order::kFile));
  WHET_ASSIGN_OR_RETURN(v, c.Reshape(v, {x[0], x[1] / b, b, x[2] / b, b, x[3]}));
  WHET_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 1, 3, 2, 4, 5}));
  WHET_ASSIGN_OR_RETURN(v, c.Reshape(v, {x[0], x[1] / b, x[2] / b, x[3] * b * b}));
  return c.SetMoved(0, v, Order::kFile);
}

Status LowerDepthToSpace(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_DepthToSpace()));
  const Shape x = c.shape(0);
  const int64_t b = o->block_size();
  if (x.size() != 4 || b < 1 || b > 32768 || x[3] % (b * b) != 0)
    return InvalidArgument("block size {} for an input of rank {}", b, x.size());
  WHET_ASSIGN_OR_RETURN(ValueId v, c.Moved(0, Order::kFile));
  WHET_ASSIGN_OR_RETURN(v, c.Reshape(v, {x[0], x[1], x[2], b, b, x[3] / (b * b)}));
  WHET_ASSIGN_OR_RETURN(v, c.Transpose(v, {0, 1, 3, 2, 4, 5}));
  WHET_ASSIGN_OR_RETURN(v, c.Reshape(v, {x[0], x[1] * b, x[2] * b, x[3] / (b * b)}));
  return c.SetMoved(0, v, Order::kFile);
}

Status LowerGather(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(const auto* o, c.Options(c.op.options_as_Gather()));
  if (o->batch_dims() != 0) return Unimplemented("batch dimensions are not supported");
  WHET_ASSIGN_OR_RETURN(const int64_t axis, c.Axis(o->axis(), c.rank(0)));
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Moved(0, Order::kFile));
  WHET_ASSIGN_OR_RETURN(const ValueId at, c.Stored(1, Order::kFile));
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Emit("Gather", {x, at}, {{"axis", axis}}));
  return c.SetMoved(0, y, Order::kFile);
}

// Tile and BroadcastTo: the second input says how far, and is i64 in ONNX.
Status LowerRepeat(OpContext& c, const char* onnx) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> by, c.ConstInts(1, "repeats"));
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Moved(0, Order::kFile));
  WHET_ASSIGN_OR_RETURN(const ValueId y, c.Emit(onnx, {x, c.Ints(by)}));
  return c.SetMoved(0, y, Order::kFile);
}

Status LowerReverse(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(2, 2));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, c.ConstInts(1, "axes"));
  Cut cut = Whole(c.shape(0));
  for (int64_t a : axes) {
    WHET_ASSIGN_OR_RETURN(const int64_t axis, c.Axis(a, c.rank(0)));
    cut.starts[axis] = INT32_MAX;
    cut.ends[axis] = INT32_MIN;
    cut.steps[axis] = -1;
  }
  const Order order = c.PreferredOrder();
  WHET_ASSIGN_OR_RETURN(const ValueId x, c.Moved(0, order));
  WHET_ASSIGN_OR_RETURN(const ValueId y, SliceOf(c, x, cut, order));
  return c.SetMoved(0, y, order);
}

// Known once shapes are.
Status LowerShape(OpContext& c, const char*) {
  WHET_RETURN_IF_ERROR(c.Need(1, 1));
  const Shape shape = c.shape(0);
  const std::vector<double> values(shape.begin(), shape.end());
  return c.SetStored(0,
                     c.builder.Constant(c.out_name(0), graph::Constant::OfDoubles(
                                                           c.out_dtype(0), {c.rank(0)}, values)),
                     Order::kFile);
}

}  // namespace

std::vector<OpEntry> MovementOperators() {
  using enum fb::BuiltinOperator;
  return {
      {BROADCAST_TO, LowerRepeat, "Expand"},
      {CONCATENATION, LowerConcatenation},
      {DEPTH_TO_SPACE, LowerDepthToSpace},
      {EXPAND_DIMS, LowerExpandDims},
      {GATHER, LowerGather},
      {MIRROR_PAD, LowerMirrorPad},
      {PACK, LowerPack},
      {PAD, LowerPad},
      {PADV2, LowerPad, "value"},
      {RESHAPE, LowerReshape},
      {REVERSE_V2, LowerReverse},
      {SHAPE, LowerShape},
      {SLICE, LowerSlice},
      {SPACE_TO_DEPTH, LowerSpaceToDepth},
      {SPLIT, LowerSplit},
      {SPLIT_V, LowerSplitV},
      {SQUEEZE, LowerSqueeze},
      {STRIDED_SLICE, LowerStridedSlice},
      {TILE, LowerRepeat, "Tile"},
      {TRANSPOSE, LowerTranspose},
      {UNPACK, LowerUnpack},
  };
}

}  // namespace whet::tflite
