#include "worker/measure/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "compiler/support/clock.h"
#include "compiler/support/env.h"
#include "compiler/support/expected.h"
#include "compiler/support/frame.h"
#include "compiler/support/sandbox.h"
#include "compiler/support/subprocess.h"
#include "worker/measure/candidate.h"
#include "worker/measure/guarded.h"

namespace whet::worker {
namespace {

constexpr int kMaxBuffers = 256;
constexpr int kMaxRank = 16;
constexpr int kMaxSeeds = 8;
constexpr uint32_t kMaxThreads = 1024;
constexpr int64_t kDefaultTimeLimit = 10 * kSecond;
constexpr int64_t kMaxTimeLimit = 3600 * kSecond;
constexpr int64_t kDefaultMemory = int64_t{4} << 30;
// What a process needs that its address space does not show: page tables, files in its own root.
constexpr int64_t kMemoryBesides = int64_t{64} << 20;
constexpr int kMaxProcesses = 64;
// Of a processor's time that a candidate had, so much at least was spent in runs like the others: a
// host that sells its processors twice takes away the rest unseen.
constexpr double kSteadyShare = 0.7;

struct Verdict {
  v1::FailureKind kind = v1::FAILURE_OK;
  std::string message;
};

class Mapping {
 public:
  Mapping(void* p, uint64_t bytes) : p_(p), bytes_(bytes) {}
  Mapping(Mapping&& o) noexcept : p_(std::exchange(o.p_, MAP_FAILED)), bytes_(o.bytes_) {}
  ~Mapping() {
    if (p_ != MAP_FAILED) munmap(p_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  bool ok() const { return p_ != MAP_FAILED; }
  char* data() const { return static_cast<char*>(p_); }
  std::string_view view() const { return {data(), bytes_}; }

 private:
  void* p_;
  uint64_t bytes_;
};

struct OwnedFd {
  explicit OwnedFd(int fd) : fd(fd) {}
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  ~OwnedFd() { Close(); }
  void Close() {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  int fd;
};

StatusOr<Mapping> MapFile(const std::string& path) {
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return ErrnoStatus(errno, fmt::format("cannot open '{}'", path));
  struct stat info = {};
  if (fstat(file.fd, &info) != 0 || info.st_size <= 0)
    return InvalidArgument("'{}' is empty", path);
  Mapping m(mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file.fd, 0),
            static_cast<uint64_t>(info.st_size));
  if (!m.ok()) return ErrnoStatus(errno, fmt::format("cannot map '{}'", path));
  return m;
}

// Candidates run in a root of their own: no links, nothing relative to a working folder.
std::string AsSeenInside(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
  return error ? path : whole.string();
}

StatusOr<Buffer> ReadBuffer(const v1::BufferSpec& spec, uint64_t max_bytes) {
  Buffer b{spec.role(),
           static_cast<DType>(spec.dtype()),
           {},
           {},
           spec.tensor_index(),
           spec.lo(),
           spec.hi(),
           0};
  if (spec.dtype() >= kNumDTypes)
    return InvalidArgument("element type {} is not known", spec.dtype());
  if (spec.shape_size() > kMaxRank)
    return InvalidArgument("a buffer has {} axes, the limit is {}", spec.shape_size(), kMaxRank);
  if (spec.logical_strides_size() != 0 && spec.logical_strides_size() != spec.shape_size())
    return InvalidArgument("a buffer has not one stride per axis");
  uint64_t bytes = static_cast<uint64_t>(SizeOf(b.dtype));
  for (const int64_t d : spec.shape()) {
    if (d < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(d), &bytes) ||
        bytes > max_bytes) {
      return ResourceExhausted("a buffer is larger than the memory limit of {} bytes", max_bytes);
    }
    b.shape.push_back(d);
  }
  for (const int64_t s : spec.logical_strides()) b.logical_strides.push_back(s);
  b.bytes = bytes;
  return b;
}

// One measurement. Built, run and dropped.
class Session {
 public:
  Session(const v1::RunRequest& request, FilledInputs* filled, int client_fd)
      : request_(request), filled_(filled), client_fd_(client_fd), start_ns_(MonotonicNs()) {}

