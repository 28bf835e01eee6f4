#include "mig.h"

#include <stdint.h>
#include <string.h>

static unsigned slices(unsigned start, unsigned size)
{
    return ((1u << size) - 1) << start;
}

static unsigned count_bits(unsigned mask)
{
    unsigned count = 0;
    for (; mask != 0; mask &= mask - 1)
        count++;
    return count;
}

const struct profile *mig_profile_in_slot(const struct state *state, const struct card *card, unsigned slot)
{
    for (size_t i = 0; i < state->profile_count; i++)
        if (state->profiles[i].slot == slot && strcmp(state->profiles[i].family, card->facts->mig_family) == 0)
            return &state->profiles[i];
    return NULL;
}

const struct compute_profile *mig_compute_profile_in_slot(const struct state *state, unsigned gi_slices, unsigned slot)
{
    for (size_t i = 0; i < state->compute_profile_count; i++)
        if (state->compute_profiles[i].gi_slices == gi_slices && state->compute_profiles[i].slot == slot)
            return &state->compute_profiles[i];
    return NULL;
}

const struct compute_profile *mig_compute_profile(const struct state *state, unsigned gi_slices, unsigned id)
{
    for (size_t i = 0; i < state->compute_profile_count; i++)
        if (state->compute_profiles[i].gi_slices == gi_slices && state->compute_profiles[i].id == id)
            return &state->compute_profiles[i];
    return NULL;
}

/* What the instances of a card take: memory slices, optical flow accelerators, and how many have the profile. */
struct usage {
    unsigned taken, accelerators, same;
};

static struct usage read_usage(const struct state *state, const struct card *card, const struct profile *profile)
{
    struct usage usage = {0, 0, 0};
    for (size_t i = 0; i < state->gpu_instance_count; i++) {
        const struct gpu_instance *gi = &state->gpu_instances[i];
        const struct profile *other = gi->card == card->index ? state_profile(state, card, gi->profile) : NULL;
        if (other == NULL)
            continue;
        usage.taken |= slices(gi->start, other->size);
        usage.accelerators += other->ofa;
        usage.same += other == profile;
    }
    return usage;
}

/* A card has one set of media extensions, so one +me instance of whatever size. */
static bool is_exhausted(const struct usage *usage, const struct profile *profile)
{
    return usage->same >= profile->max || usage->accelerators + profile->ofa > 1;
}

unsigned mig_capacity(const struct state *state, const struct card *card, const struct profile *profile)
{
    struct usage usage = read_usage(state, card, profile);
    unsigned count = 0;
    for (unsigned start = 0; start < MAX_SLICES; start++) {
        unsigned place = slices(start, profile->size);
        if ((profile->starts & 1u << start) && !(usage.taken & place) && !is_exhausted(&usage, profile)) {
            usage.taken |= place;
            usage.accelerators += profile->ofa;
            usage.same++;
            count++;
        }
    }
    return count;
}

/* Free slices, among those that have a compute slice, of the aligned region of `width` slices around `start`. */
static unsigned free_around(const struct card *card, unsigned taken, unsigned start, unsigned width)
{
    unsigned region = slices(start / width * width, width) & slices(0, card->facts->mig_max);
    return count_bits(region & ~taken);
}

/* The driver fills the fuller half first, then the fuller quarter, then from the left. Inferred from the transcripts
 * of the MIG user guide, all of which it reproduces; see "verify on hardware" in README.md. */
static int choose_place(const struct card *card, const struct profile *profile, unsigned taken)
{
    int best = ANY_PLACE;
    unsigned best_score = 0;
    for (unsigned start = 0; start < MAX_SLICES; start++) {
        if (!(profile->starts & 1u << start) || (taken & slices(start, profile->size)))
            continue;
        unsigned half = free_around(card, taken, start, card->facts->mig_slices / 2);
        unsigned quarter = free_around(card, taken, start, card->facts->mig_slices / 4);
        unsigned score = half << 8 | quarter << 4 | start;
        if (best == ANY_PLACE || score < best_score) {
            best = (int)start;
            best_score = score;
        }
    }
    return best;
}

static bool is_allowed(unsigned starts, int place)
{
    return place >= 0 && place < MAX_SLICES && (starts & 1u << place) != 0;
}

struct gpu_instance *mig_create(struct state *state, const struct card *card, const struct profile *profile, int place)
{
    struct usage usage = read_usage(state, card, profile);
    if (place == ANY_PLACE)
        place = choose_place(card, profile, usage.taken);
    if (!is_allowed(profile->starts, place) || is_exhausted(&usage, profile) ||
        (usage.taken & slices((unsigned)place, profile->size)) || state->gpu_instance_count == MAX_INSTANCES)
        return NULL;
    /* The driver numbers instances as a heap: the whole card 0, its halves 1 and 2, the quarters 3 to 6, ... */
    unsigned id = card->facts->mig_slices / profile->size - 1 + (unsigned)place / profile->size;
    struct gpu_instance *gi = &state->gpu_instances[state->gpu_instance_count++];
    *gi = (struct gpu_instance){card->index, id, profile->id, (unsigned)place};
    return gi;
}

void mig_destroy(struct state *state, const struct gpu_instance *gi)
{
    size_t index = (size_t)(gi - state->gpu_instances);
    state->gpu_instance_count--;
    memmove(&state->gpu_instances[index], &state->gpu_instances[index + 1],
            (state->gpu_instance_count - index) * sizeof *gi);
}

