#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "deploy/runtime/model.h"

namespace whet {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// What of a phase falls to a thread: [begin, tail) is its own; [tail, end) it does piece by piece,
// and so may a thread that is done before it. Processors that share a machine with others are not
// equally fast for long: in a fixed half each, the slower one of two decided, and ResNet-50 took a
// third more in the median than at best.
struct Share {
  int64_t begin, tail, end, piece;
};
Share ShareOf(int64_t extent, int thread, int threads) {
  constexpr int64_t kTail = 4, kPieces = 4;
  const int64_t begin = ThreadPool::PartBegin(extent, thread, threads),
                end = ThreadPool::PartBegin(extent, thread + 1, threads);
  const int64_t tail = end - begin < 2 ? 0 : (end - begin + kTail - 1) / kTail;
  return {begin, end - tail, end, (tail + kPieces - 1) / kPieces};
}

}  // namespace

// Zeroed, so that the pages exist before the first run is timed.
char* Instance::Allocate(uint64_t bytes, Memory* owner) {
  if (bytes == 0) return nullptr;
  const uint64_t rounded = RoundUp(bytes, kPage);
  *owner = Memory(static_cast<char*>(std::aligned_alloc(kPage, rounded)));
  if (*owner) {
    std::memset(owner->get(), 0, rounded);
    memory_bytes_ += static_cast<int64_t>(rounded);
  } else if (error_.empty()) {
    error_ = "the system refused " + std::to_string(rounded) + " bytes of memory";
  }
  return owner->get();
}

Instance::Instance(std::shared_ptr<const Model> model, int threads, bool pin)
    : model_(std::move(model)), pool_(std::make_shared<ThreadPool>(std::max(threads, 1), pin)) {
  error_ = pool_->error();
  Prepare();
}

Instance::Instance(std::shared_ptr<const Model> model, std::shared_ptr<ThreadPool> pool)
    : model_(std::move(model)), pool_(std::move(pool)) {
  Prepare();
}

void Instance::Prepare() {
  const whet_model& m = model_->desc();
  Allocate(m.arena_bytes, &arena_);
  uint64_t scratch = 0;
  for (uint32_t i = 0; i < m.n_kernels; ++i)
    scratch = std::max(scratch, m.kernels[i].scratch_bytes);
  scratch_stride_ = static_cast<int64_t>(
      RoundUp(scratch, kPage));  // no cache line, and no page, is shared by two threads
  Allocate(static_cast<uint64_t>(scratch_stride_) * static_cast<uint64_t>(pool_->threads()),
           &scratch_);
  tails_ = std::make_unique<Tail[]>(static_cast<size_t>(pool_->threads()));
  const bool own_weights = !model_->parameters().empty();
  std::unique_lock lock(model_->packed_mutex_, std::defer_lock);
  if (!own_weights) lock.lock();
  Memory& packed = own_weights ? packed_ : model_->packed_;
  const bool write = !packed;
  if (write) {
    const int64_t own = memory_bytes_;
    Allocate(m.packed_bytes, &packed);
    if (!own_weights) memory_bytes_ = own;
  }
  if (!error_.empty()) {
    if (write) packed.reset();  // the next instance writes them
    return;
  }
  PlaceTensors(packed.get());
  ListCalls({m.prepack_steps, m.n_prepack_steps}, 0, &prepack_calls_);
  ListCalls({m.steps, m.n_steps}, m.n_prepack_steps, &calls_);
  staged_in_.reserve(m.n_inputs);
  staged_out_.reserve(m.n_outputs);
  if (!own_weights && write) RunCalls(prepack_calls_);
}

Instance::~Instance() = default;

void Instance::PlaceTensors(char* packed) {
  const whet_model& m = model_->desc();
  base_.assign(m.n_tensors, nullptr);
  uses_.resize(m.n_tensors);
  staging_.resize(m.n_inputs + m.n_outputs);
  for (uint32_t i = 0; i < m.n_tensors; ++i) {
    const whet_tensor& t = m.tensors[i];
    if (t.storage == WHET_ARENA) base_[i] = arena_.get() + t.offset;
    if (t.storage == WHET_PACKED) base_[i] = packed + t.offset;
    if (t.storage == WHET_CONSTANT)
      base_[i] = const_cast<char*>(static_cast<const char*>(m.constants)) + t.offset;
  }
  for (uint32_t s = 0; s < m.n_prepack_steps + m.n_steps; ++s) {
    const whet_step& step =
        s < m.n_prepack_steps ? m.prepack_steps[s] : m.steps[s - m.n_prepack_steps];
    auto& args = args_.emplace_back();
    for (uint32_t k = 0; k < m.kernels[step.kernel].n_buffers; ++k) {
      const uint32_t t = step.tensors[k];
      if (!base_[t]) uses_[t].emplace_back(s, k);
      args.push_back(base_[t]);
    }
  }
}

void Instance::ListCalls(std::span<const whet_step> steps, size_t first_args,
                         std::vector<Call>* calls) {
  for (size_t s = 0; s < steps.size(); ++s) {
    const whet_kernel& kernel = model_->desc().kernels[steps[s].kernel];
    for (uint32_t p = 0; p < kernel.n_phases; ++p) {
      const whet_phase& phase = kernel.phases[p];
      if (!calls->empty() && phase.extent == 1 && calls->back().extent == 1)
        calls->back().barrier = false;
      calls->push_back({phase.fn, args_[first_args + s].data(), phase.extent,
                        static_cast<uint32_t>(s), true, p + 1 == kernel.n_phases});
    }
  }
  if (!calls->empty()) calls->back().barrier = false;  // the end of the parallel region is one
}

