#include "call.h"

#include "store.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned initialised; /* how often nvmlInit was called without nvmlShutdown */
static unsigned long calls;  /* how many calls this process made */

/* GPUSIM_TRACE=FILE: which calls did the client make, and what was the answer. */
static void trace(const char *name, nvmlReturn_t result)
{
    const char *path = secure_getenv("GPUSIM_TRACE");
    char line[192];
    if (path == NULL)
        return;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    int length = snprintf(line, sizeof line, "%d %s %d\n", (int)getpid(), name, (int)result);
    if (file < 0)
        return;
    if (length > 0 && length < (int)sizeof line && write(file, line, (size_t)length) < 0)
        perror("gpusim: GPUSIM_TRACE cannot be written");
    close(file);
}

/* GPUSIM_KILL_AT=N ends the process at its Nth call; GPUSIM_FAIL_AT=N:ERROR makes that call fail with the number. */
static nvmlReturn_t count_call(void)
{
    const char *kill_at = secure_getenv("GPUSIM_KILL_AT");
    const char *fail_at = secure_getenv("GPUSIM_FAIL_AT");
    unsigned long at, error;
    calls++;
    if (kill_at != NULL && strtoul(kill_at, NULL, 10) == calls)
        raise(SIGKILL);
    if (fail_at != NULL && sscanf(fail_at, "%lu:%lu", &at, &error) == 2 && at == calls)
        return (nvmlReturn_t)error;
    return NVML_SUCCESS;
}

static bool call_matches(const char *pattern, const char *name)
{
    size_t length = strlen(pattern);
    if (length > 0 && pattern[length - 1] == '*')
        return strncmp(pattern, name, length - 1) == 0;
    return strcmp(pattern, name) == 0;
}

