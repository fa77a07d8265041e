#include "fleet/pki/tls_buffers.h"

#include <openssl/ssl.h>

namespace whet::pki {

void FreeTlsBuffersWhenIdle() {
  [[maybe_unused]] static const int index = SSL_get_ex_new_index(
      0, nullptr,
      [](void* ssl, void*, CRYPTO_EX_DATA*, int, long, void*) {
        SSL_set_mode(static_cast<SSL*>(ssl), SSL_MODE_RELEASE_BUFFERS);
      },
      nullptr, nullptr);
}

}  // namespace whet::pki
