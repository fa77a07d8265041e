#include "compiler/schedule/primitives.h"

namespace whet::schedule {

const std::vector<const Primitive*>& Primitives() {
  static const std::vector<const Primitive*> all = {
      &PrimSplit(),
      &PrimFuse(),
      &PrimReorder(),
      &PrimVectorize(),
      &PrimUnroll(),
      &PrimParallel(),
      &PrimAnnotate(),
      &PrimComputeAt(),
      &PrimReverseComputeAt(),
      &PrimInline(),
      &PrimCacheRead(),
      &PrimCacheWrite(),
      &PrimSetScope(),
      &PrimDecomposeReduction(),
      &PrimTransformLayout(),
      &PrimPad(),
      &PrimStartFrom(),
      &PrimWinograd(),
      &PrimRFactor(),
      &PrimFuseAxes(),
      &PrimInterleave(),
      &PrimReciprocal(),
  };
  return all;
}

}  // namespace whet::schedule
