#include <algorithm>

#include "compiler/ops/lists.h"

namespace whet::ops {
namespace {

// What the attributes say of one scan input or output.
struct Scanned {
  int64_t axis = 0;
  bool backwards = false;
};

// Missing lists mean axis 0, forwards.
StatusOr<std::vector<Scanned>> ReadScanned(ImportContext& c, size_t count, const char* axes,
                                           const char* directions) {
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> axis, c.TakeInts(axes, {}));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> direction, c.TakeInts(directions, {}));
  if ((!axis.empty() && axis.size() != count) || (!direction.empty() && direction.size() != count))
    return InvalidArgument("'{}' and '{}' do not have {} entries", axes, directions, count);
  std::vector<Scanned> scanned(count);
  for (size_t i = 0; i < count; ++i) {
    if (!axis.empty()) scanned[i].axis = axis[i];
    if (!direction.empty()) scanned[i].backwards = direction[i] != 0;
  }
  return scanned;
}

struct ScanUnroller {
  ImportContext& c;
  graph::ImportBody& body;
  std::vector<Scanned> in, out;

  // The final states, then the scan outputs.
  StatusOr<std::vector<ValueId>> Run(std::vector<ValueId> states,
                                     const std::vector<ValueId>& inputs) {
    const size_t n = states.size();
    if (body.num_outputs() != static_cast<int>(n + out.size()))
      return InvalidArgument("the body has {} outputs, not {}", body.num_outputs(), n + out.size());
    int64_t length = -1;
    std::vector<Scanned> from = in;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorType& t = c.builder.type(inputs[i]);
      WHET_ASSIGN_OR_RETURN(from[i].axis, NormalizeAxis(from[i].axis, t.rank()));
      const int64_t extent = t.shape[from[i].axis];
      if (length >= 0 && extent != length)
        return InvalidArgument("scan inputs of lengths {} and {}", length, extent);
      length = extent;
    }
    if (length > kMaxIterations)
      return ResourceExhausted("more than {} iterations are not unrolled", kMaxIterations);
    if (length <= 0) return Unimplemented("a scan over no elements is not supported");
    std::vector<std::vector<ValueId>> results(out.size());
    for (int64_t step = 0; step < length; ++step) {
      std::vector<ValueId> at = states;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const int64_t index = from[i].backwards ? length - 1 - step : step;
        WHET_ASSIGN_OR_RETURN(ValueId v,
                              Part(c.builder, inputs[i], from[i].axis, index, 1, Axis::kDrop));
        at.push_back(v);
      }
      WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> next, body.Inline(std::move(at)));
      std::copy_n(next.begin(), n, states.begin());
      for (size_t i = 0; i < out.size(); ++i) results[i].push_back(next[n + i]);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i].backwards) std::reverse(results[i].begin(), results[i].end());
      WHET_ASSIGN_OR_RETURN(ValueId v,
                            Join(c.builder, std::move(results[i]), out[i].axis, Joined::kStack));
      states.push_back(v);
    }
    return states;
  }
};

// Before operator set 9 there is a batch dimension before the others.
Status ScanBatches(ScanUnroller& scan, const std::vector<ValueId>& states,
                   const std::vector<ValueId>& inputs) {
  ImportContext& c = scan.c;
  int64_t batch = -1;
  for (const auto* values : {&states, &inputs}) {
    for (ValueId v : *values) {
      const TensorType& t = c.builder.type(v);
      if (t.rank() == 0 || (batch >= 0 && t.shape[0] != batch))
        return InvalidArgument("the inputs do not have one batch dimension");
      batch = t.shape[0];
    }
  }
  if (batch < 1) return Unimplemented("a scan of no batches is not supported");
  std::vector<std::vector<ValueId>> results;
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<ValueId> some_states, some_inputs;
    for (ValueId v : states) {
      WHET_ASSIGN_OR_RETURN(ValueId part, Part(c.builder, v, 0, b, 1, Axis::kDrop));
      some_states.push_back(part);
    }
    for (ValueId v : inputs) {
      WHET_ASSIGN_OR_RETURN(ValueId part, Part(c.builder, v, 0, b, 1, Axis::kDrop));
      some_inputs.push_back(part);
    }
    WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> out, scan.Run(some_states, some_inputs));
    results.resize(out.size());
    for (size_t i = 0; i < out.size(); ++i) results[i].push_back(out[i]);
  }
  for (std::vector<ValueId>& items : results) {
    WHET_ASSIGN_OR_RETURN(ValueId v, Join(c.builder, std::move(items), 0, Joined::kStack));
    c.outputs.push_back(v);
  }
  return OkStatus();
}

Status ImportScan(ImportContext& c) {
  WHET_ASSIGN_OR_RETURN(auto body, c.TakeBody("body"));
  WHET_ASSIGN_OR_RETURN(const int64_t count, c.TakeInt("num_scan_inputs", 0));
  const bool batches = c.opset < 9;
  const int first = batches ? 1 : 0;
  if (batches && c.Has(0)) return Unimplemented("'sequence_lens' is not supported");
  for (int i = first; i < c.num_inputs(); ++i) {
    if (!c.Has(i)) return InvalidArgument("input {} is missing", i);
  }
  const int64_t states = c.num_inputs() - first - count;
  if (count < 1 || states < 0 || states > body->num_outputs())
    return InvalidArgument("'num_scan_inputs' is {}, with {} inputs and {} outputs of the body",
                           count, c.num_inputs() - first, body->num_outputs());
  const auto outputs = static_cast<size_t>(body->num_outputs() - states);
  ScanUnroller scan{c, *body, {}, {}};
  WHET_ASSIGN_OR_RETURN(scan.in, ReadScanned(c, static_cast<size_t>(count), "scan_input_axes",
                                             batches ? "directions" : "scan_input_directions"));
  WHET_ASSIGN_OR_RETURN(scan.out,
                        ReadScanned(c, outputs, "scan_output_axes", "scan_output_directions"));
  const auto split = c.inputs.begin() + first + states;
  const std::vector<ValueId> initial(c.inputs.begin() + first, split), in(split, c.inputs.end());
  if (batches) return ScanBatches(scan, initial, in);
  WHET_ASSIGN_OR_RETURN(c.outputs, scan.Run(initial, in));
  return OkStatus();
}

}  // namespace

const OpRecord& OpScan() {
  static const OpRecord op = [] {
    OpRecord r;
    r.name = "Scan";
    r.note = "unrolled";
    r.import = ImportScan;
    return r;
  }();
  return op;
}

}  // namespace whet::ops
