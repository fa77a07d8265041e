#include "worker/measure/candidate.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "compiler/support/clock.h"
#include "compiler/support/inputs.h"
#include "deploy/runtime/model.h"
#include "deploy/runtime/weight_turns.h"
#include "worker/measure/guarded.h"

namespace whet::worker {
namespace {

// Refusals of the candidate travel as kind and words to the zygote.
struct Refusal {
  v1::FailureKind kind;
  std::string message;
};
using MaybeRefusal = std::unique_ptr<Refusal>;

MaybeRefusal Refuse(v1::FailureKind kind, std::string message) {
  return std::make_unique<Refusal>(Refusal{kind, std::move(message)});
}

bool Send(int fd, char byte) {
  ssize_t n;
  do n = write(fd, &byte, 1);
  while (n < 0 && errno == EINTR);
  return n == 1;
}

bool AwaitGo(int fd) {
  char byte = 0;
  ssize_t n;
  do n = read(fd, &byte, 1);
  while (n < 0 && errno == EINTR);
  return n == 1 && byte == kGo;
}

MaybeRefusal CheckTensor(const Buffer& want, const whet_tensor& got, const char* what,
                         size_t index) {
  bool same = static_cast<uint32_t>(want.dtype) == got.dtype && want.bytes == got.bytes &&
              want.shape.size() == got.rank;
  for (size_t d = 0; same && d < want.shape.size(); ++d) same = want.shape[d] == got.shape[d];
  if (same) return nullptr;
  return Refuse(v1::FAILURE_BUILD_ERROR,
                fmt::format("{} {} of the candidate is {} {}, the task has {} {}", what, index,
                            DTypeName(got.dtype), ShapeText({got.shape, got.rank}),
                            ToString(want.dtype), ShapeText(want.shape)));
}

MaybeRefusal CheckInterface(const MeasureJob& job, const Model& model) {
  const auto inputs = model.inputs(), outputs = model.outputs();
  const std::vector<uint32_t> parameters = model.parameters();
  if (inputs.size() != job.inputs.size() || outputs.size() != job.outputs.size() ||
      parameters.size() != job.parameters.size()) {
    return Refuse(
        v1::FAILURE_BUILD_ERROR,
        fmt::format(
            "the candidate has {} inputs, {} parameters and {} outputs, the task {}, {} and {}",
            inputs.size(), parameters.size(), outputs.size(), job.inputs.size(),
            job.parameters.size(), job.outputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (auto r = CheckTensor(job.inputs[i], inputs[i], "input", i)) return r;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (auto r = CheckTensor(job.outputs[i], outputs[i], "output", i)) return r;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (auto r =
            CheckTensor(job.parameters[i], model.desc().tensors[parameters[i]], "parameter", i))
      return r;
  }
  return nullptr;
}

void FillBuffer(const Buffer& b, uint64_t seed, void* out) {
  FillInput(b.dtype, seed, b.tensor_index, b.lo, b.hi, {b.shape, b.logical_strides}, out);
}

// The contents of input or parameter i under seed s: copied where they are known.
void CopyOrFill(const MeasureJob& job, const std::vector<Buffer>& buffers, size_t i, size_t s,
                void* out) {
  if (job.filled == nullptr) return FillBuffer(buffers[i], job.seeds[s], out);
  const auto& known = &buffers == &job.inputs ? job.filled->inputs : job.filled->parameters;
  std::memcpy(out, known[s][i].data(), known[s][i].size());
}

// Runs steps on guarded memory, serially.
class GuardedRun {
 public:
  GuardedRun(const MeasureJob& job, const Model& model) : job_(job), model_(model) {}

  // `seed`: which one, and which run of the memory file gets the outputs. With `reversed` each
  // phase is split in two, second half first.
  MaybeRefusal Run(size_t seed, bool reversed) {
    const whet_model& m = model_.desc();
    std::vector<void*> base(m.n_tensors, nullptr);
    const std::vector<uint32_t> parameters = model_.parameters();
    for (size_t i = 0; i < job_.inputs.size(); ++i) base[i] = AddInput(job_.inputs, i, seed);
    for (size_t i = 0; i < parameters.size(); ++i)
      base[parameters[i]] = AddInput(job_.parameters, i, seed);
    for (size_t i = 0; i < job_.outputs.size(); ++i) {
      void*& output = base[job_.inputs.size() + i];
      output = memory_.Add(job_.outputs[i].bytes, job_.memory_fd,
                           kSharedPageBytes + seed * job_.outputs_bytes + job_.output_offsets[i]);
      if (output == nullptr) out_of_memory_ = true;
    }
    // Contents are undefined for the candidate: NaN shows what was read before it was written.
    char* const arena = AddPoisoned(m.arena_bytes);
    char* const packed = AddPoisoned(m.packed_bytes);
    uint64_t scratch_bytes = 0;
    for (uint32_t k = 0; k < m.n_kernels; ++k)
      scratch_bytes = std::max(scratch_bytes, m.kernels[k].scratch_bytes);
    char* const scratch = AddPoisoned(scratch_bytes);
    for (uint32_t t = 0; t < m.n_tensors; ++t) {
      const whet_tensor& tensor = m.tensors[t];
      if (tensor.storage == WHET_ARENA) base[t] = arena + tensor.offset;
      if (tensor.storage == WHET_PACKED) base[t] = packed + tensor.offset;
      if (tensor.storage == WHET_CONSTANT)
        base[t] = const_cast<char*>(static_cast<const char*>(m.constants)) + tensor.offset;
    }
    if (out_of_memory_)
      return Refuse(v1::FAILURE_REJECTED, "the candidate's buffers do not fit the memory limit");
    RunSteps({m.prepack_steps, m.n_prepack_steps}, base, scratch, reversed);
    RunSteps({m.steps, m.n_steps}, base, scratch, reversed);
    if (memory_.FirstDamaged() >= 0)
      return Refuse(v1::FAILURE_WRONG_OUTPUT, "the candidate wrote outside its buffers");
    return nullptr;
  }

 private:
  char* AddInput(const std::vector<Buffer>& buffers, size_t i, size_t seed) {
    char* p = memory_.Add(buffers[i].bytes);
    if (!p) {
      out_of_memory_ = true;
      return nullptr;
    }
    CopyOrFill(job_, buffers, i, seed, p);
    memory_.MakeReadOnly(p);  // an input that is written to is a crash, not a changed question
    return p;
  }

  char* AddPoisoned(uint64_t bytes) {
    char* p = memory_.Add(bytes);
    if (p) {
      std::memset(p, 0xff, bytes);
    } else {
      out_of_memory_ = true;
    }
    return p;
  }

  void RunSteps(std::span<const whet_step> steps, const std::vector<void*>& base, void* scratch,
                bool reversed) {
    for (const whet_step& step : steps) {
      const whet_kernel& kernel = model_.desc().kernels[step.kernel];
      std::vector<void*> buffers;
      for (uint32_t b = 0; b < kernel.n_buffers; ++b) buffers.push_back(base[step.tensors[b]]);
      for (uint32_t p = 0; p < kernel.n_phases; ++p) {
        const whet_phase& phase = kernel.phases[p];
        const int64_t middle = reversed ? phase.extent / 2 : 0;
        phase.fn(buffers.data(), scratch, nullptr, middle, phase.extent);
        if (middle > 0) phase.fn(buffers.data(), scratch, nullptr, 0, middle);
      }
    }
  }

  const MeasureJob& job_;
  const Model& model_;
  GuardedMemory memory_;
  bool out_of_memory_ = false;
};

// A candidate under the runtime's own executor on ordinary memory, as it will be shipped, and with
// weights from beyond the second-level cache, as a network's are.
class TimedInstance {
 public:
  TimedInstance(const MeasureJob& job, std::shared_ptr<const Model> model)
      : job_(job), instance_(std::move(model), job.threads) {
    for (size_t i = 0; i < job.parameters.size(); ++i)
      parameters_.push_back(Filled(job.parameters, i));
    for (size_t i = 0; i < job.inputs.size(); ++i) inputs_.push_back(Filled(job.inputs, i));
    for (const Buffer& b : job.outputs) outputs_.push_back(Allocate(b));
    if (!error_.empty() || !instance_.error().empty()) return;
    Prepack();
    instance_.Bind({inputs_.begin(), inputs_.end()}, outputs_);
    turns_ = std::make_unique<WeightTurns>(&instance_, 0, instance_.model().desc().n_steps, 0);
    error_ = turns_->error();
  }

  std::string error() const { return error_.empty() ? instance_.error() : error_; }

  TimeRuns timer() {
    return [this](int64_t n) {
      const int64_t start = MonotonicNs();
      for (int64_t i = 0; i < n; ++i) {
        turns_->Next();
        instance_.Execute();
      }
      return MonotonicNs() - start;
    };
  }

  // Once more into poisoned outputs, which are then copied to the last part of the memory file. On
  // the data of seed LastCheckSeed(job), in the places where that of the first was while it was
  // timed: a candidate that remembers answers by place, or did nothing, is found out.
  void RunForLastCheck(char* part) {
    if (const size_t seed = LastCheckSeed(job_); seed != 0) {
      turns_.reset();  // the copies of the weights are of the first
      for (size_t i = 0; i < parameters_.size(); ++i)
        CopyOrFill(job_, job_.parameters, i, seed, parameters_[i]);
      for (size_t i = 0; i < inputs_.size(); ++i)
        CopyOrFill(job_, job_.inputs, i, seed, inputs_[i]);
      Prepack();
    }
    for (size_t i = 0; i < outputs_.size(); ++i)
      std::memset(outputs_[i], PoisonByte(job_.outputs[i].dtype), job_.outputs[i].bytes);
    instance_.Execute();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      std::memcpy(part + job_.output_offsets[i] + PlaceGuarded(job_.outputs[i].bytes).offset,
                  outputs_[i], job_.outputs[i].bytes);
    }
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };

  void Prepack() {
    if (!parameters_.empty()) instance_.Prepack({parameters_.begin(), parameters_.end()});
  }

  void* Filled(const std::vector<Buffer>& buffers, size_t i) {
    void* p = Allocate(buffers[i]);
    if (p != nullptr) CopyOrFill(job_, buffers, i, 0, p);
    return p;
  }

  void* Allocate(const Buffer& b) {
    const uint64_t rounded = (std::max<uint64_t>(b.bytes, 1) + 4095) / 4096 * 4096;
    std::unique_ptr<void, Free> p(std::aligned_alloc(4096, rounded));
    if (!p) {
      error_ = "the candidate's buffers do not fit the memory limit";
      return nullptr;
    }
    std::memset(p.get(), 0, rounded);
    memory_.push_back(std::move(p));
    return memory_.back().get();
  }

  const MeasureJob& job_;
  std::vector<std::unique_ptr<void, Free>> memory_;
  Instance instance_;
  std::unique_ptr<WeightTurns> turns_;
  std::vector<void*> inputs_, parameters_, outputs_;
  std::string error_;
};

bool Announce(const MeasureJob& job, char byte) {
  return Send(job.control_fd, byte) && AwaitGo(job.control_fd);
}

void Publish(const LadderResult& ladder, SharedPage* shared) {
  shared->rung = ladder.rung;
  shared->promising = ladder.promising;
  shared->runs_per_sample = ladder.runs_per_sample;
  shared->n_samples = static_cast<uint32_t>(ladder.samples_ns.size());
  std::copy(ladder.samples_ns.begin(), ladder.samples_ns.end(), shared->samples_ns);
}

void Publish(const PairsResult& pairs, SharedPage* shared) {
  shared->n_pairs = static_cast<uint32_t>(pairs.ratios.size());
  shared->pair_candidate_runs = pairs.candidate_runs;
  shared->pair_baseline_runs = pairs.baseline_runs;
  std::copy(pairs.candidate_ns.begin(), pairs.candidate_ns.end(), shared->pair_candidate_ns);
  std::copy(pairs.baseline_ns.begin(), pairs.baseline_ns.end(), shared->pair_baseline_ns);
}

MaybeRefusal TimePairs(const MeasureJob& job, TimedInstance& candidate) {
  std::string error;
  std::shared_ptr<const Model> model = Model::Load(job.baseline_path, &error);
  if (!model) return Refuse(v1::FAILURE_INFRASTRUCTURE, "baseline: " + error);
  if (auto r = CheckInterface(job, *model))
    return Refuse(v1::FAILURE_INFRASTRUCTURE, "baseline: " + r->message);
  TimedInstance baseline(job, std::move(model));
  if (!baseline.error().empty())
    return Refuse(v1::FAILURE_INFRASTRUCTURE, "baseline: " + baseline.error());
  if (!Announce(job, kTimingReady)) return nullptr;
  Publish(RunPairs(job.plan, candidate.timer(), baseline.timer()), job.shared);
  Announce(job, kTimed);
  return nullptr;
}

// Null also when the zygote ends the measurement: it knows why.
MaybeRefusal Measure(const MeasureJob& job) {
  const int64_t start = MonotonicNs();
  std::string error;
  const std::shared_ptr<const Model> model = Model::Load(job.object_path, &error);
  if (!model) return Refuse(v1::FAILURE_BUILD_ERROR, error);
  if (auto r = CheckInterface(job, *model)) return r;
  job.shared->load_ns = MonotonicNs() - start;
  for (size_t s = 0; s < job.seeds.size(); ++s) {
    GuardedRun run(job, *model);
    if (auto r = run.Run(s, s % 2 == 1)) return r;
  }
  if (!Announce(job, kOutputsReady)) return nullptr;

  TimedInstance candidate(job, model);
  if (!candidate.error().empty()) return Refuse(v1::FAILURE_REJECTED, candidate.error());
  if (!Announce(job, kTimingReady)) return nullptr;
  const LadderResult ladder = RunLadder(job.plan, candidate.timer());
  Publish(ladder, job.shared);
  if (!Announce(job, kTimed)) return nullptr;
  if (!job.baseline_path.empty() && job.plan.pairs_ns() > 0 &&
      (ladder.promising || job.plan.final())) {
    if (auto r = TimePairs(job, candidate)) return r;
  }
  candidate.RunForLastCheck(reinterpret_cast<char*>(job.shared) + kSharedPageBytes +
                            job.seeds.size() * job.outputs_bytes);
  Announce(job, kFinalReady);
  return nullptr;
}

}  // namespace

unsigned char PoisonByte(DType dtype) { return IsFloat(dtype) ? 0xff : 0xa5; }

const FilledInputs* FillInputs(const MeasureJob& job, std::string key, FilledInputs* filled) {
  uint64_t bytes = 0;
  for (const auto* buffers : {&job.inputs, &job.parameters}) {
    for (const Buffer& b : *buffers) bytes += b.bytes;  // each no more than the memory limit
  }
  if (filled->key == key && !key.empty()) return filled;
  if (bytes > kMaxFilledBytes / job.seeds.size()) {
    *filled = {};  // the former task's would count against this one's memory
    return nullptr;
  }
  *filled = {std::move(key), {}, {}};
  auto fill = [&](const std::vector<Buffer>& buffers, uint64_t seed) {
    std::vector<std::string> contents;
    for (const Buffer& b : buffers) {
      contents.emplace_back(b.bytes, '\0');
      FillBuffer(b, seed, contents.back().data());
    }
    return contents;
  };
  for (const uint64_t seed : job.seeds) {
    filled->inputs.push_back(fill(job.inputs, seed));
    filled->parameters.push_back(fill(job.parameters, seed));
  }
  return filled;
}

size_t LastCheckSeed(const MeasureJob& job) {
  return job.filled == nullptr ? 0 : job.seeds.size() - 1;
}

int RunCandidate(const MeasureJob& job) {
  const MaybeRefusal refusal = Measure(job);
  if (!refusal) return 0;
  job.shared->failure = refusal->kind;
  std::strncpy(job.shared->message, refusal->message.c_str(), sizeof job.shared->message - 1);
  Send(job.control_fd, kFailed);
  return 1;
}

}  // namespace whet::worker
