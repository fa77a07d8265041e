// Whether this process runs on an emulated processor (qemu's user mode). Its answers are right, its
// times mean nothing: they are marked, never compared, never learned from. Any thread.
#pragma once

namespace whet {

// By the processor's own word on x86; elsewhere WHET_EMULATED=1 says it.
bool Emulated();

}  // namespace whet
