// RNN, GRU and LSTM, unrolled at import over the length of the sequence, which is static as all
// shapes are: one matrix product for the inputs of all steps, then per step one for the state and
// element-wise operators, which fuse.
#include <algorithm>
#include <cctype>
#include <sstream>

#include "compiler/ops/emitter.h"
#include "compiler/ops/lists.h"

namespace whet::ops {
namespace {

// Of one node, directions times sequence length: some ten nodes each.
constexpr int64_t kMaxUnrolledSteps = 4096;

enum class CellKind { kRnn, kGru, kLstm };

struct Activation {
  std::string name;  // lower case
  double alpha = 0, beta = 0;
};

// How many of alpha and beta an activation takes, and their defaults.
struct ActivationSpec {
  std::string_view name;
  int parameters;
  double alpha, beta;
};
constexpr ActivationSpec kActivations[] = {
    {"affine", 2, 1, 0},    {"elu", 1, 1, 0},         {"hardsigmoid", 2, 0.2, 0.5},
    {"leakyrelu", 1, 0.01}, {"relu", 0, 0, 0},        {"scaledtanh", 2, 1, 1},
    {"sigmoid", 0, 0, 0},   {"softplus", 0, 0, 0},    {"softsign", 0, 0, 0},
    {"tanh", 0, 0, 0},      {"thresholdedrelu", 1, 1}};

class Unroller {
 public:
  Unroller(ImportContext& c, CellKind kind) : c_(c), b_(c.builder), kind_(kind) {}

  Status Run() {
    WHET_RETURN_IF_ERROR(Attributes());
    WHET_RETURN_IF_ERROR(CheckInputs());
    WHET_RETURN_IF_ERROR(ReadLengths());
    std::vector<ValueId> all, last, last_cell;
    for (int64_t d = 0; d < directions_; ++d) {
      WHET_RETURN_IF_ERROR(Direction(d));
      WHET_ASSIGN_OR_RETURN(ValueId y, Join(b_, steps_, 0, Joined::kConcat));
      WHET_ASSIGN_OR_RETURN(y, Reshaped(b_, y, {steps_count_, 1, batch_, hidden_}));
      all.push_back(y);
      for (auto [value, list] : {std::pair{h_, &last}, std::pair{cell_, &last_cell}}) {
        if (value == graph::kNoValue) continue;
        WHET_ASSIGN_OR_RETURN(value, Reshaped(b_, value, {1, batch_, hidden_}));
        list->push_back(value);
      }
    }
    WHET_ASSIGN_OR_RETURN(ValueId y, Join(b_, all, 1, Joined::kConcat));
    WHET_ASSIGN_OR_RETURN(ValueId y_h, Join(b_, last, 0, Joined::kConcat));
    if (layout_ == 1) {
      WHET_ASSIGN_OR_RETURN(y, Permuted(y, {2, 0, 1, 3}));
      WHET_ASSIGN_OR_RETURN(y_h, Permuted(y_h, {1, 0, 2}));
    }
    c_.outputs = {y, y_h};
    if (kind_ == CellKind::kLstm) {
      WHET_ASSIGN_OR_RETURN(ValueId y_c, Join(b_, last_cell, 0, Joined::kConcat));
      if (layout_ == 1) {
        WHET_ASSIGN_OR_RETURN(y_c, Permuted(y_c, {1, 0, 2}));
      }
      c_.outputs.push_back(y_c);
    }
    return OkStatus();
  }

 private:
  int64_t gates() const { return kind_ == CellKind::kRnn ? 1 : kind_ == CellKind::kGru ? 3 : 4; }

