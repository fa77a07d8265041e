// Messages out of a fuzzer's bytes: fields by reflection, values that matter more often than chance
// would have them (limits, not-a-number, the ids that the target knows). So a mutation of the bytes
// is another well-formed message, where a mutation of an encoded one mostly is none. Any bytes give
// some message; few bytes give a small one.
#pragma once
#include <google/protobuf/message.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace whet::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  uint8_t Byte() { return empty() ? 0 : data_[at_++]; }
  uint64_t Word() {
    uint64_t w = 0;
    for (int i = 0; i < 8; ++i) w = w << 8 | Byte();
    return w;
  }
  std::string Take(size_t n) {
    n = std::min(n, size_ - at_);
    std::string s(reinterpret_cast<const char*>(data_) + at_, n);
    at_ += n;
    return s;
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

class MessageMaker {
 public:
  // `words`: what strings are chosen from.
  MessageMaker(Input* in, std::vector<std::string> words) : in_(*in), words_(std::move(words)) {}

  template <typename M>
  M Make() {
    M m;
    Fill(&m, 0);
    return m;
  }

  int64_t Integer() {
    switch (const uint8_t b = in_.Byte(); b % 16) {
      case 10: return -1;
      case 11: return std::numeric_limits<int64_t>::max();
      case 12: return std::numeric_limits<int64_t>::min();
      case 13: return static_cast<int64_t>(in_.Word());
      case 14: return int64_t{1} << (in_.Byte() % 63);
      case 15: return in_.Byte();
      default: return b % 16;
    }
  }
  double Real() {
    switch (in_.Byte() % 10) {
      case 0: return 0;
      case 1: return -1;
      case 2: return std::nan("");
      case 3: return std::numeric_limits<double>::infinity();
      case 4: return std::numeric_limits<double>::max();
      case 5: return std::numeric_limits<double>::denorm_min();
      case 6: {
        const uint64_t bits = in_.Word();
        double d = 0;
        std::memcpy(&d, &bits, sizeof d);
        return d;
      }
      default: return 1e5 * in_.Byte();
    }
  }
  std::string Text() {
    const uint8_t b = in_.Byte();
    if (b < 224 && !words_.empty()) return words_[b % words_.size()];
    if (b < 228) return "";
    if (b < 232) return std::string(size_t{64} * in_.Byte(), 'x');
    std::string s = in_.Take(b % 24);
    for (char& c : s) c = static_cast<char>(c & 0x7f);  // strings on the wire are UTF-8
    return s;
  }

 private:
  static constexpr int kMaxDepth = 6;

  void Fill(google::protobuf::Message* m, int depth) {
    const auto* d = m->GetDescriptor();
    if (depth > kMaxDepth || d->field_count() == 0) return;
    if (d->real_oneof_decl_count() > 0 && d->field_count() == d->oneof_decl(0)->field_count()) {
      Set(m, d->field(in_.Byte() % d->field_count()), depth);  // one of them, as senders do
      return;
    }
    // Which fields: two bits of a byte each, so that most are there.
    for (int i = 0; i < d->field_count() && !in_.empty(); ++i) {
      if (in_.Byte() % 4 != 0) Set(m, d->field(i), depth);
    }
  }

  void Set(google::protobuf::Message* m, const google::protobuf::FieldDescriptor* f, int depth) {
    using google::protobuf::FieldDescriptor;
    const auto* r = m->GetReflection();
    if (f->is_map()) return;
    const int times = f->is_repeated() ? in_.Byte() % 8 : 1;
    for (int i = 0; i < times && !(i > 0 && in_.empty()); ++i) {
      const bool many = f->is_repeated();
      switch (f->cpp_type()) {
        case FieldDescriptor::CPPTYPE_MESSAGE:
          Fill(many ? r->AddMessage(m, f) : r->MutableMessage(m, f), depth + 1);
          break;
        case FieldDescriptor::CPPTYPE_STRING:
          many ? r->AddString(m, f, Text()) : r->SetString(m, f, Text());
          break;
        case FieldDescriptor::CPPTYPE_INT32: {
          const auto v = static_cast<int32_t>(Integer());
          many ? r->AddInt32(m, f, v) : r->SetInt32(m, f, v);
          break;
        }
        case FieldDescriptor::CPPTYPE_UINT32: {
          const auto v = static_cast<uint32_t>(Integer());
          many ? r->AddUInt32(m, f, v) : r->SetUInt32(m, f, v);
          break;
        }
        case FieldDescriptor::CPPTYPE_INT64:
          many ? r->AddInt64(m, f, Integer()) : r->SetInt64(m, f, Integer());
          break;
        case FieldDescriptor::CPPTYPE_UINT64: {
          const auto v = static_cast<uint64_t>(Integer());
          many ? r->AddUInt64(m, f, v) : r->SetUInt64(m, f, v);
          break;
        }
        case FieldDescriptor::CPPTYPE_DOUBLE:
          many ? r->AddDouble(m, f, Real()) : r->SetDouble(m, f, Real());
          break;
        case FieldDescriptor::CPPTYPE_FLOAT: {
          const auto v = static_cast<float>(Real());
          many ? r->AddFloat(m, f, v) : r->SetFloat(m, f, v);
          break;
        }
        case FieldDescriptor::CPPTYPE_BOOL: {
          const bool v = in_.Byte() % 2 != 0;
          many ? r->AddBool(m, f, v) : r->SetBool(m, f, v);
          break;
        }
        case FieldDescriptor::CPPTYPE_ENUM: {
          const int v = in_.Byte() % 16;
          many ? r->AddEnumValue(m, f, v) : r->SetEnumValue(m, f, v);
          break;
        }
      }
    }
  }

  Input& in_;
  const std::vector<std::string> words_;
};

}  // namespace whet::fuzz
