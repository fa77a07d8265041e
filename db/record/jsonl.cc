#include "db/record/jsonl.h"

#include <charconv>
#include <functional>
#include <set>

#include <nlohmann/json.hpp>

namespace whet::db {
namespace {

using Json = nlohmann::ordered_json;  // fields keep the order in which they are written

constexpr int kMaxDepth = 4;  // an object with arrays of numbers

// Takes fields out of one object, remembering the first fault; Finish refuses what was not taken.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  std::string Text(const char* name) {
    const Json* v = Take(name);
    if (v == nullptr) return {};
    if (v->is_string()) return v->get<std::string>();
    Fail(name, "a string");
    return {};
  }
  int64_t Int(const char* name) {
    const Json* v = Take(name);
    if (v == nullptr) return 0;
    // Unsigned values beyond the signed range would wrap silently.
    const bool fits = v->is_number_integer() &&
                      !(v->is_number_unsigned() && v->get<uint64_t>() > uint64_t{INT64_MAX});
    if (fits) return v->get<int64_t>();
    Fail(name, "a 64-bit integer");
    return 0;
  }
  int64_t IntIn(const char* name, int64_t low, int64_t high) {
    const int64_t v = Int(name);
    if (v >= low && v <= high) return v;
    Fail(name, fmt::format("an integer in {}..{}", low, high));
    return low;
  }
  bool Bool(const char* name) {
    const Json* v = Take(name);
    if (v == nullptr) return false;
    if (v->is_boolean()) return v->get<bool>();
    Fail(name, "true or false");
    return false;
  }
  uint64_t Seed(const char* name) {
    const std::string text = Text(name);
    uint64_t value = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (ec != std::errc() || end != text.data() + text.size())
      Fail(name, "a decimal number as a string");
    return value;
  }
  std::optional<double> NumberOrNull(const char* name) {
    const Json* v = Take(name);
    if (v == nullptr || v->is_null()) return std::nullopt;
    if (v->is_number()) return v->get<double>();
    Fail(name, "a number or null");
    return std::nullopt;
  }
  std::vector<double> Numbers(const char* name) {
    const Json* v = Take(name);
    if (v == nullptr) return {};
    std::vector<double> out;
    if (v->is_array() && v->size() <= kMaxSamples) {
      for (const Json& e : *v) {
        if (!e.is_number()) break;
        out.push_back(e.get<double>());
      }
      if (out.size() == v->size()) return out;
    }
    Fail(name, fmt::format("an array of at most {} numbers", kMaxSamples));
    return {};
  }
  Fingerprint Print(const char* name) {
    return Checked<Fingerprint>(ParseFingerprint(Text(name)), name);
  }
  std::optional<Fingerprint> PrintOrNull(const char* name) {
    if (const auto it = json_.find(name); it != json_.end() && it->is_null()) {
      taken_.insert(name);
      return std::nullopt;
    }
    return Print(name);
  }
  // An array of at most `most` objects, each read by `read`.
  void Objects(const char* name, size_t most, const std::function<void(Fields&)>& read) {
    const Json* v = Take(name);
    if (v == nullptr) return;
    if (!v->is_array() || v->size() > most)
      return Fail(name, fmt::format("an array of at most {} objects", most));
    for (const Json& e : *v) {
      if (!e.is_object()) return Fail(name, "an array of objects");
      Fields one(e);
      read(one);
      if (const Status s = one.Finish(); !s.ok() && fault_.ok())
        fault_ = InvalidArgument("field '{}': {}", name, Message(s));
    }
  }
  template <typename Enum>
  Enum Name(const char* name, StatusOr<Enum> (*parse)(std::string_view)) {
    return Checked<Enum>(parse(Text(name)), name);
  }

  Status Finish() {
    if (!fault_.ok()) return fault_;
    for (const auto& item : json_.items()) {
      if (!taken_.contains(item.key())) {
        return InvalidArgument("unknown field '{}'", CleanText(item.key(), 64));
      }
    }
    return OkStatus();
  }

