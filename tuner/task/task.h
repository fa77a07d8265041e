// What the tuning service needs of the compiler, as interfaces: a tuning task on one target (its
// schedule space, traces and buffers) and the expected outputs of a workload. The service core sees
// only these, so that it runs in tests with synthetic spaces and no compiler. Implemented by the
// program's composition root on top of the compiler's libraries.
//
// Thread-safety: providers may be called from several threads at once; a Task belongs to the thread
// that opened it, except that const methods may be called from any.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/fingerprint.h"
#include "compiler/support/status.h"
#include "proto/measure.pb.h"
#include "tuner/search/space_view.h"

namespace whet::tuner {

class Task {
 public:
  virtual ~Task() = default;

  virtual const search::SpaceView& space() const = 0;
  // The canonical trace that a point stands for; its fingerprint is
  // space().TraceFingerprint(point).
  virtual StatusOr<std::string> TraceOf(const search::Point& point) const = 0;
  // The schedule used without tuning, and its point where the space has one.
  virtual StatusOr<std::string> DefaultTrace() const = 0;
  // The point of a trace from the tuning log; nullopt when the space does not have it.
  virtual std::optional<search::Point> PointOf(std::string_view trace) const = 0;

  virtual Fingerprint initial_program() const = 0;  // digest
  virtual std::string op_summary() const = 0;       // for people
  virtual std::string tag() const = 0;              // tasks of one tag are similar: operator kind
  virtual double flops() const = 0;
  virtual double floor_ns() const = 0;  // roofline; 0: not known
  // Inputs, outputs and parameters as the candidate's descriptor lists them.
  virtual std::vector<v1::BufferSpec> buffers() const = 0;
};

class SpaceProvider {
 public:
  virtual ~SpaceProvider() = default;
  // InvalidArgument: the workload or target text cannot be used, in words. `machine`: figures for
  // estimates; what cannot be read as such, and empty, stands for those typical of the target.
  virtual StatusOr<std::unique_ptr<Task>> OpenTask(std::string_view workload,
                                                   std::string_view target, int threads,
                                                   std::string_view machine) const = 0;
  // "x86_64 +avx2,...": what a target text is keyed on in the log.
  virtual StatusOr<std::string> FeatureSetOf(std::string_view target) const = 0;
  virtual int feature_count() const = 0;  // of every task's space
  virtual int64_t codegen_version() const = 0;
  virtual std::string compiler_version() const = 0;
};

class ReferenceProvider {
 public:
  virtual ~ReferenceProvider() = default;
  // Expected outputs in the buffers' physical order for each seed, encoded with EncodeExpected.
  virtual StatusOr<std::string> Expected(std::string_view workload,
                                         const std::vector<uint64_t>& seeds) const = 0;
};

}  // namespace whet::tuner
