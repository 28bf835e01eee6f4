/* Handles are tagged numbers, never pointers to memory.
 *
 * A handle stays valid while its instance exists, whatever else is made or destroyed, and a wrong one is noticed
 * instead of followed.
 */
#ifndef GPUSIM_HANDLE_H
#define GPUSIM_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

enum handle_kind { HANDLE_NONE, HANDLE_CARD, HANDLE_MIG_DEVICE, HANDLE_GPU_INSTANCE, HANDLE_COMPUTE_INSTANCE };

struct handle {
    enum handle_kind kind;
    unsigned card, gi, ci;
};

#define HANDLE_TAG ((uintptr_t)0x5u << 28)

static inline void *handle_make(enum handle_kind kind, unsigned card, unsigned gi, unsigned ci)
{
    return (void *)(HANDLE_TAG | (uintptr_t)kind << 24 | (uintptr_t)card << 16 | (uintptr_t)gi << 8 | (uintptr_t)ci);
}

static inline struct handle handle_read(const void *pointer)
{
    uintptr_t number = (uintptr_t)pointer;
    struct handle handle = {HANDLE_NONE, 0, 0, 0};
    if ((number & ~(uintptr_t)0x0FFFFFFF) == HANDLE_TAG && (number >> 24 & 0xF) <= HANDLE_COMPUTE_INSTANCE) {
        handle.kind = (enum handle_kind)(number >> 24 & 0xF);
        handle.card = (unsigned)(number >> 16 & 0xFF);
        handle.gi = (unsigned)(number >> 8 & 0xFF);
        handle.ci = (unsigned)(number & 0xFF);
    }
    return handle;
}

#endif