 private:
  const Json* Take(const char* name) {
    taken_.insert(name);
    const auto it = json_.find(name);
    if (it != json_.end()) return &*it;
    if (fault_.ok()) fault_ = InvalidArgument("field '{}' is missing", name);
    return nullptr;
  }
  void Fail(const char* name, std::string_view expected) {
    if (fault_.ok()) fault_ = InvalidArgument("field '{}' is not {}", name, expected);
  }
  template <typename T>
  T Checked(StatusOr<T> value, const char* name) {
    if (value.ok()) return *std::move(value);
    if (fault_.ok()) fault_ = InvalidArgument("field '{}': {}", name, Message(value.status()));
    return {};
  }

  const Json& json_;
  std::set<std::string> taken_;
  Status fault_ = OkStatus();
};

Json ToJson(const WorkloadRow& row) {
  return {{"kind", "workload"},
          {"fingerprint", row.fingerprint().Hex()},
          {"op_summary", row.op_summary},
          {"text", row.text}};
}

Json ToJson(const DeviceRow& row) {
  return {{"kind", "device"},
          {"fingerprint", row.fingerprint().Hex()},
          {"device_id", row.device_id},
          {"device_key", row.device_key},
          {"feature_set", row.feature_set},
          {"identity", row.identity}};
}

Json ToJson(const JobRow& row) {
  return {{"kind", "job"},
          {"job_id", row.job_id},
          {"state", JobStateName(row.state)},
          {"spec", row.spec},
          {"error", row.error},
          {"created_ms", row.created_ms},
          {"updated_ms", row.updated_ms}};
}

Json ToJson(const PlanRow& row) {
  Json parts = Json::array();
  for (const PlanRow::Part& p : row.parts)
    parts.push_back({{"workload", p.workload.Hex()}, {"count", p.count}});
  return {{"kind", "plan"},
          {"region", row.region.Hex()},
          {"alternative", row.alternative},
          {"parts", parts},
          {"created_ms", row.created_ms}};
}

Json ToJson(const MachineRow& row) {
  return {{"kind", "machine"},
          {"device", row.device.Hex()},
          {"figures", row.figures},
          {"created_ms", row.created_ms}};
}

Json ToJson(const TrialRow& row) {
  return {{"kind", "trial"},
          {"seq", row.seq},
          {"workload", row.key.workload.Hex()},
          {"target", row.key.target},
          {"threads", row.key.threads},
          {"cache_mode", CacheModeName(row.key.cache_mode)},
          {"generation", row.ids.generation},
          {"job_id", row.ids.job_id},
          {"trial", row.ids.trial},
          {"attempt", row.ids.attempt},
          {"incarnation", row.ids.incarnation},
          {"lease_epoch", row.ids.lease_epoch},
          {"worker_id", row.ids.worker_id},
          {"boot_id", row.ids.boot_id},
          {"device_id", row.ids.device_id},
          {"status", TrialStatusName(row.status)},
          {"origin", OriginName(row.origin)},
          {"device", row.device ? Json(row.device->Hex()) : Json(nullptr)},
          {"trace", row.trace},
          {"initial_program", row.initial_program.Hex()},
          {"codegen_version", row.codegen_version},
          {"compiler_version", row.compiler_version},
          {"object_hash", row.object_hash},
          {"is_default", row.is_default},
          {"failure", FailureName(row.failure)},
          {"message", row.message},
          {"samples_ns", row.samples_ns},
          {"runs_per_sample", row.runs_per_sample},
          {"rung", row.rung},
          {"contended", row.contended},
          {"baseline_ratio", row.baseline_ratio ? Json(*row.baseline_ratio) : Json(nullptr)},
          {"input_seed", std::to_string(row.input_seed)},
          {"sandbox_bits", row.sandbox_bits},
          {"exec_class", ExecClassName(row.exec_class)},
          {"device_state", row.device_state},
          {"build_ns", row.build_ns},
          {"measure_ns", row.measure_ns},
          {"created_ms", row.created_ms}};
}

