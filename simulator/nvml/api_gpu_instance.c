/* GPU instances: profiles, placements, making and destroying. */
#include "call.h"
#include "mig.h"

enum { PROFILE_SLOTS = 0x12 }; /* NVML_GPU_INSTANCE_PROFILE_COUNT */

/* The card must be in MIG mode. nvidia-smi passes over cards that answer "not supported" and stops at other errors. */
static bool is_enabled(struct call *call)
{
    if (call->result == NVML_SUCCESS && !call->card->mig)
        call->result = NVML_ERROR_NOT_SUPPORTED;
    return call->result == NVML_SUCCESS;
}

static const struct profile *profile_in_slot(struct call *call, unsigned slot)
{
    const struct profile *profile = is_enabled(call) ? mig_profile_in_slot(call->state, call->card, slot) : NULL;
    if (call->result == NVML_SUCCESS && profile == NULL)
        call->result = slot < PROFILE_SLOTS ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    return profile;
}

static const struct profile *profile_by_id(struct call *call, unsigned id)
{
    const struct profile *profile = is_enabled(call) ? state_profile(call->state, call->card, id) : NULL;
    if (call->result == NVML_SUCCESS && profile == NULL)
        call->result = NVML_ERROR_INVALID_ARGUMENT;
    return profile;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned slot,
                                                          nvmlGpuInstanceProfileInfo_t *info)
{
    CALL_CARD(call, device);
    const struct profile *profile = call_goes_on(&call, info) ? profile_in_slot(&call, slot) : NULL;
    if (profile != NULL)
        *info = (nvmlGpuInstanceProfileInfo_t){profile->id,        0,
                                               profile->slices,    profile->max,
                                               profile->sm,        profile->ce,
                                               profile->dec,       profile->enc,
                                               profile->jpeg,      profile->ofa,
                                               profile->memory_mib};
    return call.result;
}

static void fill_v2(nvmlGpuInstanceProfileInfo_v2_t *info, const struct profile *profile)
{
    *info = (nvmlGpuInstanceProfileInfo_v2_t){info->version,
                                              profile->id,
                                              0,
                                              profile->slices,
                                              profile->max,
                                              profile->sm,
                                              profile->ce,
                                              profile->dec,
                                              profile->enc,
                                              profile->jpeg,
                                              profile->ofa,
                                              profile->memory_mib,
                                              ""};
    snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
}

static void fill_v3(nvmlGpuInstanceProfileInfo_v3_t *info, const struct profile *profile)
{
    *info = (nvmlGpuInstanceProfileInfo_v3_t){info->version,
                                              profile->id,
                                              profile->slices,
                                              profile->max,
                                              profile->sm,
                                              profile->ce,
                                              profile->dec,
                                              profile->enc,
                                              profile->jpeg,
                                              profile->ofa,
                                              profile->memory_mib,
                                              "",
                                              0};
    snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
}

/* The second and third version have the same size; the version word says which one the client means. */
NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned slot, void *info)
{
    CALL_CARD(call, device);
    if (!call_goes_on(&call, info))
        return call.result;
    uint32_t version = *(const uint32_t *)info;
    const struct profile *profile = profile_in_slot(&call, slot);
    if (profile != NULL && NVML_VERSION_OF(version) == 2)
        fill_v2(info, profile);
    else if (profile != NULL && NVML_VERSION_OF(version) == 3)
        fill_v3(info, profile);
    else if (profile != NULL)
        call.result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id,
                                                                    nvmlGpuInstancePlacement_t *placements,
                                                                    unsigned *count)
{
    CALL(call, TARGET_CARD, device, ACCESS_PRIVILEGED_READ);
    const struct profile *profile = call_goes_on(&call, count) ? profile_by_id(&call, id) : NULL;
    if (profile == NULL)
        return call.result;
    unsigned available = 0;
    for (unsigned start = 0; start < MAX_SLICES; start++)
        if (profile->starts & 1u << start) {
            if (placements != NULL)
                placements[available] = (nvmlGpuInstancePlacement_t){start, profile->size};
            available++;
        }
    *count = available;
    return call.result;
}
NVML_ALIAS(nvmlDeviceGetGpuInstancePossiblePlacements, nvmlDeviceGetGpuInstancePossiblePlacements_v2,
           (nvmlDevice_t device, unsigned id, nvmlGpuInstancePlacement_t *placements, unsigned *count));

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned id, unsigned *count)
{
    CALL(call, TARGET_CARD, device, ACCESS_PRIVILEGED_READ);
    const struct profile *profile = call_goes_on(&call, count) ? profile_by_id(&call, id) : NULL;
    if (profile != NULL)
        *count = mig_capacity(call.state, call.card, profile);
    return call.result;
}

