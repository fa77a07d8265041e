// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78): the check of everything whet stores or
// frames — rows of the tuning log, frames on pipes, sections of files. It notices accidents, not
// forgery. Pure functions; safe from any thread. Table driven (eight bytes a step), so that the
// value and the speed are the same on every instruction set.
#pragma once
#include <cstdint>
#include <string_view>

namespace whet {

// The CRC of `bytes`. `init` is the CRC of what came before, so that
// Crc32c(b, Crc32c(a)) == Crc32c(a + b); Crc32c("123456789") == 0xe3069283.
uint32_t Crc32c(std::string_view bytes, uint32_t init = 0);

}  // namespace whet