StatusOr<WorkloadRow> ReadWorkload(Fields& f) {
  const WorkloadRow row{f.Text("text"), f.Text("op_summary")};
  const Fingerprint print = f.Print("fingerprint");
  WHET_RETURN_IF_ERROR(f.Finish());
  if (print == row.fingerprint()) return row;
  return InvalidArgument("field 'fingerprint' is {}, but the text's is {}", print.Hex(),
                         row.fingerprint().Hex());
}

StatusOr<DeviceRow> ReadDevice(Fields& f) {
  const DeviceRow row{f.Text("device_id"), f.Text("device_key"), f.Text("identity"),
                      f.Text("feature_set")};
  const Fingerprint print = f.Print("fingerprint");
  WHET_RETURN_IF_ERROR(f.Finish());
  if (print == row.fingerprint()) return row;
  return InvalidArgument("field 'fingerprint' is {}, but the device's is {}", print.Hex(),
                         row.fingerprint().Hex());
}

StatusOr<JobRow> ReadJob(Fields& f) {
  const JobRow row{f.Text("job_id"),    f.Name("state", ParseJobState),
                   f.Text("spec"),      f.Text("error"),
                   f.Int("created_ms"), f.Int("updated_ms")};
  WHET_RETURN_IF_ERROR(f.Finish());
  return row;
}

StatusOr<PlanRow> ReadPlan(Fields& f) {
  PlanRow row;
  row.region = f.Print("region");
  row.alternative = f.Text("alternative");
  f.Objects("parts", kMaxPlanParts, [&](Fields& part) {
    row.parts.push_back({part.Print("workload"), part.Int("count")});
  });
  row.created_ms = f.Int("created_ms");
  WHET_RETURN_IF_ERROR(f.Finish());
  return row;
}

StatusOr<MachineRow> ReadMachine(Fields& f) {
  const MachineRow row{f.Print("device"), f.Text("figures"), f.Int("created_ms")};
  WHET_RETURN_IF_ERROR(f.Finish());
  return row;
}

TrialIds ReadIds(Fields& f) {
  return {f.Text("generation"), f.Text("job_id"),      f.Int("trial"),
          f.Int("attempt"),     f.Text("incarnation"), f.Int("lease_epoch"),
          f.Text("worker_id"),  f.Text("boot_id"),     f.Text("device_id")};
}

StatusOr<TrialRow> ReadTrial(Fields& f) {
  TrialRow row;
  row.seq = f.Int("seq");
  row.key = {f.Print("workload"), f.Text("target"),
             static_cast<int>(f.IntIn("threads", 1, 1 << 20)),
             f.Name("cache_mode", ParseCacheMode)};
  row.ids = ReadIds(f);
  row.status = f.Name("status", ParseTrialStatus);
  row.origin = f.Name("origin", ParseOrigin);
  row.device = f.PrintOrNull("device");
  row.trace = f.Text("trace");
  row.initial_program = f.Print("initial_program");
  row.codegen_version = f.Int("codegen_version");
  row.compiler_version = f.Text("compiler_version");
  row.object_hash = f.Text("object_hash");
  row.is_default = f.Bool("is_default");
  row.failure = f.Name("failure", ParseFailure);
  row.message = f.Text("message");
  row.samples_ns = f.Numbers("samples_ns");
  row.runs_per_sample = f.Int("runs_per_sample");
  row.rung = static_cast<int>(f.IntIn("rung", 0, 1 << 20));
  row.contended = f.Bool("contended");
  row.baseline_ratio = f.NumberOrNull("baseline_ratio");
  row.input_seed = f.Seed("input_seed");
  row.sandbox_bits = static_cast<uint32_t>(f.IntIn("sandbox_bits", 0, UINT32_MAX));
  row.exec_class = f.Name("exec_class", ParseExecClass);
  row.device_state = f.Text("device_state");
  row.build_ns = f.Int("build_ns");
  row.measure_ns = f.Int("measure_ns");
  row.created_ms = f.Int("created_ms");
  WHET_RETURN_IF_ERROR(f.Finish());
  return row;
}

