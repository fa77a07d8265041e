// generate_model NAME FILE [BATCH]: writes one of the networks of generated.h; without arguments,
// their names.
#include <cstdio>
#include <cstdlib>

#include "tests/models/generated.h"

int main(int argc, char** argv) {
  using namespace whet::testing_support;
  if (argc == 1) {
    for (const std::string& name : GeneratedNames()) std::printf("%s\n", name.c_str());
    return 0;
  }
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: generate_model NAME FILE [BATCH]\n");
    return 2;
  }
  const auto model = Generate(argv[1], argc == 4 ? std::atoll(argv[3]) : 1);
  if (!model.ok()) {
    std::fprintf(stderr, "generate_model: %s\n", whet::Message(model.status()).c_str());
    return 2;
  }
  model->WriteTo(argv[2]);
  return 0;
}
