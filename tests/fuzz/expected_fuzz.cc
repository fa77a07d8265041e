// Files of expected outputs come from a server: any bytes give a view that lies within them, or an
// error.
#include <cstdlib>
#include <string>

#include "compiler/support/expected.h"
#include "compiler/target/machine.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto view = whet::ExpectedView::Parse(bytes);
  if (view.ok()) {
    double sum = 0;
    size_t numbers = 0;
    for (size_t s = 0; s < view->seeds(); ++s) {
      for (size_t o = 0; o < view->outputs(); ++o) {
        const auto& output = view->output(s, o);
        if (output.expected.size() != output.tolerance.size()) std::abort();
        numbers +=
            output.expected.size() * sizeof(double) + output.tolerance.size() * sizeof(float);
        for (const double d : output.expected) sum += d;  // all of them can be read
        for (const float t : output.tolerance) sum += static_cast<double>(t);
      }
    }
    if (numbers > size || (numbers == 0 && sum != 0)) std::abort();
  }
  // A worker's figures of its machine, of the same origin.
  const auto machine = whet::Machine::Parse(bytes);
  if (machine.ok() && !whet::Machine::Parse(machine->ToString()).ok()) std::abort();
  return 0;
}
