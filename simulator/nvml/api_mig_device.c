/* MIG mode of cards, and MIG devices: what programs are given. */
#include "call.h"
#include "mig.h"
#include "procs.h"

static bool is_capable(struct call *call)
{
    if (call->result == NVML_SUCCESS && call->card->facts->mig_slices == 0)
        call->result = NVML_ERROR_NOT_SUPPORTED;
    return call->result == NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, current) && call_goes_on(&call, pending) && is_capable(&call)) {
        *current = call.card->mig;
        *pending = call.card->mig_pending;
    }
    return call.result;
}

static bool has_clients(const struct call *call)
{
    struct use uses[MAX_USES];
    if (procs_read(uses, call->card->index, PROCS_OF_ALL_KINDS) > 0)
        return true;
    for (size_t i = 0; i < call->state->gpu_instance_count; i++)
        if (call->state->gpu_instances[i].card == call->card->index)
            return true;
    return false;
}

/* A card in use keeps its mode; the new one waits for a reset. The call itself succeeds and says so in `activation`. */
NVML_API nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode, nvmlReturn_t *activation)
{
    CALL(call, TARGET_CARD, device, ACCESS_CHANGE);
    if (call_goes_on(&call, activation) && is_capable(&call)) {
        if (mode > 1) {
            call.result = NVML_ERROR_INVALID_ARGUMENT;
            return call.result;
        }
        call.card->mig_pending = mode;
        *activation = call.card->mig != mode && has_clients(&call) ? NVML_ERROR_IN_USE : NVML_SUCCESS;
        if (*activation == NVML_SUCCESS)
            call.card->mig = mode;
    }
    return call_commit(&call);
}

/* Zero when MIG is not supported or not enabled (NVML API reference). */
NVML_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, count))
        *count = call.card->mig ? call.card->facts->mig_max : 0;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, mig) && is_capable(&call)) {
        const struct compute_instance *ci = mig_device(call.state, call.card->index, index);
        if (index >= call.card->facts->mig_max)
            call.result = NVML_ERROR_INVALID_ARGUMENT;
        else if (ci == NULL)
            call.result = NVML_ERROR_NOT_FOUND;
        else
            *mig = handle_make(HANDLE_MIG_DEVICE, ci->card, ci->gi, ci->id);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    CALL_MIG_DEVICE(call, mig);
    if (call_goes_on(&call, device))
        *device = handle_make(HANDLE_CARD, call.card->index, 0, 0);
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    CALL_DEVICE(call, device);
    if (call_goes_on(&call, is_mig))
        *is_mig = call.ci != NULL;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t mig, unsigned *id)
{
    CALL_MIG_DEVICE(call, mig);
    if (call_goes_on(&call, id))
        *id = call.ci->gi;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t mig, unsigned *id)
{
    CALL_MIG_DEVICE(call, mig);
    if (call_goes_on(&call, id))
        *id = call.ci->id;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes)
{
    CALL_DEVICE(call, mig);
    if (call.result == NVML_SUCCESS && call.ci == NULL)
        call.result = NVML_ERROR_NOT_SUPPORTED; /* a whole card has none */
    if (call_goes_on(&call, attributes)) {
        const struct profile *profile = state_profile(call.state, call.card, call.gi->profile);
        const struct compute_profile *compute = mig_compute_profile(call.state, profile->slices, call.ci->profile);
        *attributes = (nvmlDeviceAttributes_t){
            .multiprocessorCount = mig_compute_sm(call.state, call.card, profile, compute->slices),
            .sharedCopyEngineCount = profile->ce,
            .sharedDecoderCount = profile->dec,
            .sharedEncoderCount = profile->enc,
            .sharedJpegCount = profile->jpeg,
            .sharedOfaCount = profile->ofa,
            .gpuInstanceSliceCount = profile->slices,
            .computeInstanceSliceCount = compute->slices,
            .memorySizeMB = profile->memory_mib,
        };
    }
    return call.result;
}
NVML_ALIAS(nvmlDeviceGetAttributes, nvmlDeviceGetAttributes_v2, (nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes));
