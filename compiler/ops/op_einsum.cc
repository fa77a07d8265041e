// Einsum as transposes, sums and matrix products. Labels are integers: letters are themselves, the
// dimensions an ellipsis stands for are numbers above them, aligned at the right. Operands are
// contracted from left to right; a label that neither the result nor a later operand has is summed
// over.
#include <algorithm>
#include <map>

#include "compiler/ops/emitter.h"

namespace whet::ops {
namespace {

constexpr int kEllipsis = 256;

struct Term {
  ValueId value = graph::kNoValue;
  std::vector<int> labels;  // one per dimension
  bool Has(int label) const {
    return std::find(labels.begin(), labels.end(), label) != labels.end();
  }
  int64_t IndexOf(int label) const {
    return std::find(labels.begin(), labels.end(), label) - labels.begin();
  }
};

struct Equation {
  std::vector<std::string> operands;
  std::string result;
  bool explicit_result = false;
};

StatusOr<Equation> ParseEquation(const std::string& text) {
  std::string t;
  for (char ch : text) {
    if (ch != ' ') t += ch;
  }
  Equation q;
  if (const size_t arrow = t.find("->"); arrow != std::string::npos) {
    q.explicit_result = true;
    q.result = t.substr(arrow + 2);
    t.resize(arrow);
  }
  size_t begin = 0;
  for (size_t comma; (comma = t.find(',', begin)) != std::string::npos; begin = comma + 1)
    q.operands.push_back(t.substr(begin, comma - begin));
  q.operands.push_back(t.substr(begin));
  return q;
}

// The labels of a term, an ellipsis standing for `dots` dimensions.
StatusOr<std::vector<int>> LabelsOf(const std::string& term, int64_t dots) {
  std::vector<int> labels;
  bool seen = false;
  for (size_t i = 0; i < term.size(); ++i) {
    const char ch = term[i];
    if ((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')) {
      labels.push_back(ch);
      continue;
    }
    if (term.compare(i, 3, "...") != 0 || seen)
      return InvalidArgument("'{}' of an equation is not letters and one ellipsis", term);
    seen = true;
    i += 2;
    for (int64_t d = dots; d-- > 0;) labels.push_back(kEllipsis + static_cast<int>(d));
  }
  return labels;
}

int64_t LettersOf(const std::string& term) {
  return static_cast<int64_t>(term.size()) - (term.find("...") == std::string::npos ? 0 : 3);
}

class Contraction {
 public:
  explicit Contraction(ImportContext& c) : e_(c) {}

  Status Run(ImportContext& c, const Equation& q) {
    if (q.operands.size() != c.inputs.size())
      return InvalidArgument("the equation has {} operands, the node {} inputs", q.operands.size(),
                             c.inputs.size());
    WHET_RETURN_IF_ERROR(Bind(c, q));
    const DType t = c.type(0).dtype;
    // What matrix products take; narrower integers wrap around at the end.
    const DType inner =
        IsFloat(t) ? (t == DType::kF64 ? t : DType::kF32) : (t == DType::kI32 ? t : DType::kI64);
    for (Term& term : terms_) {
      if (c.type(0).dtype != e_.dtype(term.value))
        return InvalidArgument("inputs of {} and {}; they must have one element type", ToString(t),
                               ToString(e_.dtype(term.value)));
      term.value = e_.Cast(term.value, inner);
      Diagonals(term);
      DropRepeated(term);
    }
    std::map<int, size_t> last;  // the last operand that has a label
    for (size_t k = 0; k < terms_.size(); ++k) {
      for (int l : terms_[k].labels) last[l] = k;
    }
    for (int l : result_) last[l] = terms_.size();
    Term acc = terms_[0];
    for (size_t k = 1; k < terms_.size() && e_.status().ok(); ++k)
      acc = Contract(acc, terms_[k], [&](int l) { return last.at(l) > k; });
    return e_.Finish({e_.Cast(ToResult(acc), t)});
  }

 private:
  Status Bind(ImportContext& c, const Equation& q) {
    int64_t dots = 0;
    std::map<int, int> count;
    for (size_t k = 0; k < q.operands.size(); ++k) {
      const bool ellipsis = q.operands[k].find("...") != std::string::npos;
      const int64_t rank = c.type(static_cast<int>(k)).rank();
      const int64_t own = rank - LettersOf(q.operands[k]);
      if (own < 0 || (own > 0 && !ellipsis))
        return InvalidArgument("'{}' does not fit operand {} of rank {}", q.operands[k], k, rank);
      WHET_ASSIGN_OR_RETURN(std::vector<int> labels, LabelsOf(q.operands[k], own));
      dots = std::max(dots, own);
      const Shape& shape = c.type(static_cast<int>(k)).shape;
      for (size_t d = 0; d < labels.size(); ++d) {
        int64_t& extent = extents_.try_emplace(labels[d], 1).first->second;
        if (shape[d] != 1 && extent != 1 && extent != shape[d])
          return InvalidArgument("a label of '{}' stands for extents {} and {}", q.operands[k],
                                 extent, shape[d]);
        if (shape[d] != 1) extent = shape[d];
        ++count[labels[d]];
      }
      terms_.push_back({c.inputs[k], std::move(labels)});
    }
    if (q.explicit_result) {
      WHET_ASSIGN_OR_RETURN(result_, LabelsOf(q.result, dots));
    } else {
      for (int64_t d = dots; d-- > 0;) result_.push_back(kEllipsis + static_cast<int>(d));
      for (const auto& [label, times] : count) {
        if (label < kEllipsis && times == 1) result_.push_back(label);
      }
    }
    for (size_t i = 0; i < result_.size(); ++i) {
      if (!extents_.count(result_[i]))
        return InvalidArgument("the result has a label that no operand has");
      if (std::count(result_.begin(), result_.end(), result_[i]) > 1)
        return InvalidArgument("a label occurs twice in the result");
    }
    return OkStatus();
  }

  // Saturates: no tensor is as large, and the next node says so.
  int64_t ExtentOf(const std::vector<int>& labels) const {
    return graph::FlopsProduct(ShapeOf(labels));
  }

  Shape ShapeOf(const std::vector<int>& labels) const {
    Shape s;
    for (int l : labels) s.push_back(extents_.at(l));
    return s;
  }

  // The diagonal over two equal labels: both last, as one dimension, in steps of n + 1.
  void Diagonals(Term& term) {
    for (size_t i = 0; i < term.labels.size(); ++i) {
      for (size_t j = i + 1; j < term.labels.size(); ++j) {
        if (term.labels[i] != term.labels[j] || !e_.status().ok()) continue;
        std::vector<int64_t> perm;
        for (size_t d = 0; d < term.labels.size(); ++d) {
          if (d != i && d != j) perm.push_back(static_cast<int64_t>(d));
        }
        perm.push_back(static_cast<int64_t>(i));
        perm.push_back(static_cast<int64_t>(j));
        term.value = e_.Transpose(term.value, perm);
        Shape shape = e_.shape(term.value);
        const int label = term.labels[i];
        const int64_t n = std::max(shape[shape.size() - 1], shape[shape.size() - 2]);
        // A single row or column is taken as often as the other has elements.
        const int64_t step = shape[shape.size() - 1] == shape[shape.size() - 2] ? n + 1 : 1;
        shape.pop_back();
        shape.back() = Product(e_.shape(term.value), shape.size() - 1);
        term.value = e_.Reshape(term.value, shape);
        Shape starts(shape.size(), 0), steps(shape.size(), 1), sizes = shape;
        steps.back() = step;
        sizes.back() = n;
        term.value =
            e_("Slice", {term.value}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}});
        term.labels.erase(term.labels.begin() + static_cast<std::ptrdiff_t>(j));
        term.labels.erase(term.labels.begin() + static_cast<std::ptrdiff_t>(i));
        term.labels.push_back(label);
        j = i = static_cast<size_t>(-1);  // from the start: positions have changed
        break;
      }
    }
  }

