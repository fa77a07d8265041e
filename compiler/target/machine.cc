#include "compiler/target/machine.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace whet {
namespace {

struct Figure {
  const char* name;
  double Machine::* value;
  double least, most;  // what any machine may have
  bool may_lack;
};

constexpr Figure kFigures[] = {
    {"clock", &Machine::clock_ghz, 0.01, 20, false},
    {"fma128", &Machine::fma128_gflops, 0.01, 1e4, false},
    {"fma256", &Machine::fma256_gflops, 0.01, 1e4, true},
    {"fma512", &Machine::fma512_gflops, 0.01, 1e4, true},
    {"l1", &Machine::l1_gbps, 0.01, 1e5, false},
    {"l2", &Machine::l2_gbps, 0.01, 1e5, false},
    {"l3", &Machine::l3_gbps, 0.01, 1e5, false},
    {"dram", &Machine::dram_gbps, 0.01, 1e5, false},
    {"fork_join", &Machine::fork_join_ns, 1, 1e9, false},
};

}  // namespace

double Machine::FmaGflops(int vector_bits) const {
  if (vector_bits >= 512 && fma512_gflops > 0) return fma512_gflops;
  if (vector_bits >= 256 && fma256_gflops > 0) return fma256_gflops;
  return fma128_gflops;
}

std::string Machine::ToString() const {
  std::string text;
  for (const Figure& f : kFigures)
    text += fmt::format("{}{}={:.6g}", text.empty() ? "" : " ", f.name, this->*f.value);
  return text;
}

StatusOr<Machine> Machine::Parse(std::string_view text) {
  if (text.size() > 1024)
    return InvalidArgument("figures of a machine in {} bytes; the limit is 1024", text.size());
  Machine m;
  bool seen[std::size(kFigures)] = {};
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t eq = std::min(word.find('='), word.size());
    size_t i = 0;
    while (i < std::size(kFigures) && word.substr(0, eq) != kFigures[i].name) ++i;
    if (i == std::size(kFigures) || seen[i])
      return InvalidArgument("'{}' is no figure of a machine, or a second one", word.substr(0, 64));
    const Figure& f = kFigures[i];
    const char* from = word.c_str() + std::min(eq + 1, word.size());
    char* rest = nullptr;
    const double v = std::strtod(from, &rest);
    const bool believable = (v == 0 && f.may_lack) || (v >= f.least && v <= f.most);
    if (rest == from || *rest != 0 || !believable)
      return InvalidArgument("figure '{}' is not between {} and {}", word.substr(0, 64), f.least,
                             f.most);
    m.*f.value = v;
    seen[i] = true;
  }
  for (size_t i = 0; i < std::size(kFigures); ++i) {
    if (!seen[i]) return InvalidArgument("the figures of a machine lack '{}'", kFigures[i].name);
  }
  return m;
}

Machine Machine::Typical(const Target& target) {
  Machine m;
  m.clock_ghz = target.arch == "aarch64" ? 2.4 : 2.8;
  // Two units for multiply-adds, of the widest vectors too, and two loads per cycle.
  const auto fma = [&](int bits) { return m.clock_ghz * 2 * 2 * bits / 32; };
  const int bits = target.VectorBits();
  m.fma128_gflops = fma(128);
  if (bits >= 256) m.fma256_gflops = fma(256);
  if (bits >= 512) m.fma512_gflops = fma(512);
  m.l1_gbps = m.clock_ghz * 2 * bits / 8;
  m.l2_gbps = m.clock_ghz * std::min(bits / 8, 48) * 0.75;
  m.l3_gbps = m.clock_ghz * 9;
  m.dram_gbps = 11;
  m.fork_join_ns = 4000;
  return m;
}

}  // namespace whet
