// whet-builder: the only program with LLVM and lld in it. Two modes:
//   whet-builder            a zygote on descriptor 3, one forked child per candidate
//                           (see builder_zygote.h)
//   whet-builder model REQUEST REPLY
//                           builds the whole model described in the file REQUEST
//                           (v1.ModelBuildRequest), answers in the file REPLY
//                           (v1.ModelBuildReply); one model per process
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "compiler/builder/model_build.h"
#include "compiler/codegen/candidate.h"
#include "compiler/codegen/untuned.h"
#include "compiler/schedule/space.h"
#include "compiler/support/version.h"
#include "compiler/task/workload_program.h"
#include "proto/model.pb.h"
#include "tuner/measure/builder_zygote.h"

namespace whet {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return InvalidArgument("cannot open '{}': {}", path, std::strerror(errno));
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

// Says in `trace` what was built. FailedPrecondition: not worth measuring.
StatusOr<codegen::Candidate> BuildRequested(const v1::BuildRequest& request,
                                            const task::WorkloadProgram& w, const Target& target,
                                            std::string& trace) {
  const auto build = [&](const schedule::Schedule& s) {
    auto c = codegen::BuildCandidate(s.program(), w.workload.fingerprint().Hex(), target);
    if (c.ok()) c->trace = s.trace().ToString();
    return c;
  };
  if (request.trace().empty() || request.untuned()) {
    const auto conditions =
        schedule::Conditions::Of(request.machine(), target, static_cast<int>(request.threads()));
    WHET_ASSIGN_OR_RETURN(
        codegen::Candidate c,
        codegen::BuildUntuned(schedule::Space(w.program, target, conditions), build));
    trace = c.trace;
    return c;
  }
  WHET_ASSIGN_OR_RETURN(const schedule::Trace wanted, schedule::Trace::Parse(request.trace()));
  WHET_ASSIGN_OR_RETURN(const schedule::Schedule s, schedule::Schedule::Replay(w.program, wanted));
  WHET_ASSIGN_OR_RETURN(codegen::Candidate c, build(s));
  if (codegen::SpillsInHotLoop(c.stats))
    return FailedPrecondition("{}", codegen::SpillMessage(c.stats));
  trace = c.trace;
  return c;
}

Status BuildCandidateInto(const v1::BuildRequest& request, const std::string& dir,
                          v1::BuildReply& reply) {
  WHET_ASSIGN_OR_RETURN(Target target, Target::Parse(request.target()));
  WHET_ASSIGN_OR_RETURN(task::WorkloadProgram w, task::OpenWorkload(request.workload()));
  reply.set_initial_program(schedule::DigestOf(w.program).Hex());
  WHET_ASSIGN_OR_RETURN(const codegen::Candidate c,
                        BuildRequested(request, w, target, *reply.mutable_trace()));
  reply.add_statics(static_cast<float>(c.stats.code_bytes));
  reply.add_statics(static_cast<float>(c.stats.hot_spill_share));
  WHET_RETURN_IF_ERROR(codegen::LinkCandidate(c, dir, dir + "/candidate.so"));
  WHET_ASSIGN_OR_RETURN(*reply.mutable_object(), ReadFile(dir + "/candidate.so"));
  return OkStatus();
}

v1::BuildReply Build(const v1::BuildRequest& request, const std::string& dir) {
  v1::BuildReply reply;
  reply.set_id(request.id());
  const int64_t start = NowNs();
  Status st = BuildCandidateInto(request, dir, reply);
  reply.set_build_ns(NowNs() - start);
  if (st.ok()) {
    reply.set_failure(v1::FAILURE_OK);
  } else {
    // A schedule that code generation refuses is a rejected candidate, anything else a build error.
    reply.set_failure(st.code() == absl::StatusCode::kFailedPrecondition ? v1::FAILURE_REJECTED
                                                                         : v1::FAILURE_BUILD_ERROR);
    reply.set_message(Message(st));
  }
  return reply;
}

int ModelMain(const char* path, const char* reply_path) {
  v1::ModelBuildRequest request;
  v1::ModelBuildReply reply;
  Status st = OkStatus();
  std::ifstream in(path, std::ios::binary);
  if (!in || !request.ParseFromIstream(&in)) {
    st = InvalidArgument("'{}' is not a model build request", path);
  } else {
    auto stats = builder::BuildModelOf(std::move(request));
    st = stats.status();
    if (stats.ok()) {
      reply.set_code_bytes(stats->code_bytes);
      reply.set_constant_bytes(stats->constant_bytes);
      reply.set_arena_bytes(stats->arena_bytes);
      reply.set_cached_objects(stats->cached_objects);
    }
  }
  reply.set_ok(st.ok());
  reply.set_code(static_cast<int>(st.code()));
  reply.set_message(Message(st));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  reply.set_peak_bytes(usage.ru_maxrss * 1024);
  std::ofstream out(reply_path, std::ios::binary);
  return reply.SerializeToOstream(&out) && out.flush() ? 0 : 1;
}

// A convolution with packed weights, borders, a tail of channels and an epilogue: what it makes the
// code generator set up, every child has at hand.
constexpr char kWarmUpWorkload[] =
    "whet-workload 1\n"
    "input f32[1,24,8,8]<(a, b, c, d) -> (a, c, d, b)>\n"
    "input const f32[24,24,3,3]\n"
    "input const f32[24]\n"
    "op Conv.1(0, 1, 2) {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}\n"
    "op Relu.1(3)\n"
    "output 4 f32[1,24,8,8]<(a, b, c, d) -> (a, c, d, b)>\n";

// Children inherit loaded targets, touched pages and filled tables; a first build that fails would
// fail for every candidate. Nothing is linked here: lld may leave state behind.
Status WarmUp() {
  const Target target = Target::Host();
  WHET_ASSIGN_OR_RETURN(const task::WorkloadProgram w, task::OpenWorkload(kWarmUpWorkload));
  const schedule::Space space(w.program, target);
  WHET_ASSIGN_OR_RETURN(const schedule::Schedule s, space.Untuned());
  return codegen::BuildCandidate(s.program(), "", target).status();
}

int ZygoteMain() {
  if (Status st = WarmUp(); !st.ok()) {
    std::fprintf(stderr, "whet-builder: %s\n", Message(st).c_str());
    return 1;
  }
  v1::BuilderHello hello;
  hello.set_compiler_version(kCompilerVersion);
  hello.set_codegen_version(kCodegenVersion);
  return tuner::RunBuilderZygote(hello, Build);
}

}  // namespace
}  // namespace whet

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "model") == 0) return whet::ModelMain(argv[2], argv[3]);
  if (argc == 1) return whet::ZygoteMain();
  std::fprintf(stderr, "whet-builder is started by whet and tuner-server; it has no use by hand\n");
  return 2;
}
