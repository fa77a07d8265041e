// The loop program verifier: every variable bound by an enclosing loop or by its block, names
// unique, every buffer declared and its indices inside it where bounds can tell, parallel loops
// outermost. A failure is our bug (Internal).
#pragma once
#include "compiler/loop/loop.h"

namespace whet::loop {
Status Verify(const Program& p);
}
