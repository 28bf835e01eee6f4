/* Compute instances: the parts of a GPU instance that programs run in. */
#include "call.h"
#include "mig.h"
#include "procs.h"

enum { PROFILE_SLOTS = 0x9 }; /* NVML_COMPUTE_INSTANCE_PROFILE_COUNT */
enum { ENGINES_SHARED = 0 };  /* the only engine profile there is */

static const struct profile *parent_profile(const struct call *call)
{
    return state_profile(call->state, call->card, call->gi->profile);
}

static const struct compute_profile *profile_in_slot(struct call *call, unsigned slot, unsigned engines)
{
    if (slot >= PROFILE_SLOTS || engines != ENGINES_SHARED) {
        call->result = NVML_ERROR_INVALID_ARGUMENT;
        return NULL;
    }
    const struct compute_profile *profile =
        mig_compute_profile_in_slot(call->state, parent_profile(call)->slices, slot);
    if (profile == NULL)
        call->result = NVML_ERROR_NOT_SUPPORTED;
    return profile;
}

static const struct compute_profile *profile_by_id(struct call *call, unsigned id)
{
    const struct compute_profile *profile = mig_compute_profile(call->state, parent_profile(call)->slices, id);
    if (profile == NULL)
        call->result = NVML_ERROR_INVALID_ARGUMENT;
    return profile;
}

static nvmlComputeInstanceProfileInfo_t describe(const struct call *call, const struct compute_profile *profile)
{
    const struct profile *parent = parent_profile(call);
    return (nvmlComputeInstanceProfileInfo_t){
        .id = profile->id,
        .sliceCount = profile->slices,
        .instanceCount = profile->max,
        .multiprocessorCount = mig_compute_sm(call->state, call->card, parent, profile->slices),
        .sharedCopyEngineCount = parent->ce,
        .sharedDecoderCount = parent->dec,
        .sharedEncoderCount = parent->enc,
        .sharedJpegCount = parent->jpeg,
        .sharedOfaCount = parent->ofa,
    };
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned slot,
                                                                   unsigned engines,
                                                                   nvmlComputeInstanceProfileInfo_t *info)
{
    CALL(call, TARGET_GPU_INSTANCE, instance, ACCESS_READ);
    const struct compute_profile *profile = call_goes_on(&call, info) ? profile_in_slot(&call, slot, engines) : NULL;
    if (profile != NULL)
        *info = describe(&call, profile);
    return call.result;
}

/* The third version is the second with one field more at its end. */
NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned slot,
                                                                    unsigned engines, void *answer)
{
    CALL(call, TARGET_GPU_INSTANCE, instance, ACCESS_READ);
    const struct compute_profile *profile = call_goes_on(&call, answer) ? profile_in_slot(&call, slot, engines) : NULL;
    if (profile == NULL)
        return call.result;
    nvmlComputeInstanceProfileInfo_v2_t *info = answer;
    unsigned version = NVML_VERSION_OF(info->version);
    if (version != 2 && version != 3) {
        call.result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
        return call.result;
    }
    char name[MIG_NAME_SIZE];
    mig_name(name, parent_profile(&call), profile->slices);
    info->v1 = describe(&call, profile);
    snprintf(info->name, sizeof info->name, "MIG %s", name);
    if (version == 3)
        ((nvmlComputeInstanceProfileInfo_v3_t *)answer)->capabilities = 0;
    return call.result;
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, unsigned id,
                                                                          nvmlComputeInstancePlacement_t *placements,
                                                                          unsigned *count)
{
    CALL(call, TARGET_GPU_INSTANCE, instance, ACCESS_PRIVILEGED_READ);
    const struct compute_profile *profile = call_goes_on(&call, count) ? profile_by_id(&call, id) : NULL;
    if (profile == NULL)
        return call.result;
    unsigned available = 0;
    for (unsigned start = 0; start < MAX_SLICES; start++)
        if (profile->starts & 1u << start) {
            if (placements != NULL)
                placements[available] = (nvmlComputeInstancePlacement_t){start, profile->slices};
            available++;
        }
    *count = available;
    return call.result;
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned id,
                                                                         unsigned *count)
{
    CALL(call, TARGET_GPU_INSTANCE, instance, ACCESS_PRIVILEGED_READ);
    const struct compute_profile *profile = call_goes_on(&call, count) ? profile_by_id(&call, id) : NULL;
    if (profile != NULL)
        *count = mig_compute_capacity(call.state, call.gi, profile);
    return call.result;
}

