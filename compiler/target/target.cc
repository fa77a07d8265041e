#include "compiler/target/target.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace whet {
namespace {

#if defined(__x86_64__)
// The features that decide how our kernels are written; the compiler's names are LLVM's too.
#define WHET_X86_FEATURES(X) \
  X("sse3")                  \
  X("ssse3")                 \
  X("sse4.1")                \
  X("sse4.2")                \
  X("popcnt")                \
  X("avx")                   \
  X("avx2")                  \
  X("fma")                   \
  X("f16c")                  \
  X("bmi")                   \
  X("bmi2")                  \
  X("avx512f")               \
  X("avx512cd")              \
  X("avx512bw")              \
  X("avx512dq")              \
  X("avx512vl")              \
  X("avx512vbmi")            \
  X("avx512vnni")            \
  X("avx512bf16")            \
  X("avx512fp16")            \
  X("avxvnni")               \
  X("amx-tile")              \
  X("amx-int8")              \
  X("amx-bf16")

std::vector<std::string> HostFeatures() {
  std::vector<std::string> f;
  __builtin_cpu_init();
#define X(name) \
  if (__builtin_cpu_supports(name)) f.emplace_back(name);
  WHET_X86_FEATURES(X)
#undef X
  return f;
}
constexpr const char* kHostArch = "x86_64";
#elif defined(__aarch64__)
std::vector<std::string> HostFeatures() { return {"neon"}; }
constexpr const char* kHostArch = "aarch64";
#else
#error "whet runs on x86_64 and aarch64"
#endif

struct Level {
  const char* name;
  const char* arch;
  // Those that it adds to the one before of the same architecture.
  std::vector<std::string> features;
  int64_t l2_bytes;  // of the first processors that had it
};
const std::vector<Level>& Levels() {
  static const std::vector<Level> levels = {
      {"x86-64", "x86_64", {}, 256 << 10},
      {"x86-64-v2", "x86_64", {"popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"}, 256 << 10},
      {"x86-64-v3", "x86_64", {"avx", "avx2", "bmi", "bmi2", "f16c", "fma"}, 256 << 10},
      {"x86-64-v4", "x86_64", {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}, 1 << 20},
      {"aarch64", "aarch64", {}, 256 << 10}};
  return levels;
}

std::string LevelNames() {
  std::string names;
  for (const Level& l : Levels()) names += std::string(names.empty() ? "" : ", ") + l.name;
  return names;
}

void SortFeatures(Target& t) {
  std::sort(t.features.begin(), t.features.end());
  t.features.erase(std::unique(t.features.begin(), t.features.end()), t.features.end());
}

// `+NAME` to NAME.
StatusOr<std::string> ParseFeature(std::string_view text) {
  const bool legal =
      text.size() > 1 && text[0] == '+' && std::all_of(text.begin() + 1, text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '-' || c == '_';
      });
  if (!legal)
    return InvalidArgument("feature '{}' is not '+' and letters, digits, '.', '-' or '_'", text);
  return std::string(text.substr(1));
}

// "x86-64-v3+avxvnni" to a target with that level's caches.
StatusOr<Target> ParseName(std::string_view name) {
  const std::string_view level_name = name.substr(0, name.find('+'));
  Target t;
  bool found = false;
  for (const Level& l : Levels()) {
    if (found) break;
    if (l.arch != t.arch) t.features.clear();
    t.arch = l.arch;
    t.features.insert(t.features.end(), l.features.begin(), l.features.end());
    t.l2_bytes = l.l2_bytes;
    found = level_name == l.name;
  }
  if (!found)
    return InvalidArgument(
        "target '{}' is neither 'host' nor one of {}, nor does it start with 'cpu '", name,
        LevelNames());
  name.remove_prefix(level_name.size());
  while (!name.empty()) {
    const size_t next = std::min(name.find('+', 1), name.size());
    WHET_ASSIGN_OR_RETURN(std::string feature, ParseFeature(name.substr(0, next)));
    t.features.push_back(std::move(feature));
    name.remove_prefix(next);
  }
  return t;
}

