/* NVLink and what else says how cards are connected. */
#include "call.h"

#include <string.h>

enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2, REMOTE_UNKNOWN = 255 };
enum { NVLINK_MAX_LINKS = 18 };

static const struct link *find_link(const struct state *state, const struct card *card, unsigned number)
{
    for (size_t i = 0; i < state->link_count; i++)
        if (state->links[i].card == card->index && state->links[i].number == number)
            return &state->links[i];
    return NULL;
}

/* Clients ask for all 18 links there can be; nvidia-smi takes "not supported" for one that this card lacks. */
static const struct link *link_of(struct call *call, unsigned number)
{
    const struct link *link = find_link(call->state, call->card, number);
    if (link == NULL)
        call->result = number < NVLINK_MAX_LINKS ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    return link;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned number, unsigned *active)
{
    CALL_CARD(call, device);
    const struct link *link = call_goes_on(&call, active) ? link_of(&call, number) : NULL;
    if (link != NULL)
        *active = link->active;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned number, unsigned *version)
{
    CALL_CARD(call, device);
    const struct link *link = call_goes_on(&call, version) ? link_of(&call, number) : NULL;
    if (link != NULL)
        *version = call.card->facts->nvlink_version;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned number, unsigned capability,
                                                    unsigned *has)
{
    enum { PEER_TO_PEER, SYSTEM_MEMORY, PEER_ATOMICS, SYSTEM_ATOMICS, SLI, VALID, CAPABILITIES };
    CALL_CARD(call, device);
    const struct link *link = call_goes_on(&call, has) ? link_of(&call, number) : NULL;
    if (link != NULL && capability >= CAPABILITIES)
        call.result = NVML_ERROR_INVALID_ARGUMENT;
    else if (link != NULL)
        *has = link->active && (capability == PEER_TO_PEER || capability == PEER_ATOMICS || capability == VALID);
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned number, unsigned *type)
{
    CALL_CARD(call, device);
    const struct link *link = call_goes_on(&call, type) ? link_of(&call, number) : NULL;
    if (link != NULL && strcmp(link->kind, "gpu") == 0)
        *type = REMOTE_GPU;
    else if (link != NULL)
        *type = strcmp(link->kind, "switch") == 0 ? REMOTE_SWITCH : REMOTE_UNKNOWN;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned number, nvmlPciInfo_t *info)
{
    CALL_CARD(call, device);
    const struct link *link = call_goes_on(&call, info) ? link_of(&call, number) : NULL;
    if (link != NULL && !link->active)
        call.result = NVML_ERROR_NOT_SUPPORTED; /* nothing is known of the far end of a link that is down */
    else if (link != NULL) {
        memset(info, 0, sizeof *info);
        sscanf(link->remote, "%x:%x:%x", &info->domain, &info->bus, &info->device);
        snprintf(info->busId, sizeof info->busId, "%s", link->remote);
        snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", info->domain & 0xFFFFu,
                 info->bus & 0xFFu, info->device & 0xFFu);
        for (size_t i = 0; i < call.state->card_count; i++)
            if (strcmp(call.state->cards[i].bus_id, link->remote) == 0)
                info->pciDeviceId = call.state->cards[i].facts->device_id;
    }
    return call.result;
}

/* Megabytes a second of one link in one direction, by generation (NVLink 3 and 4, as nvidia-smi nvlink -s shows). */
static unsigned link_speed(const struct model *model)
{
    return model->nvlink_version >= 4 ? 26562 : 25781;
}

/* Answers one question; false when nothing is known of it. */
static bool answer_field(struct call *call, nvmlFieldValue_t *value)
{
    enum { LINK_SPEED_COMMON = 90, LINK_COUNT = 91, LINK_SPEED = 164, LINK_STATE = 165 };
    const struct model *model = call->card->facts;
    if (model->nvlinks == 0)
        return false;
    switch (value->fieldId) {
    case LINK_COUNT:
        value->value.word = model->nvlinks;
        return true;
    case LINK_SPEED_COMMON:
        value->value.word = link_speed(model);
        return true;
    default:
        break;
    }
    const struct link *link = find_link(call->state, call->card, value->scopeId);
    if (link == NULL || (value->fieldId != LINK_SPEED && value->fieldId != LINK_STATE))
        return false;
    value->value.word = value->fieldId == LINK_STATE ? link->active : link->active * link_speed(model);
    return true;
}

/* A list of questions, each with an answer of its own. nvidia-smi asks for links this way. */
NVML_API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    enum { TYPE_UNSIGNED_INT = 1 };
    CALL_CARD(call, device);
    for (int i = 0; call_goes_on(&call, values) && i < count; i++) {
        values[i].valueType = TYPE_UNSIGNED_INT;
        values[i].value.quad = 0;
        values[i].nvmlReturn = answer_field(&call, &values[i]) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    }
    return call.result;
}

static const struct card *other_card(struct call *call, nvmlDevice_t device)
{
    struct handle handle = handle_read(device);
    if (handle.kind == HANDLE_CARD && handle.card < call->state->card_count)
        return &call->state->cards[handle.card];
    call->result = NVML_ERROR_INVALID_ARGUMENT;
    return NULL;
}

static bool are_linked(const struct call *call, const struct card *other)
{
    for (size_t i = 0; i < call->state->link_count; i++) {
        const struct link *link = &call->state->links[i];
        if (link->card != call->card->index || !link->active)
            continue;
        if (strcmp(link->kind, "switch") == 0 ? other->facts == call->card->facts
                                              : strcmp(link->remote, other->bus_id) == 0)
            return true;
    }
    return false;
}

/* Two sockets, each with half of the cards. */
NVML_API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t device2, unsigned *level)
{
    enum { SAME_BOARD = 0, SAME_NODE = 40, SYSTEM = 50 };
    CALL_CARD(call, device);
    const struct card *other = call_goes_on(&call, level) ? other_card(&call, device2) : NULL;
    if (other != NULL) {
        size_t half = (call.state->card_count + 1) / 2;
        bool same_socket = (call.card->index < half) == (other->index < half);
        *level = other == call.card ? SAME_BOARD : same_socket ? SAME_NODE : SYSTEM;
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t device2, unsigned capability,
                                             unsigned *status)
{
    enum { OK = 0, NOT_SUPPORTED = 5, NVLINK = 2 };
    CALL_CARD(call, device);
    const struct card *other = call_goes_on(&call, status) ? other_card(&call, device2) : NULL;
    if (other != NULL)
        *status = are_linked(&call, other) || capability != NVLINK ? OK : NOT_SUPPORTED;
    return call.result;
}
