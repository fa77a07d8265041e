// oneDNN: every primitive that computes a case, weights in the layout it asks for, and images too
// (as between the layers of a network). Its errors mean that it lacks the primitive.
#include "tests/bench/contender.h"

#ifdef WHET_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>

namespace whet::bench {
namespace {

using dnnl::memory;
using Dims = memory::dims;
using Tag = memory::format_tag;
using Arguments = std::unordered_map<int, memory>;
constexpr auto kF32 = memory::data_type::f32;
constexpr auto kInference = dnnl::prop_kind::forward_inference;

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}
dnnl::stream& Stream() {
  static dnnl::stream stream(Engine());
  return stream;
}

// A memory object and what it lies in.
struct Placed {
  std::shared_ptr<float[]> bytes;
  memory object;
  float* data() const { return bytes.get(); }
};

Placed Place(const memory::desc& d) {
  Placed p;
  p.bytes = Allocate(d.get_size());
  p.object = memory(d, Engine(), p.bytes.get());
  return p;
}

memory::desc Plain(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return {dims, kF32, strides};
}

void Reorder(const memory& from, memory to) {
  memory source = from;
  dnnl::reorder(source, to).execute(Stream(), source, to);
  Stream().wait();
}

// The values, in row-major order of `as`, laid out as `d` wants.
Placed Put(const std::vector<float>& values, const memory::desc& as, const memory::desc& d) {
  Placed plain = Place(as);
  std::copy(values.begin(), values.end(), plain.data());
  Placed placed = Place(d);
  Reorder(plain.object, placed.object);
  return placed;
}

std::vector<float> Get(const Placed& from, const memory::desc& as) {
  Placed plain = Place(as);
  Reorder(from.object, plain.object);
  return {plain.data(), plain.data() + as.get_size() / sizeof(float)};
}

// A primitive and its arguments. `out` is read as `as` says; `before` puts into it what a run adds
// to.
struct Bound {
  dnnl::primitive primitive;
  Arguments arguments;
  std::vector<Placed> memory;
  Placed out;
  dnnl::memory::desc as;
  std::function<void()> before;
  void Run() {
    primitive.execute(Stream(), arguments);
    Stream().wait();
  }
};

Contender Make(const std::string& way, const char* detail, Bound bound) {
  auto b = std::make_shared<Bound>(std::move(bound));
  b->arguments[DNNL_ARG_DST] = b->out.object;
  Contender c;
  c.name = "onednn " + way;
  c.detail = detail;
  c.run = [b] { b->Run(); };
  c.result = [b] {
    if (b->before) b->before();
    b->Run();
    return Get(b->out, b->as);
  };
  return c;
}

void Bind(Bound& b, int argument, Placed placed) {
  b.arguments[argument] = placed.object;
  b.memory.push_back(std::move(placed));
}

template <typename F>
void Try(std::vector<Contender>& all, F&& make) {
  try {
    all.push_back(make());
  } catch (const dnnl::error&) {
  }
}

dnnl::primitive_attr After(bool sum, double most, bool relu = true) {
  dnnl::post_ops ops;
  if (sum) ops.append_sum(1.F);
  if (most > 0)
    ops.append_eltwise(1.F, dnnl::algorithm::eltwise_clip, 0.F, static_cast<float>(most));
  else if (relu)
    ops.append_eltwise(1.F, dnnl::algorithm::eltwise_relu, 0.F, 0.F);
  dnnl::primitive_attr attr;
  attr.set_post_ops(ops);
  return attr;
}

// ---- products

void Products(const Problem& p, std::vector<Contender>& all) {
  const std::string& kind = p.parsed.kind;
  const std::vector<int64_t>& a = p.workload.type(0).shape;
  const std::vector<int64_t>& b = p.workload.type(1).shape;
  const bool constant = p.workload.inputs[1].constant, bias = p.inputs.size() > 2;
  const bool relu = kind == "gemm_relu";
  Dims out = a;
  out.back() = b.back();
  // Operands that are no weights lie as ours do.
  auto lying = [&](int input, const Dims& dims) {
    const std::vector<int> order = p.workload.type(input).Order();
    Dims strides(dims.size(), 1);
    int64_t step = 1;
    for (size_t i = order.size(); i-- > 0; step *= dims[static_cast<size_t>(order[i])])
      strides[static_cast<size_t>(order[i])] = step;
    return memory::desc(dims, kF32, strides);
  };
  const Dims one_row{1, out.back()};
  Try(all, [&] {
    const memory::desc any(b, kF32, Tag::any);
    const memory::desc x = lying(0, a), w = constant ? any : lying(1, b), y = Plain(out);
    const dnnl::matmul::desc d =
        bias ? dnnl::matmul::desc(x, w, Plain(one_row), y) : dnnl::matmul::desc(x, w, y);
    const dnnl::matmul::primitive_desc pd(d, After(false, 0, relu), Engine());
    Bound k;
    k.primitive = dnnl::matmul(pd);
    Bind(k, DNNL_ARG_SRC, Put(p.inputs[0], Plain(a), x));
    Bind(k, DNNL_ARG_WEIGHTS, Put(p.inputs[1], Plain(b), pd.weights_desc()));
    if (bias) Bind(k, DNNL_ARG_BIAS, Put(p.inputs[2], Plain(one_row), Plain(one_row)));
    k.out = Place(y);
    k.as = y;
    return Make("matmul", pd.impl_info_str(), std::move(k));
  });
  if (!constant || a.size() != 2) return;
  Try(all, [&] {
    // Its weights are N x K; ours are K x N in memory.
    const Dims turned{b[1], b[0]};
    const memory::desc rows(turned, kF32, Tag::ba), any(turned, kF32, Tag::any);
    const memory::desc x = Plain(a), y = Plain(out), line = Plain({out.back()});
    const dnnl::inner_product_forward::desc d =
        bias ? dnnl::inner_product_forward::desc(kInference, x, any, line, y)
             : dnnl::inner_product_forward::desc(kInference, x, any, y);
    const dnnl::inner_product_forward::primitive_desc pd(d, After(false, 0, relu), Engine());
    Bound k;
    k.primitive = dnnl::inner_product_forward(pd);
    Bind(k, DNNL_ARG_SRC, Put(p.inputs[0], x, x));
    Bind(k, DNNL_ARG_WEIGHTS, Put(p.inputs[1], rows, pd.weights_desc()));
    if (bias) Bind(k, DNNL_ARG_BIAS, Put(p.inputs[2], line, line));
    k.out = Place(y);
    k.as = y;
    return Make("inner product", pd.impl_info_str(), std::move(k));
  });
  if (bias) return;
  Try(all, [&] {
    const int64_t m = a[0], n = b[1], k = b[0];
    auto x = Put(p.inputs[0], Plain(a), Plain(a)), w = Put(p.inputs[1], Plain(b), Plain(b));
    auto y = Place(Plain(out));
    Contender c;
    c.name = "onednn sgemm";
    c.detail = "dnnl_sgemm, which packs inside";
    c.run = [=] { dnnl_sgemm('N', 'N', m, n, k, 1.F, x.data(), k, w.data(), n, 0.F, y.data(), n); };
    c.result = [=, run = c.run] {
      run();
      return std::vector<float>(y.data(), y.data() + m * n);
    };
    return c;
  });
}

// ---- convolutions

dnnl::convolution_forward::primitive_desc Convolution(const ConvCase& c, dnnl::algorithm how) {
  const Dims x{c.batch, c.ic, c.h, c.w}, y{c.batch, c.oc, c.oh(), c.ow()};
  const Dims w = c.group > 1 ? Dims{c.group, c.oc / c.group, c.ic / c.group, c.kh, c.kw}
                             : Dims{c.oc, c.ic, c.kh, c.kw};
  auto any = [](const Dims& dims) { return memory::desc(dims, kF32, Tag::any); };
  const Dims pads{c.ph, c.pw}, dilations{c.dilation - 1, c.dilation - 1};
  return {{kInference,
           how,
           any(x),
           any(w),
           memory::desc({c.oc}, kF32, Tag::a),
           any(y),
           {c.sh(), c.s},
           dilations,
           pads,
           pads},
          After(c.residual, c.most),
          Engine()};
}

constexpr dnnl::algorithm kWays[] = {dnnl::algorithm::convolution_direct,
                                     dnnl::algorithm::convolution_winograd};
const char* NameOf(dnnl::algorithm how) { return how == kWays[0] ? "direct" : "winograd"; }

memory::desc WeightsAs(const memory::desc& d) { return Plain(d.dims()); }

void Convolutions(const Problem& p, const ConvCase& c, std::vector<Contender>& all) {
  for (const dnnl::algorithm how : kWays) {
    Try(all, [&] {
      const auto pd = Convolution(c, how);
      Bound k;
      k.primitive = dnnl::convolution_forward(pd);
      Bind(k, DNNL_ARG_SRC, Put(p.inputs[0], Plain(pd.src_desc().dims()), pd.src_desc()));
      Bind(k, DNNL_ARG_WEIGHTS, Put(p.inputs[1], WeightsAs(pd.weights_desc()), pd.weights_desc()));
      Bind(k, DNNL_ARG_BIAS, Put(p.inputs[2], Plain({c.oc}), Plain({c.oc})));
      k.out = Place(pd.dst_desc());
      k.as = Plain(pd.dst_desc().dims());
      if (c.residual) {
        const Placed added = Put(p.inputs[3], k.as, pd.dst_desc());
        k.before = [added, out = k.out, bytes = pd.dst_desc().get_size()] {
          std::memcpy(out.data(), added.data(), bytes);
        };
      }
      return Make(NameOf(how), pd.impl_info_str(), std::move(k));
    });
  }
}

std::vector<Contender> Chain(std::span<const Peer::Layer> layers) {
  std::vector<Contender> all;
  for (const dnnl::algorithm how : kWays) {
    Try(all, [&] {
      auto bound = std::make_shared<std::vector<Bound>>();
      size_t largest = 0;
      std::vector<dnnl::convolution_forward::primitive_desc> descriptors;
      for (const Peer::Layer& l : layers) {
        const ConvCase& c = l.conv;
        const bool winograd = how == kWays[1] && c.kh == 3 && c.s == 1 && c.group == 1;
        descriptors.push_back(Convolution(c, winograd ? kWays[1] : kWays[0]));
        const auto& pd = descriptors.back();
        largest = std::max({largest, pd.src_desc().get_size(), pd.dst_desc().get_size()});
      }
      std::shared_ptr<float[]> image[2];
      for (auto& i : image) {
        i = Allocate(largest);
        std::fill_n(i.get(), largest / sizeof(float), 0.5F);
      }
      for (size_t i = 0; i < layers.size(); ++i) {
        const auto& pd = descriptors[i];
        Bound k;
        k.primitive = dnnl::convolution_forward(pd);
        Bind(k, DNNL_ARG_SRC, {image[i % 2], memory(pd.src_desc(), Engine(), image[i % 2].get())});
        Bind(k, DNNL_ARG_WEIGHTS,
             Put(*layers[i].weights, WeightsAs(pd.weights_desc()), pd.weights_desc()));
        Bind(k, DNNL_ARG_BIAS,
             Put(*layers[i].bias, Plain({layers[i].conv.oc}), Plain({layers[i].conv.oc})));
        Bind(k, DNNL_ARG_DST,
             {image[(i + 1) % 2], memory(pd.dst_desc(), Engine(), image[(i + 1) % 2].get())});
        bound->push_back(std::move(k));
      }
      Contender c;
      c.name = std::string("onednn ") + NameOf(how);
      c.run = [bound] {
        for (Bound& k : *bound) k.primitive.execute(Stream(), k.arguments);
        Stream().wait();
      };
      return c;
    });
  }
  return all;
}

// ---- the others

// A primitive of one operand.
template <typename P>
Contender Single(const Problem& p, const std::string& way, const typename P::primitive_desc& pd,
                 const Dims& in, const Dims& out) {
  Bound k;
  k.primitive = P(pd);
  Bind(k, DNNL_ARG_SRC, Put(p.inputs[0], Plain(in), pd.src_desc()));
  k.out = Place(pd.dst_desc());
  k.as = Plain(out);
  return Make(way, pd.impl_info_str(), std::move(k));
}

void Pools(const Problem& p, std::vector<Contender>& all) {
  const std::vector<int64_t>& n = p.parsed.n;
  const Dims in = p.workload.type(0).shape, out = p.workload.outputs[0].type.shape;
  const Dims strides{n[4], n[4]}, kernel{n[3], n[3]}, pads{n[5], n[5]};
  const auto how = p.parsed.kind == "maxpool" ? dnnl::algorithm::pooling_max
                                              : dnnl::algorithm::pooling_avg_exclude_padding;
  const std::pair<const char*, Tag> layouts[] = {{"channels-last", Tag::nhwc},
                                                 {"16 channels together", Tag::nChw16c}};
  for (const auto& [name, tag] : layouts) {
    Try(all, [&, name = name, tag = tag] {
      const dnnl::pooling_forward::primitive_desc pd(
          {kInference, how, memory::desc(in, kF32, tag), memory::desc(out, kF32, tag), strides,
           kernel, pads, pads},
          Engine());
      return Single<dnnl::pooling_forward>(p, name, pd, in, out);
    });
  }
}

void Elementwise(const Problem& p, dnnl::algorithm how, std::vector<Contender>& all) {
  const Dims dims = p.workload.type(0).shape;
  Try(all, [&] {
    const dnnl::eltwise_forward::primitive_desc pd({kInference, how, Plain(dims), 0.F, 0.F},
                                                   Engine());
    return Single<dnnl::eltwise_forward>(p, "eltwise", pd, dims, dims);
  });
}

void Others(const Problem& p, std::vector<Contender>& all) {
  using A = dnnl::algorithm;
  static const std::map<std::string, A> kElementwise = {
      {"gelu", A::eltwise_gelu_erf},    {"relu", A::eltwise_relu},
      {"exp", A::eltwise_exp},          {"tanh", A::eltwise_tanh},
      {"sigmoid", A::eltwise_logistic}, {"hardswish", A::eltwise_hardswish}};
  const std::string& kind = p.parsed.kind;
  const Dims in = p.workload.type(0).shape, out = p.workload.outputs[0].type.shape;
  if (const auto it = kElementwise.find(kind); it != kElementwise.end())
    return Elementwise(p, it->second, all);
  if (kind == "maxpool" || kind == "avgpool") return Pools(p, all);
  if (kind == "softmax") {
    Try(all, [&] {
      const dnnl::softmax_forward::primitive_desc pd({kInference, Plain(in), 1}, Engine());
      Bound k;
      k.primitive = dnnl::softmax_forward(pd);
      Bind(k, DNNL_ARG_SRC, Put(p.inputs[0], Plain(in), Plain(in)));
      k.out = Place(Plain(in));
      k.as = Plain(in);
      return Make("softmax", pd.impl_info_str(), std::move(k));
    });
  } else if (kind == "layernorm") {
    Try(all, [&] {
      const dnnl::layer_normalization_forward::primitive_desc pd(
          {kInference, Plain(in), 1e-5F, dnnl::normalization_flags::use_scale_shift}, Engine());
      Bound k;
      k.primitive = dnnl::layer_normalization_forward(pd);
      Bind(k, DNNL_ARG_SRC, Put(p.inputs[0], Plain(in), Plain(in)));
      std::vector<float> both = p.inputs[1];
      both.insert(both.end(), p.inputs[2].begin(), p.inputs[2].end());
      const memory::desc d = Plain({2, in.back()});
      Bind(k, DNNL_ARG_SCALE_SHIFT, Put(both, d, d));
      k.out = Place(Plain(in));
      k.as = Plain(in);
      return Make("layer normalization", pd.impl_info_str(), std::move(k));
    });
  } else if (kind == "add" || kind == "add_relu") {
    Try(all, [&] {
      const dnnl::binary::primitive_desc pd({A::binary_add, Plain(in), Plain(in), Plain(in)},
                                            After(false, 0, kind == "add_relu"), Engine());
      Bound k;
      k.primitive = dnnl::binary(pd);
      Bind(k, DNNL_ARG_SRC_0, Put(p.inputs[0], Plain(in), Plain(in)));
      Bind(k, DNNL_ARG_SRC_1, Put(p.inputs[1], Plain(in), Plain(in)));
      k.out = Place(Plain(in));
      k.as = Plain(in);
      return Make("binary", pd.impl_info_str(), std::move(k));
    });
  } else if (kind == "transpose") {
    Try(all, [&] {
      // The same matrix, its rows side by side afterwards.
      const memory::desc turned(in, kF32, Tag::ba);
      auto x = Put(p.inputs[0], Plain(in), Plain(in)), y = Place(turned);
      const dnnl::reorder::primitive_desc pd(x.object, y.object);
      auto primitive = std::make_shared<dnnl::reorder>(pd);
      Contender c;
      c.name = "onednn reorder";
      c.detail = pd.impl_info_str();
      c.run = [=] {
        memory from = x.object, to = y.object;
        primitive->execute(Stream(), from, to);
        Stream().wait();
      };
      c.result = [=, run = c.run, elements = in[0] * in[1]] {
        run();
        return std::vector<float>(y.data(), y.data() + elements);
      };
      return c;
    });
  } else if (kind == "sum" || kind == "sum0" || kind == "max" || kind == "norm") {
    Try(all, [&] {
      Dims kept = in;
      kept[kind == "sum0" ? 0 : 1] = 1;
      const A how = kind == "max"    ? A::reduction_max
                    : kind == "norm" ? A::reduction_norm_lp_sum
                                     : A::reduction_sum;
      const dnnl::reduction::primitive_desc pd({how, Plain(in), Plain(kept), 2.F, 0.F}, Engine());
      return Single<dnnl::reduction>(p, "reduction", pd, in, kept);
    });
  }
}

std::vector<Contender> Open(const Problem& p) {
  std::vector<Contender> all;
  if (const auto conv = ConvOf(p.parsed))
    Convolutions(p, *conv, all);
  else if (p.workload.ops[0].op->name == std::string("MatMul"))
    Products(p, all);
  else
    Others(p, all);
  return all;
}

}  // namespace

Peer OneDnn() {
  const dnnl_version_t* v = dnnl_version();
  return {"onednn", fmt::format("{}.{}.{}", v->major, v->minor, v->patch), "", Open, Chain};
}

}  // namespace whet::bench
#else
namespace whet::bench {
Peer OneDnn() {
  return {"onednn",
          "",
          "whet-bench was built without it: apt-get install libdnnl-dev, then configure again",
          {},
          {}};
}
}  // namespace whet::bench
#endif
