#include "load.h"

#include "procs.h"

static unsigned percent(unsigned value)
{
    return value > 100 ? 100 : value;
}

struct load load_read(const struct call *call)
{
    struct use uses[MAX_USES];
    size_t count = procs_read(uses, call->card->index, PROCS_OF_ALL_KINDS);
    const struct card *card = call->card;
    struct load load = {0, 0, 0};
    if (call->gi == NULL)
        load = (struct load){(uint64_t)card->busy_mib << 20, card->busy_sm, card->busy_memory};
    for (size_t i = 0; i < count; i++) {
        if (call->gi != NULL && uses[i].gi != (int)call->gi->id)
            continue;
        load.used += (uint64_t)uses[i].mib << 20;
        load.sm += uses[i].sm;
        load.memory += uses[i].memory;
    }
    load.sm = percent(load.sm);
    load.memory = percent(load.memory);
    return load;
}
