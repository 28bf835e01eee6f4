/* How much of a card or MIG device is used, summed over the processes that use it. */
#ifndef GPUSIM_LOAD_H
#define GPUSIM_LOAD_H

#include "call.h"

#include <stdint.h>

struct load {
    uint64_t used;       /* bytes */
    unsigned sm, memory; /* percent, 0 to 100 */
};

/* Of the card, or of the GPU instance when the call is about a MIG device. */
struct load load_read(const struct call *call);

#endif