  v1::Measurement Run() {
    const Status prepared = Prepare();
    Verdict verdict{v1::FAILURE_INFRASTRUCTURE, Message(prepared)};
    if (prepared.ok()) verdict = RunChild();
    result_.set_failure(verdict.kind);
    result_.set_message(verdict.message.substr(0, 1000));
    if (verdict.kind != v1::FAILURE_OK) {
      result_.clear_samples_ns();
      result_.clear_pair_ratios();
      result_.set_baseline_ratio(0);
      result_.set_baseline_ns(0);
    }
    result_.mutable_phases()->set_total_ns(MonotonicNs() - start_ns_);
    return std::move(result_);
  }

 private:
  // Checks the request and sets up what the child inherits. An error is the requester's or the
  // machine's.
  Status Prepare() {
    const v1::MeasureSpec& spec = request_.spec();
    memory_limit_ = spec.memory_limit_bytes() > 0 ? spec.memory_limit_bytes() : kDefaultMemory;
    time_limit_ = std::min(spec.time_limit_ns() > 0 ? spec.time_limit_ns() : kDefaultTimeLimit,
                           kMaxTimeLimit);
    if (spec.buffers_size() > kMaxBuffers)
      return InvalidArgument("{} buffers, the limit is {}", spec.buffers_size(), kMaxBuffers);
    if (spec.seeds_size() < 1 || spec.seeds_size() > kMaxSeeds)
      return InvalidArgument("{} seeds, the limits are 1 and {}", spec.seeds_size(), kMaxSeeds);
    if (spec.threads() < 1 || spec.threads() > kMaxThreads)
      return InvalidArgument("{} threads, the limits are 1 and {}", spec.threads(), kMaxThreads);
    for (const v1::BufferSpec& b : spec.buffers()) {
      WHET_ASSIGN_OR_RETURN(Buffer buffer, ReadBuffer(b, static_cast<uint64_t>(memory_limit_)));
      switch (buffer.role) {
        case v1::BUFFER_INPUT: job_.inputs.push_back(std::move(buffer)); break;
        case v1::BUFFER_PARAMETER: job_.parameters.push_back(std::move(buffer)); break;
        case v1::BUFFER_OUTPUT: job_.outputs.push_back(std::move(buffer)); break;
        default: return InvalidArgument("a buffer has role {}", static_cast<int>(buffer.role));
      }
    }
    if (job_.outputs.empty()) return InvalidArgument("the task has no output");
    for (const uint64_t seed : spec.seeds()) job_.seeds.push_back(seed);
    job_.object_path = AsSeenInside(request_.object_path());
    job_.baseline_path = AsSeenInside(request_.baseline_path());
    job_.threads = static_cast<int>(spec.threads());
    job_.plan = spec.plan();
    WHET_RETURN_IF_ERROR(PrepareExpected());
    v1::MeasureSpec key;
    *key.mutable_buffers() = spec.buffers();
    *key.mutable_seeds() = spec.seeds();
    job_.filled = FillInputs(job_, key.SerializeAsString(), filled_);
    return PrepareMemory();
  }

  Status PrepareExpected() {
    WHET_ASSIGN_OR_RETURN(Mapping file, MapFile(request_.expected_path()));
    expected_file_.emplace(std::move(file));
    WHET_ASSIGN_OR_RETURN(expected_, ExpectedView::Parse(expected_file_->view()));
    if (expected_.seeds() != job_.seeds.size() || expected_.outputs() != job_.outputs.size()) {
      return InvalidArgument(
          "expected outputs are for {} seeds and {} outputs, the task has {} and {}",
          expected_.seeds(), expected_.outputs(), job_.seeds.size(), job_.outputs.size());
    }
    for (size_t s = 0; s < job_.seeds.size(); ++s) {
      if (expected_.seed(s) != job_.seeds[s])
        return InvalidArgument("expected outputs are for seed {}, the task has {}",
                               expected_.seed(s), job_.seeds[s]);
      for (size_t o = 0; o < job_.outputs.size(); ++o) {
        const uint64_t elements =
            job_.outputs[o].bytes / static_cast<uint64_t>(SizeOf(job_.outputs[o].dtype));
        if (expected_.output(s, o).expected.size() != elements) {
          return InvalidArgument("output {} has {} elements, {} are expected", o, elements,
                                 expected_.output(s, o).expected.size());
        }
      }
    }
    return OkStatus();
  }