  Status Attributes() {
    c_.Ignore("output_sequence");  // operator sets before 7
    WHET_ASSIGN_OR_RETURN(std::string direction, c_.TakeString("direction", "forward"));
    if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
      return InvalidArgument("direction '{}' is none of forward, reverse, bidirectional",
                             direction);
    directions_ = direction == "bidirectional" ? 2 : 1;
    reverse_first_ = direction == "reverse";
    WHET_ASSIGN_OR_RETURN(hidden_, c_.TakeInt("hidden_size", 0));
    WHET_ASSIGN_OR_RETURN(clip_, c_.TakeFloat("clip", 0));
    if (!(clip_ >= 0)) return InvalidArgument("clip {} is negative", clip_);
    WHET_ASSIGN_OR_RETURN(layout_, c_.TakeInt("layout", 0));
    if (layout_ != 0 && layout_ != 1)
      return InvalidArgument("layout {} is neither 0 nor 1", layout_);
    if (kind_ == CellKind::kLstm) {
      WHET_ASSIGN_OR_RETURN(input_forget_, c_.TakeInt("input_forget", 0));
    }
    if (kind_ == CellKind::kGru) {
      WHET_ASSIGN_OR_RETURN(linear_before_reset_, c_.TakeInt("linear_before_reset", 0));
    }
    return ReadActivations();
  }

  Status ReadActivations() {
    const std::string defaults = kind_ == CellKind::kRnn   ? "Tanh"
                                 : kind_ == CellKind::kGru ? "Sigmoid,Tanh"
                                                           : "Sigmoid,Tanh,Tanh";
    WHET_ASSIGN_OR_RETURN(const std::string given, c_.TakeString("activations", ""));
    WHET_ASSIGN_OR_RETURN(const std::vector<double> alphas, c_.TakeFloats("activation_alpha", {}));
    WHET_ASSIGN_OR_RETURN(const std::vector<double> betas, c_.TakeFloats("activation_beta", {}));
    const auto per_direction =
        static_cast<size_t>(1 + std::count(defaults.begin(), defaults.end(), ','));
    std::string names = given;
    if (names.empty()) names = directions_ == 2 ? defaults + "," + defaults : defaults;
    size_t alpha = 0, beta = 0;
    std::istringstream in(names);
    for (std::string name; std::getline(in, name, ',');) {
      for (char& ch : name) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
      const auto* spec = std::find_if(std::begin(kActivations), std::end(kActivations),
                                      [&](const ActivationSpec& s) { return s.name == name; });
      if (spec == std::end(kActivations))
        return Unimplemented("activation '{}' is not supported", name);
      Activation a{name, spec->alpha, spec->beta};
      // The lists hold values of those activations only that take some, in order.
      if (spec->parameters >= 1 && alpha < alphas.size()) a.alpha = alphas[alpha++];
      if (spec->parameters >= 2 && beta < betas.size()) a.beta = betas[beta++];
      activations_.push_back(std::move(a));
    }
    if (activations_.size() != per_direction * static_cast<size_t>(directions_))
      return InvalidArgument("{} activations; {} directions need {}", activations_.size(),
                             directions_, per_direction * static_cast<size_t>(directions_));
    return OkStatus();
  }

  Status CheckShape(int input, std::string_view what, const Shape& want) const {
    if (!c_.Has(input) || c_.type(input).shape == want) return OkStatus();
    return InvalidArgument("{} (input {}) is {}, not {}", what, input,
                           ShapeText(c_.type(input).shape), ShapeText(want));
  }