static nvmlReturn_t create(struct call *call, unsigned id, int place, nvmlComputeInstance_t *instance)
{
    const struct compute_profile *profile = call_goes_on(call, instance) ? profile_by_id(call, id) : NULL;
    if (profile != NULL && place != ANY_PLACE && !(place < MAX_SLICES && profile->starts & 1u << place))
        call->result = NVML_ERROR_INVALID_ARGUMENT;
    if (profile != NULL && call->result == NVML_SUCCESS) {
        const struct compute_instance *ci = mig_compute_create(call->state, call->gi, profile, place);
        if (ci == NULL)
            call->result = NVML_ERROR_INSUFFICIENT_RESOURCES;
        else
            *instance = handle_make(HANDLE_COMPUTE_INSTANCE, ci->card, ci->gi, ci->id);
    }
    return call_commit(call);
}

NVML_API nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gpu_instance, unsigned id,
                                                           nvmlComputeInstance_t *instance)
{
    CALL(call, TARGET_GPU_INSTANCE, gpu_instance, ACCESS_CHANGE);
    return create(&call, id, ANY_PLACE, instance);
}

NVML_API nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t gpu_instance, unsigned id,
                                                                        const nvmlComputeInstancePlacement_t *placement,
                                                                        nvmlComputeInstance_t *instance)
{
    CALL(call, TARGET_GPU_INSTANCE, gpu_instance, ACCESS_CHANGE);
    if (!call_goes_on(&call, placement))
        return call.result;
    int place = placement->start < MAX_SLICES ? (int)placement->start : MAX_SLICES;
    return create(&call, id, place, instance);
}

/* An instance that a process runs in is not destroyed. */
NVML_API nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance)
{
    CALL(call, TARGET_COMPUTE_INSTANCE, instance, ACCESS_CHANGE);
    if (call.result == NVML_SUCCESS) {
        struct use uses[MAX_USES];
        size_t count = procs_read(uses, call.ci->card, PROCS_OF_ALL_KINDS);
        for (size_t i = 0; i < count; i++)
            if (uses[i].gi == (int)call.ci->gi && uses[i].ci == (int)call.ci->id)
                call.result = NVML_ERROR_IN_USE;
    }
    if (call.result == NVML_SUCCESS)
        mig_compute_destroy(call.state, call.ci);
    return call_commit(&call);
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t gpu_instance, unsigned id,
                                                         nvmlComputeInstance_t *instances, unsigned *count)
{
    CALL(call, TARGET_GPU_INSTANCE, gpu_instance, ACCESS_PRIVILEGED_READ);
    bool complete = call_goes_on(&call, instances) && call_goes_on(&call, count);
    if (!complete || profile_by_id(&call, id) == NULL)
        return call.result;
    *count = 0;
    for (size_t i = 0; i < call.state->compute_instance_count; i++) {
        const struct compute_instance *ci = &call.state->compute_instances[i];
        if (ci->card == call.gi->card && ci->gi == call.gi->id && ci->profile == id)
            instances[(*count)++] = handle_make(HANDLE_COMPUTE_INSTANCE, ci->card, ci->gi, ci->id);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gpu_instance, unsigned id,
                                                            nvmlComputeInstance_t *instance)
{
    CALL(call, TARGET_GPU_INSTANCE, gpu_instance, ACCESS_PRIVILEGED_READ);
    if (call_goes_on(&call, instance)) {
        const struct compute_instance *ci = state_compute_instance(call.state, call.gi->card, call.gi->id, id);
        if (ci == NULL)
            call.result = NVML_ERROR_NOT_FOUND;
        else
            *instance = handle_make(HANDLE_COMPUTE_INSTANCE, ci->card, ci->gi, ci->id);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info)
{
    CALL(call, TARGET_COMPUTE_INSTANCE, instance, ACCESS_READ);
    if (call_goes_on(&call, info)) {
        const struct compute_profile *profile =
            mig_compute_profile(call.state, parent_profile(&call)->slices, call.ci->profile);
        *info = (nvmlComputeInstanceInfo_t){handle_make(HANDLE_CARD, call.ci->card, 0, 0),
                                            handle_make(HANDLE_GPU_INSTANCE, call.ci->card, call.ci->gi, 0),
                                            call.ci->id,
                                            profile->id,
                                            {call.ci->start, profile->slices}};
    }
    return call.result;
}
NVML_ALIAS(nvmlComputeInstanceGetInfo, nvmlComputeInstanceGetInfo_v2,
           (nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info));
