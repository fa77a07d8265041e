// Tile, DepthToSpace and SpaceToDepth: data movement by reshapes, repetition and transposes.
#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

// (outer, extent * inner) -> (outer, repeat, extent * inner): reshapes around one Expand are views.
StatusOr<ValueId> RepeatAxis(ImportContext& c, ValueId v, size_t axis, int64_t repeat) {
  Shape shape = c.builder.type(v).shape;
  const int64_t outer = Product(shape, 0, axis), inner = Product(shape, axis);
  WHET_ASSIGN_OR_RETURN(v, Reshaped(c.builder, v, {outer, 1, inner}));
  WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Expand", {v}, {{"shape", Shape{outer, repeat, inner}}}));
  shape[axis] *= repeat;
  return Reshaped(c.builder, v, shape);
}

Status ImportTile(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, c.opset < 6 ? 3 : 2));
  const Shape in = c.type(0).shape;
  std::vector<int64_t> repeats;
  if (c.opset < 6) {  // tiles along one axis
    WHET_RETURN_IF_ERROR(c.NeedInputs(3, 3));
    WHET_ASSIGN_OR_RETURN(int64_t tiles, c.ConstInt(1, "tiles"));
    WHET_ASSIGN_OR_RETURN(int64_t axis, c.ConstInt(2, "axis"));
    WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
    repeats.assign(in.size(), 1);
    repeats[axis] = tiles;
  } else {
    WHET_ASSIGN_OR_RETURN(repeats, c.ConstInts(1, "repeats"));
  }
  if (repeats.size() != in.size())
    return InvalidArgument("{} repeats for rank {}", repeats.size(), in.size());
  Shape out = in;
  for (size_t d = 0; d < in.size(); ++d) {
    if (repeats[d] < 0 || __builtin_mul_overflow(in[d], repeats[d], &out[d]))
      return InvalidArgument("repeats {} of {}", ShapeText(repeats), ShapeText(in));
  }
  WHET_RETURN_IF_ERROR(graph::CheckShape(c.type(0).dtype, out));
  ValueId v = c.inputs[0];
  // Innermost first: what is read again and again is then the smallest.
  for (size_t d = in.size(); d-- > 0;) {
    if (repeats[d] == 1) continue;
    WHET_ASSIGN_OR_RETURN(v, RepeatAxis(c, v, d, repeats[d]));
  }
  if (v == c.inputs[0]) return c.Finish("Identity", {v});
  c.outputs = {v};
  return OkStatus();
}

// Canonical DepthToSpace: a window of the image that blocks of channels unfold to. Input channel
// (g, a, b, o) is output channel (g, o) at row a and column b of each block: one group is ONNX's
// DCR, as many groups as output channels CRD, and a transposed convolution brings groups of its
// own.
struct Unfold {
  int64_t n, channels, groups, bh, bw, top, left, h, w;
};

StatusOr<Unfold> ShapeOfUnfold(const OpView& v) {
  const Shape &x = v.in[0]->shape, &block = v.attrs->Ints("block"),
              &starts = v.attrs->Ints("starts"), &sizes = v.attrs->Ints("sizes");
  Unfold u;
  if (x.size() != 4) return InvalidArgument("input {} must have rank 4", ShapeText(x));
  if (block.size() != 2 || starts.size() != 2 || sizes.size() != 2)
    return InvalidArgument("block, starts and sizes need 2 entries");
  u.n = x[0], u.bh = block[0], u.bw = block[1], u.groups = v.attrs->Int("groups");
  u.top = starts[0], u.left = starts[1], u.h = sizes[0], u.w = sizes[1];
  int64_t all = 0;
  if (u.bh < 1 || u.bw < 1 || __builtin_mul_overflow(u.bh, u.bw, &all) || x[1] % all != 0)
    return InvalidArgument("blocks {} of {} channels", ShapeText(block), x[1]);
  u.channels = x[1] / all;
  if (u.groups < 1 || u.channels % u.groups != 0)
    return InvalidArgument("{} groups of {} channels", u.groups, u.channels);
  int64_t rows = 0, columns = 0;
  if (__builtin_mul_overflow(x[2], u.bh, &rows) || __builtin_mul_overflow(x[3], u.bw, &columns))
    return InvalidArgument("too large");
  if (u.top < 0 || u.left < 0 || u.h < 0 || u.w < 0 || u.h > rows || u.w > columns ||
      u.top > rows - u.h || u.left > columns - u.w)
    return InvalidArgument("a window {} at {} leaves [{},{}]", ShapeText(sizes), ShapeText(starts),
                           rows, columns);
  return u;
}

