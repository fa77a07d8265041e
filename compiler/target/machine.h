// How fast a processor is, for estimates: rates of one core, and what starting the threads of a
// kernel costs. Measured on the device (worker/device/probe.h) or, where nothing was measured,
// typical of the target. Text form: `clock=2.6 fma128=40 fma256=80 fma512=160 l1=300 l2=100 l3=25
// dram=12 fork_join=3000`; a rate that the processor lacks is 0. Figures decide which schedule an
// estimate prefers, never what a record is found by.
#pragma once
#include <string>
#include <string_view>

#include "compiler/support/status.h"
#include "compiler/target/target.h"

namespace whet {

struct Machine {
  double clock_ghz = 0;      // of dependent additions
  double fma128_gflops = 0;  // f32, fused multiply-adds of independent chains, by vector width
  double fma256_gflops = 0;
  double fma512_gflops = 0;
  double l1_gbps = 0;  // reading what lies there, in the widest vectors
  double l2_gbps = 0;
  double l3_gbps = 0;
  double dram_gbps = 0;
  double fork_join_ns = 0;  // a run of an empty kernel on all processors, minus that on one

  double FmaGflops(int vector_bits) const;  // 0 < result
  int VectorBits() const { return fma512_gflops > 0 ? 512 : fma256_gflops > 0 ? 256 : 128; }
  std::string ToString() const;
  // InvalidArgument when a figure is missing, unknown, or not believable: each has wide bounds.
  static StatusOr<Machine> Parse(std::string_view text);
  static Machine Typical(const Target& target);
  friend bool operator==(const Machine&, const Machine&) = default;
};

}  // namespace whet
