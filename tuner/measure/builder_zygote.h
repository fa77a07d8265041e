// The main loop of whet-builder: a warm, single-threaded process that forks one child per build
// request, so that a crash, hang or leak of code generation costs one build. The composition root
// passes the function that builds; everything the function loads before the first request (targets,
// tables) is shared by all children.
//   int main() { return whet::tuner::RunBuilderZygote(hello, Build); }
// Requests and replies are frames on descriptor 3 (proto/build.proto). Ends with 0 when the
// descriptor is closed.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "proto/build.pb.h"

namespace whet::tuner {

inline constexpr int kBuilderFd = 3;
enum BuilderFrame : uint32_t { kBuilderHello = 1, kBuildRequest = 2, kBuildReply = 3 };
// A candidate with its constants; a request with its workload and trace.
inline constexpr size_t kMaxBuildFrame = 64u << 20;

// Runs in the child: fills failure, message, object, initial_program and statics. `work_dir` is an
// empty folder that is removed after the build.
using BuildFunction =
    std::function<v1::BuildReply(const v1::BuildRequest& request, const std::string& work_dir)>;

// `readable`: files and folders that a build reads, besides the system's libraries and `work_dir`.
int RunBuilderZygote(v1::BuilderHello hello, const BuildFunction& build, int fd = kBuilderFd,
                     const std::vector<std::string>& readable = {});

}  // namespace whet::tuner