  Status CheckInputs() {
    WHET_RETURN_IF_ERROR(c_.NeedInputs(3, kind_ == CellKind::kLstm ? 8 : 6));
    dtype_ = c_.type(0).dtype;
    if (dtype_ != DType::kF32 && dtype_ != DType::kF64)
      return Unimplemented("element type {} is not supported; floats are", ToString(dtype_));
    const Shape &x = c_.type(0).shape, &r = c_.type(2).shape;
    if (x.size() != 3 || r.size() != 3)
      return InvalidArgument("X {} and R {} must have three dimensions", ShapeText(x),
                             ShapeText(r));
    steps_count_ = x[layout_ == 1 ? 1 : 0];
    batch_ = x[layout_ == 1 ? 0 : 1];
    if (hidden_ == 0) hidden_ = r[2];
    if (hidden_ < 1 || hidden_ != r[2])
      return InvalidArgument("hidden_size {} and R {} do not agree", hidden_, ShapeText(r));
    const int64_t rows = gates() * hidden_;
    WHET_RETURN_IF_ERROR(CheckShape(1, "W", {directions_, rows, x[2]}));
    WHET_RETURN_IF_ERROR(CheckShape(2, "R", {directions_, rows, hidden_}));
    WHET_RETURN_IF_ERROR(CheckShape(3, "B", {directions_, 2 * rows}));
    WHET_RETURN_IF_ERROR(CheckShape(4, "sequence_lens", {batch_}));
    const Shape state =
        layout_ == 1 ? Shape{batch_, directions_, hidden_} : Shape{directions_, batch_, hidden_};
    WHET_RETURN_IF_ERROR(CheckShape(5, "initial_h", state));
    WHET_RETURN_IF_ERROR(CheckShape(6, "initial_c", state));
    WHET_RETURN_IF_ERROR(CheckShape(7, "P", {directions_, 3 * hidden_}));
    for (int i : {1, 2, 3, 5, 6, 7}) {
      if (c_.Has(i) && c_.type(i).dtype != dtype_)
        return InvalidArgument("input {} is {}, X {}", i, ToString(c_.type(i).dtype),
                               ToString(dtype_));
    }
    if (steps_count_ < 1 || batch_ < 1)
      return Unimplemented("a sequence or batch without elements (X is {}) is not supported",
                           ShapeText(x));
    if (steps_count_ > kMaxUnrolledSteps / directions_)
      return ResourceExhausted("{} steps in {} directions exceed the limit of {} unrolled steps",
                               steps_count_, directions_, kMaxUnrolledSteps);
    return OkStatus();
  }

  // Lengths that are all the whole sequence need no masks.
  Status ReadLengths() {
    masked_ = c_.Has(4);
    if (!masked_) return OkStatus();
    if (c_.type(4).dtype != DType::kI32)
      return InvalidArgument("sequence_lens (input 4) is {}, not i32", ToString(c_.type(4).dtype));
    if (c_.IsConst(4)) {
      WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, c_.ConstInts(4, "sequence_lens"));
      masked_ =
          std::any_of(lengths.begin(), lengths.end(), [&](int64_t n) { return n < steps_count_; });
    }
    if (masked_) {
      WHET_ASSIGN_OR_RETURN(lengths_, Reshaped(b_, c_.inputs[4], {batch_, 1}));
    }
    return OkStatus();
  }

  // ---- pieces

  StatusOr<ValueId> Op(std::string_view op, std::vector<ValueId> in, Attrs attrs = {}) {
    return b_.Emit(op, std::move(in), std::move(attrs));
  }
  StatusOr<ValueId> Permuted(ValueId v, const Shape& perm) {
    return Op("Transpose", {v}, {{"perm", perm}});
  }
  // Elements [from, from + count) of an axis.
  StatusOr<ValueId> Part(ValueId v, int64_t axis, int64_t from, int64_t count) {
    return ops::Part(b_, v, axis, from, count, Axis::kKeep);
  }
  // What direction `d` has of an input whose axis `axis` is the directions; that axis removed.
  StatusOr<ValueId> OfDirection(int input, int64_t axis, int64_t d) {
    WHET_ASSIGN_OR_RETURN(const ValueId v, Part(c_.inputs[input], axis, d, 1));
    Shape shape = b_.type(v).shape;
    shape.erase(shape.begin() + axis);
    return Reshaped(b_, v, shape);
  }
  ValueId Number(double v) {
    const double values[] = {v};
    return b_.Constant(c_.op_type + "_const", graph::Constant::OfDoubles(dtype_, {}, values));
  }
  // a + b, where b may be absent.
  StatusOr<ValueId> Plus(ValueId a, ValueId b) {
    if (b == graph::kNoValue) return a;
    return Op("Add", {a, b});
  }

