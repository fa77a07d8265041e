// A configuration file, which someone wrote by hand: any bytes set options or are refused with exit
// code 2; a value that was taken is within the option's bounds.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "compiler/support/config.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // What it says of bad files goes nowhere; a sanitizer's words take another way.
  static const bool quiet = (stderr = std::fopen("/dev/null", "w")) != nullptr;
  if (!quiet) std::abort();
  const whet::fuzz::MemoryFile file(data, size);
  CLI::App app("fuzzed");
  std::string listen = "127.0.0.1:0";
  int builders = 1;
  double minutes = 1;
  bool verbose = false;
  std::string target;
  app.add_option("--listen", listen, "")->capture_default_str();
  app.add_option("--builders", builders, "")->check(CLI::Range(0, 256));
  app.add_flag("--verbose", verbose, "");
  CLI::App* tune = app.add_subcommand("tune", "");
  tune->add_option("--minutes", minutes, "")->check(CLI::Range(0.0, 10.0));
  tune->add_option("--target", target, "");
  const std::string path = file.path();
  const char* const argv[] = {"fuzzed", "--config", path.c_str(), "tune"};
  const auto exit = whet::ParseProgram(app, 4, argv);
  if (exit) return *exit == 2 ? 0 : (std::abort(), 0);
  if (builders < 0 || builders > 256 || !(minutes >= 0 && minutes <= 10)) std::abort();
  return 0;
}
