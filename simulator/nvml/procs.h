/* The real processes that use simulated cards (see gpusim/processes.py for who writes the files). */
#ifndef GPUSIM_PROCS_H
#define GPUSIM_PROCS_H

#include <stdbool.h>
#include <stddef.h>

enum { MAX_USES = 1024, PROCS_OF_ALL_KINDS = 0 };

/* What a process that is there holds of one card; gi and ci are -1 without MIG. */
struct use {
    int pid;
    unsigned card;
    int gi, ci;
    unsigned mib, sm, memory;
    char kind; /* C compute, G graphics, M compute through MPS */
};

/* Fills `uses` of one card and kind in order of PID and returns how many there are, MAX_USES at most. Not for two threads at a
 * time: callers hold the lock of call.h. */
size_t procs_read(struct use uses[MAX_USES], unsigned card, char kind);

#endif