int64_t CacheSize(int name, int64_t missing) {
  const long v = sysconf(name);
  return v > 0 ? v : missing;
}

}  // namespace

bool Target::Has(std::string_view feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

int Target::VectorBits() const {
  if (Has("avx512f") && Has("avx512vl")) return 512;
  return Has("avx") ? 256 : 128;
}

int Target::VectorRegisters() const { return VectorBits() == 512 || arch == "aarch64" ? 32 : 16; }

std::string Target::FeatureSet() const {
  std::string s = arch;
  for (size_t i = 0; i < features.size(); ++i) s += (i ? ",+" : " +") + features[i];
  return s;
}

std::string Target::Name() const {
  std::vector<std::string> left = features;
  std::string name = arch;
  for (const Level& l : Levels()) {
    if (l.arch != arch) continue;
    if (!std::all_of(l.features.begin(), l.features.end(),
                     [&](const std::string& f) { return Has(f); }))
      break;
    name = l.name;
    for (const std::string& f : l.features) std::erase(left, f);
  }
  for (const std::string& f : left) name += "+" + f;
  return name;
}

std::string Target::ToString() const {
  std::string mattr;
  for (size_t i = 0; i < features.size(); ++i) mattr += (i ? ",+" : "+") + features[i];
  std::string s = fmt::format("cpu -arch={}", arch);
  if (!mattr.empty()) s += " -mattr=" + mattr;
  return s + fmt::format(" -l1d={} -l2={} -l3={}", l1d_bytes, l2_bytes, l3_bytes);
}

StatusOr<Target> Target::Parse(std::string_view text) {
  if (text == "host" || text == "cpu") return Host();
  if (text.size() > 4096)
    return InvalidArgument("target text of {} bytes; the limit is 4096", text.size());
  const std::string_view kind = text.substr(0, text.find(' '));
  Target t;
  if (kind != "cpu") {
    WHET_ASSIGN_OR_RETURN(t, ParseName(kind));
  }
  text.remove_prefix(std::min(kind.size() + 1, text.size()));
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const size_t eq = word.find('=');
    if (word[0] != '-' || eq == std::string_view::npos)
      return InvalidArgument("target option '{}' is not -key=value", word);
    const std::string_view key = word.substr(1, eq - 1);
    std::string_view value = word.substr(eq + 1);
    auto number = [&](int64_t& out) -> Status {
      auto [p, ec] = std::from_chars(value.data(), value.data() + value.size(), out);
      if (ec != std::errc() || p != value.data() + value.size() || out < 0)
        return InvalidArgument("target option '{}' needs a number", word);
      return OkStatus();
    };
    if (key == "arch") {
      if (value != "x86_64" && value != "aarch64")
        return InvalidArgument("unknown architecture '{}'; known: x86_64, aarch64", value);
      t.arch = value;
    } else if (key == "mattr") {
      while (!value.empty()) {
        const size_t comma = std::min(value.find(','), value.size());
        std::string_view f = value.substr(0, comma);
        value.remove_prefix(std::min(comma + 1, value.size()));
        WHET_ASSIGN_OR_RETURN(std::string feature, ParseFeature(f));
        t.features.push_back(std::move(feature));
      }
    } else if (key == "l1d") {
      WHET_RETURN_IF_ERROR(number(t.l1d_bytes));
    } else if (key == "l2") {
      WHET_RETURN_IF_ERROR(number(t.l2_bytes));
    } else if (key == "l3") {
      WHET_RETURN_IF_ERROR(number(t.l3_bytes));
    } else {
      return InvalidArgument("unknown target option '-{}'; known: arch, mattr, l1d, l2, l3", key);
    }
  }
  SortFeatures(t);
  return t;
}

Target Target::Host() {
  Target t;
  t.arch = kHostArch;
  t.features = HostFeatures();
  std::sort(t.features.begin(), t.features.end());
  t.l1d_bytes = CacheSize(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
  t.l2_bytes = CacheSize(_SC_LEVEL2_CACHE_SIZE, 256 << 10);
  t.l3_bytes = CacheSize(_SC_LEVEL3_CACHE_SIZE, 0);
  return t;
}

}  // namespace whet