/* The fault injected for a call. `card` is NULL for calls about no card, which only faults of all cards concern. */
static nvmlReturn_t find_fault(const struct state *state, const char *name, const unsigned *card)
{
    for (size_t i = 0; i < state->fault_count; i++) {
        const struct fault *fault = &state->faults[i];
        bool concerned = strcmp(fault->card, "*") == 0 || (card != NULL && strtoul(fault->card, NULL, 10) == *card);
        if (concerned && call_matches(fault->call, name))
            return (nvmlReturn_t)fault->error;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t call_card_fault(const struct call *call, unsigned card)
{
    return find_fault(call->state, call->name, &card);
}

/* Root, or somebody allowed to read the node of MIG configuration, as with the real driver. */
static bool is_privileged(const struct state *state)
{
    char path[sizeof state->driver.caps + 16];
    snprintf(path, sizeof path, "%s/nvidia-cap1", state->driver.caps);
    return store_is_root() || faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == 0;
}

static bool handle_suits(enum call_target target, enum handle_kind kind)
{
    switch (target) {
    case TARGET_LIBRARY:
    case TARGET_SYSTEM:
        return true;
    case TARGET_CARD:
        return kind == HANDLE_CARD;
    case TARGET_DEVICE:
        return kind == HANDLE_CARD || kind == HANDLE_MIG_DEVICE;
    case TARGET_MIG_DEVICE:
        return kind == HANDLE_MIG_DEVICE;
    case TARGET_GPU_INSTANCE:
        return kind == HANDLE_GPU_INSTANCE;
    case TARGET_COMPUTE_INSTANCE:
        return kind == HANDLE_COMPUTE_INSTANCE;
    }
    return false;
}

static nvmlReturn_t find_target(struct call *call, enum call_target target, const void *pointer)
{
    struct handle handle = handle_read(pointer);
    if (!handle_suits(target, handle.kind))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (target == TARGET_LIBRARY || target == TARGET_SYSTEM)
        return NVML_SUCCESS;
    if (handle.card >= call->state->card_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    call->card = &call->state->cards[handle.card];
    if (handle.kind == HANDLE_CARD)
        return NVML_SUCCESS;
    call->gi = state_gpu_instance(call->state, handle.card, handle.gi);
    if (handle.kind != HANDLE_GPU_INSTANCE)
        call->ci = state_compute_instance(call->state, handle.card, handle.gi, handle.ci);
    bool gone = call->gi == NULL || (handle.kind != HANDLE_GPU_INSTANCE && call->ci == NULL);
    return gone ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

static nvmlReturn_t begin(struct call *call, enum call_target target, const void *handle, enum call_access access)
{
    nvmlReturn_t result = count_call();
    if (result != NVML_SUCCESS)
        return result;
    if (initialised == 0 && target != TARGET_LIBRARY)
        return NVML_ERROR_UNINITIALIZED;
    call->state = store_read();
    if (call->state == NULL)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (access != ACCESS_READ && !is_privileged(call->state))
        return NVML_ERROR_NO_PERMISSION;
    if (access == ACCESS_CHANGE) {
        call->state = store_begin();
        if (call->state == NULL)
            return NVML_ERROR_OPERATING_SYSTEM;
        call->changing = true;
    }
    result = find_target(call, target, handle);
    return result != NVML_SUCCESS ? result
                                  : find_fault(call->state, call->name, call->card ? &call->card->index : NULL);
}

void call_begin(struct call *call, enum call_target target, const void *handle, enum call_access access)
{
    pthread_mutex_lock(&mutex);
    call->result = begin(call, target, handle, access);
}

void call_end(struct call *call)
{
    if (call->changing)
        store_end(false);
    trace(call->name, call->result);
    pthread_mutex_unlock(&mutex);
}

bool call_goes_on(struct call *call, const void *answer)
{
    if (call->result == NVML_SUCCESS && answer == NULL)
        call->result = NVML_ERROR_INVALID_ARGUMENT;
    return call->result == NVML_SUCCESS;
}

nvmlReturn_t call_commit(struct call *call)
{
    if (call->changing && call->result == NVML_SUCCESS) {
        call->changing = false;
        if (!store_end(true))
            call->result = store_is_root() ? NVML_ERROR_OPERATING_SYSTEM : NVML_ERROR_NO_PERMISSION;
    }
    return call->result;
}

nvmlReturn_t call_not_supported(const char *name)
{
    struct call call __attribute__((cleanup(call_end))) = {.name = name, .result = NVML_ERROR_UNKNOWN};
    call_begin(&call, TARGET_SYSTEM, NULL, ACCESS_READ);
    if (call.result == NVML_SUCCESS)
        call.result = NVML_ERROR_NOT_SUPPORTED;
    return call.result;
}

nvmlReturn_t call_initialise(const char *name)
{
    struct call call __attribute__((cleanup(call_end))) = {.name = name, .result = NVML_SUCCESS};
    pthread_mutex_lock(&mutex);
    call.state = store_read();
    if (call.state == NULL || !call.state->driver.loaded)
        call.result = NVML_ERROR_DRIVER_NOT_LOADED;
    else if (strcmp(call.state->driver.version, call.state->driver.library) != 0)
        call.result = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    else
        call.result = find_fault(call.state, name, NULL);
    if (call.result == NVML_SUCCESS)
        initialised++;
    return call.result;
}

nvmlReturn_t call_shut_down(const char *name)
{
    struct call call __attribute__((cleanup(call_end))) = {.name = name, .result = NVML_SUCCESS};
    pthread_mutex_lock(&mutex);
    if (initialised == 0)
        call.result = NVML_ERROR_UNINITIALIZED;
    else
        initialised--;
    return call.result;
}

nvmlReturn_t copy_text(char *to, unsigned length, const char *text)
{
    size_t size = strlen(text) + 1;
    if (length < size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(to, text, size);
    return NVML_SUCCESS;
}

bool list_fits(struct call *call, const void *list, unsigned *count, size_t available)
{
    if (!call_goes_on(call, count))
        return false;
    unsigned room = *count;
    *count = (unsigned)available;
    if (available == 0)
        return false;
    if (room < available)
        call->result = NVML_ERROR_INSUFFICIENT_SIZE;
    else if (list == NULL)
        call->result = NVML_ERROR_INVALID_ARGUMENT;
    return call->result == NVML_SUCCESS;
}