// One line as an object and its kind; bounds depth before the parser sees it.
StatusOr<Json> ParseObject(std::string_view line) {
  if (line.size() > kMaxLineBytes) {
    return InvalidArgument("{} bytes exceed the limit of {} a line", line.size(), kMaxLineBytes);
  }
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '{' || c == '[') && ++depth > kMaxDepth) {
      return InvalidArgument("nested deeper than {}", kMaxDepth);
    } else if (!quoted && (c == '}' || c == ']')) {
      --depth;
    }
  }
  Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument("not a JSON object");
  const auto kind = json.find("kind");
  if (kind == json.end() || !kind->is_string()) return InvalidArgument("field 'kind' is missing");
  return json;
}

std::string Dump(const Json& json) {
  // Rows were normalized on their way in, so their text is valid UTF-8; `replace` keeps dump from
  // throwing on a row that was damaged since.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The numbers and names were checked by Fields; Normalize checks every bound.
template <typename T>
StatusOr<ParsedLine> Normalized(StatusOr<T> row) {
  if (!row.ok()) return row.status();
  WHET_RETURN_IF_ERROR(Normalize(*row));
  return ParsedLine{*std::move(row), std::nullopt};
}

}  // namespace

std::string HeaderLine(const JsonlHeader& header) {
  return Dump({{"kind", "whet-log"},
               {"version", header.version},
               {"log_id", header.log_id},
               {"generation", header.generation}});
}

std::string RowLine(const Row& row) {
  return std::visit([](const auto& r) { return Dump(ToJson(r)); }, row);
}

std::string EndLine(int64_t rows) { return Dump({{"kind", "end"}, {"rows", rows}}); }

namespace {

// The tuner whose log begins like this, of those that people may try.
std::string_view OtherTuner(std::string_view line) {
  if (line.starts_with("{\"input\":")) return "AutoTVM";
  if (line.starts_with("{\"i\":")) return "the TVM auto-scheduler";
  return line.starts_with("[") ? "MetaSchedule" : "";
}

}  // namespace

StatusOr<JsonlHeader> ParseHeaderLine(std::string_view line) {
  if (const std::string_view other = OtherTuner(line); !other.empty()) {
    return InvalidArgument(
        "it looks like a log of {}: its schedules belong to other loop programs, which can neither "
        "be replayed here nor compared with ours, so nothing of it is taken over",
        other);
  }
  WHET_ASSIGN_OR_RETURN(const Json json, ParseObject(line));
  Fields f(json);
  if (f.Text("kind") != "whet-log") {
    return InvalidArgument("not an exported tuning log: the first line's kind is not 'whet-log'");
  }
  JsonlHeader header;
  const int64_t version = f.Int("version");
  if (version != kJsonlVersion) {
    return InvalidArgument("exported in format {}, this release reads format {}", version,
                           kJsonlVersion);
  }
  header.log_id = f.Text("log_id");
  header.generation = f.Text("generation");
  WHET_RETURN_IF_ERROR(f.Finish());
  return header;
}

StatusOr<ParsedLine> ParseLine(std::string_view line) {
  WHET_ASSIGN_OR_RETURN(const Json json, ParseObject(line));
  Fields f(json);
  const std::string kind = f.Text("kind");
  if (kind == "trial") return Normalized(ReadTrial(f));
  if (kind == "workload") return Normalized(ReadWorkload(f));
  if (kind == "device") return Normalized(ReadDevice(f));
  if (kind == "job") return Normalized(ReadJob(f));
  if (kind == "plan") return Normalized(ReadPlan(f));
  if (kind == "machine") return Normalized(ReadMachine(f));
  if (kind == "end") {
    const int64_t rows = f.Int("rows");
    WHET_RETURN_IF_ERROR(f.Finish());
    return ParsedLine{std::nullopt, rows};
  }
  return InvalidArgument(
      "unknown kind '{}'; known are workload, device, job, plan, machine, trial, end",
      CleanText(kind, 64));
}

}  // namespace whet::db
