// Temporary files that cannot be left behind. Safe from any thread.
#pragma once
#include "compiler/support/status.h"

namespace whet {

// A new file under the temporary folder that has no name any more, close-on-exec: it is gone with
// the last process that holds it, however that ends. A child that was given it as number N opens it
// again as /proc/self/fd/N.
StatusOr<int> NamelessFile();

}  // namespace whet
