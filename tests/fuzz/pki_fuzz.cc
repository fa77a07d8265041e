// What comes from a peer or lies in a bundle: any bytes in place of a certificate, a CA file or a
// deny list give a value or an error, and a deny list that is read denies what its lines say.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "fleet/pki/certificate.h"
#include "fleet/pki/deny_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto info = whet::pki::ReadCertificate(bytes);
  if (info.ok()) {
    if (!whet::pki::IsId(info->name.id)) std::abort();
    const auto list = whet::pki::DenyList::Parse(info->name.Text());
    if (!list.ok() || !list->Denies(*info)) std::abort();
  }
  if (whet::pki::VerifyCertificate(bytes, bytes, whet::pki::Side::kDials, 1'900'000'000).ok())
    std::abort();  // one file is never both a peer and the CA that signed it
  if (const auto list = whet::pki::DenyList::Parse(bytes); list.ok() && list->size() > size)
    std::abort();
  return 0;
}
