#include "state.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum field_type { FIELD_NUMBER, FIELD_TEXT, FIELD_STARTS };

struct field {
    const char *key;
    enum field_type type;
    size_t offset, size;
};

#define FIELD(record, member, type) \
    {#member, type, offsetof(struct record, member), sizeof(((struct record *)0)->member)}
#define NUMBER(record, member) FIELD(record, member, FIELD_NUMBER)
#define TEXT(record, member)   FIELD(record, member, FIELD_TEXT)

static const struct field driver_fields[] = {
    NUMBER(driver, loaded), TEXT(driver, version),  TEXT(driver, library), NUMBER(driver, cuda),
    TEXT(driver, seed),     NUMBER(driver, serial), TEXT(driver, caps),    TEXT(driver, inforom),
};

static const struct field model_fields[] = {
    TEXT(model, id),
    TEXT(model, name),
    NUMBER(model, architecture),
    NUMBER(model, brand),
    NUMBER(model, device_id),
    NUMBER(model, subsystem_id),
    NUMBER(model, memory_mib),
    NUMBER(model, reserved_mib),
    NUMBER(model, bar1_mib),
    NUMBER(model, sm_count),
    NUMBER(model, core_count),
    NUMBER(model, cc_major),
    NUMBER(model, cc_minor),
    NUMBER(model, power_limit_w),
    NUMBER(model, power_min_w),
    NUMBER(model, power_max_w),
    NUMBER(model, power_idle_w),
    NUMBER(model, temp_idle_c),
    NUMBER(model, temp_slowdown_c),
    NUMBER(model, temp_shutdown_c),
    NUMBER(model, clock_sm_mhz),
    NUMBER(model, clock_mem_mhz),
    NUMBER(model, fans),
    NUMBER(model, fan_percent),
    NUMBER(model, ecc),
    NUMBER(model, nvlinks),
    NUMBER(model, nvlink_version),
    NUMBER(model, pcie_gen),
    NUMBER(model, pcie_width),
    TEXT(model, mig_family),
    NUMBER(model, mig_slices),
    NUMBER(model, mig_max),
    NUMBER(model, mig_mode_kept),
};

static const struct field profile_fields[] = {
    TEXT(profile, family),
    NUMBER(profile, slot),
    NUMBER(profile, id),
    TEXT(profile, name),
    NUMBER(profile, slices),
    NUMBER(profile, size),
    FIELD(profile, starts, FIELD_STARTS),
    NUMBER(profile, max),
    NUMBER(profile, memory_mib),
    NUMBER(profile, sm),
    NUMBER(profile, ce),
    NUMBER(profile, dec),
    NUMBER(profile, enc),
    NUMBER(profile, jpeg),
    NUMBER(profile, ofa),
};

static const struct field compute_profile_fields[] = {
    NUMBER(compute_profile, gi_slices),
    NUMBER(compute_profile, slot),
    NUMBER(compute_profile, id),
    NUMBER(compute_profile, slices),
    FIELD(compute_profile, starts, FIELD_STARTS),
    NUMBER(compute_profile, max),
};

static const struct field card_fields[] = {
    NUMBER(card, index),
    TEXT(card, model),
    NUMBER(card, minor),
    TEXT(card, uuid),
    TEXT(card, serial),
    TEXT(card, bus_id),
    NUMBER(card, mig),
    NUMBER(card, mig_pending),
    NUMBER(card, persistence),
    NUMBER(card, compute_mode),
    NUMBER(card, ecc),
    NUMBER(card, ecc_corrected),
    NUMBER(card, ecc_uncorrected),
    NUMBER(card, power_limit_w),
    NUMBER(card, busy_sm),
    NUMBER(card, busy_memory),
    NUMBER(card, busy_mib),
    NUMBER(card, temperature_c),
    NUMBER(card, fan_percent),
};

static const struct field link_fields[] = {
    NUMBER(link, card), NUMBER(link, number), NUMBER(link, active), TEXT(link, kind), TEXT(link, remote),
};

static const struct field gpu_instance_fields[] = {
    NUMBER(gpu_instance, card),
    NUMBER(gpu_instance, id),
    NUMBER(gpu_instance, profile),
    NUMBER(gpu_instance, start),
};

static const struct field compute_instance_fields[] = {
    NUMBER(compute_instance, card),    NUMBER(compute_instance, gi),    NUMBER(compute_instance, id),
    NUMBER(compute_instance, profile), NUMBER(compute_instance, start), TEXT(compute_instance, uuid),
};

static const struct field fault_fields[] = {
    TEXT(fault, call),
    TEXT(fault, card),
    NUMBER(fault, error),
};

/* A kind of record: where its array and count lie in struct state. */
struct kind {
    const char *name;
    const struct field *fields;
    size_t field_count, record_size, array_offset, count_offset, capacity;
};

#define KIND(text, record, array, count, most)           \
    {text,                                               \
     record##_fields,                                    \
     sizeof record##_fields / sizeof record##_fields[0], \
     sizeof(struct record),                              \
     offsetof(struct state, array),                      \
     offsetof(struct state, count),                      \
     most}

/* The order is that of ORDER in gpusim/records.py. */
static const struct kind kinds[] = {
    KIND("driver", driver, driver, drivers, 1),
    KIND("model", model, models, model_count, MAX_MODELS),
    KIND("profile", profile, profiles, profile_count, MAX_PROFILES),
    KIND("ciprofile", compute_profile, compute_profiles, compute_profile_count, MAX_COMPUTE_PROFILES),
    KIND("card", card, cards, card_count, MAX_CARDS),
    KIND("link", link, links, link_count, MAX_LINKS),
    KIND("gi", gpu_instance, gpu_instances, gpu_instance_count, MAX_INSTANCES),
    KIND("ci", compute_instance, compute_instances, compute_instance_count, MAX_INSTANCES),
    KIND("fault", fault, faults, fault_count, MAX_FAULTS),
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool parse_number(const char *text, unsigned *number)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || *end != '\0' || value > UINT_MAX)
        return false;
    *number = (unsigned)value;
    return true;
}