static nvmlReturn_t create(struct call *call, unsigned id, int place, nvmlGpuInstance_t *instance)
{
    const struct profile *profile = call_goes_on(call, instance) ? profile_by_id(call, id) : NULL;
    if (profile != NULL && place != ANY_PLACE && !(place < MAX_SLICES && profile->starts & 1u << place))
        call->result = NVML_ERROR_INVALID_ARGUMENT;
    if (profile != NULL && call->result == NVML_SUCCESS) {
        const struct gpu_instance *gi = mig_create(call->state, call->card, profile, place);
        if (gi == NULL)
            call->result = NVML_ERROR_INSUFFICIENT_RESOURCES;
        else
            *instance = handle_make(HANDLE_GPU_INSTANCE, gi->card, gi->id, 0);
    }
    return call_commit(call);
}

NVML_API nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance)
{
    CALL(call, TARGET_CARD, device, ACCESS_CHANGE);
    return create(&call, id, ANY_PLACE, instance);
}

NVML_API nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned id,
                                                               const nvmlGpuInstancePlacement_t *placement,
                                                               nvmlGpuInstance_t *instance)
{
    CALL(call, TARGET_CARD, device, ACCESS_CHANGE);
    if (!call_goes_on(&call, placement))
        return call.result;
    int place = placement->start < MAX_SLICES ? (int)placement->start : MAX_SLICES;
    return create(&call, id, place, instance);
}

NVML_API nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    CALL(call, TARGET_GPU_INSTANCE, instance, ACCESS_CHANGE);
    for (size_t i = 0; call.result == NVML_SUCCESS && i < call.state->compute_instance_count; i++) {
        const struct compute_instance *ci = &call.state->compute_instances[i];
        if (ci->card == call.gi->card && ci->gi == call.gi->id)
            call.result = NVML_ERROR_IN_USE;
    }
    if (call.result == NVML_SUCCESS)
        mig_destroy(call.state, call.gi);
    return call_commit(&call);
}

/* The list must have room for as many as the profile allows; clients ask the profile for that number. */
NVML_API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instances,
                                                unsigned *count)
{
    CALL(call, TARGET_CARD, device, ACCESS_PRIVILEGED_READ);
    bool complete = call_goes_on(&call, instances) && call_goes_on(&call, count);
    if (!complete || profile_by_id(&call, id) == NULL)
        return call.result;
    *count = 0;
    for (size_t i = 0; i < call.state->gpu_instance_count; i++) {
        const struct gpu_instance *gi = &call.state->gpu_instances[i];
        if (gi->card == call.card->index && gi->profile == id)
            instances[(*count)++] = handle_make(HANDLE_GPU_INSTANCE, gi->card, gi->id, 0);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance)
{
    CALL(call, TARGET_CARD, device, ACCESS_PRIVILEGED_READ);
    if (call_goes_on(&call, instance) && is_enabled(&call)) {
        const struct gpu_instance *gi = state_gpu_instance(call.state, call.card->index, id);
        if (gi == NULL)
            call.result = NVML_ERROR_NOT_FOUND;
        else
            *instance = handle_make(HANDLE_GPU_INSTANCE, gi->card, gi->id, 0);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    CALL(call, TARGET_GPU_INSTANCE, instance, ACCESS_READ);
    if (call_goes_on(&call, info)) {
        const struct profile *profile = state_profile(call.state, call.card, call.gi->profile);
        *info = (nvmlGpuInstanceInfo_t){
            handle_make(HANDLE_CARD, call.gi->card, 0, 0), call.gi->id, profile->id, {call.gi->start, profile->size}};
    }
    return call.result;
}