  StatusOr<ValueId> Activate(ValueId x, const Activation& a) {
    if (clip_ > 0) {
      WHET_ASSIGN_OR_RETURN(x, Op("Clip", {x}, {{"min", -clip_}, {"max", clip_}}));
    }
    if (a.name == "tanh") return Op("Tanh", {x});
    if (a.name == "sigmoid") return Op("Sigmoid", {x});
    if (a.name == "relu") return Op("Relu", {x});
    if (a.name == "softplus") return Op("Softplus", {x});
    if (a.name == "elu") return Op("Elu", {x}, {{"alpha", a.alpha}});
    if (a.name == "leakyrelu") return Op("LeakyRelu", {x}, {{"alpha", a.alpha}});
    if (a.name == "hardsigmoid")
      return Op("HardSigmoid", {x}, {{"alpha", a.alpha}, {"beta", a.beta}});
    if (a.name == "affine") {
      WHET_ASSIGN_OR_RETURN(const ValueId scaled, Op("Mul", {x, Number(a.alpha)}));
      return Op("Add", {scaled, Number(a.beta)});
    }
    if (a.name == "scaledtanh") {
      WHET_ASSIGN_OR_RETURN(ValueId inner, Op("Mul", {x, Number(a.beta)}));
      WHET_ASSIGN_OR_RETURN(inner, Op("Tanh", {inner}));
      return Op("Mul", {inner, Number(a.alpha)});
    }
    if (a.name == "softsign") {
      WHET_ASSIGN_OR_RETURN(ValueId below, Op("Abs", {x}));
      WHET_ASSIGN_OR_RETURN(below, Op("Add", {below, Number(1)}));
      return Op("Div", {x, below});
    }
    WHET_ASSIGN_OR_RETURN(const ValueId above, Op("Greater", {x, Number(a.alpha)}));
    return Op("Where", {above, x, Number(0)});  // thresholdedrelu
  }

  // ---- one direction

  // Products of all inputs with the weights, biases added where that is the same sum.
  Status PrepareDirection(int64_t d) {
    const int64_t rows = gates() * hidden_;
    ValueId x = c_.inputs[0];
    if (layout_ == 1) {
      WHET_ASSIGN_OR_RETURN(x, Permuted(x, {1, 0, 2}));
    }
    WHET_ASSIGN_OR_RETURN(x, Reshaped(b_, x, {steps_count_ * batch_, c_.type(0).shape[2]}));
    WHET_ASSIGN_OR_RETURN(ValueId w, OfDirection(1, 0, d));
    WHET_ASSIGN_OR_RETURN(w, Permuted(w, {1, 0}));
    WHET_ASSIGN_OR_RETURN(r_, OfDirection(2, 0, d));
    WHET_ASSIGN_OR_RETURN(r_, Permuted(r_, {1, 0}));
    WHET_ASSIGN_OR_RETURN(xw_, Op("MatMul", {x, w}));
    r_bias_ = graph::kNoValue;
    if (c_.Has(3)) {
      WHET_ASSIGN_OR_RETURN(const ValueId bias, OfDirection(3, 0, d));
      WHET_ASSIGN_OR_RETURN(const ValueId w_bias, Part(bias, 0, 0, rows));
      WHET_ASSIGN_OR_RETURN(r_bias_, Part(bias, 0, rows, rows));
      ValueId sum = w_bias;
      if (kind_ == CellKind::kGru && linear_before_reset_ != 0) {
        // The recurrent bias of the last gate is scaled by the reset gate, so it stays apart.
        WHET_ASSIGN_OR_RETURN(const ValueId zr, Part(r_bias_, 0, 0, 2 * hidden_));
        WHET_ASSIGN_OR_RETURN(const ValueId w_zr, Part(w_bias, 0, 0, 2 * hidden_));
        WHET_ASSIGN_OR_RETURN(const ValueId w_h, Part(w_bias, 0, 2 * hidden_, hidden_));
        WHET_ASSIGN_OR_RETURN(const ValueId sum_zr, Op("Add", {w_zr, zr}));
        WHET_ASSIGN_OR_RETURN(sum, Join(b_, {sum_zr, w_h}, 0, Joined::kConcat));
        WHET_ASSIGN_OR_RETURN(r_bias_, Part(r_bias_, 0, 2 * hidden_, hidden_));
      } else {
        WHET_ASSIGN_OR_RETURN(sum, Op("Add", {w_bias, r_bias_}));
      }
      WHET_ASSIGN_OR_RETURN(xw_, Op("Add", {xw_, sum}));
    }
    h_ = cell_ = graph::kNoValue;
    const int64_t axis = layout_ == 1 ? 1 : 0;
    if (c_.Has(5)) {
      WHET_ASSIGN_OR_RETURN(h_, OfDirection(5, axis, d));
    }
    if (kind_ == CellKind::kLstm && c_.Has(6)) {
      WHET_ASSIGN_OR_RETURN(cell_, OfDirection(6, axis, d));
    }
    peepholes_.assign(3, graph::kNoValue);
    if (kind_ == CellKind::kLstm && c_.Has(7)) {
      WHET_ASSIGN_OR_RETURN(const ValueId p, OfDirection(7, 0, d));
      for (int64_t i = 0; i < 3; ++i) {
        WHET_ASSIGN_OR_RETURN(peepholes_[i], Part(p, 0, i * hidden_, hidden_));
      }
    }
    return OkStatus();
  }

