#include "deploy/runtime/npy.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "deploy/runtime/model.h"

namespace whet {
namespace {

constexpr const char* kDescr[] = {"|b1", "|i1", "|u1", "<i4", "<i8", "<f2", "",
                                  "<f4", "<f8", "<i2", "<u2", "<u4", "<u8"};

std::string Field(const std::string& header, const std::string& key) {
  const size_t at = header.find("'" + key + "'");
  if (at == std::string::npos) return "";
  size_t begin = header.find(':', at);
  if (begin == std::string::npos) return "";
  begin = header.find_first_not_of(' ', begin + 1);
  if (begin == std::string::npos) return "";
  const size_t end =
      header[begin] == '(' ? header.find(')', begin) : header.find_first_of(",}", begin);
  return end == std::string::npos ? "" : header.substr(begin, end - begin);
}

constexpr int64_t kMaxElements = int64_t{1}
                                 << 32;  // 4 GiB of bytes: beyond that a file is a mistake
constexpr int64_t kMaxFileBytes = int64_t{1} << 32;
constexpr uint32_t kMaxHeaderBytes = 65536;

// "(1, 128, 128, 3": the closing parenthesis is cut off.
bool ParseShape(const std::string& text, std::vector<int64_t>* shape) {
  shape->clear();
  if (text.empty() || text[0] != '(') return false;
  const char* at = text.data() + 1;
  const char* end = text.data() + text.size();
  while (true) {
    while (at < end && (*at == ' ' || *at == ',')) ++at;
    if (at == end) return true;
    int64_t v = 0;
    const auto [next, failed] = std::from_chars(at, end, v);
    if (failed != std::errc() || v < 0 || shape->size() == 16) return false;
    shape->push_back(v);
    at = next;
  }
}

std::string ReadHeader(std::istream& in, std::string* header) {
  char magic[8];
  if (!in.read(magic, 8) || std::memcmp(magic, "\x93NUMPY", 6) != 0)
    return "it does not start with the NumPy magic";
  const int major = magic[6];
  if (major < 1 || major > 3) return "version " + std::to_string(major) + ", known are 1 to 3";
  unsigned char len[4] = {};
  if (!in.read(reinterpret_cast<char*>(len), major == 1 ? 2 : 4)) return "its header is cut off";
  const uint32_t bytes = len[0] | len[1] << 8 | len[2] << 16 | static_cast<uint32_t>(len[3]) << 24;
  if (bytes > kMaxHeaderBytes)
    return "its header has " + std::to_string(bytes) + " bytes, the limit is " +
           std::to_string(kMaxHeaderBytes);
  header->resize(bytes);
  return in.read(header->data(), bytes) ? "" : "its header is cut off";
}

}  // namespace

std::string ReadNpy(const std::string& path, NpyArray* out) {
  struct stat st;
  const auto cannot = [&] { return "cannot open '" + path + "': " + std::strerror(errno); };
  const std::string bad = "'" + path + "' is not a usable .npy file: ";
  // Before it is opened: that would wait for the other end of a pipe.
  if (stat(path.c_str(), &st) != 0) return cannot();
  if (!S_ISREG(st.st_mode)) return bad + "it is not a regular file";
  std::ifstream in(path, std::ios::binary);
  if (!in) return cannot();
  std::string header;
  if (std::string wrong = ReadHeader(in, &header); !wrong.empty()) return bad + wrong;
  std::string descr = Field(header, "descr");
  if (descr.size() >= 2) descr = descr.substr(1, descr.size() - 2);
  out->dtype = UINT32_MAX;
  for (uint32_t t = 0; t <= WHET_U64; ++t) {
    if (*kDescr[t] && descr == kDescr[t]) out->dtype = t;
  }
  if (out->dtype == UINT32_MAX)
    return bad + "element type '" + descr +
           "'; known are |b1, |i1, |u1, <i2, <u2, <i4, <u4, <i8, <u8, <f2, <f4, <f8";
  if (!ParseShape(Field(header, "shape"), &out->shape)) return bad + "its shape cannot be read";
  if (out->shape.size() > 1 && Field(header, "fortran_order") != "False")
    return bad + "it is in Fortran order; save it in C order";
  int64_t elements = 1;
  for (int64_t d : out->shape) {
    if (__builtin_mul_overflow(elements, d, &elements) || elements > kMaxElements)
      return bad + "it is larger than 4 GiB";
  }
  const int64_t bytes = elements * DTypeBytes(out->dtype);
  if (bytes > kMaxFileBytes) return bad + "it is larger than 4 GiB";
  // Before the memory is taken: a header may promise what the file does not hold.
  const int64_t present = st.st_size - static_cast<int64_t>(in.tellg());
  if (present < bytes)
    return bad + "its data is cut off: " + std::to_string(present) + " of " +
           std::to_string(bytes) + " bytes";
  out->bytes.resize(static_cast<size_t>(bytes));
  return in.read(out->bytes.data(), bytes) ? "" : bad + "reading its data failed";
}

std::string WriteNpy(const std::string& path, uint32_t dtype, const std::vector<int64_t>& shape,
                     const void* data) {
  if (dtype > WHET_U64 || !*kDescr[dtype])
    return std::string("type ") + DTypeName(dtype) + " has no .npy form";
  std::string dims;
  int64_t bytes = DTypeBytes(dtype);
  for (int64_t d : shape) {
    dims += std::to_string(d) + ",";
    bytes *= d;
  }
  if (shape.size() > 1) dims.pop_back();
  std::string header = std::string("{'descr': '") + kDescr[dtype] +
                       "', 'fortran_order': False, 'shape': (" + dims + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  const char prefix[10] = {'\x93',
                           'N',
                           'U',
                           'M',
                           'P',
                           'Y',
                           1,
                           0,
                           static_cast<char>(header.size() & 255),
                           static_cast<char>(header.size() >> 8)};
  out.write(prefix, 10);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  out.write(static_cast<const char*>(data), bytes);
  out.close();
  return out ? "" : "cannot write '" + path + "': " + std::strerror(errno);
}

}  // namespace whet