Status ImportDepthToSpace(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(int64_t block, c.TakeInt("blocksize", 0));
  WHET_ASSIGN_OR_RETURN(std::string mode, c.TakeString("mode", "DCR"));
  const Shape x = c.type(0).shape;
  if (x.size() != 4) return InvalidArgument("input {} must have rank 4", ShapeText(x));
  if (mode != "DCR" && mode != "CRD")
    return InvalidArgument("mode '{}' is unknown; DCR and CRD are known", mode);
  if (block < 1 || block > 4096 || x[1] % (block * block) != 0)
    return InvalidArgument("blocksize {} of {} channels", block, x[1]);
  return c.Finish("DepthToSpace", c.inputs,
                  {{"block", Shape{block, block}},
                   {"groups", mode == "CRD" ? std::max<int64_t>(x[1] / (block * block), 1) : 1},
                   {"starts", Shape{0, 0}},
                   {"sizes", Shape{x[2] * block, x[3] * block}}});
}

StatusOr<std::vector<Buffer>> TeDepthToSpace(const OpView& v, const std::vector<Buffer>& in,
                                             te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const Unfold u, ShapeOfUnfold(v));
  const int64_t per = u.channels / u.groups, area = u.bh * u.bw;
  return std::vector<Buffer>{b.Compute(
      "unfold", v.out[0]->dtype, AxesOf(v.out[0]->shape), [&](const std::vector<Expr>& i) {
        const Expr h = i[2] + u.top, w = i[3] + u.left;
        const Expr phase = expr::FloorMod(h, u.bh) * u.bw + expr::FloorMod(w, u.bw);
        Expr channel;
        if (u.groups == 1) {
          channel = phase * per + i[1];
        } else if (per == 1) {
          channel = i[1] * area + phase;
        } else {
          channel =
              expr::FloorDiv(i[1], per) * (area * per) + phase * per + expr::FloorMod(i[1], per);
        }
        return expr::Load(in[0], {i[0], channel, expr::FloorDiv(h, u.bh), expr::FloorDiv(w, u.bw)});
      })};
}

Status ReferenceDepthToSpace(const OpView& v, Inputs in, Outputs out, bool want_err) {
  WHET_ASSIGN_OR_RETURN(const Unfold u, ShapeOfUnfold(v));
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  PrepareCopy(x, y, want_err);
  const int64_t per = u.channels / u.groups;
  int64_t to = 0;
  for (int64_t n = 0; n < u.n; ++n)
    for (int64_t c = 0; c < u.channels; ++c)
      for (int64_t h = u.top; h < u.top + u.h; ++h)
        for (int64_t w = u.left; w < u.left + u.w; ++w, ++to) {
          const int64_t phase = h % u.bh * u.bw + w % u.bw;
          const int64_t channel = (c / per * u.bh * u.bw + phase) * per + c % per;
          const int64_t from =
              ((n * x.shape[1] + channel) * x.shape[2] + h / u.bh) * x.shape[3] + w / u.bw;
          CopyElement(x, from, y, to);
        }
  return OkStatus();
}

Status ImportSpaceToDepth(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(int64_t block, c.TakeInt("blocksize", 0));
  const Shape x = c.type(0).shape;
  if (x.size() != 4) return InvalidArgument("input {} must have rank 4", ShapeText(x));
  if (block < 1 || block > 4096 || x[2] % block != 0 || x[3] % block != 0)
    return InvalidArgument("blocksize {} of {}", block, ShapeText(x));
  const int64_t h = x[2] / block, w = x[3] / block;
  WHET_ASSIGN_OR_RETURN(ValueId v,
                        Reshaped(c.builder, c.inputs[0], {x[0], x[1], h, block, w, block}));
  WHET_ASSIGN_OR_RETURN(v, c.builder.Emit("Transpose", {v}, {{"perm", Shape{0, 3, 5, 1, 2, 4}}}));
  return c.Finish("Reshape", {v}, {{"shape", Shape{x[0], x[1] * block * block, h, w}}});
}

}  // namespace

const OpRecord& OpTile() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Tile";
    r.note = "repeats known at compile time";
    r.import = ImportTile;
    return r;
  }();
  return op;
}

const OpRecord& OpDepthToSpace() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "DepthToSpace";
    r.kind = FusionKind::kInjective;
    r.layout = LayoutRole::kFollows;
    r.input_names = {"x"};
    r.attrs = {{"block", AttrType::kInts, std::nullopt},
               {"groups", AttrType::kInt, AttrValue(int64_t{1})},
               {"starts", AttrType::kInts, AttrValue(Shape{0, 0})},
               {"sizes", AttrType::kInts, std::nullopt}};
    r.import = ImportDepthToSpace;
    r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
      WHET_ASSIGN_OR_RETURN(Unfold u, ShapeOfUnfold(v));
      out->push_back(TensorType::Of(v.in[0]->dtype, {u.n, u.channels, u.h, u.w}));
      return OkStatus();
    };
    r.te = TeDepthToSpace;
    r.reference = ReferenceDepthToSpace;
    r.flops = [](const OpView&) { return int64_t{0}; };
    r.is_identity = [](const OpView& v) {
      return v.attrs->Ints("block") == Shape{1, 1} && v.in[0]->shape == v.out[0]->shape;
    };
    return r;
  }();
  return op;
}

const OpRecord& OpSpaceToDepth() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "SpaceToDepth";
    r.import = ImportSpaceToDepth;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
