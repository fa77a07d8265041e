// Rules: templates with knobs. A rule looks at an initial program, says whether it applies and over
// which small ordered domains its decisions range, and writes a schedule for one choice of values.
// Hard constraints remove a point before anything is generated; an analytical estimate (`Estimate`)
// ranks the rest and feeds the cost model. Source of the shape of the space: register-tiled direct
// convolution as in Georganas et al. 2018 ("Anatomy of high- performance deep learning convolutions
// on SIMD architectures") and the GEMM tile choice of BLIS.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "compiler/schedule/schedule.h"
#include "compiler/target/machine.h"
#include "compiler/target/target.h"

namespace whet::schedule {

struct Knob {
  std::string name;
  std::vector<int64_t> values;  // ascending; never empty
};

// Cycles of one core with two units for multiply-adds and two for loads, and what they come from;
// everything is for the whole kernel. Rules count, a `Machine` says what that takes: estimates of
// different rules for one program are compared, so nothing that costs time may be left out of one.
struct Estimate {
  double fma_cycles = 0;       // arithmetic, padding lanes included
  double load_cycles = 0;      // vector and broadcast loads at two per cycle
  double latency_cycles = 0;   // dependent accumulations
  double overhead_cycles = 0;  // loop control, prologues and epilogues of tiles
  double bytes = 0;            // touched once: inputs, weights, outputs
  double l2_bytes = 0;         // moved from L2 into L1 and back, repeats included; 0: not estimated
  double l3_bytes = 0;         // moved from beyond L2 and back, repeats included; 0: not estimated
  double accumulators = 0;
  double body_instructions = 0;  // of the innermost unrolled body
  double useful_fraction = 1;    // lanes and rows that are not padding
  double vector_bits = 0;        // of the arithmetic; 0: the target's widest
  double parallel = 0;           // iterations that threads share out; 0: not known, enough
  // What two threads each read of what the other one wrote, or both read whole where one would read
  // it once: half of it is not in the own second-level cache. Images are taken to be cut by rows.
  double foreign_bytes = 0;
  double Cycles() const;
};
// Nanoseconds on `threads` cores of a machine.
double Nanoseconds(const Estimate& e, const Machine& m, const Target& t, int threads);

// Why a point is not worth generating. Not an error: it is counted.
enum class Rejection { kNone, kRegisters, kCodeSize, kTile, kBadValue };
std::string_view ToString(Rejection r);

// What a rule works out once per program and target, so that checks and estimates cost a
// microsecond.
struct RuleContext {
  RuleContext(loop::Program p, Target t) : program(std::move(p)), target(std::move(t)) {}
  virtual ~RuleContext() = default;
  const loop::Program program;
  const Target target;
};

struct Rule {
  const char* name;
  int version;
  // Null when the rule does not apply to the program.
  std::unique_ptr<RuleContext> (*match)(const loop::Program& initial, const Target& target);
  std::vector<Knob> (*knobs)(const RuleContext& context);
  // Simple and valid for any shape: where a search of a domain too large to go through begins.
  std::vector<int64_t> (*default_values)(const RuleContext& context);
  Rejection (*check)(const RuleContext& context, const std::vector<int64_t>& values);
  Estimate (*estimate)(const RuleContext& context, const std::vector<int64_t>& values);
  Status (*apply)(Schedule& schedule, const RuleContext& context,
                  const std::vector<int64_t>& values);
};

// The last matches everything, and is used where nothing else does.
const std::vector<const Rule*>& Rules();

const Rule& RuleConv();      // convolution: 1x1 and direct
const Rule& RuleWinograd();  // 3x3 windows that move by one element
const Rule& RuleDepthwise();
const Rule& RuleDepthwisePointwise();  // both, some lines at a time
const Rule& RuleRows();  // stages along rows: softmax, normalisations, sums of contiguous elements
const Rule& RulePool();
const Rule& RuleMatmul();
const Rule& RuleSplit();  // matrix products with few results: the reduction is split
const Rule& RuleElementwise();
const Rule& RuleGeneric();  // anything: each nest vectorized over its innermost contiguous axis

}  // namespace whet::schedule