  Status Direction(int64_t d) {
    WHET_RETURN_IF_ERROR(PrepareDirection(d));
    const bool reverse = reverse_first_ || d == 1;
    const size_t per_direction = activations_.size() / static_cast<size_t>(directions_);
    act_ = activations_.data() + per_direction * static_cast<size_t>(d);
    steps_.assign(static_cast<size_t>(steps_count_), graph::kNoValue);
    for (int64_t n = 0; n < steps_count_; ++n) {
      const int64_t t = reverse ? steps_count_ - 1 - n : n;
      WHET_ASSIGN_OR_RETURN(const ValueId x, Part(xw_, 0, t * batch_, batch_));
      const ValueId h = h_, cell = cell_;
      switch (kind_) {
        case CellKind::kRnn: WHET_RETURN_IF_ERROR(RnnStep(x)); break;
        case CellKind::kGru: WHET_RETURN_IF_ERROR(GruStep(x)); break;
        case CellKind::kLstm: WHET_RETURN_IF_ERROR(LstmStep(x)); break;
      }
      WHET_RETURN_IF_ERROR(Mask(t, h, cell));
    }
    return OkStatus();
  }

  // Beyond its length a sequence keeps its state and gives zeros; backwards, it then has its
  // initial state until its last element comes up.
  Status Mask(int64_t t, ValueId h, ValueId cell) {
    steps_[t] = h_;
    if (!masked_) return OkStatus();
    const double values[] = {static_cast<double>(t)};
    const ValueId now =
        b_.Constant(c_.op_type + "_step", graph::Constant::OfDoubles(DType::kI32, {}, values));
    WHET_ASSIGN_OR_RETURN(const ValueId inside, Op("Less", {now, lengths_}));
    const ValueId zero = Number(0);
    WHET_ASSIGN_OR_RETURN(steps_[t], Op("Where", {inside, h_, zero}));
    WHET_ASSIGN_OR_RETURN(h_, Op("Where", {inside, h_, h == graph::kNoValue ? zero : h}));
    if (cell_ != graph::kNoValue) {
      WHET_ASSIGN_OR_RETURN(cell_,
                            Op("Where", {inside, cell_, cell == graph::kNoValue ? zero : cell}));
    }
    return OkStatus();
  }

