#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "deploy/runtime/model.h"
#include "deploy/runtime/whet_runtime.h"

struct whet_session {
  // The instance for a set of shapes, made when it is first asked for; null and a reason otherwise.
  whet::Instance* Get(const std::shared_ptr<const whet::Model>& set, std::string* error) {
    for (const auto& i : instances) {
      if (&i->model() == set.get()) return i.get();
    }
    auto made = std::make_unique<whet::Instance>(set, threads);
    *error = made->error();
    if (!error->empty()) return nullptr;
    return instances.emplace_back(std::move(made)).get();
  }
  std::shared_ptr<const whet::Model> model;
  int threads = 1;
  std::vector<std::unique_ptr<whet::Instance>> instances;
  whet::Instance* instance = nullptr;  // of the selected set
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

namespace {

thread_local std::string last_error;

int Describe(std::span<const whet_tensor> tensors, uint32_t index, const char* what,
             whet_value_info* info) {
  if (index >= tensors.size()) {
    last_error = std::string(what) + " " + std::to_string(index) +
                 " does not exist; the model has " + std::to_string(tensors.size());
    return -1;
  }
  const whet_tensor& t = tensors[index];
  *info = {t.name, t.dtype, t.rank, t.shape, t.bytes};
  return 0;
}

// Takes a session for one run, or does not get it.
class Turn {
 public:
  explicit Turn(std::atomic_flag& busy)
      : busy_(busy), taken_(!busy.test_and_set(std::memory_order_acquire)) {}
  ~Turn() {
    if (taken_) busy_.clear(std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool taken() const { return taken_; }

 private:
  std::atomic_flag& busy_;
  const bool taken_;
};

bool AnyNull(const void* const* list, size_t n, const char* what) {
  for (size_t i = 0; i < n; ++i) {
    if (list && list[i]) continue;
    last_error = std::string(what) + " " + std::to_string(i) + " is a null pointer";
    return true;
  }
  return false;
}

}  // namespace

extern "C" {

whet_session* whet_session_open(const char* path, int threads) try {
  if (!path || threads < 1 || threads > 1024) {
    last_error = path ? "threads is " + std::to_string(threads) + ", allowed are 1 to 1024"
                      : "the path is a null pointer";
    return nullptr;
  }
  auto model = whet::Model::Load(path, &last_error);
  if (!model) return nullptr;
  if (!model->parameters().empty()) {
    last_error = std::string("'") + path + "' is a tuning candidate without weights, not a model";
    return nullptr;
  }
  auto session = std::make_unique<whet_session>();
  session->model = model;
  session->threads = threads;
  session->instance = session->Get(model, &last_error);
  return session->instance ? session.release() : nullptr;
} catch (const std::exception& e) {
  last_error = e.what();
  return nullptr;
}

void whet_session_close(whet_session* session) { delete session; }

uint32_t whet_session_input_count(const whet_session* s) {
  return s->instance->model().desc().n_inputs;
}
uint32_t whet_session_output_count(const whet_session* s) {
  return s->instance->model().desc().n_outputs;
}

int whet_session_input(const whet_session* s, uint32_t index, whet_value_info* info) {
  return Describe(s->instance->model().inputs(), index, "input", info);
}
int whet_session_output(const whet_session* s, uint32_t index, whet_value_info* info) {
  return Describe(s->instance->model().outputs(), index, "output", info);
}

int whet_session_select(whet_session* s, const int64_t* const* shapes) try {
  const auto inputs = s->instance->model().inputs();
  if (AnyNull(reinterpret_cast<const void* const*>(shapes), inputs.size(), "shape")) return -1;
  const Turn turn(s->busy);
  if (!turn.taken()) {
    last_error = "the session is running in another thread; open one session per thread";
    return -1;
  }
  std::vector<std::vector<int64_t>> wanted;
  for (size_t i = 0; i < inputs.size(); ++i)
    wanted.emplace_back(shapes[i], shapes[i] + inputs[i].rank);
  const auto set = whet::Model::ForShapes(s->model, wanted, &last_error);
  whet::Instance* instance = set ? s->Get(set, &last_error) : nullptr;
  if (!instance) return -1;
  s->instance = instance;
  return 0;
} catch (const std::exception& e) {
  last_error = e.what();
  return -1;
}

int whet_session_run(whet_session* s, const void* const* inputs, void* const* outputs) try {
  const size_t n_in = s->instance->model().inputs().size(),
               n_out = s->instance->model().outputs().size();
  if (AnyNull(inputs, n_in, "input") || AnyNull(outputs, n_out, "output")) return -1;
  const Turn turn(s->busy);
  if (!turn.taken()) {
    last_error = "the session is running in another thread; open one session per thread";
    return -1;
  }
  s->inputs.assign(inputs, inputs + n_in);
  s->outputs.assign(outputs, outputs + n_out);
  s->instance->Run(s->inputs, s->outputs);
  return 0;
} catch (const std::exception& e) {
  last_error = e.what();
  return -1;
}

const char* whet_last_error(void) { return last_error.c_str(); }

}  // extern "C"