  // Dimensions of 1 that stand for a longer one are left out.
  void DropRepeated(Term& term) {
    if (!e_.status().ok()) return;
    const Shape shape = e_.shape(term.value);
    std::vector<int> labels;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == extents_.at(term.labels[d])) labels.push_back(term.labels[d]);
    }
    if (labels.size() == term.labels.size()) return;
    term.labels = std::move(labels);
    term.value = e_.Reshape(term.value, ShapeOf(term.labels));
  }

  void SumOver(Term& term, const std::function<bool(int)>& drop) {
    std::vector<int64_t> axes;
    std::vector<int> labels;
    for (size_t d = 0; d < term.labels.size(); ++d) {
      if (drop(term.labels[d])) {
        axes.push_back(static_cast<int64_t>(d));
      } else {
        labels.push_back(term.labels[d]);
      }
    }
    if (axes.empty()) return;
    term.value = e_.Reduce("ReduceSum", term.value, axes, false);
    term.labels = std::move(labels);
  }

  // Dimensions in the order of `labels`, a permutation of the term's.
  void Arrange(Term& term, const std::vector<int>& labels) {
    if (term.labels == labels) return;
    std::vector<int64_t> perm;
    for (int l : labels) perm.push_back(term.IndexOf(l));
    term.value = e_.Transpose(term.value, perm);
    term.labels = labels;
  }

  Term Contract(Term a, Term b, const std::function<bool(int)>& kept) {
    SumOver(a, [&](int l) { return !b.Has(l) && !kept(l); });
    SumOver(b, [&](int l) { return !a.Has(l) && !kept(l); });
    std::vector<int> batch, summed, rows, columns;
    for (int l : a.labels) (!b.Has(l) ? rows : kept(l) ? batch : summed).push_back(l);
    for (int l : b.labels) {
      if (!a.Has(l)) columns.push_back(l);
    }
    auto joined = [](std::vector<int> x, const std::vector<int>& y, const std::vector<int>& z) {
      x.insert(x.end(), y.begin(), y.end());
      x.insert(x.end(), z.begin(), z.end());
      return x;
    };
    Arrange(a, joined(batch, rows, summed));
    Arrange(b, summed.empty() ? joined(batch, columns, {}) : joined(batch, summed, columns));
    Term y;
    y.labels = joined(batch, rows, columns);
    if (summed.empty()) {
      Shape left = ShapeOf(a.labels);
      left.insert(left.end(), columns.size(), 1);
      Shape right = ShapeOf(batch);
      right.insert(right.end(), rows.size(), 1);
      for (int64_t extent : ShapeOf(columns)) right.push_back(extent);
      y.value = e_("Mul", {e_.Reshape(a.value, left), e_.Reshape(b.value, right)});
      return y;
    }
    const int64_t n = ExtentOf(batch), m = ExtentOf(rows), k = ExtentOf(summed),
                  columns_n = ExtentOf(columns);
    const ValueId product =
        e_("MatMul", {e_.Reshape(a.value, {n, m, k}), e_.Reshape(b.value, {n, k, columns_n})});
    y.value = e_.Reshape(product, ShapeOf(y.labels));
    return y;
  }

  ValueId ToResult(Term term) {
    SumOver(term,
            [&](int l) { return std::find(result_.begin(), result_.end(), l) == result_.end(); });
    Arrange(term, result_);
    return term.value;
  }

  Emitter e_;
  std::vector<Term> terms_;
  std::vector<int> result_;
  std::map<int, int64_t> extents_;
};

Status ImportEinsum(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(std::max(c.num_inputs(), 1)));
  WHET_ASSIGN_OR_RETURN(std::string text, c.TakeString("equation", ""));
  WHET_ASSIGN_OR_RETURN(const Equation q, ParseEquation(text));
  return Contraction(c).Run(c, q);
}

}  // namespace

const OpRecord& OpEinsum() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Einsum";
    r.import = ImportEinsum;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
