/* The simulated machine in memory, and its text form (see gpusim/records.py for the other side of it).
 *
 * The text is one record a line. Which fields a record has, and their order, is said once, in the tables of state.c.
 */
#ifndef GPUSIM_STATE_H
#define GPUSIM_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
    MAX_CARDS = 32,
    MAX_MODELS = 16,
    MAX_PROFILES = 96,
    MAX_COMPUTE_PROFILES = 24,
    MAX_LINKS = MAX_CARDS * 18,
    MAX_INSTANCES = MAX_CARDS * 7,
    MAX_FAULTS = 80,
    MAX_SLICES = 8
};

struct driver {
    unsigned loaded;   /* kernel module: 0 or 1 */
    char version[32];  /* of the kernel module */
    char library[32];  /* of this library */
    unsigned cuda;     /* 12040 for 12.4 */
    char seed[64];     /* makes UUIDs */
    unsigned serial;   /* number of the next MIG device ever made */
    char caps[256];    /* folder of the MIG capability nodes */
    char inforom[256]; /* file for what cards remember without power; empty for none */
};

struct model {
    char id[32], name[64];
    unsigned architecture, brand, device_id, subsystem_id, memory_mib, reserved_mib, bar1_mib, sm_count, core_count,
        cc_major, cc_minor, power_limit_w, power_min_w, power_max_w, power_idle_w, temp_idle_c, temp_slowdown_c,
        temp_shutdown_c, clock_sm_mhz, clock_mem_mhz, fans, fan_percent, ecc, nvlinks, nvlink_version, pcie_gen,
        pcie_width;
    char mig_family[16];                         /* empty: no MIG */
    unsigned mig_slices, mig_max, mig_mode_kept; /* memory slices; most instances; mode outlives a reboot */
};

/* A GPU instance profile. `starts` has bit n set when an instance may begin at memory slice n. */
struct profile {
    char family[16];
    unsigned slot, id; /* slot: NVML_GPU_INSTANCE_PROFILE_x; id: what the driver and nvidia-smi call it */
    char name[24];
    unsigned slices, size, starts, max, memory_mib, sm, ce, dec, enc, jpeg, ofa;
};

/* A compute instance profile of GPU instances with `gi_slices` compute slices. */
struct compute_profile {
    unsigned gi_slices, slot, id, slices, starts, max;
};

struct card {
    unsigned index;
    char model[32];
    unsigned minor;
    char uuid[48], serial[24], bus_id[24];
    unsigned mig, mig_pending, persistence, compute_mode, ecc, ecc_corrected, ecc_uncorrected, power_limit_w, busy_sm,
        busy_memory, busy_mib, temperature_c, fan_percent;
    const struct model *facts; /* found by name after reading */
};

struct link {
    unsigned card, number, active;
    char kind[8]; /* gpu, switch or none */
    char remote[24];
};

struct gpu_instance {
    unsigned card, id, profile, start;
};

struct compute_instance {
    unsigned card, gi, id, profile, start;
    char uuid[48];
};

/* A call that fails. `call` may end in an asterisk; `card` is an index or an asterisk. */
struct fault {
    char call[96], card[8];
    unsigned error;
};

struct state {
    struct driver driver;
    struct model models[MAX_MODELS];
    struct profile profiles[MAX_PROFILES];
    struct compute_profile compute_profiles[MAX_COMPUTE_PROFILES];
    struct card cards[MAX_CARDS];
    struct link links[MAX_LINKS];
    struct gpu_instance gpu_instances[MAX_INSTANCES];
    struct compute_instance compute_instances[MAX_INSTANCES];
    struct fault faults[MAX_FAULTS];
    size_t drivers, model_count, profile_count, compute_profile_count, card_count, link_count, gpu_instance_count,
        compute_instance_count, fault_count;
};

/* Reads the text form; the text is changed on the way. False when it is not what it should be. */
bool state_parse(struct state *state, char *text);

/* Writes the text form; the stream tells about errors. */
void state_render(const struct state *state, FILE *stream);

const struct profile *state_profile(const struct state *state, const struct card *card, unsigned id);
struct gpu_instance *state_gpu_instance(struct state *state, unsigned card, unsigned id);
struct compute_instance *state_compute_instance(struct state *state, unsigned card, unsigned gi, unsigned id);

#endif
