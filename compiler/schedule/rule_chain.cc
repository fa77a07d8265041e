// A depthwise convolution and the pointwise one that alone reads its result: some lines of the
// first are computed into a buffer that stays in the nearest caches, and at once the product from
// them. Each of the two is scheduled by its own rule, on the part of the program that it would be
// as a kernel of its own; here the first moves into the second's loop over blocks of rows.
//
// Measured against two kernels: 0.70 to 0.82 of their time at 112x112x32, 0.71 at 56x56x144, 0.93
// at 112x112x96 with stride 2, 0.83 to 0.97 at 128x128x24; MobileNetV2 0.97, an SSD on it 0.97,
// BlazeFace 256 0.96. From 28x28 on, where what lies between stays in the second-level cache
// anyway, lines gained 0 to 3 % in a kernel written by hand. Blocks of 64 channels, with the
// product's sums in memory, gained 2 to 18 % there and less than lines before; 14 pixels of 16
// channels at a time lost wherever the product has more columns than a tile.
#include <algorithm>
#include <set>

#include "compiler/schedule/prim_util.h"
#include "compiler/schedule/rule_reduce.h"

namespace whet::schedule {
namespace chain {
namespace {

constexpr char kFirst[] = "first_", kSecond[] = "second_";
constexpr int64_t kMostLines = 8;
constexpr const char* kChannelsLast = "(d0, d1, d2, d3) -> (d0, d2, d3, d1)";

// Where a program falls into two: all of the first that the second reads is `between`.
struct Cut {
  std::string between;
  std::set<std::string> first;  // names of blocks
};

struct ChainContext : RuleContext {
  using RuleContext::RuleContext;
  Cut cut;
  const Rule* second_rule = nullptr;
  std::unique_ptr<RuleContext> first, second;
  std::vector<Knob> knobs;  // those of both
  size_t first_knobs = 0;
  // Positions of these knobs.
  size_t first_lines = 0, second_rows = 0, second_mc = 0;
  int64_t width = 1;  // of a line, in pixels
  double bytes = 0, between_bytes = 0;
};
const ChainContext& Of(const RuleContext& c) { return static_cast<const ChainContext&>(c); }

// Every block that `b` depends on, itself included.
void Ancestors(const Program& p, const BlockNode& b, std::set<std::string>& names) {
  if (!names.insert(b.name).second) return;
  for (const auto* load : loop::Loads(b.value)) {
    for (const BlockSite& w : Writers(p, load->buffer)) Ancestors(p, *w.block, names);
  }
}

// Two reductions with one buffer between them, the last one possible: what is done to it element by
// element belongs to the first.
std::optional<Cut> FindCut(const Program& p) {
  const std::vector<BlockSite> sites = loop::AllBlocks(p);
  const auto reduces = [](const BlockSite& s) { return s.block->reducer != loop::Reducer::kNone; };
  if (std::count_if(sites.begin(), sites.end(), reduces) != 2) return std::nullopt;
  std::optional<Cut> found;
  for (const BlockSite& s : sites) {
    Cut cut{s.block->out->name, {}};
    Ancestors(p, *s.block, cut.first);
    int64_t reductions = 0;
    bool alone = true;
    for (const BlockSite& x : sites) {
      const bool first = cut.first.count(x.block->name) > 0;
      if (first) reductions += reduces(x);
      if (first && x.block != s.block) {
        for (const BlockSite& r : Readers(p, x.block->out))
          alone &= cut.first.count(r.block->name) > 0;
      }
    }
    if (reductions == 1 && alone && NeedIntermediate(p, cut.between).ok()) found = std::move(cut);
  }
  return found;
}

// What lies between becomes channels-last, and has a block of its own that writes it.
Status Prepare(Schedule& s, const std::string& between) {
  WHET_ASSIGN_OR_RETURN(expr::Buffer buffer, NeedIntermediate(s.program(), between));
  const BlockNode& writer = *Writers(s.program(), buffer)[0].block;
  if (writer.reducer != loop::Reducer::kNone) {
    const std::string name = writer.name;
    WHET_RETURN_IF_ERROR(s.Apply("cache_write", {name, "global", name + ".sum", name + ".out"}));
  }
  return s.Apply("transform_layout", {between, kChannelsLast});
}

// The part of a program as one of its own.
Program PartOf(const Program& p, const Cut& cut, bool first) {
  Program part = p;
  part.params.clear();
  part.intermediates.clear();
  for (const BlockSite& s : loop::AllBlocks(p)) {
    if ((cut.first.count(s.block->name) > 0) != first) part.body = RemoveBlock(part.body, s.block);
  }
  const auto used = [&](const expr::Buffer& b) {
    const std::vector<BlockSite> sites = loop::AllBlocks(part);
    return std::any_of(sites.begin(), sites.end(), [&](const BlockSite& s) {
      return s.block->out == b || loop::Reads(*s.block, b);
    });
  };
  for (const loop::Param& x : p.params) {
    if (used(x.buffer)) part.params.push_back(x);
  }
  for (const expr::Buffer& b : p.intermediates) {
    if (b->name != cut.between && used(b)) part.intermediates.push_back(b);
    if (b->name != cut.between) continue;
    const loop::Param between{b, first ? loop::Role::kOutput : loop::Role::kInput};
    part.params.insert(first ? part.params.end() : part.params.begin(), between);
  }
  return part;
}

// One past the last where there is none.
size_t PositionOf(const ChainContext& c, const std::string& name) {
  const auto it =
      std::find_if(c.knobs.begin(), c.knobs.end(), [&](const Knob& k) { return k.name == name; });
  return static_cast<size_t>(it - c.knobs.begin());
}

// The knobs of both; what makes no sense of a pair has one value.
bool MakeKnobs(ChainContext& c, int64_t lines) {
  for (Knob k : RuleDepthwise().knobs(*c.first)) {
    k.name = kFirst + k.name;
    c.knobs.push_back(std::move(k));
  }
  c.first_knobs = c.knobs.size();
  for (Knob k : c.second_rule->knobs(*c.second)) {
    k.name = kSecond + k.name;
    c.knobs.push_back(std::move(k));
  }
  for (const auto& [name, values] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{{"first_unroll_channels", {1}},
                                                                 {"second_order", {0, 1}},
                                                                 {"second_kc", {0}},
                                                                 {"second_nc_tiles", {0}},
                                                                 {"second_pack_rows", {0}}}) {
    const size_t at = PositionOf(c, name);
    if (at == c.knobs.size()) return false;
    c.knobs[at].values = values;
  }
  c.first_lines = PositionOf(c, "first_lines");
  c.second_rows = PositionOf(c, "second_rows");
  c.second_mc = PositionOf(c, "second_mc");
  if (std::max({c.first_lines, c.second_rows, c.second_mc}) == c.knobs.size()) return false;
  std::vector<int64_t>& strips = c.knobs[c.second_mc].values;
  strips.clear();
  for (int64_t n = 1; n <= kMostLines && n < lines; ++n) {
    if (lines % n == 0) strips.push_back(n * c.width);
  }
  return !strips.empty();
}

std::unique_ptr<RuleContext> Match(const Program& p, const Target& t) {
  std::optional<Cut> cut = FindCut(p);
  if (!cut) return nullptr;
  Schedule s(p);
  const auto before = NeedIntermediate(p, cut->between);
  if (!before.ok() || (*before)->shape.size() != 4 || !Prepare(s, cut->between).ok())
    return nullptr;
  auto c = std::make_unique<ChainContext>(p, t);
  c->cut = *std::move(cut);
  for (const BlockSite& x : loop::AllBlocks(s.program())) {
    if (x.block->out->name == c->cut.between) c->cut.first.insert(x.block->name);
  }
  c->first = RuleDepthwise().match(PartOf(s.program(), c->cut, true), t);
  if (!c->first) return nullptr;
  for (const Rule* rule : {&RuleConv(), &RuleMatmul()}) {
    if (c->second) break;
    c->second = rule->match(PartOf(s.program(), c->cut, false), t);
    c->second_rule = rule;
  }
  // All lines of an image are the second's rows.
  const auto& shape = (*before)->shape;
  c->width = shape[3];
  if (!c->second || shape[0] != 1 || Tiled(*c->second).r.window != 1 ||
      Tiled(*c->second).rows != shape[2] * shape[3] || !MakeKnobs(*c, shape[2]))
    return nullptr;
  c->between_bytes = static_cast<double>((*before)->num_elements() * SizeOf((*before)->dtype));
  for (const loop::Param& x : p.params)
    c->bytes += static_cast<double>(x.buffer->num_elements() * SizeOf(x.buffer->dtype));
  return c;
}

struct Values {
  std::vector<int64_t> first, second;
};
Values Of(const ChainContext& c, const std::vector<int64_t>& v) {
  const auto middle = v.begin() + static_cast<int64_t>(c.first_knobs);
  return {{v.begin(), middle}, {middle, v.end()}};
}

std::vector<Knob> Knobs(const RuleContext& context) { return Of(context).knobs; }

Rejection Check(const RuleContext& context, const std::vector<int64_t>& v) {
  const ChainContext& c = Of(context);
  if (v.size() != c.knobs.size()) return Rejection::kBadValue;
  const Values values = Of(c, v);
  // A strip is whole tiles of lines.
  if (v[c.second_mc] / c.width % v[c.first_lines] != 0) return Rejection::kTile;
  const Rejection first = RuleDepthwise().check(*c.first, values.first);
  return first != Rejection::kNone ? first : c.second_rule->check(*c.second, values.second);
}

std::vector<int64_t> Default(const RuleContext& context) {
  const ChainContext& c = Of(context);
  std::vector<int64_t> v = RuleDepthwise().default_values(*c.first);
  const std::vector<int64_t> second = c.second_rule->default_values(*c.second);
  v.insert(v.end(), second.begin(), second.end());
  v[c.second_mc] = c.width;
  v[c.first_lines] = 1;
  // Rows of a tile divide a line, and there are two of them at least.
  for (int64_t& rows = v[c.second_rows]; rows > 1 && (c.width % rows != 0 || rows * 2 > c.width);)
    --rows;
  return v;
}

Estimate EstimateChain(const RuleContext& context, const std::vector<int64_t>& v) {
  const ChainContext& c = Of(context);
  if (v.size() != c.knobs.size()) return {};
  const Values values = Of(c, v);
  const Estimate a = RuleDepthwise().estimate(*c.first, values.first);
  Estimate e = c.second_rule->estimate(*c.second, values.second);
  const double strips =
      static_cast<double>(Tiled(*c.second).rows) / static_cast<double>(v[c.second_mc]);
  const auto core = [](const Estimate& x) {
    return std::max({x.fma_cycles, x.load_cycles, x.latency_cycles});
  };
  // One after the other, strip by strip.
  e.latency_cycles = core(a) + core(e);
  e.fma_cycles += a.fma_cycles;
  e.load_cycles += a.load_cycles;
  e.overhead_cycles += a.overhead_cycles + 200 * strips;
  e.l2_bytes += a.l2_bytes;
  // What lies between goes through the second level only where a strip of it leaves the first.
  const double strip = c.between_bytes / strips;
  if (2 * strip < static_cast<double>(c.target.l1d_bytes))
    e.l2_bytes = std::max(0.0, e.l2_bytes - 3 * c.between_bytes);
  // Of the first's traffic from afar, what it reads more than once.
  const double again = std::max(0.0, a.l3_bytes - Tiled(*c.first).bytes);
  e.l3_bytes = c.bytes > 0.75 * static_cast<double>(c.target.l2_bytes) ? c.bytes + again : 0;
  e.bytes = c.bytes;
  e.body_instructions += a.body_instructions;
  e.useful_fraction = std::min(e.useful_fraction, a.useful_fraction);
  e.parallel = strips;
  return e;
}

Status Apply(Schedule& s, const RuleContext& context, const std::vector<int64_t>& v) {
  const ChainContext& c = Of(context);
  if (v.size() != c.knobs.size())
    return InvalidArgument("{} knob values, expected {}", v.size(), c.knobs.size());
  const Values values = Of(c, v);
  WHET_RETURN_IF_ERROR(Prepare(s, c.cut.between));
  WHET_RETURN_IF_ERROR(c.second_rule->apply(s, *c.second, values.second));
  const AnchorAnalysis& first = Tiled(*c.first).a;
  WHET_ASSIGN_OR_RETURN(BlockSite product,
                        loop::FindBlock(s.program(), Tiled(*c.second).a.anchor->name));
  const std::string strips = product.loops[0]->var->name;
  std::vector<std::string> blocks = first.after;
  blocks.insert(blocks.begin(), first.anchor->name);
  for (size_t i = blocks.size(); i-- > 0;)
    WHET_RETURN_IF_ERROR(s.Apply("compute_at", {blocks[i], strips}));
  WHET_RETURN_IF_ERROR(RuleDepthwise().apply(s, *c.first, values.first));
  // Pixels of all lines follow each other, as they do for the product.
  return s.Apply(
      "transform_layout",
      {c.cut.between, fmt::format("(d0, d1, d2, d3) -> (d0, d1 * {} + d2, d3)", c.width)});
}

const Rule kRule = {"depthwise_pointwise", 1, Match, Knobs, Default, Check, EstimateChain, Apply};

}  // namespace
}  // namespace chain

const Rule& RuleDepthwisePointwise() { return chain::kRule; }

}  // namespace whet::schedule
