// From a model file to an artifact, and what one may ask about a model: the seam between the
// command line (which parses flags and prints) and the compiler (which imports, fuses, looks
// records up, lowers, builds, links). The functions are defined in compile_model.cc. They are not
// thread-safe with respect to one output path, otherwise they are.
//
// Errors: InvalidArgument for a bad model, shape, target or path, naming the node and operator, the
// input or the line; NotFound for a missing file; Unavailable for a server; ResourceExhausted for
// limits; Internal for our own bugs.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/passes.h"
#include "compiler/support/fingerprint.h"
#include "compiler/support/status.h"

namespace whet::driver {

// The model and how it is specialised; shared by everything below.
struct ModelOptions {
  std::string model;                                   // path of a model file: ONNX or TFLite
  std::map<std::string, std::vector<int64_t>> shapes;  // --shape NAME=1,3,224,224, by input
  // Further sets of shapes; the artifact holds the model once for each, and `shapes` is the first.
  std::vector<std::map<std::string, std::vector<int64_t>>> more_shapes;
  std::map<std::string, std::string> bind;  // --bind NAME=VALUE, by input or symbolic dimension
  // The artifact that shapes and bound values were taken from; empty: they are the user's.
  std::string shapes_of;
  std::vector<std::string> extra_outputs;  // --output NAME: given out besides the model's own
  std::string target = "host";             // or target text, or a short name
  // CompileModel: further processors that the artifact holds code for.
  std::vector<std::string> more_targets;
  int threads = 1;     // records are looked up for this number of threads
  std::string db;      // tuning log; empty: none
  std::string server;  // HOST:PORT of a tuner server to ask instead; empty: none
  // The graph's text goes to stderr after each run of this graph pass; empty: none.
  std::string dump_after;
  bool graph_text = false;  // InspectModel gives the graph's text
  // Files that the caller is going to write: a model whose weights lie in one of them is refused.
  std::vector<std::string> writes;
  // How the network is cut, instead of what the log's plan table says: a name of driver/plan.h,
  // layouts in place of those that are selected, and the fused workloads that are taken apart.
  std::string layouts;
  std::vector<graph::StoredLayout> stored;
  std::set<Fingerprint> split;
  bool as_compiled = false;  // these are an artifact's: no times decide anything any more
};

// One fused task of the model.
struct TaskInfo {
  std::string name;         // the model's own node names, joined by '+'
  std::string op_summary;   // "conv2d 3x3 s2 16x64x64 + bias + relu"
  std::string workload;     // canonical text
  std::string fingerprint;  // 32 hex digits
  int64_t flops = 0;        // of one run of the task
  int64_t count = 1;        // how often the model runs it
  std::string source;       // "tuned" or "default"
  std::string reason;       // why it is not tuned: "no record", "record is for 2 threads", ...
  double default_ns = 0, best_ns = 0,
         ratio = 0;  // of the record, when there is one; ratio = best / default
};

struct CompileOptions : ModelOptions {
  std::string output;       // path of the .so
  std::string name;         // of the exported symbol; empty: from the model's file name
  bool use_records = true;  // false: default schedules, whatever the log holds
  // Folder of objects that earlier compilations made; empty: none. It does not change the artifact.
  std::string object_cache;
  int64_t object_cache_bytes = 0;
};

// Where values meet that lie differently: the tasks of one run that other layouts would replace
// and those that would replace them, with their times by records and estimates.
struct LayoutCosts {
  int64_t tasks = 0, other_tasks = 0;  // 0: nothing to choose from
  double ns = 0, other_ns = 0;
  bool taken = false;
};

// How the network is cut, and why; see driver/plan.h.
struct PlanInfo {
  std::string layouts;
  LayoutCosts costs;
  int64_t split = 0;   // distinct fused workloads that are computed in parts
  std::string source;  // "measured", "given" or "default"
  std::string reason;  // for "default"
  double ratio = 0;    // sum over the tasks, to that of the default; 0: not known
};

// What the artifact holds for one processor.
struct TargetReport {
  std::string name, target;  // short, and in full
  PlanInfo plan;             // of the first set of shapes
  std::vector<TaskInfo> tasks;
  int64_t tuned = 0, untuned = 0;  // distinct tasks
};

struct CompileReport : TargetReport {  // of the best processor
  std::vector<TargetReport> further;  // of the others, in the order in which the runtime tries them
  double seconds = 0;
  int64_t peak_bytes = 0;      // of the compiling processes' memory
  int64_t artifact_bytes = 0;  // size of the file
  int64_t arena_bytes = 0;     // memory plan of one instance
  int64_t cached_objects = 0;  // tasks whose code came out of the cache
};

StatusOr<CompileReport> CompileModel(const CompileOptions& options);

struct ValueInfo {
  std::string name, dtype;
  std::vector<int64_t> shape;
};

struct ModelInfo {
  std::vector<ValueInfo> inputs, outputs;  // after specialisation, to the first set of shapes
  std::vector<std::vector<ValueInfo>> further_inputs;  // of the other sets
  std::vector<TaskInfo> tasks;                         // distinct, in order of first use
  int64_t nodes = 0;                                   // of the file
  int64_t parameter_bytes = 0;
  // Of one inference for each set of shapes, together; and the kernel launches that they take.
  int64_t flops = 0, launches = 0;
  PlanInfo plan;  // of the first set
  // Text for the first set, as imported and after the passes; if wanted.
  std::string graph_before, graph_after;
};

StatusOr<ModelInfo> InspectModel(const ModelOptions& options);

struct VerifyOptions : ModelOptions {
  std::string artifact;
  std::vector<std::string> inputs;  // NAME=FILE as for `whet run`; not given: random from `seed`
  std::string preprocess;
  uint64_t seed = 1;
  double rtol = 0, atol = 0;  // both 0: the bound that the operators' own error analysis gives
  bool layers = false;        // compare after every task, to find the first that diverges
  std::string build;          // of an artifact for several processors: LoadOptions::build
};

struct Difference {
  std::string name;                   // of an output, or of a task when comparing layers
  int64_t elements = 0, outside = 0;  // those beyond the tolerance
  double max_abs = 0, max_rel = 0;    // rel: to the largest magnitude of the tensor
  int64_t worst = 0;                  // index of the worst element
  double expected = 0, got = 0;       // there
};

struct VerifyReport {
  std::vector<Difference> outputs;
  std::vector<Difference> layers;  // in order of execution
  std::string first_divergent_layer;
  std::string build;  // which one, of an artifact for several processors
  bool passed = false;
};

// The artifact's outputs against the reference evaluation of the model.
StatusOr<VerifyReport> VerifyArtifact(const VerifyOptions& options);

}  // namespace whet::driver