/* "0,2,4" becomes a mask with bits 0, 2 and 4. */
static bool parse_starts(char *text, unsigned *mask)
{
    char *rest = NULL;
    *mask = 0;
    for (char *word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        unsigned start;
        if (!parse_number(word, &start) || start >= MAX_SLICES)
            return false;
        *mask |= 1u << start;
    }
    return *mask != 0;
}

static int hex_digit(char digit)
{
    const char *digits = "0123456789ABCDEF";
    const char *found = digit == '\0' ? NULL : strchr(digits, toupper((unsigned char)digit));
    return found == NULL ? -1 : (int)(found - digits);
}

static bool parse_text(const char *text, char *to, size_t size)
{
    size_t length = 0;
    for (; *text != '\0'; text++) {
        char character = *text;
        if (character == '%') {
            int high = hex_digit(text[1]);
            int low = high < 0 ? -1 : hex_digit(text[2]);
            if (low < 0)
                return false;
            character = (char)(high * 16 + low);
            text += 2;
        }
        if (length + 1 >= size || character == '\0')
            return false;
        to[length++] = character;
    }
    to[length] = '\0';
    return true;
}

static bool parse_field(const struct field *field, char *text, unsigned char *record)
{
    void *place = record + field->offset;
    switch (field->type) {
    case FIELD_NUMBER:
        return parse_number(text, place);
    case FIELD_STARTS:
        return parse_starts(text, place);
    case FIELD_TEXT:
        return parse_text(text, place, field->size);
    }
    return false;
}

/* Every field of the kind must be there, in its order; nothing else may be. */
static bool parse_record(const struct kind *kind, char *text, unsigned char *record)
{
    char *rest = NULL;
    char *word = strtok_r(text, " ", &rest);
    for (size_t i = 0; i < kind->field_count; i++, word = strtok_r(NULL, " ", &rest)) {
        size_t length = strlen(kind->fields[i].key);
        if (word == NULL || strncmp(word, kind->fields[i].key, length) != 0 || word[length] != '=')
            return false;
        if (!parse_field(&kind->fields[i], word + length + 1, record))
            return false;
    }
    return word == NULL;
}

