/* Which processes use a card, and how much of it each one uses. */
#include "call.h"
#include "procs.h"

#include <time.h>

#define NO_INSTANCE 0xFFFFFFFFu /* gpuInstanceId and computeInstanceId without MIG */

static bool concerns(const struct call *call, const struct use *use)
{
    return call->ci == NULL || (use->gi == (int)call->ci->gi && use->ci == (int)call->ci->id);
}

/* Keeps only the uses of one kind on the device of the call and returns how many there are. */
static size_t read_kind(const struct call *call, struct use uses[MAX_USES], char kind)
{
    size_t all = procs_read(uses, call->card->index, kind), count = 0;
    for (size_t i = 0; i < all; i++)
        if (concerns(call, &uses[i]))
            uses[count++] = uses[i];
    return count;
}

static nvmlReturn_t list_processes(struct call *call, char kind, unsigned *count, nvmlProcessInfo_t *infos)
{
    struct use uses[MAX_USES];
    size_t available = call->result == NVML_SUCCESS ? read_kind(call, uses, kind) : 0;
    if (!list_fits(call, infos, count, available))
        return call->result;
    for (size_t i = 0; i < available; i++)
        infos[i] = (nvmlProcessInfo_t){
            .pid = (uint32_t)uses[i].pid,
            .usedGpuMemory = (uint64_t)uses[i].mib << 20,
            .gpuInstanceId = uses[i].gi < 0 ? NO_INSTANCE : (uint32_t)uses[i].gi,
            .computeInstanceId = uses[i].ci < 0 ? NO_INSTANCE : (uint32_t)uses[i].ci,
        };
    return call->result;
}

static nvmlReturn_t list_processes_v1(struct call *call, char kind, unsigned *count, nvmlProcessInfo_v1_t *infos)
{
    struct use uses[MAX_USES];
    size_t available = call->result == NVML_SUCCESS ? read_kind(call, uses, kind) : 0;
    if (!list_fits(call, infos, count, available))
        return call->result;
    for (size_t i = 0; i < available; i++)
        infos[i] = (nvmlProcessInfo_v1_t){(uint32_t)uses[i].pid, (uint64_t)uses[i].mib << 20};
    return call->result;
}

/* The second version's structure has the fields of the third. */
#define PROCESS_LISTS(stem, kind)                                                                       \
    NVML_API nvmlReturn_t stem##_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos)     \
    {                                                                                                   \
        CALL_DEVICE(call, device);                                                                      \
        return list_processes(&call, kind, count, infos);                                               \
    }                                                                                                   \
    NVML_ALIAS(stem##_v2, stem##_v3, (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos)); \
    NVML_API nvmlReturn_t stem(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *infos)       \
    {                                                                                                   \
        CALL_DEVICE(call, device);                                                                      \
        return list_processes_v1(&call, kind, count, infos);                                            \
    }

PROCESS_LISTS(nvmlDeviceGetComputeRunningProcesses, 'C')
PROCESS_LISTS(nvmlDeviceGetGraphicsRunningProcesses, 'G')
PROCESS_LISTS(nvmlDeviceGetMPSComputeRunningProcesses, 'M')

/* Samples later than `since` (microseconds) of processes that did something. MIG has none (NVML API reference). */
NVML_API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                      unsigned *count, unsigned long long since)
{
    CALL_CARD(call, device);
    struct use uses[MAX_USES];
    struct timespec now;
    size_t available = 0;
    if (call.result == NVML_SUCCESS && call.card->mig)
        call.result = NVML_ERROR_NOT_SUPPORTED;
    if (!call_goes_on(&call, count))
        return call.result;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t stamp = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
    size_t all = since < stamp ? procs_read(uses, call.card->index, PROCS_OF_ALL_KINDS) : 0;
    for (size_t i = 0; i < all; i++)
        if (uses[i].sm + uses[i].memory > 0)
            uses[available++] = uses[i];
    if (available == 0)
        call.result = NVML_ERROR_NOT_FOUND;
    else if (list_fits(&call, samples, count, available))
        for (size_t i = 0; i < available; i++)
            samples[i] = (nvmlProcessUtilizationSample_t){
                .pid = (uint32_t)uses[i].pid, .timeStamp = stamp, .smUtil = uses[i].sm, .memUtil = uses[i].memory};
    return call.result;
}
