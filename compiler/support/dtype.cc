#include "compiler/support/dtype.h"

namespace whet {

int64_t SizeOf(DType t) {
  switch (t) {
#define X(id, name, bytes) \
  case DType::id: return bytes;
    WHET_DTYPES(X)
#undef X
  }
  return 0;
}

std::string_view ToString(DType t) {
  switch (t) {
#define X(id, name, bytes) \
  case DType::id: return name;
    WHET_DTYPES(X)
#undef X
  }
  return "?";
}

StatusOr<DType> ParseDType(std::string_view text) {
#define X(id, name, bytes) \
  if (text == name) return DType::id;
  WHET_DTYPES(X)
#undef X
  return InvalidArgument("unknown element type '{}'", text);
}

}  // namespace whet
