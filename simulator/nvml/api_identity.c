/* Which cards there are and what they are: handles, names, addresses, numbers. */
#include "call.h"
#include "mig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The answer for a card found by name or number: a lost card is there and cannot be used. */
static void answer_card(struct call *call, size_t index, nvmlDevice_t *device)
{
    if (index >= call->state->card_count) {
        call->result = NVML_ERROR_NOT_FOUND;
        return;
    }
    call->result = call_card_fault(call, (unsigned)index);
    if (call->result == NVML_SUCCESS)
        *device = handle_make(HANDLE_CARD, (unsigned)index, 0, 0);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    CALL_SYSTEM(call);
    if (call_goes_on(&call, device)) {
        if (index < call.state->card_count)
            answer_card(&call, index, device);
        else
            call.result = NVML_ERROR_INVALID_ARGUMENT;
    }
    return call.result;
}
NVML_ALIAS(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *device));

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    CALL_SYSTEM(call);
    if (call_goes_on(&call, uuid) && call_goes_on(&call, device)) {
        for (size_t i = 0; i < call.state->compute_instance_count; i++) {
            const struct compute_instance *instance = &call.state->compute_instances[i];
            if (strcmp(instance->uuid, uuid) == 0) {
                call.result = call_card_fault(&call, instance->card);
                if (call.result == NVML_SUCCESS)
                    *device = handle_make(HANDLE_MIG_DEVICE, instance->card, instance->gi, instance->id);
                return call.result;
            }
        }
        size_t index = 0;
        while (index < call.state->card_count && strcmp(call.state->cards[index].uuid, uuid) != 0)
            index++;
        answer_card(&call, index, device);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    CALL_SYSTEM(call);
    if (call_goes_on(&call, serial) && call_goes_on(&call, device)) {
        size_t index = 0;
        while (index < call.state->card_count && strcmp(call.state->cards[index].serial, serial) != 0)
            index++;
        answer_card(&call, index, device);
    }
    return call.result;
}

/* Clients write the domain with four digits (0000:01:00.0), with eight, or not at all. */
static bool same_bus_id(const char *one, const char *other)
{
    unsigned a[4], b[4];
    if (sscanf(other, "%x:%x:%x.%u", &b[0], &b[1], &b[2], &b[3]) != 4) {
        b[0] = 0;
        if (sscanf(other, "%x:%x.%u", &b[1], &b[2], &b[3]) != 3)
            return false;
    }
    return sscanf(one, "%x:%x:%x.%u", &a[0], &a[1], &a[2], &a[3]) == 4 && memcmp(a, b, sizeof a) == 0;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    CALL_SYSTEM(call);
    if (call_goes_on(&call, bus_id) && call_goes_on(&call, device)) {
        size_t index = 0;
        while (index < call.state->card_count && !same_bus_id(call.state->cards[index].bus_id, bus_id))
            index++;
        answer_card(&call, index, device);
    }
    return call.result;
}
NVML_ALIAS(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2, (const char *bus_id, nvmlDevice_t *device));

/* A MIG device is called after its card and its own profile. */
static void describe(const struct call *call, char *text, size_t size)
{
    char name[MIG_NAME_SIZE];
    if (call->ci == NULL) {
        snprintf(text, size, "%s", call->card->facts->name);
        return;
    }
    const struct profile *profile = state_profile(call->state, call->card, call->gi->profile);
    const struct compute_profile *compute = mig_compute_profile(call->state, profile->slices, call->ci->profile);
    mig_name(name, profile, compute->slices);
    snprintf(text, size, "%s MIG %s", call->card->facts->name, name);
}

NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    CALL_DEVICE(call, device);
    if (call_goes_on(&call, name)) {
        char text[128];
        describe(&call, text, sizeof text);
        call.result = copy_text(name, length, text);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    CALL_DEVICE(call, device);
    if (call_goes_on(&call, uuid))
        call.result = copy_text(uuid, length, call.ci ? call.ci->uuid : call.card->uuid);
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, serial))
        call.result = copy_text(serial, length, call.card->serial);
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned length)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, version))
        call.result = copy_text(version, length, "00.00.00.00.01");
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    CALL_DEVICE(call, device);
    if (call_goes_on(&call, index))
        *index = call.ci ? mig_device_index(call.state, call.ci) : call.card->index;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, minor))
        *minor = call.card->minor;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *brand)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, brand))
        *brand = call.card->facts->brand;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, architecture))
        *architecture = call.card->facts->architecture;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    CALL_DEVICE(call, device);
    if (call_goes_on(&call, major) && call_goes_on(&call, minor)) {
        *major = (int)call.card->facts->cc_major;
        *minor = (int)call.card->facts->cc_minor;
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned *cores)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, cores))
        *cores = call.card->facts->core_count;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned *several)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, several))
        *several = 0;
    return call.result;
}

/* What the three generations of the PCI call have in common. */
static void read_bus_id(const struct card *card, uint32_t *domain, uint32_t *bus, uint32_t *slot)
{
    *domain = *bus = *slot = 0;
    sscanf(card->bus_id, "%x:%x:%x", domain, bus, slot);
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, info)) {
        memset(info, 0, sizeof *info);
        read_bus_id(call.card, &info->domain, &info->bus, &info->device);
        info->pciDeviceId = call.card->facts->device_id;
        info->pciSubSystemId = call.card->facts->subsystem_id;
        snprintf(info->busId, sizeof info->busId, "%s", call.card->bus_id);
        snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", info->domain & 0xFFFFu,
                 info->bus & 0xFFu, info->device & 0xFFu);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *info)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, info)) {
        read_bus_id(call.card, &info->domain, &info->bus, &info->device);
        info->pciDeviceId = call.card->facts->device_id;
        info->pciSubSystemId = call.card->facts->subsystem_id;
        info->baseClass = 0x03;                                    /* display controller */
        info->subClass = call.card->facts->fans > 0 ? 0x00 : 0x02; /* VGA, or 3D on cards without a screen */
        snprintf(info->busId, sizeof info->busId, "%s", call.card->bus_id);
    }
    return call.result;
}

/* CPU sets are arrays of unsigned long; every CPU is near every card. */
NVML_API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned size, unsigned long *set)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, set)) {
        const unsigned bits = 8 * sizeof *set;
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        memset(set, 0, size * sizeof *set);
        for (unsigned cpu = 0; online > 0 && cpu < (unsigned long)online && cpu < size * bits; cpu++)
            set[cpu / bits] |= 1ul << cpu % bits;
    }
    return call.result;
}
