/* The placement rules of MIG: what fits where, and where the driver would put it. */
#ifndef GPUSIM_MIG_H
#define GPUSIM_MIG_H

#include "state.h"

enum { MIG_NAME_SIZE = 48 };

/* A place that was asked for, or "wherever the driver likes". */
#define ANY_PLACE (-1)

/* The profile in one of NVML's numbered slots, NULL when the card has none there. */
const struct profile *mig_profile_in_slot(const struct state *state, const struct card *card, unsigned slot);
const struct compute_profile *mig_compute_profile_in_slot(const struct state *state, unsigned gi_slices, unsigned slot);
const struct compute_profile *mig_compute_profile(const struct state *state, unsigned gi_slices, unsigned id);

/* How many more instances of a profile fit as things stand. */
unsigned mig_capacity(const struct state *state, const struct card *card, const struct profile *profile);
unsigned mig_compute_capacity(const struct state *state, const struct gpu_instance *gi,
                              const struct compute_profile *profile);

/* Makes an instance at a place. NULL when it does not fit there. */
struct gpu_instance *mig_create(struct state *state, const struct card *card, const struct profile *profile, int place);
struct compute_instance *mig_compute_create(struct state *state, const struct gpu_instance *gi,
                                            const struct compute_profile *profile, int place);

void mig_destroy(struct state *state, const struct gpu_instance *gi);
void mig_compute_destroy(struct state *state, const struct compute_instance *ci);

/* The instances of a card that programs can be given, in NVML's order: by GPU instance, then by compute instance. */
const struct compute_instance *mig_device(const struct state *state, unsigned card, unsigned index);
unsigned mig_device_index(const struct state *state, const struct compute_instance *ci);

/* `3g.40gb`, and `1c.3g.40gb` for a compute instance narrower than its GPU instance (0 slices: the GPU instance). */
void mig_name(char name[MIG_NAME_SIZE], const struct profile *profile, unsigned compute_slices);

/* Streaming multiprocessors of a compute instance. */
unsigned mig_compute_sm(const struct state *state, const struct card *card, const struct profile *profile,
                        unsigned compute_slices);

#endif
