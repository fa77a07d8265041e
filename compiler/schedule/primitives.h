// The catalog's records, one function each; primitives.cc lists them. To add a primitive: write it
// in a prim_*.cc, declare its record here, list it there.
#pragma once
#include "compiler/schedule/schedule.h"

namespace whet::schedule {

const Primitive& PrimSplit();
const Primitive& PrimFuse();
const Primitive& PrimReorder();
const Primitive& PrimVectorize();
const Primitive& PrimUnroll();
const Primitive& PrimParallel();
const Primitive& PrimAnnotate();
const Primitive& PrimComputeAt();
const Primitive& PrimReverseComputeAt();
const Primitive& PrimInline();
const Primitive& PrimCacheRead();
const Primitive& PrimCacheWrite();
const Primitive& PrimSetScope();
const Primitive& PrimStartFrom();
const Primitive& PrimDecomposeReduction();
const Primitive& PrimTransformLayout();
const Primitive& PrimPad();
const Primitive& PrimWinograd();
const Primitive& PrimRFactor();
const Primitive& PrimFuseAxes();
const Primitive& PrimInterleave();
const Primitive& PrimReciprocal();

}  // namespace whet::schedule
