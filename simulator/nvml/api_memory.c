/* Memory, its errors, and the window to it. */
#include "load.h"

struct memory {
    uint64_t total, reserved, used;
};

static struct memory read_memory(const struct call *call)
{
    const struct profile *profile = call->gi ? state_profile(call->state, call->card, call->gi->profile) : NULL;
    const struct model *model = call->card->facts;
    struct memory memory;
    memory.total = (uint64_t)(profile ? profile->memory_mib : model->memory_mib) << 20;
    memory.reserved = profile ? 0 : (uint64_t)model->reserved_mib << 20;
    memory.used = load_read(call).used;
    if (memory.used > memory.total - memory.reserved)
        memory.used = memory.total - memory.reserved;
    return memory;
}

/* The first version counts what the driver reserves as used. */
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
    CALL_DEVICE(call, device);
    if (call_goes_on(&call, info)) {
        struct memory memory = read_memory(&call);
        info->total = memory.total;
        info->used = memory.used + memory.reserved;
        info->free = memory.total - info->used;
    }
    return call.result;
}

/* The version word is checked by its top byte only: nvtop's word has another size than ours. */
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
    CALL_DEVICE(call, device);
    if (call_goes_on(&call, info)) {
        if (NVML_VERSION_OF(info->version) != 2) {
            call.result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
            return call.result;
        }
        struct memory memory = read_memory(&call);
        info->total = memory.total;
        info->reserved = memory.reserved;
        info->used = memory.used;
        info->free = memory.total - memory.reserved - memory.used;
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *info)
{
    CALL_DEVICE(call, device);
    if (call_goes_on(&call, info)) {
        info->bar1Total = (uint64_t)call.card->facts->bar1_mib << 20;
        info->bar1Used = (uint64_t)1 << 20;
        info->bar1Free = info->bar1Total - info->bar1Used;
    }
    return call.result;
}

/* Cards without ECC answer "not supported" to everything about it. */
static bool has_ecc(struct call *call)
{
    if (!call->card->facts->ecc)
        call->result = NVML_ERROR_NOT_SUPPORTED;
    return call->result == NVML_SUCCESS;
}

enum { ERRORS_CORRECTED, ERRORS_UNCORRECTED };

NVML_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, current) && call_goes_on(&call, pending) && has_ecc(&call))
        *current = *pending = call.card->ecc;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter, uint64_t *count)
{
    CALL_DEVICE(call, device);
    (void)counter; /* since boot and since manufacture are the same here */
    if (call_goes_on(&call, count) && has_ecc(&call))
        *count = type == ERRORS_CORRECTED ? call.card->ecc_corrected : call.card->ecc_uncorrected;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned type, unsigned counter,
                                                      unsigned location, uint64_t *count)
{
    enum { DEVICE_MEMORY = 2 };
    CALL_DEVICE(call, device);
    (void)counter;
    if (call_goes_on(&call, count) && has_ecc(&call)) {
        unsigned errors = type == ERRORS_CORRECTED ? call.card->ecc_corrected : call.card->ecc_uncorrected;
        *count = location == DEVICE_MEMORY ? errors : 0;
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                                unsigned *pending, unsigned *failed)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, corrected) && call_goes_on(&call, uncorrected) && call_goes_on(&call, pending) &&
        call_goes_on(&call, failed) && has_ecc(&call))
        *corrected = *uncorrected = *pending = *failed = 0;
    return call.result;
}