void Instance::BeginTails(std::span<const Call> calls) {
  if (calls.empty()) return;
  for (int t = 0; t < pool_->threads(); ++t)
    tails_[t].next[0].store(ShareOf(calls[0].extent, t, pool_->threads()).tail,
                            std::memory_order_relaxed);
}

// A thread's part of a call. A serial one is the caller's, so that two of them in a row need no
// barrier in between. Where the next call's tail begins is noted now: the call before this one,
// which had the same place for it, is over, and a barrier comes before the next.
void Instance::RunPart(std::span<const Call> calls, size_t at, int thread) {
  constexpr int kHelped = 3;  // threads; looking at many others' notes would take longer
  const int threads = pool_->threads();
  const Call& c = calls[at];
  char* const scratch = scratch_.get() + thread * scratch_stride_;
  if (at + 1 < calls.size())
    tails_[thread].next[(at + 1) % 2].store(ShareOf(calls[at + 1].extent, thread, threads).tail,
                                            std::memory_order_relaxed);
  if (c.extent == 1) {
    if (thread == 0) c.fn(c.args, scratch, nullptr, 0, 1);
    return;
  }
  const Share own = ShareOf(c.extent, thread, threads);
  if (own.begin < own.tail) c.fn(c.args, scratch, nullptr, own.begin, own.tail);
  for (int k = 0; k <= std::min(kHelped, threads - 1); ++k) {
    const int owner = (thread + k) % threads;
    const Share s = ShareOf(c.extent, owner, threads);
    std::atomic<int64_t>& next = tails_[owner].next[at % 2];
    while (s.tail < s.end && next.load(std::memory_order_relaxed) < s.end) {
      const int64_t begin = next.fetch_add(s.piece, std::memory_order_relaxed);
      if (begin < s.end) c.fn(c.args, scratch, nullptr, begin, std::min(begin + s.piece, s.end));
    }
  }
}

void Instance::RunCalls(std::span<const Call> calls) {
  if (pool_->threads() == 1) {
    for (const Call& c : calls) c.fn(c.args, scratch_.get(), nullptr, 0, c.extent);
    return;
  }
  BeginTails(calls);
  pool_->Parallel([&](int thread) {
    for (size_t i = 0; i < calls.size(); ++i) {
      RunPart(calls, i, thread);
      if (calls[i].barrier) pool_->Barrier();
    }
  });
}

void Instance::Prepack(const std::vector<const void*>& parameters) {
  const std::vector<uint32_t> ids = model_->parameters();
  for (size_t i = 0; i < ids.size() && i < parameters.size(); ++i) {
    for (const auto& [step, arg] : uses_[ids[i]])
      args_[step][arg] = const_cast<void*>(parameters[i]);
  }
  RunCalls(prepack_calls_);
}

void* Instance::Aligned(void* p, uint32_t tensor, std::vector<Staged>* staged) {
  if (reinterpret_cast<uintptr_t>(p) % WHET_ALIGNMENT == 0) return p;
  const uint64_t bytes = model_->desc().tensors[tensor].bytes;
  if (!staging_[tensor]) Allocate(bytes, &staging_[tensor]);
  staged->push_back({p, staging_[tensor].get(), bytes});
  return staging_[tensor].get();
}

void Instance::Bind(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  staged_in_.clear();
  staged_out_.clear();
  auto bind = [&](uint32_t tensor, void* p, std::vector<Staged>* staged) {
    void* usable = Aligned(p, tensor, staged);
    for (const auto& [step, arg] : uses_[tensor]) args_[step][arg] = usable;
  };
  const uint32_t n_inputs = model_->desc().n_inputs;
  for (uint32_t i = 0; i < inputs.size(); ++i) bind(i, const_cast<void*>(inputs[i]), &staged_in_);
  for (uint32_t i = 0; i < outputs.size(); ++i) bind(n_inputs + i, outputs[i], &staged_out_);
}

void Instance::CopyIn() const {
  for (const Staged& s : staged_in_) std::memcpy(s.own, s.user, s.bytes);
}

void Instance::CopyOut() const {
  for (const Staged& s : staged_out_) std::memcpy(s.user, s.own, s.bytes);
}

void Instance::Execute() {
  CopyIn();
  RunCalls(calls_);
  CopyOut();
}

void Instance::ExecuteStep(uint32_t step) {
  const auto [begin, end] =
      std::equal_range(calls_.begin(), calls_.end(), Call{.step = step},
                       [](const Call& a, const Call& b) { return a.step < b.step; });
  RunCalls({begin, end});
}

void Instance::Run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  Bind(inputs, outputs);
  Execute();
}

void Instance::RunProfiled(const std::vector<const void*>& inputs,
                           const std::vector<void*>& outputs, std::vector<double>& step_ns) {
  using Clock = std::chrono::steady_clock;
  Bind(inputs, outputs);
  step_ns.resize(model_->desc().n_steps);
  CopyIn();
  BeginTails(calls_);
  Clock::time_point last = Clock::now();
  pool_->Parallel([&](int thread) {
    for (size_t i = 0; i < calls_.size(); ++i) {
      const Call& c = calls_[i];
      RunPart(calls_, i, thread);
      if (c.barrier || c.last_of_step) pool_->Barrier();
      if (thread != 0 || !c.last_of_step) continue;
      const auto now = Clock::now();
      step_ns[c.step] += std::chrono::duration<double, std::nano>(now - last).count();
      last = now;
    }
  });
  CopyOut();
}

}  // namespace whet
