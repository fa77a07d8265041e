#include "deploy/runtime/npy.h"

#include <cstring>
#include <fstream>

#include "deploy/runtime/model.h"

namespace whet {
namespace {

constexpr const char* kDescr[] = {"|b1", "|i1", "|u1", "<i4", "<i8", "<f2", "", "<f4", "<f8"};

std::string Field(const std::string& header, const std::string& key) {
  const size_t at = header.find("'" + key + "'");
  if (at == std::string::npos) return "";
  size_t begin = header.find(':', at);
  if (begin == std::string::npos) return "";
  begin = header.find_first_not_of(' ', begin + 1);
  if (begin == std::string::npos) return "";
  const size_t end = header[begin] == '(' ? header.find(')', begin) : header.find_first_of(",}", begin);
  return end == std::string::npos ? "" : header.substr(begin, end - begin);
}

}  // namespace

std::string ReadNpy(const std::string& path, NpyArray* out) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return "cannot open '" + path + "': " + std::strerror(errno);
  const std::string bad = "'" + path + "' is not a usable .npy file: ";
  char magic[8];
  if (!in.read(magic, 8) || std::memcmp(magic, "\x93NUMPY", 6) != 0) return bad + "it does not start with the NumPy magic";
  const int major = magic[6];
  if (major < 1 || major > 3) return bad + "version " + std::to_string(major) + ", known are 1 to 3";
  unsigned char len[4] = {};
  if (!in.read(reinterpret_cast<char*>(len), major == 1 ? 2 : 4)) return bad + "its header is cut off";
  const uint32_t header_bytes = len[0] | len[1] << 8 | len[2] << 16 | static_cast<uint32_t>(len[3]) << 24;
  if (header_bytes > 65536) return bad + "its header has " + std::to_string(header_bytes) + " bytes, the limit is 65536";
  std::string header(header_bytes, '\0');
  if (!in.read(header.data(), header_bytes)) return bad + "its header is cut off";
  std::string descr = Field(header, "descr");
  if (descr.size() >= 2) descr = descr.substr(1, descr.size() - 2);
  out->dtype = UINT32_MAX;
  for (uint32_t t = 0; t <= WHET_F64; ++t) {
    if (*kDescr[t] && descr == kDescr[t]) out->dtype = t;
  }
  if (out->dtype == UINT32_MAX) return bad + "element type '" + descr + "'; known are b1, i1, u1, i4, i8, f2, f4, f8 little endian";
  if (Field(header, "fortran_order") != "False") return bad + "it is in Fortran order; save it in C order";
  const std::string shape = Field(header, "shape");
  if (shape.empty() || shape[0] != '(') return bad + "it has no shape";
  out->shape.clear();
  int64_t elements = 1;
  for (size_t i = 1; i < shape.size();) {
    size_t end = 0;
    long long v = 0;
    try {
      v = std::stoll(shape.substr(i), &end);
    } catch (...) {
      return bad + "its shape is '" + shape + ")'";
    }
    if (v < 0 || v > (1LL << 32) || elements * std::max(v, 1LL) > (1LL << 32)) return bad + "it is larger than 4 GiB";
    out->shape.push_back(v);
    elements *= v;
    i += end;
    while (i < shape.size() && (shape[i] == ',' || shape[i] == ' ')) ++i;
  }
  const int64_t bytes = elements * DTypeBytes(out->dtype);
  if (bytes > (1LL << 32)) return bad + "it is larger than 4 GiB";
  out->bytes.resize(static_cast<size_t>(bytes));
  if (!in.read(out->bytes.data(), bytes)) return bad + "its data is cut off: " + std::to_string(in.gcount()) + " of " + std::to_string(bytes) + " bytes";
  return "";
}

std::string WriteNpy(const std::string& path, uint32_t dtype, const std::vector<int64_t>& shape, const void* data) {
  if (dtype > WHET_F64 || !*kDescr[dtype]) return std::string("type ") + DTypeName(dtype) + " has no .npy form";
  std::string dims;
  int64_t bytes = DTypeBytes(dtype);
  for (int64_t d : shape) {
    dims += std::to_string(d) + ",";
    bytes *= d;
  }
  if (shape.size() > 1) dims.pop_back();
  std::string header = std::string("{'descr': '") + kDescr[dtype] + "', 'fortran_order': False, 'shape': (" + dims + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  const char prefix[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  out.write(prefix, 10);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  out.write(static_cast<const char*>(data), bytes);
  out.close();
  return out ? "" : "cannot write '" + path + "': " + std::strerror(errno);
}

}  // namespace whet
