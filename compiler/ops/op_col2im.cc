// Col2Im: each pixel is the sum of the columns' entries that stand for it.
#include <algorithm>

#include "compiler/ops/util.h"

namespace whet::ops {
namespace {

struct Columns {
  Shape x, image, block, strides, dilations, pads, counts;
  int64_t channels = 1;
  Shape Out() const {
    Shape s = {x[0], channels};
    s.insert(s.end(), image.begin(), image.end());
    return s;
  }
};

StatusOr<Columns> ColumnsOf(const OpView& v) {
  Columns s;
  s.x = v.in[0]->shape;
  s.image = v.attrs->Ints("image"), s.block = v.attrs->Ints("block");
  s.strides = v.attrs->Ints("strides"), s.dilations = v.attrs->Ints("dilations");
  s.pads = v.attrs->Ints("pads");
  const size_t n = s.image.size();
  if (s.x.size() != 3) return InvalidArgument("input {} must have rank 3", ShapeText(s.x));
  if (n < 1 || n > 4 || s.block.size() != n || s.strides.size() != n || s.dilations.size() != n ||
      s.pads.size() != 2 * n)
    return InvalidArgument("image, block, strides, dilations and pads do not fit each other");
  constexpr int64_t kMost = int64_t{1} << 31;
  int64_t columns = 1, taps = 1;
  for (size_t d = 0; d < n; ++d) {
    for (int64_t k : {s.image[d], s.block[d], s.strides[d], s.dilations[d]}) {
      if (k < 1 || k > kMost) return InvalidArgument("{} must be between 1 and 2^31", k);
    }
    for (int64_t k : {s.pads[d], s.pads[d + n]}) {
      if (k < 0 || k > kMost) return InvalidArgument("pads {}", ShapeText(s.pads));
    }
    int64_t span = 0;
    if (__builtin_mul_overflow(s.block[d] - 1, s.dilations[d], &span))
      return InvalidArgument("too large");
    const int64_t room = s.image[d] + s.pads[d] + s.pads[d + n] - span - 1;
    if (room < 0) return InvalidArgument("block {} exceeds image {}", s.block[d], s.image[d]);
    s.counts.push_back(room / s.strides[d] + 1);
    if (__builtin_mul_overflow(columns, s.counts[d], &columns) ||
        __builtin_mul_overflow(taps, s.block[d], &taps))
      return InvalidArgument("too large");
  }
  if (s.x[1] % taps != 0 || s.x[2] != columns)
    return InvalidArgument("input {}; blocks of {} at {} places are wanted", ShapeText(s.x), taps,
                           columns);
  s.channels = s.x[1] / taps;
  return s;
}

Status ImportCol2Im(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(3, 3));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> image, c.ConstInts(1, "image_shape"));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> block, c.ConstInts(2, "block_shape"));
  const Shape ones(image.size(), 1), zeros(2 * image.size(), 0);
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> strides, c.TakeInts("strides", ones));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> dilations, c.TakeInts("dilations", ones));
  WHET_ASSIGN_OR_RETURN(std::vector<int64_t> pads, c.TakeInts("pads", zeros));
  return c.Finish("Col2Im", {c.inputs[0]},
                  {{"image", image},
                   {"block", block},
                   {"strides", strides},
                   {"dilations", dilations},
                   {"pads", pads}});
}

