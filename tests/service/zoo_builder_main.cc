// Builds animals: a whet-builder whose compiler is a folder.
#include <cstdlib>

#include "compiler/support/fingerprint.h"
#include "tests/service/zoo_tasks.h"
#include "tuner/measure/builder_zygote.h"

int main() {
  using namespace whet;
  v1::BuilderHello hello;
  hello.set_codegen_version(1);
  hello.set_compiler_version("zoo");
  const auto build = [](const v1::BuildRequest& request, const std::string&) {
    v1::BuildReply reply;
    const std::string animal = whet::testing::AnimalOf(request.trace());
    if (animal == "hang_in_builder") {
      for (volatile bool forever = true; forever;) {
      }
    }
    if (animal == "crash_in_builder") std::abort();
    StatusOr<std::string> object = ReadFile(whet::testing::ZooPath(animal), 1 << 20);
    reply.set_failure(object.ok() ? v1::FAILURE_OK : v1::FAILURE_BUILD_ERROR);
    if (object.ok()) reply.set_object(*object);
    if (!object.ok()) reply.set_message(Message(object.status()));
    reply.set_initial_program(FingerprintOf("zoo").Hex());
    return reply;
  };
  return tuner::RunBuilderZygote(hello, build, tuner::kBuilderFd,
                                 {whet::testing::EnvOr("WHET_ZOO_DIR", "./zoo")});
}
