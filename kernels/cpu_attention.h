/* The tile size of CPU attention, on which the scratch sizes depend. */
#ifndef SBP_KERNELS_CPU_ATTENTION_H
#define SBP_KERNELS_CPU_ATTENTION_H

#include "base/numeric.h"

enum { CPU_ATTENTION_TILE = SBP_ATTENTION_TILE };

#endif
