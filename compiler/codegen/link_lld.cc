// lld as a library. It is not thread-safe and may leave state behind, so it runs in the builder's
// child only.
#include <lld/Common/Driver.h>
#include <llvm/Support/CrashRecoveryContext.h>
#include <llvm/Support/raw_ostream.h>

#include "compiler/codegen/codegen.h"

LLD_HAS_DRIVER(elf)

namespace whet::codegen {

Status LinkShared(const std::vector<std::string>& object_paths, const std::string& exported,
                  const std::string& out_path) {
  std::vector<std::string> args = {"ld.lld",
                                   "-shared",
                                   "--no-undefined",
                                   "-z",
                                   "noexecstack",
                                   "-z",
                                   "relro",
                                   "-z",
                                   "now",
                                   "--build-id=none",
                                   "--hash-style=gnu",
                                   "--threads=1",
                                   "-O0",
                                   "--strip-all",
                                   "--export-dynamic-symbol=" + exported,
                                   "-o",
                                   out_path};
  args.insert(args.end(), object_paths.begin(), object_paths.end());
  std::vector<const char*> argv;
  for (const std::string& a : args) argv.push_back(a.c_str());
  std::string out, err;
  llvm::raw_string_ostream os_out(out), os_err(err);
  // Without this a fatal error of lld ends the process before its message can be read.
  llvm::CrashRecoveryContext::Enable();
  const lld::DriverDef drivers[] = {{lld::Gnu, &lld::elf::link}};
  lld::Result r = lld::lldMain(argv, os_out, os_err, drivers);
  if (r.retCode != 0) return Internal("linking failed: {}", os_err.str().substr(0, 1000));
  return OkStatus();
}

}  // namespace whet::codegen