  Status PrepareMemory() {
    for (const Buffer& b : job_.outputs) {
      job_.output_offsets.push_back(job_.outputs_bytes);
      job_.outputs_bytes += PlaceGuarded(b.bytes).pages_bytes;
    }
    const uint64_t bytes = kSharedPageBytes + (job_.seeds.size() + 1) * job_.outputs_bytes;
    memory_fd_.fd = memfd_create("whet-run", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory_fd_.fd < 0 || ftruncate(memory_fd_.fd, static_cast<off_t>(bytes)) != 0)
      return ErrnoStatus(errno, "cannot make the shared memory");
    // A candidate that shortened it would end this process instead of itself.
    if (fcntl(memory_fd_.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
      return ErrnoStatus(errno, "cannot seal the shared memory");
    shared_map_.emplace(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_.fd, 0),
                        bytes);
    if (!shared_map_->ok()) return ErrnoStatus(errno, "cannot map the shared memory");
    for (size_t part = 0; part <= job_.seeds.size(); ++part) {
      for (size_t o = 0; o < job_.outputs.size(); ++o) {
        char* const pages = OutputPages(part, o);
        const GuardedPlace place = PlaceGuarded(job_.outputs[o].bytes);
        std::memset(pages + place.offset, PoisonByte(job_.outputs[o].dtype), job_.outputs[o].bytes);
        FillSlack(pages, place, job_.outputs[o].bytes);
      }
    }
    job_.memory_fd = memory_fd_.fd;
    job_.shared = reinterpret_cast<SharedPage*>(shared_map_->data());
    return OkStatus();
  }

  char* OutputPages(size_t part, size_t output) const {
    return shared_map_->data() + kSharedPageBytes + part * job_.outputs_bytes +
           job_.output_offsets[output];
  }

  Verdict RunChild() {
    const StatusOr<std::pair<int, int>> fds = SocketPair();
    if (!fds.ok()) return {v1::FAILURE_INFRASTRUCTURE, Message(fds.status())};
    const OwnedFd control(fds->first);
    OwnedFd childs(fds->second);
    job_.control_fd = childs.fd;
    SandboxOptions options;
    options.address_space_bytes = memory_limit_;
    options.memory_bytes = memory_limit_ + kMemoryBesides;
    options.processes = kMaxProcesses + job_.threads;
    // A team of threads burns CPU time faster than the clock runs.
    options.cpu_ns = time_limit_ * job_.threads;
    options.keep_fds = {childs.fd, memory_fd_.fd};
    options.syscalls = Syscalls::kCompute;
    options.confine_files = true;
    options.readable = {job_.object_path};
    if (!job_.baseline_path.empty()) options.readable.push_back(job_.baseline_path);
    deadline_ns_ = MonotonicNs() + time_limit_;
    StatusOr<SandboxedChild> child =
        SandboxedChild::Start(options, [this] { return RunCandidate(job_); });
    if (!child.ok()) return {v1::FAILURE_INFRASTRUCTURE, Message(child.status())};
    result_.set_sandbox_bits(child->bits());
    result_.mutable_phases()->set_spawn_ns(MonotonicNs() - start_ns_);
    childs.Close();
    Verdict verdict = Converse(control.fd, *child);
    if (client_gone_) verdict = {v1::FAILURE_INFRASTRUCTURE, "whoever asked for it is gone"};
    // A verdict of ours ends the child at once; otherwise it ends by itself, and how it did may be
    // the verdict.
    const bool over = verdict.kind != v1::FAILURE_OK || finished_;
    const std::optional<int> status =
        child->Finish(over ? MonotonicNs() + (finished_ ? kSecond : 0) : deadline_ns_);
    if (!child->trouble().empty()) return {v1::FAILURE_INFRASTRUCTURE, child->trouble()};
    if (verdict.kind != v1::FAILURE_OK || finished_) return verdict;
    if (!status) return TimedOut();
    return {v1::FAILURE_RUN_CRASH,
            fmt::format("the candidate {} {}", DescribeWaitStatus(*status), stage_)};
  }

  Verdict TimedOut() const {
    return {v1::FAILURE_RUN_TIMEOUT, fmt::format("the candidate took longer than {} ms {}",
                                                 time_limit_ / kMillisecond, stage_)};
  }

  // The next byte of the candidate; nothing at the deadline, at its end or at the client's.
  std::optional<char> Receive(int fd) {
    pollfd ends[] = {{fd, POLLIN, 0}, {client_fd_, 0, 0}};  // a negative one is passed over
    while (poll(ends, 2, PollTimeoutMs(MonotonicNs(), deadline_ns_)) < 0 && errno == EINTR) {
    }
    client_gone_ = (ends[1].revents & (POLLHUP | POLLERR)) != 0;
    if (client_gone_) return std::nullopt;
    char byte = 0;
    if (!ReadExact(fd, &byte, 1, deadline_ns_).ok()) return std::nullopt;
    return byte;
  }

  static bool SendGo(int fd) {
    const char go = kGo;
    return send(fd, &go, 1, MSG_NOSIGNAL) == 1;
  }

  // The conversation of shared_page.h. kOk without finished_: the candidate ended in the middle.
  Verdict Converse(int fd, SandboxedChild& child) {
    stage_ = "while it was loaded and checked";
    std::optional<char> byte = Receive(fd);
    if (byte == kFailed) return Failed();
    if (byte != kOutputsReady) return Unfinished(byte);
    for (size_t s = 0; s < job_.seeds.size(); ++s) {
      if (Verdict v = Compare(s, s, fmt::format("seed {}", job_.seeds[s]));
          v.kind != v1::FAILURE_OK)
        return v;
    }
    result_.mutable_phases()->set_verify_ns(MonotonicNs() - start_ns_);
    result_.mutable_phases()->set_load_ns(job_.shared->load_ns);
    if (!SendGo(fd)) return {};
    stage_ = "while it was timed";
    int64_t timing_ns = 0;
    for (int batch = 0;; ++batch) {
      byte = Receive(fd);
      if (byte == kFailed) return Failed();
      if (byte == kFinalReady && batch > 0) break;
      if (byte != kTimingReady || batch > 1) return Unfinished(byte);
      Envelope envelope;
      const std::optional<int64_t> cpu_begin = child.CpuNs();
      const int64_t begin = MonotonicNs();
      if (!SendGo(fd)) return {};
      byte = Receive(fd);
      envelope.wall_ns = envelope.busy_ns = MonotonicNs() - begin;
      if (byte == kFailed) return Failed();
      if (byte != kTimed) return Unfinished(byte);
      const std::optional<int64_t> cpu_end = child.CpuNs();
      if (cpu_begin && cpu_end)
        envelope.busy_ns = std::min(envelope.wall_ns, *cpu_end - *cpu_begin);
      timing_ns += envelope.wall_ns;
      const Verdict v = batch == 0 ? TakeSamples(envelope) : TakePairs(envelope);
      if (v.kind != v1::FAILURE_OK) return v;
      if (!SendGo(fd)) return {};
    }
    result_.mutable_phases()->set_timing_ns(timing_ns);
    if (Verdict v = Compare(job_.seeds.size(), LastCheckSeed(job_), "after timing");
        v.kind != v1::FAILURE_OK)
      return v;
    finished_ = true;
    SendGo(fd);
    return {};
  }

  Verdict Failed() const {
    const auto kind = static_cast<v1::FailureKind>(job_.shared->failure);
    std::string message(job_.shared->message,
                        strnlen(job_.shared->message, sizeof job_.shared->message));
    switch (kind) {  // the kinds that a candidate may claim for itself
      case v1::FAILURE_BUILD_ERROR:
      case v1::FAILURE_REJECTED:
      case v1::FAILURE_WRONG_OUTPUT:
      case v1::FAILURE_INFRASTRUCTURE: return {kind, std::move(message)};
      default:
        return {v1::FAILURE_RUN_CRASH, "the candidate reported a failure that it cannot have"};
    }
  }

  // Silence or nonsense. Silence is judged by how the process ended.
  Verdict Unfinished(std::optional<char> byte) const {
    if (byte)
      return {v1::FAILURE_RUN_CRASH,
              fmt::format("the candidate broke the runner's protocol {}", stage_)};
    if (MonotonicNs() >= deadline_ns_) return TimedOut();
    return {};
  }

  Verdict Compare(size_t part, size_t seed, const std::string& when) const {
    for (size_t o = 0; o < job_.outputs.size(); ++o) {
      const Buffer& b = job_.outputs[o];
      const GuardedPlace place = PlaceGuarded(b.bytes);
      const char* pages = OutputPages(part, o);
      if (!SlackIntact(pages, place, b.bytes))
        return {v1::FAILURE_WRONG_OUTPUT,
                fmt::format("output {} ({}): written outside the buffer", o, when)};
      const Status same = CompareOutput(expected_.output(seed, o), b.dtype, pages + place.offset,
                                        fmt::format("output {} ({})", o, when));
      if (!same.ok()) return {v1::FAILURE_WRONG_OUTPUT, Message(same)};
    }
    return {};
  }

  // What was seen of a batch from outside. Busy: the candidate's main thread was on a processor; on
  // a crowded machine it may be off one for many milliseconds between two timed runs.
  struct Envelope {
    int64_t wall_ns = 0;
    int64_t busy_ns = 0;
  };

  // Do these times per run of `runs` runs fit into what was seen? `share` is the least part of it
  // that timed runs take.
  static bool Fits(const std::vector<double>& ns_per_run, int64_t runs, double share,
                   const Envelope& seen, double* sum) {
    if (runs < 1 || ns_per_run.empty()) return false;
    for (const double v : ns_per_run) {
      if (!std::isfinite(v) || v <= 0) return false;
      *sum += v * static_cast<double>(runs);
    }
    const auto busy = static_cast<double>(seen.busy_ns);
    const double untimed =
        3 * *std::max_element(ns_per_run.begin(), ns_per_run.end()) * static_cast<double>(runs);
    // On a crowded machine a clock that is too slow hides behind the few samples that were long off
    // a processor: without what those have too much it must nearly fill the envelope, too.
    const double typical = Median(ns_per_run);
    double steady = 0;
    for (const double v : ns_per_run)
      steady += std::min(v, 3 * typical) * static_cast<double>(runs);
    const double around = 3 * typical * static_cast<double>(runs) + std::max(1e6, busy * 0.1);
    if (steady / (share * kSteadyShare) + around < busy) return false;
    return *sum <= static_cast<double>(seen.wall_ns) * 1.02 &&
           *sum / share + untimed + std::max(1e6, busy * 0.1) >= busy;
  }

  Verdict TakeSamples(const Envelope& envelope) {
    const SharedPage& page = *job_.shared;
    const size_t n = std::min<size_t>(page.n_samples, kMaxTimingSamples);
    const std::vector<double> samples(page.samples_ns, page.samples_ns + n);
    const int64_t runs = page.runs_per_sample;
    double sum = 0;
    if (!Fits(samples, runs, 0.7, envelope, &sum)) {
      return {v1::FAILURE_INVALID_TIMING,
              fmt::format(
                  "{} samples of {} runs add up to {:.0f} ns, but {} ns were seen, {} of them busy",
                  n, runs, sum, envelope.wall_ns, envelope.busy_ns)};
    }
    if (sum < static_cast<double>(job_.plan.min_measured_ns())) {
      return {v1::FAILURE_INVALID_TIMING,
              fmt::format("only {:.0f} ns were measured, {} are the least", sum,
                          job_.plan.min_measured_ns())};
    }
    for (const double s : samples) result_.add_samples_ns(s);
    result_.set_runs_per_sample(static_cast<uint32_t>(std::min<int64_t>(runs, UINT32_MAX)));
    result_.set_rung(std::clamp(page.rung, 0, 3));
    return {};
  }

  Verdict TakePairs(const Envelope& envelope) {
    const SharedPage& page = *job_.shared;
    const size_t n = std::min<size_t>(page.n_pairs, kMaxPairs);
    const std::vector<double> candidate(page.pair_candidate_ns, page.pair_candidate_ns + n),
        baseline(page.pair_baseline_ns, page.pair_baseline_ns + n);
    double sum = 0;
    // Each block has one untimed run besides the timed ones: they are at least half of it. The two
    // sides share the envelope; together they must fill it.
    std::vector<double> together;
    for (size_t i = 0; i < n; ++i) {
      together.push_back(candidate[i] * static_cast<double>(page.pair_candidate_runs) +
                         baseline[i] * static_cast<double>(page.pair_baseline_runs));
    }
    if (page.pair_candidate_runs < 1 || page.pair_baseline_runs < 1 ||
        !Fits(together, 1, 0.4, envelope, &sum)) {
      return {v1::FAILURE_INVALID_TIMING,
              fmt::format("{} pairs add up to {:.0f} ns, but {} ns were seen, {} of them busy", n,
                          sum, envelope.wall_ns, envelope.busy_ns)};
    }
    std::vector<double> ratios;
    for (size_t i = 0; i < n; ++i) {
      if (!std::isfinite(candidate[i]) || !std::isfinite(baseline[i]) || candidate[i] <= 0 ||
          baseline[i] <= 0) {
        return {v1::FAILURE_INVALID_TIMING, "a pair has a time that is not positive"};
      }
      ratios.push_back(candidate[i] / baseline[i]);
      result_.add_pair_ratios(ratios.back());
    }
    result_.set_baseline_ratio(Median(ratios));
    result_.set_baseline_ns(Median(baseline));
    result_.set_baseline_runs_per_sample(
        static_cast<uint32_t>(std::min<int64_t>(page.pair_baseline_runs, UINT32_MAX)));
    if (job_.plan.final()) result_.set_rung(4);
    return {};
  }

  const v1::RunRequest& request_;
  FilledInputs* const filled_;
  const int client_fd_;
  const int64_t start_ns_;
  int64_t memory_limit_ = 0, time_limit_ = 0, deadline_ns_ = 0;
  MeasureJob job_;
  std::optional<Mapping> expected_file_, shared_map_;
  ExpectedView expected_;
  OwnedFd memory_fd_{-1};
  v1::Measurement result_;
  const char* stage_ = "";
  bool finished_ = false;
  bool client_gone_ = false;
};

}  // namespace

v1::Measurement RunMeasurement(const v1::RunRequest& request, FilledInputs* filled, int client_fd) {
  return Session(request, filled, client_fd).Run();
}

int RunRunnerZygote(int fd) {
  if (fcntl(fd, F_GETFD) < 0) {
    std::fprintf(
        stderr,
        "error: whet-runner is started by rpc-worker and reads requests from descriptor %d\n", fd);
    return 2;
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  signal(SIGPIPE, SIG_IGN);
  v1::RunnerHello hello;
  hello.set_kernel_abi(kKernelAbi);
  hello.set_sandbox_bits(SandboxLayers());
  if (!WriteFrame(fd, kRunnerHello, hello.SerializeAsString()).ok()) return 1;
  FilledInputs filled;
  while (true) {
    const StatusOr<Frame> frame = ReadFrame(fd, kMaxRunFrame);
    if (!frame.ok()) return frame.status().code() == absl::StatusCode::kUnavailable ? 0 : 1;
    v1::RunRequest request;
    if (frame->type != kRunRequest || !request.ParseFromString(frame->payload)) return 1;
    v1::RunReply reply;
    reply.set_id(request.id());
    *reply.mutable_measurement() = RunMeasurement(request, &filled, fd);
    if (!WriteFrame(fd, kRunReply, reply.SerializeAsString()).ok()) return 1;
  }
}

}  // namespace whet::worker
