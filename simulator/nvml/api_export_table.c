/* nvmlInternalGetExportTable: the undocumented table that nvidia-smi calls through.
 *
 * What is known comes from watching nvidia-smi 535, 550 and 580 call into stand-in libraries, and from NVIDIA's own
 * Apache-2.0 mock (NVIDIA/k8s-test-infra, pkg/gpu/mocknvml); nothing was disassembled. The table is an array of
 * pointers whose first entry is its size in bytes. A slot nobody understood answers "not supported" and must not write
 * through its arguments: at least one of them passes a number where others pass a pointer.
 */
#include "call.h"
#include "procs.h"

#include <string.h>

enum { TABLE_SLOTS = 512 };
enum {
    SLOT_TOPOLOGY = 23,
    SLOT_LOG = 26,
    SLOT_HANDLE_BY_INDEX = 81,
    SLOT_COMPUTE = 213,
    SLOT_MPS = 214,
    SLOT_GRAPHICS = 215
};

/* One row of nvidia-smi's list of processes; a row without a name is not shown. */
struct process_row {
    uint32_t pid, padding;
    uint64_t memory;
    uint32_t gi, ci;
    uint64_t unknown;
    char name[4096];
};
ASSERT_SIZE(struct process_row, 4128);
_Static_assert(offsetof(struct process_row, name) == 32, "nvidia-smi reads the name at byte 32");

static nvmlReturn_t slot_unknown(void)
{
    return NVML_ERROR_NOT_SUPPORTED;
}

/* Takes a format and its arguments; called all the time. */
static nvmlReturn_t slot_nothing(void)
{
    return NVML_SUCCESS;
}

static nvmlReturn_t slot_handle_by_index(unsigned index, nvmlDevice_t *device, unsigned flags)
{
    CALL_SYSTEM(call);
    (void)flags;
    if (call_goes_on(&call, device)) {
        call.result = index < call.state->card_count ? call_card_fault(&call, index) : NVML_ERROR_INVALID_ARGUMENT;
        if (call.result == NVML_SUCCESS)
            *device = handle_make(HANDLE_CARD, index, 0, 0);
    }
    return call.result;
}

/* Command line with spaces between the arguments, as nvidia-smi shows it. */
static void read_name(unsigned pid, char *name, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *stream = fopen(path, "re");
    size_t length = stream == NULL ? 0 : fread(name, 1, size - 1, stream);
    if (stream != NULL)
        fclose(stream);
    name[length] = '\0';
    for (size_t i = 0; i + 1 < length; i++)
        if (name[i] == '\0')
            name[i] = ' ';
}

static nvmlReturn_t list_rows(nvmlDevice_t device, unsigned *count, struct process_row *rows, char kind)
{
    CALL_DEVICE(call, device);
    struct use uses[MAX_USES];
    size_t all = call.result == NVML_SUCCESS ? procs_read(uses, call.card->index, kind) : 0, available = 0;
    for (size_t i = 0; i < all; i++) {
        bool inside = call.ci == NULL || (uses[i].gi == (int)call.ci->gi && uses[i].ci == (int)call.ci->id);
        if (inside)
            uses[available++] = uses[i];
    }
    if (!list_fits(&call, rows, count, available))
        return call.result;
    for (size_t i = 0; i < available; i++) {
        memset(&rows[i], 0, sizeof rows[i]);
        rows[i].pid = (uint32_t)uses[i].pid;
        rows[i].memory = (uint64_t)uses[i].mib << 20;
        rows[i].gi = (uint32_t)uses[i].gi; /* -1 becomes "none" */
        rows[i].ci = (uint32_t)uses[i].ci;
        read_name(rows[i].pid, rows[i].name, sizeof rows[i].name);
    }
    return call.result;
}

static nvmlReturn_t slot_compute(nvmlDevice_t device, unsigned *count, struct process_row *rows)
{
    return list_rows(device, count, rows, 'C');
}

static nvmlReturn_t slot_mps(nvmlDevice_t device, unsigned *count, struct process_row *rows)
{
    return list_rows(device, count, rows, 'M');
}

static nvmlReturn_t slot_graphics(nvmlDevice_t device, unsigned *count, struct process_row *rows)
{
    return list_rows(device, count, rows, 'G');
}

typedef void (*any_function)(void);

static struct {
    uintptr_t size;
    any_function slots[TABLE_SLOTS - 1];
} table;

static void fill(unsigned slot, any_function function)
{
    table.slots[slot - 1] = function;
}

__attribute__((constructor)) static void fill_table(void)
{
    table.size = sizeof table;
    for (unsigned slot = 1; slot < TABLE_SLOTS; slot++)
        fill(slot, (any_function)slot_unknown);
    fill(SLOT_TOPOLOGY, (any_function)slot_nothing);
    fill(SLOT_LOG, (any_function)slot_nothing);
    fill(SLOT_HANDLE_BY_INDEX, (any_function)slot_handle_by_index);
    fill(SLOT_COMPUTE, (any_function)slot_compute);
    fill(SLOT_MPS, (any_function)slot_mps);
    fill(SLOT_GRAPHICS, (any_function)slot_graphics);
}

/* A table is named by a UUID; there is one that nvidia-smi asks for. */
NVML_API nvmlReturn_t nvmlInternalGetExportTable(const void **answer, const unsigned char *uuid)
{
    if (answer == NULL || uuid == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    /* 6c3efec4-8fc9-4e6c-a327-ee696e12f7c4, its first three parts with the least byte first */
    static const unsigned char known[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                            0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    if (memcmp(uuid, known, sizeof known) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *answer = &table;
    return NVML_SUCCESS;
}