static bool parse_line(struct state *state, char *line)
{
    size_t length = strcspn(line, " ");
    for (size_t i = 0; i < KINDS; i++) {
        const struct kind *kind = &kinds[i];
        if (strlen(kind->name) != length || strncmp(kind->name, line, length) != 0)
            continue;
        size_t *count = (size_t *)(void *)((unsigned char *)state + kind->count_offset);
        unsigned char *array = (unsigned char *)state + kind->array_offset;
        if (*count == kind->capacity || !parse_record(kind, line + length, array + *count * kind->record_size))
            return false;
        *count += 1;
        return true;
    }
    return false;
}

static bool find_models(struct state *state)
{
    for (size_t i = 0; i < state->card_count; i++) {
        struct card *card = &state->cards[i];
        for (size_t j = 0; j < state->model_count; j++)
            if (strcmp(state->models[j].id, card->model) == 0)
                card->facts = &state->models[j];
        if (card->facts == NULL || card->index != i)
            return false;
    }
    return true;
}

bool state_parse(struct state *state, char *text)
{
    char *rest = NULL;
    memset(state, 0, sizeof *state);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        if (!parse_line(state, line))
            return false;
    return state->drivers == 1 && find_models(state);
}

static void render_text(const char *text, FILE *stream)
{
    for (; *text != '\0'; text++)
        if (*text <= ' ' || *text >= 0x7F || *text == '%')
            fprintf(stream, "%%%02X", (unsigned)(unsigned char)*text);
        else
            fputc(*text, stream);
}

static void render_starts(unsigned mask, FILE *stream)
{
    const char *comma = "";
    for (unsigned start = 0; start < MAX_SLICES; start++)
        if (mask & 1u << start) {
            fprintf(stream, "%s%u", comma, start);
            comma = ",";
        }
}

static void render_field(const struct field *field, const unsigned char *record, FILE *stream)
{
    const void *place = record + field->offset;
    fprintf(stream, " %s=", field->key);
    switch (field->type) {
    case FIELD_NUMBER:
        fprintf(stream, "%u", *(const unsigned *)place);
        break;
    case FIELD_STARTS:
        render_starts(*(const unsigned *)place, stream);
        break;
    case FIELD_TEXT:
        render_text(place, stream);
        break;
    }
}

void state_render(const struct state *state, FILE *stream)
{
    for (const struct kind *kind = kinds; kind < kinds + KINDS; kind++) {
        size_t count = *(const size_t *)(const void *)((const unsigned char *)state + kind->count_offset);
        const unsigned char *record = (const unsigned char *)state + kind->array_offset;
        for (; count > 0; count--, record += kind->record_size) {
            fputs(kind->name, stream);
            for (size_t i = 0; i < kind->field_count; i++)
                render_field(&kind->fields[i], record, stream);
            fputc('\n', stream);
        }
    }
}

const struct profile *state_profile(const struct state *state, const struct card *card, unsigned id)
{
    for (size_t i = 0; i < state->profile_count; i++)
        if (state->profiles[i].id == id && strcmp(state->profiles[i].family, card->facts->mig_family) == 0)
            return &state->profiles[i];
    return NULL;
}

struct gpu_instance *state_gpu_instance(struct state *state, unsigned card, unsigned id)
{
    for (size_t i = 0; i < state->gpu_instance_count; i++)
        if (state->gpu_instances[i].card == card && state->gpu_instances[i].id == id)
            return &state->gpu_instances[i];
    return NULL;
}

struct compute_instance *state_compute_instance(struct state *state, unsigned card, unsigned gi, unsigned id)
{
    for (size_t i = 0; i < state->compute_instance_count; i++) {
        struct compute_instance *instance = &state->compute_instances[i];
        if (instance->card == card && instance->gi == gi && instance->id == id)
            return instance;
    }
    return NULL;
}