StatusOr<std::vector<Buffer>> TeCol2Im(const OpView& v, const std::vector<Buffer>& in,
                                       te::Builder& b) {
  WHET_ASSIGN_OR_RETURN(const Columns s, ColumnsOf(v));
  const DType t = v.out[0]->dtype;
  return std::vector<Buffer>{b.Reduce(
      "col2im", t, AxesOf(s.Out()), ReduceAxes(s.block), te::Reducer::kSum,
      [&](const std::vector<Expr>& i, const std::vector<Expr>& r) {
        Expr inside = expr::Bool(true), row = i[1], column = expr::Int(0);
        for (size_t d = 0; d < r.size(); ++d) {
          const Expr at = i[d + 2] + s.pads[d] - r[d] * s.dilations[d];
          const Expr place = expr::FloorDiv(at, s.strides[d]);
          if (s.strides[d] > 1)
            inside = expr::And(inside, expr::Eq(expr::FloorMod(at, s.strides[d]), expr::Int(0)));
          inside = expr::And(inside, expr::And(expr::Le(expr::Int(0), at),
                                               expr::Lt(place, expr::Int(s.counts[d]))));
          const Expr safe = expr::Max(expr::Min(place, expr::Int(s.counts[d] - 1)), expr::Int(0));
          row = row * s.block[d] + r[d];
          column = column * s.counts[d] + safe;
        }
        return expr::Select(inside, expr::Load(in[0], {i[0], row, column}), Const(t, 0));
      })};
}

Status ReferenceCol2Im(const OpView& v, Inputs in, Outputs out, bool want_err) {
  WHET_ASSIGN_OR_RETURN(const Columns s, ColumnsOf(v));
  const RefTensor& x = *in[0];
  RefTensor& y = out[0];
  const size_t n = s.image.size();
  const int64_t taps = Product(s.block), columns = s.x[2], area = Product(s.image);
  std::vector<double> magnitude(y.value.size(), 0.0), error(y.value.size(), 0.0);
  std::vector<uint64_t> words(IsFloat(y.dtype) ? 0 : y.value.size());
  ForEachIndex(s.block, [&](int64_t k, const Shape& tap) {
    ForEachIndex(s.counts, [&](int64_t l, const Shape& place) {
      int64_t pixel = 0;
      bool inside = true;
      for (size_t d = 0; d < n; ++d) {
        const int64_t at = place[d] * s.strides[d] + tap[d] * s.dilations[d] - s.pads[d];
        inside = inside && at >= 0 && at < s.image[d];
        pixel = pixel * s.image[d] + at;
      }
      for (int64_t p = 0; inside && p < s.x[0] * s.channels; ++p) {
        const int64_t from = (p * taps + k) * columns + l, to = p * area + pixel;
        y.value[to] += x.value[from];
        if (!words.empty()) words[to] += static_cast<uint64_t>(WordAt(x, from));
        magnitude[to] += std::fabs(x.value[from]);
        error[to] += x.ErrAt(from);
      }
    });
  });
  for (size_t i = 0; i < words.size(); ++i)
    SetWord(y, static_cast<int64_t>(i), expr::WrapInt(static_cast<int64_t>(words[i]), y.dtype));
  const double unit = Roundoff(y.dtype) * static_cast<double>(taps);
  if (!want_err || (unit == 0 && x.err.empty())) return OkStatus();
  for (size_t i = 0; i < error.size(); ++i) error[i] += unit * magnitude[i];
  y.err = std::move(error);
  return OkStatus();
}

}  // namespace

const OpRecord& OpCol2Im() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Col2Im";
    r.kind = FusionKind::kReduction;
    r.input_names = {"x"};
    r.types = Numbers();
    for (const char* name : {"image", "block", "strides", "dilations", "pads"})
      r.attrs.push_back({name, AttrType::kInts, std::nullopt});
    r.note = "image and block shapes known at compile time";
    r.import = ImportCol2Im;
    r.infer = [](const OpView& v, std::vector<TensorType>* out) -> Status {
      WHET_ASSIGN_OR_RETURN(Columns s, ColumnsOf(v));
      out->push_back(TensorType::Of(v.in[0]->dtype, s.Out()));
      return OkStatus();
    };
    r.te = TeCol2Im;
    r.reference = ReferenceCol2Im;
    r.flops = [](const OpView& v) {
      return graph::FlopsProduct(
          {v.out[0]->num_elements(), graph::FlopsProduct(v.attrs->Ints("block"))});
    };
    return r;
  }();
  return op;
}

}  // namespace whet::ops
