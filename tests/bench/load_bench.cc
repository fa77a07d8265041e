// load_bench FILE: the best of some loads of an artifact, and of reading its bytes, in one line:
// milliseconds to load it and make an instance, milliseconds to read the file, bytes of memory of
// an instance.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "deploy/runtime/model.h"

namespace {

double Ms(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since)
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: load_bench FILE\n");
    return 2;
  }
  constexpr int kRuns = 5;
  double load_ms = 1e30, read_ms = 1e30;
  long long memory = 0;
  for (int i = 0; i < kRuns; ++i) {
    auto start = std::chrono::steady_clock::now();
    {
      std::ifstream in(argv[1], std::ios::binary);
      std::string chunk(1 << 20, '\0');
      while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || in.gcount() > 0) {
      }
    }
    read_ms = std::min(read_ms, Ms(start));
    start = std::chrono::steady_clock::now();
    std::string error;
    const auto model = whet::Model::Load(argv[1], &error);
    if (!model) {
      std::fprintf(stderr, "load_bench: %s\n", error.c_str());
      return 1;
    }
    const whet::Instance instance(model, 1);
    load_ms = std::min(load_ms, Ms(start));
    memory = instance.memory_bytes();
  }
  std::printf("%.2f %.2f %lld\n", load_ms, read_ms, memory);
  return 0;
}
