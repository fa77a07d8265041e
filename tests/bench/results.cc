#include "tests/bench/results.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "tests/bench/stats.h"

namespace whet::bench {
namespace {

using Samples = std::vector<double>;

Samples SamplesOf(const Json& contender) { return contender.at("samples_us").get<Samples>(); }

const Json* Find(const Json& c, const std::string& name) {
  if (!c.contains("contenders")) return nullptr;
  for (const Json& k : c["contenders"]) {
    if (k["name"] == name) return &k;
  }
  return nullptr;
}

// The peer's time over ours, round by round; empty when one of them is not there.
Samples RatiosTo(const Json& c, const std::string& peer) {
  const Json *own = Find(c, kOwn), *other = Find(c, peer);
  if (own == nullptr || other == nullptr) return {};
  return Ratios(SamplesOf(*other), SamplesOf(*own));
}

Samples Rates(const Json& c) {  // our share of the rate of multiply-adds, by round
  const Json* own = Find(c, kOwn);
  if (own == nullptr || !c.contains("fma_gflops") || !c.contains("flops")) return {};
  const Samples us = SamplesOf(*own), fma = c["fma_gflops"].get<Samples>();
  Samples share;
  for (size_t i = 0; i < std::min(us.size(), fma.size()); ++i)
    if (fma[i] > 0) share.push_back(c["flops"].get<double>() / us[i] / 1e3 / fma[i]);
  return share;
}

// "onednn direct" is a way of oneDNN's; "onnxruntime on 2" runs on more threads than ours does.
bool IsPeer(const std::string& name, const std::string& library) {
  return name == library ||
         (name.starts_with(library + " ") && !name.starts_with(library + " on "));
}

// The library's fastest way, by its median; empty when it has none here.
std::string BestOf(const Json& c, const std::string& library) {
  std::string best;
  double least = std::numeric_limits<double>::infinity();
  if (!c.contains("contenders")) return best;
  for (const Json& k : c["contenders"]) {
    const auto name = k["name"].get<std::string>();
    if (!IsPeer(name, library) || k["median_us"].get<double>() >= least) continue;
    least = k["median_us"].get<double>();
    best = name;
  }
  return best;
}

Json IntervalJson(const Interval& i) {
  return {{"median", i.median}, {"low", i.low}, {"high", i.high}};
}

std::string Text(const Interval& i) {
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", i.median, i.low, i.high);
}

}  // namespace

void Conclude(Json& c) {
  if (!c.contains("contenders")) return;
  Json ratios = Json::array();
  for (const Json& k : c["contenders"]) {
    const auto name = k["name"].get<std::string>();
    if (name == kOwn || name == kFloor) continue;
    Json r = {{"peer", name}};
    r.update(IntervalJson(MedianInterval(RatiosTo(c, name))));
    ratios.push_back(std::move(r));
  }
  c["ratios"] = ratios;
  std::string best;
  for (const char* library : {"onednn", "onnxruntime", "openblas"}) {
    if (best.empty()) best = BestOf(c, library);
  }
  if (!best.empty()) c["best"] = best;
  if (const Samples s = Rates(c); !s.empty()) c["share_of_fma"] = MedianOf(s);
  if (const Samples s = RatiosTo(c, kFloor); !s.empty()) c["share_of_floor"] = MedianOf(s);
}

StatusOr<Json> ReadResults(const std::string& path) {
  std::ifstream in(path);
  if (!in) return NotFound("'{}' cannot be read", path);
  Json j = Json::parse(in, nullptr, false);
  if (j.is_discarded() || !j.is_object() || j.value("whet_bench", 0) != 1 || !j.contains("cases"))
    return InvalidArgument("'{}' is not a result of whet-bench, version 1", path);
  return j;
}

std::string Kept(Json results, size_t rounds) {
  auto thin = [](Json& samples, size_t rounds) {
    const size_t n = samples.size(), kept = std::min(n, rounds);
    Json some = Json::array();
    for (size_t i = 0; i < kept; ++i)
      some.push_back(std::stod(fmt::format("{:.4g}", samples[i * n / kept].get<double>())));
    samples = std::move(some);
  };
  const Json cases = std::move(results["cases"]);
  results.erase("cases");
  std::string text = results.dump();
  text.replace(text.size() - 1, 1, ",\n\"cases\": [");
  bool first = true;
  for (Json c : cases) {
    const size_t most = c.contains("suite") && c["suite"] == "scaling" ? SIZE_MAX : rounds;
    if (c.contains("fma_gflops")) thin(c["fma_gflops"], most);
    if (c.contains("contenders")) {
      for (Json& k : c["contenders"]) {
        thin(k["samples_us"], most);
        k["median_us"] = MedianOf(SamplesOf(k));
      }
      Conclude(c);
    }
    text += (first ? "\n" : ",\n") + c.dump();
    first = false;
  }
  return text + "\n]}\n";
}

// ---- two results

namespace {

std::map<std::string, const Json*> ByName(const Json& results) {
  std::map<std::string, const Json*> all;
  for (const Json& c : results["cases"])
    all[c["suite"].get<std::string>() + ": " + c["case"].get<std::string>()] = &c;
  return all;
}

// What ours is judged by in both of two results.
struct Yardstick {
  std::string name;
  Samples before, after;
};

Yardstick CommonYardstick(const Json& before, const Json& after) {
  for (const char* library : {"onednn", "onnxruntime", "openblas"}) {
    const std::string a = BestOf(before, library), b = BestOf(after, library);
    if (!a.empty() && !b.empty()) return {library, RatiosTo(before, a), RatiosTo(after, b)};
  }
  if (!RatiosTo(before, kFloor).empty() && !RatiosTo(after, kFloor).empty())
    return {kFloor, RatiosTo(before, kFloor), RatiosTo(after, kFloor)};
  return {"FMA rate", Rates(before), Rates(after)};
}

}  // namespace

StatusOr<std::string> CompareResults(const Json& before, const Json& after) {
  const auto a = ByName(before), b = ByName(after);
  std::string text;
  for (const char* key : {"threads", "caches"}) {
    if (before.value(key, Json()) != after.value(key, Json()))
      return InvalidArgument("the results differ in {}: {} and {}", key,
                             before.value(key, Json()).dump(), after.value(key, Json()).dump());
  }
  text += fmt::format("{:<44} {:<12} {:>7} {:>7}  {}\n", "case", "against", "before", "after",
                      "times as fast as before (95 %)");
  std::vector<double> changes;
  int faster = 0, slower = 0;
  for (const auto& [name, was] : a) {
    const auto it = b.find(name);
    if (it == b.end()) {
      text += fmt::format("{:<44} only in the first\n", name);
      continue;
    }
    const Yardstick y = CommonYardstick(*was, *it->second);
    if (y.before.empty() || y.after.empty()) {
      text += fmt::format("{:<44} nothing to compare\n", name);
      continue;
    }
    const Interval change =
        Bootstrap({y.before, y.after}, 1, [](const std::vector<double>& m) { return m[1] / m[0]; });
    const char* mark = change.low > 1 ? "  faster" : change.high < 1 ? "  SLOWER" : "";
    faster += change.low > 1 ? 1 : 0;
    slower += change.high < 1 ? 1 : 0;
    changes.push_back(change.median);
    text += fmt::format("{:<44} {:<12} {:>7.3f} {:>7.3f}  {}{}\n", name, y.name, MedianOf(y.before),
                        MedianOf(y.after), Text(change), mark);
  }
  for (const auto& [name, now] : b) {
    if (!a.contains(name)) text += fmt::format("{:<44} only in the second\n", name);
  }
  text += fmt::format("{} cases, {} faster, {} slower; geometric mean {:.3f}\n", changes.size(),
                      faster, slower, GeometricMean(changes));
  return text;
}

// ---- figures

namespace {

// What one line of the table is about: samples of ratios, one list a case.
struct Evidence {
  std::vector<std::string> names;
  std::vector<Samples> ratios;
  void Add(const Json& c, Samples s) {
    if (s.empty()) return;
    names.push_back(c["case"].get<std::string>());
    ratios.push_back(std::move(s));
  }
};
using Select = std::function<void(const Json& c, Evidence& e)>;

struct Figure {
  std::string what;
  double must, aim;
  double least;  // no case may be below; 0: none is asked
  enum class By { kMean, kLeast, kGreatest } by;
  Select select;
};

// Against the library's best way, for the cases of a suite that `wanted` takes.
Select Against(const std::string& suite, const std::string& library,
               std::function<bool(const Json&)> wanted = {}) {
  return [=](const Json& c, Evidence& e) {
    if (c["suite"] == suite && (!wanted || wanted(c))) e.Add(c, RatiosTo(c, BestOf(c, library)));
  };
}

bool Starts(const Json& c, std::initializer_list<const char*> kinds) {
  const auto text = c["case"].get<std::string>();
  return std::any_of(kinds.begin(), kinds.end(),
                     [&](const char* k) { return text.starts_with(k); });
}

bool Winograd(const Json& c) { return BestOf(c, "onednn") == "onednn winograd"; }

// How much faster a contender is with two threads.
Samples Scaling(const Json& c, const std::string& name) {
  const Json *one = Find(c, name), *two = Find(c, name + " on 2");
  if (one == nullptr || two == nullptr) return {};
  return Ratios(SamplesOf(*one), SamplesOf(*two));
}

std::vector<Figure> Figures() {
  using By = Figure::By;
  auto only = [](const char* kind) { return [kind](const Json& c) { return Starts(c, {kind}); }; };
  auto named = [](const char* name) { return [name](const Json& c) { return c["case"] == name; }; };
  auto weights = [](const Json& c) { return Starts(c, {"gemm "}); };
  return {
      {"gemm, weights packed / oneDNN's best", 0.97, 1.03, 0.88, By::kMean,
       Against("gemm", "onednn", weights)},
      {"batched gemm / oneDNN", 0.97, 1.03, 0.88, By::kMean,
       Against("gemm", "onednn", only("bmm "))},
      {"gemm of 512 to 2048, share of the FMA rate", 0.82, 0.90, 0, By::kLeast,
       [](const Json& c, Evidence& e) {
         if (c["suite"] == "gemm" && Starts(c, {"gemm 512 ", "gemm 1024 ", "gemm 2048 "}))
           e.Add(c, Rates(c));
       }},
      {"conv of ResNet-50 where oneDNN's best is direct", 1.0, 1.05, 0.92, By::kMean,
       Against("conv", "onednn", [](const Json& c) { return !Winograd(c); })},
      {"conv of ResNet-50 where it is Winograd", 1.03, 1.15, 0.92, By::kMean,
       Against("conv", "onednn", Winograd)},
      {"chain: ResNet-50 / oneDNN", 1.0, 1.15, 0, By::kMean,
       Against("chain", "onednn", named("resnet50"))},
      {"chain: MobileNetV2 / oneDNN", 1.0, 1.15, 0, By::kMean,
       Against("chain", "onednn", named("mobilenetv2"))},
      {"depthwise of MobileNetV2 / oneDNN", 1.25, 1.6, 0, By::kMean,
       Against("depthwise", "onednn")},
      {"pointwise of MobileNetV2 / oneDNN", 1.0, 1.05, 0, By::kMean,
       Against("pointwise", "onednn")},
      {"softmax 1536x128 / oneDNN", 1.5, 1.8, 0, By::kMean,
       Against("misc", "onednn", only("softmax "))},
      {"GELU 128x3072 / oneDNN", 1.7, 2.0, 0, By::kMean, Against("misc", "onednn", only("gelu "))},
      {"LayerNorm 128x768 / oneDNN", 1.15, 1.3, 0, By::kMean,
       Against("misc", "onednn", only("layernorm "))},
      {"pools and element-wise, share of the bandwidth floor", 0.9, 0.95, 0, By::kLeast,
       [](const Json& c, Evidence& e) {
         if (c["suite"] == "misc" &&
             Starts(c, {"maxpool ", "avgpool ", "relu ", "add ", "add_relu ", "hardswish "}))
           e.Add(c, RatiosTo(c, kFloor));
       }},
      {"networks / onnxruntime", 1.3, 1.6, 1.0, By::kMean, Against("networks", "onnxruntime")},
      {"untuned / tuned network, time", 1.3, 1.15, 0, By::kGreatest,
       [](const Json& c, Evidence& e) {
         const Json *own = Find(c, kOwn), *untuned = Find(c, "untuned");
         if (c["suite"] == "networks" && own != nullptr && untuned != nullptr)
           e.Add(c, Ratios(SamplesOf(*untuned), SamplesOf(*own)));
       }},
      {"two threads: our scaling over onnxruntime's", 1.0, 1.0, 0, By::kLeast,
       [](const Json& c, Evidence& e) {
         if (c["suite"] == "scaling") e.Add(c, Ratios(Scaling(c, kOwn), Scaling(c, "onnxruntime")));
       }},
      {"two threads: our scaling", 0, 1.95, 0, By::kLeast,
       [](const Json& c, Evidence& e) {
         if (c["suite"] == "scaling") e.Add(c, Scaling(c, kOwn));
       }},
      {"sum of a network's tasks / the network, time: furthest from 1", 1.1, 1.05, 0, By::kGreatest,
       [](const Json& c, Evidence& e) {
         const Json *own = Find(c, kOwn), *tasks = Find(c, "tasks");
         if (own == nullptr || tasks == nullptr) return;
         Samples s = Ratios(SamplesOf(*tasks), SamplesOf(*own));
         if (MedianOf(s) < 1) s = Ratios(SamplesOf(*own), SamplesOf(*tasks));
         e.Add(c, std::move(s));
       }},
  };
}

}  // namespace

std::string FiguresTable(const Json& results) {
  std::string text = "| figure | must | aim | measured (95 %) | |\n|---|---|---|---|---|\n";
  for (const Figure& f : Figures()) {
    Evidence e;
    for (const Json& c : results["cases"]) f.select(c, e);
    const bool greatest = f.by == Figure::By::kGreatest;
    std::string must = f.must > 0 ? fmt::format("{:.2f}", f.must) : "";
    if (f.least > 0) must += fmt::format(", none below {:.2f}", f.least);
    if (greatest) must = "at most " + must;
    std::string measured = "not measured", verdict;
    if (!e.ratios.empty()) {
      size_t low = 0, high = 0;
      std::vector<double> medians;
      for (const Samples& s : e.ratios) medians.push_back(MedianOf(s));
      for (size_t i = 1; i < medians.size(); ++i) {
        if (medians[i] < medians[low]) low = i;
        if (medians[i] > medians[high]) high = i;
      }
      Interval value;
      if (f.by == Figure::By::kMean) {
        value = Bootstrap(e.ratios, 1, GeometricMean);
      } else {
        value = MedianInterval(e.ratios[greatest ? high : low]);
      }
      measured = Text(value);
      if (e.ratios.size() > 1 && f.by == Figure::By::kMean) {
        measured += fmt::format(", {} cases, least {:.2f}: {}", e.ratios.size(), medians[low],
                                e.names[low]);
      } else if (e.ratios.size() > 1) {
        measured += fmt::format(", {} of {} cases: {}", greatest ? "greatest" : "least",
                                e.ratios.size(), e.names[greatest ? high : low]);
      }
      auto reached = [&](double bound) {
        return greatest ? value.median <= bound : value.median >= bound;
      };
      const bool met =
          (f.must == 0 || reached(f.must)) && (f.least == 0 || medians[low] >= f.least);
      verdict = !met             ? "**missed**"
                : reached(f.aim) ? "aim met"
                : f.must == 0    ? "aim missed"
                                 : "met";
    }
    text += fmt::format("| {} | {} | {:.2f} | {} | {} |\n", f.what, must, f.aim, measured, verdict);
  }
  return text;
}

StatusOr<std::string> WithTable(const std::string& text, const std::string& table) {
  const size_t begin = text.find(kTableBegin), end = text.find(kTableEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    return InvalidArgument("the lines '{}' and '{}' are not there", kTableBegin, kTableEnd);
  return text.substr(0, begin) + kTableBegin + "\n" + table + text.substr(end);
}

}  // namespace whet::bench