  // x + h R; the product with a state of zeros is left out.
  StatusOr<ValueId> WithState(ValueId x, ValueId r) {
    if (h_ == graph::kNoValue) return x;
    WHET_ASSIGN_OR_RETURN(const ValueId hr, Op("MatMul", {h_, r}));
    return Op("Add", {hr, x});
  }

  Status RnnStep(ValueId x) {
    WHET_ASSIGN_OR_RETURN(const ValueId sum, WithState(x, r_));
    WHET_ASSIGN_OR_RETURN(h_, Activate(sum, act_[0]));
    return OkStatus();
  }

  // Gates z, r, h.
  Status GruStep(ValueId x) {
    const int64_t n = hidden_;
    const bool linear = linear_before_reset_ != 0;
    ValueId hr = graph::kNoValue;  // the state's part of gates z and r, with `linear` of h too
    if (h_ != graph::kNoValue) {
      WHET_ASSIGN_OR_RETURN(const ValueId weights, Part(r_, 1, 0, linear ? 3 * n : 2 * n));
      WHET_ASSIGN_OR_RETURN(hr, Op("MatMul", {h_, weights}));
    }
    ValueId gate[2];
    for (int64_t g = 0; g < 2; ++g) {
      WHET_ASSIGN_OR_RETURN(ValueId sum, Part(x, 1, g * n, n));
      if (hr != graph::kNoValue) {
        WHET_ASSIGN_OR_RETURN(const ValueId part, Part(hr, 1, g * n, n));
        WHET_ASSIGN_OR_RETURN(sum, Op("Add", {sum, part}));
      }
      WHET_ASSIGN_OR_RETURN(gate[g], Activate(sum, act_[0]));
    }
    WHET_ASSIGN_OR_RETURN(ValueId candidate, Part(x, 1, 2 * n, n));
    ValueId scaled = graph::kNoValue;
    if (linear) {
      if (hr != graph::kNoValue) {
        WHET_ASSIGN_OR_RETURN(scaled, Part(hr, 1, 2 * n, n));
        WHET_ASSIGN_OR_RETURN(scaled, Plus(scaled, r_bias_));
      } else {
        scaled = r_bias_;
      }
      if (scaled != graph::kNoValue) {
        WHET_ASSIGN_OR_RETURN(scaled, Op("Mul", {gate[1], scaled}));
      }
    } else if (h_ != graph::kNoValue) {
      WHET_ASSIGN_OR_RETURN(const ValueId reset, Op("Mul", {gate[1], h_}));
      WHET_ASSIGN_OR_RETURN(const ValueId weights, Part(r_, 1, 2 * n, n));
      WHET_ASSIGN_OR_RETURN(scaled, Op("MatMul", {reset, weights}));
    }
    WHET_ASSIGN_OR_RETURN(candidate, Plus(candidate, scaled));
    WHET_ASSIGN_OR_RETURN(candidate, Activate(candidate, act_[1]));
    WHET_ASSIGN_OR_RETURN(const ValueId rest, Op("Sub", {Number(1), gate[0]}));
    WHET_ASSIGN_OR_RETURN(ValueId h, Op("Mul", {rest, candidate}));
    if (h_ != graph::kNoValue) {
      WHET_ASSIGN_OR_RETURN(const ValueId kept, Op("Mul", {gate[0], h_}));
      WHET_ASSIGN_OR_RETURN(h, Op("Add", {h, kept}));
    }
    h_ = h;
    return OkStatus();
  }