/* Compute slices taken in a GPU instance; counts those with one profile and marks the ids in use. */
static unsigned taken_in(const struct state *state, const struct gpu_instance *gi, unsigned profile, unsigned *same,
                         unsigned *ids)
{
    unsigned taken = 0;
    *same = *ids = 0;
    for (size_t i = 0; i < state->compute_instance_count; i++) {
        const struct compute_instance *ci = &state->compute_instances[i];
        if (ci->card != gi->card || ci->gi != gi->id)
            continue;
        const struct profile *parent = state_profile(state, &state->cards[gi->card], gi->profile);
        const struct compute_profile *own = mig_compute_profile(state, parent->slices, ci->profile);
        taken |= slices(ci->start, own->slices);
        *same += ci->profile == profile;
        *ids |= 1u << ci->id;
    }
    return taken;
}

unsigned mig_compute_capacity(const struct state *state, const struct gpu_instance *gi,
                              const struct compute_profile *profile)
{
    unsigned same, ids, count = 0;
    unsigned taken = taken_in(state, gi, profile->id, &same, &ids);
    for (unsigned start = 0; start < MAX_SLICES; start++)
        if ((profile->starts & 1u << start) && !(taken & slices(start, profile->slices)))
            count++;
    return count;
}

/* Made from the machine's seed and a counter, in the form of a version 5 UUID: a new instance has a new name. */
static void make_uuid(struct state *state, char uuid[48])
{
    uint64_t half[2] = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};
    char text[96];
    snprintf(text, sizeof text, "%s/%u", state->driver.seed, state->driver.serial++);
    for (int i = 0; i < 2; i++) {
        for (const char *c = text; *c != '\0'; c++)
            half[i] = (half[i] ^ (unsigned char)*c) * 0x100000001b3u; /* FNV-1a */
        half[i] ^= half[i] >> 29;
        half[i] *= 0xbf58476d1ce4e5b9u;
        half[i] ^= half[i] >> 32;
    }
    snprintf(uuid, 48, "MIG-%08x-%04x-5%03x-%04x-%012llx", (unsigned)(half[0] >> 32),
             (unsigned)(half[0] >> 16 & 0xFFFF), (unsigned)(half[0] & 0xFFF),
             (unsigned)(half[1] >> 48 & 0x3FFF) | 0x8000u, (unsigned long long)(half[1] & 0xFFFFFFFFFFFFu));
}

struct compute_instance *mig_compute_create(struct state *state, const struct gpu_instance *gi,
                                            const struct compute_profile *profile, int place)
{
    unsigned same, ids, id = 0;
    unsigned taken = taken_in(state, gi, profile->id, &same, &ids);
    for (int start = 0; place == ANY_PLACE && start < MAX_SLICES; start++)
        if (is_allowed(profile->starts, start) && !(taken & slices((unsigned)start, profile->slices)))
            place = start;
    if (!is_allowed(profile->starts, place) || (taken & slices((unsigned)place, profile->slices)) ||
        same >= profile->max || state->compute_instance_count == MAX_INSTANCES)
        return NULL;
    while (ids & 1u << id)
        id++;
    struct compute_instance *ci = &state->compute_instances[state->compute_instance_count++];
    *ci = (struct compute_instance){gi->card, gi->id, id, profile->id, (unsigned)place, ""};
    make_uuid(state, ci->uuid);
    return ci;
}

void mig_compute_destroy(struct state *state, const struct compute_instance *ci)
{
    size_t index = (size_t)(ci - state->compute_instances);
    state->compute_instance_count--;
    memmove(&state->compute_instances[index], &state->compute_instances[index + 1],
            (state->compute_instance_count - index) * sizeof *ci);
}

static bool is_before(const struct compute_instance *one, const struct compute_instance *other)
{
    return one->gi < other->gi || (one->gi == other->gi && one->id < other->id);
}

unsigned mig_device_index(const struct state *state, const struct compute_instance *ci)
{
    unsigned index = 0;
    for (size_t i = 0; i < state->compute_instance_count; i++)
        index += state->compute_instances[i].card == ci->card && is_before(&state->compute_instances[i], ci);
    return index;
}

const struct compute_instance *mig_device(const struct state *state, unsigned card, unsigned index)
{
    for (size_t i = 0; i < state->compute_instance_count; i++) {
        const struct compute_instance *ci = &state->compute_instances[i];
        if (ci->card == card && mig_device_index(state, ci) == index)
            return ci;
    }
    return NULL;
}

void mig_name(char name[MIG_NAME_SIZE], const struct profile *profile, unsigned compute_slices)
{
    if (compute_slices == 0 || compute_slices == profile->slices)
        snprintf(name, MIG_NAME_SIZE, "%s", profile->name);
    else
        snprintf(name, MIG_NAME_SIZE, "%uc.%s", compute_slices, profile->name);
}

unsigned mig_compute_sm(const struct state *state, const struct card *card, const struct profile *profile,
                        unsigned compute_slices)
{
    const struct profile *narrowest = mig_profile_in_slot(state, card, 0);
    if (compute_slices == profile->slices || narrowest == NULL)
        return profile->sm;
    return compute_slices * narrowest->sm;
}
