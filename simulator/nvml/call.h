/* What every exported function begins with.
 *
 *     NVML_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *number)
 *     {
 *         CALL_CARD(call, device);
 *         if (call_goes_on(&call, number))
 *             *number = call.card->minor;
 *         return call.result;
 *     }
 *
 * CALL_* checks that NVML is initialised, reads the machine, finds what the handle names and asks whether a fault was
 * injected. One lock is held from there to the end of the function (the cleanup attribute), so functions of this
 * library never call each other.
 */
#ifndef GPUSIM_CALL_H
#define GPUSIM_CALL_H

#include "handle.h"
#include "nvml_types.h"
#include "state.h"

enum call_target {
    TARGET_LIBRARY, /* answers without nvmlInit and whatever the kernel module is */
    TARGET_SYSTEM,
    TARGET_CARD,
    TARGET_DEVICE,
    TARGET_MIG_DEVICE,
    TARGET_GPU_INSTANCE,
    TARGET_COMPUTE_INSTANCE
};
enum call_access { ACCESS_READ, ACCESS_PRIVILEGED_READ, ACCESS_CHANGE };

struct call {
    const char *name;
    nvmlReturn_t result;
    struct state *state; /* may be changed only with ACCESS_CHANGE */
    struct card *card;   /* NULL with TARGET_LIBRARY and TARGET_SYSTEM */
    struct gpu_instance *gi;
    struct compute_instance *ci;
    bool changing;
};

void call_begin(struct call *call, enum call_target target, const void *handle, enum call_access access);
void call_end(struct call *call);

#define CALL(variable, target, handle, access)                                                                  \
    struct call variable __attribute__((cleanup(call_end))) = {.name = __func__, .result = NVML_ERROR_UNKNOWN}; \
    call_begin(&variable, target, handle, access)

#define CALL_LIBRARY(variable)            CALL(variable, TARGET_LIBRARY, NULL, ACCESS_READ)
#define CALL_SYSTEM(variable)             CALL(variable, TARGET_SYSTEM, NULL, ACCESS_READ)
#define CALL_CARD(variable, device)       CALL(variable, TARGET_CARD, device, ACCESS_READ)   /* whole cards only */
#define CALL_DEVICE(variable, device)     CALL(variable, TARGET_DEVICE, device, ACCESS_READ) /* cards and MIG devices */
#define CALL_MIG_DEVICE(variable, device) CALL(variable, TARGET_MIG_DEVICE, device, ACCESS_READ)

/* Whether the call may answer; a NULL where the answer should go is an invalid argument. */
bool call_goes_on(struct call *call, const void *answer);

/* Ends a function that changed the machine: writes it when the result is success. */
nvmlReturn_t call_commit(struct call *call);

/* For functions that find a card themselves: the fault injected for it, if any. */
nvmlReturn_t call_card_fault(const struct call *call, unsigned card);

/* Body of every function that only says "not supported" (stubs.c is generated from symbols.txt). */
nvmlReturn_t call_not_supported(const char *name);

/* nvmlInit and nvmlShutdown, the two functions that work without being initialised. */
nvmlReturn_t call_initialise(const char *name);
nvmlReturn_t call_shut_down(const char *name);

/* Copies text into a client's buffer: INSUFFICIENT_SIZE when it does not fit with its end. */
nvmlReturn_t copy_text(char *to, unsigned length, const char *text);

/* NVML's protocol for lists. `*count` is the room and becomes how many there are; true when the list may be filled. */
bool list_fits(struct call *call, const void *list, unsigned *count, size_t available);

#endif
