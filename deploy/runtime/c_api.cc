#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
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
    auto made = std::make_unique<whet::Instance>(set, pool);
    *error = made->error();
    if (!error->empty()) return nullptr;
    return instances.emplace_back(std::move(made)).get();
  }
  std::shared_ptr<const whet::Model> model;
  std::shared_ptr<whet::ThreadPool> pool;
  std::vector<std::unique_ptr<whet::Instance>> instances;
  whet::Instance* instance = nullptr;  // of the selected set
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

struct whet_pool {
  std::shared_ptr<whet::ThreadPool> pool;
};

namespace {

constexpr int kMaxThreads = 1024;

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

bool ThreadsOk(int threads) {
  if (threads >= 1 && threads <= kMaxThreads) return true;
  last_error = "threads is " + std::to_string(threads) + ", allowed are 1 to 1024";
  return false;
}

// Null and the reason when the system refuses a thread.
std::shared_ptr<whet::ThreadPool> MakePool(int threads, bool pin) {
  auto pool = std::make_shared<whet::ThreadPool>(threads, pin);
  last_error = pool->error();
  return last_error.empty() ? pool : nullptr;
}

// Checked; fields that an older caller does not know stay zero.
bool ReadOptions(const char* path, const whet_session_options* given, whet_session_options* o) {
  constexpr uint32_t kFirst = offsetof(whet_session_options, huge_pages) + sizeof(int32_t);
  if (!given || given->size < kFirst || given->size > sizeof *o) {
    last_error = given ? "the options have " + std::to_string(given->size) +
                             " bytes, this runtime knows " + std::to_string(sizeof *o)
                       : "the options are a null pointer";
    return false;
  }
  std::memcpy(o, given, given->size);
  if (o->like ? path || o->target || o->huge_pages : !path) {
    last_error = o->like ? "with `like` the model is there: neither path, target nor huge_pages"
                         : "the path is a null pointer";
    return false;
  }
  if (o->pool && (o->threads != 0 || o->pin != 0)) {
    last_error = "with `pool` the threads are there: neither threads nor pin";
    return false;
  }
  return o->threads == 0 || ThreadsOk(o->threads);
}

}  // namespace

extern "C" {

whet_session* whet_session_open(const char* path, int threads) {
  if (path && !ThreadsOk(threads)) return nullptr;
  whet_session_options options = {};
  options.size = sizeof options;
  options.threads = threads;
  return whet_session_open_with(path, &options);
}

whet_session* whet_session_open_with(const char* path, const whet_session_options* given) try {
  whet_session_options o = {};
  if (!ReadOptions(path, given, &o)) return nullptr;
  auto session = std::make_unique<whet_session>();
  if (o.like) {
    session->model = o.like->model;
  } else {
    whet::LoadOptions load;
    if (o.target) load.build = o.target;
    load.huge_pages = o.huge_pages != 0;
    session->model = whet::Model::Load(path, load, &last_error);
    if (!session->model) return nullptr;
  }
  if (!session->model->parameters().empty()) {
    last_error = std::string("'") + path + "' is a tuning candidate without weights, not a model";
    return nullptr;
  }
  session->pool = o.pool ? o.pool->pool : MakePool(std::max(o.threads, 1), o.pin != 0);
  if (!session->pool) return nullptr;
  session->instance = session->Get(session->model, &last_error);
  if (!session->instance) return nullptr;
  session->inputs.reserve(session->model->inputs().size());
  session->outputs.reserve(session->model->outputs().size());
  return session.release();
} catch (const std::exception& e) {
  last_error = e.what();
  return nullptr;
}

whet_pool* whet_pool_create(int threads, int pin) try {
  if (!ThreadsOk(threads)) return nullptr;
  auto pool = MakePool(threads, pin != 0);
  return pool ? new whet_pool{std::move(pool)} : nullptr;
} catch (const std::exception& e) {
  last_error = e.what();
  return nullptr;
}

void whet_pool_release(whet_pool* pool) { delete pool; }

const char* whet_session_target(const whet_session* s) { return s->model->build().name.c_str(); }

uint64_t whet_session_memory(const whet_session* s, uint64_t* shared) {
  uint64_t own = 0;
  for (const auto& i : s->instances) own += static_cast<uint64_t>(i->memory_bytes());
  if (shared) *shared = static_cast<uint64_t>(s->model->shared_bytes());
  return own;
}

const char* whet_session_huge_pages_note(const whet_session* s) {
  return s->model->huge_pages_note().c_str();
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