  // Gates i, o, f, c; peepholes i, o, f.
  Status LstmStep(ValueId x) {
    const int64_t n = hidden_;
    WHET_ASSIGN_OR_RETURN(const ValueId sums, WithState(x, r_));
    auto gate = [&](int64_t index, ValueId cell, int64_t peephole,
                    const Activation& a) -> StatusOr<ValueId> {
      WHET_ASSIGN_OR_RETURN(ValueId sum, Part(sums, 1, index * n, n));
      if (peephole >= 0 && peepholes_[peephole] != graph::kNoValue && cell != graph::kNoValue) {
        WHET_ASSIGN_OR_RETURN(const ValueId seen, Op("Mul", {peepholes_[peephole], cell}));
        WHET_ASSIGN_OR_RETURN(sum, Op("Add", {sum, seen}));
      }
      return Activate(sum, a);
    };
    WHET_ASSIGN_OR_RETURN(const ValueId in, gate(0, cell_, 0, act_[0]));
    WHET_ASSIGN_OR_RETURN(const ValueId fresh, gate(3, graph::kNoValue, -1, act_[1]));
    WHET_ASSIGN_OR_RETURN(ValueId cell, Op("Mul", {in, fresh}));
    if (cell_ != graph::kNoValue) {
      ValueId forget = graph::kNoValue;
      if (input_forget_ != 0) {
        WHET_ASSIGN_OR_RETURN(forget, Op("Sub", {Number(1), in}));
      } else {
        WHET_ASSIGN_OR_RETURN(forget, gate(2, cell_, 2, act_[0]));
      }
      WHET_ASSIGN_OR_RETURN(const ValueId kept, Op("Mul", {forget, cell_}));
      WHET_ASSIGN_OR_RETURN(cell, Op("Add", {kept, cell}));
    }
    cell_ = cell;
    WHET_ASSIGN_OR_RETURN(const ValueId out, gate(1, cell_, 1, act_[0]));
    WHET_ASSIGN_OR_RETURN(const ValueId shown, Activated(cell_));
    WHET_ASSIGN_OR_RETURN(h_, Op("Mul", {out, shown}));
    return OkStatus();
  }

  // The third activation of an LSTM, of the cell; clipping is for sums only.
  StatusOr<ValueId> Activated(ValueId cell) {
    const double clip = std::exchange(clip_, 0);
    auto y = Activate(cell, act_[2]);
    clip_ = clip;
    return y;
  }

  ImportContext& c_;
  graph::GraphBuilder& b_;
  const CellKind kind_;
  DType dtype_ = DType::kF32;
  int64_t directions_ = 1, hidden_ = 0, layout_ = 0, steps_count_ = 0, batch_ = 0;
  int64_t input_forget_ = 0, linear_before_reset_ = 0;
  bool reverse_first_ = false, masked_ = false;
  double clip_ = 0;
  std::vector<Activation> activations_;
  ValueId lengths_ = graph::kNoValue;  // [batch, 1]
  // Of the direction being unrolled.
  ValueId xw_ = graph::kNoValue;                          // [steps * batch, gates * hidden]
  ValueId r_ = graph::kNoValue;                           // [hidden, gates * hidden]
  ValueId r_bias_ = graph::kNoValue;                      // GRU with linear_before_reset: of gate h
  ValueId h_ = graph::kNoValue, cell_ = graph::kNoValue;  // absent: zeros
  std::vector<ValueId> peepholes_;
  std::vector<ValueId> steps_;  // h by time
  const Activation* act_ = nullptr;
};

OpRecord Recurrent(const std::string& name, CellKind kind) {
  OpRecord r;
  r.name = name;
  r.min_inputs = 3;
  r.max_inputs = kind == CellKind::kLstm ? 8 : 6;
  r.note = fmt::format("unrolled, up to {} steps", kMaxUnrolledSteps);
  r.import = InF32([kind](ImportContext& c) { return Unroller(c, kind).Run(); });
  return r;
}

}  // namespace

const OpRecord& OpGRU() {
  static const OpRecord op = Recurrent("GRU", CellKind::kGru);
  return op;
}

const OpRecord& OpLSTM() {
  static const OpRecord op = Recurrent("LSTM", CellKind::kLstm);
  return op;
}

const OpRecord& OpRNN() {
  static const OpRecord op = Recurrent("RNN", CellKind::kRnn);
  return op;
}

}  // namespace whet::ops
