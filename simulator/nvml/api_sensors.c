/* Load, temperature, power, clocks, fans and the PCIe link. What is not set by hand follows the load. */
#include "load.h"

/* Utilisation of a card in MIG mode is not supported by the real library: it must never look idle. */
static bool read_load(struct call *call, struct load *load)
{
    if (call->result == NVML_SUCCESS && (call->card->mig || call->gi != NULL))
        call->result = NVML_ERROR_NOT_SUPPORTED;
    if (call->result == NVML_SUCCESS)
        *load = load_read(call);
    return call->result == NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    CALL_DEVICE(call, device);
    struct load load;
    if (call_goes_on(&call, rates) && read_load(&call, &load))
        *rates = (nvmlUtilization_t){load.sm, load.memory};
    return call.result;
}

#define NO_CODEC_LOAD(name)                                                                           \
    NVML_API nvmlReturn_t name(nvmlDevice_t device, unsigned *percent, unsigned *period)              \
    {                                                                                                 \
        CALL_DEVICE(call, device);                                                                    \
        struct load load;                                                                             \
        if (call_goes_on(&call, percent) && call_goes_on(&call, period) && read_load(&call, &load)) { \
            *percent = 0;                                                                             \
            *period = 167000; /* microseconds */                                                      \
        }                                                                                             \
        return call.result;                                                                           \
    }
NO_CODEC_LOAD(nvmlDeviceGetEncoderUtilization)
NO_CODEC_LOAD(nvmlDeviceGetDecoderUtilization)
NO_CODEC_LOAD(nvmlDeviceGetJpgUtilization)
NO_CODEC_LOAD(nvmlDeviceGetOfaUtilization)

static unsigned temperature(const struct call *call)
{
    const struct model *model = call->card->facts;
    if (call->card->temperature_c > 0)
        return call->card->temperature_c;
    return model->temp_idle_c + load_read(call).sm * (model->temp_slowdown_c - model->temp_idle_c) / 200;
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *degrees)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, degrees)) {
        if (sensor == 0)
            *degrees = temperature(&call);
        else
            call.result = NVML_ERROR_INVALID_ARGUMENT;
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *reading)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, reading)) {
        if (NVML_VERSION_OF(reading->version) != 1)
            call.result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
        else if (reading->sensorType != 0)
            call.result = NVML_ERROR_INVALID_ARGUMENT;
        else
            reading->temperature = (int32_t)temperature(&call);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned type, unsigned *degrees)
{
    enum { SHUTDOWN, SLOWDOWN, MEMORY_MAX, GPU_MAX };
    CALL_CARD(call, device);
    if (call_goes_on(&call, degrees)) {
        if (type == SHUTDOWN)
            *degrees = call.card->facts->temp_shutdown_c;
        else if (type == SLOWDOWN || type == MEMORY_MAX || type == GPU_MAX)
            *degrees = call.card->facts->temp_slowdown_c;
        else
            call.result = NVML_ERROR_NOT_SUPPORTED;
    }
    return call.result;
}

/* A card without fans of its own, as all server cards, has no fan speed. */
NVML_API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *percent)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, percent)) {
        if (call.card->facts->fans > 0)
            *percent = call.card->fan_percent;
        else
            call.result = NVML_ERROR_NOT_SUPPORTED;
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned fan, unsigned *percent)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, percent)) {
        if (call.card->facts->fans == 0)
            call.result = NVML_ERROR_NOT_SUPPORTED;
        else if (fan >= call.card->facts->fans)
            call.result = NVML_ERROR_INVALID_ARGUMENT;
        else
            *percent = call.card->fan_percent;
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned *count)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, count))
        *count = call.card->facts->fans;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, milliwatts)) {
        unsigned idle = call.card->facts->power_idle_w;
        unsigned most = call.card->power_limit_w > idle ? call.card->power_limit_w : idle;
        *milliwatts = idle * 1000 + load_read(&call).sm * (most - idle) * 10;
    }
    return call.result;
}

#define CARD_VALUE(name, expression)                                 \
    NVML_API nvmlReturn_t name(nvmlDevice_t device, unsigned *value) \
    {                                                                \
        CALL_CARD(call, device);                                     \
        if (call_goes_on(&call, value))                              \
            *value = (expression);                                   \
        return call.result;                                          \
    }

CARD_VALUE(nvmlDeviceGetPowerManagementLimit, call.card->power_limit_w * 1000)
CARD_VALUE(nvmlDeviceGetEnforcedPowerLimit, call.card->power_limit_w * 1000)
CARD_VALUE(nvmlDeviceGetPowerManagementDefaultLimit, call.card->facts->power_limit_w * 1000)
CARD_VALUE(nvmlDeviceGetPowerManagementMode, 1)
CARD_VALUE(nvmlDeviceGetPerformanceState, call.card->facts->fans > 0 && load_read(&call).sm == 0 ? 8 : 0)
CARD_VALUE(nvmlDeviceGetPersistenceMode, call.card->persistence)
CARD_VALUE(nvmlDeviceGetComputeMode, call.card->compute_mode)
CARD_VALUE(nvmlDeviceGetDisplayActive, 0)
CARD_VALUE(nvmlDeviceGetDisplayMode, call.card->facts->fans > 0 ? 1 : 0)
CARD_VALUE(nvmlDeviceGetCurrPcieLinkGeneration, call.card->facts->pcie_gen)
CARD_VALUE(nvmlDeviceGetMaxPcieLinkGeneration, call.card->facts->pcie_gen)
CARD_VALUE(nvmlDeviceGetCurrPcieLinkWidth, call.card->facts->pcie_width)
CARD_VALUE(nvmlDeviceGetMaxPcieLinkWidth, call.card->facts->pcie_width)
CARD_VALUE(nvmlDeviceGetPcieReplayCounter, 0)

NVML_API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *least, unsigned *most)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, least) && call_goes_on(&call, most)) {
        *least = call.card->facts->power_min_w * 1000;
        *most = call.card->facts->power_max_w * 1000;
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned milliwatts)
{
    CALL(call, TARGET_CARD, device, ACCESS_CHANGE);
    if (call.result == NVML_SUCCESS) {
        unsigned watts = milliwatts / 1000;
        if (watts < call.card->facts->power_min_w || watts > call.card->facts->power_max_w)
            call.result = NVML_ERROR_INVALID_ARGUMENT;
        call.card->power_limit_w = watts;
    }
    return call_commit(&call);
}

NVML_API nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned mode)
{
    CALL(call, TARGET_CARD, device, ACCESS_CHANGE);
    if (call.result == NVML_SUCCESS) {
        if (mode > 1)
            call.result = NVML_ERROR_INVALID_ARGUMENT;
        call.card->persistence = mode;
    }
    return call_commit(&call);
}

NVML_API nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned mode)
{
    CALL(call, TARGET_CARD, device, ACCESS_CHANGE);
    if (call.result == NVML_SUCCESS) {
        if (mode > 3)
            call.result = NVML_ERROR_INVALID_ARGUMENT;
        call.card->compute_mode = mode;
    }
    return call_commit(&call);
}

enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO, CLOCK_TYPES };
enum { IDLE_CLOCK_MHZ = 210 };

static unsigned highest_clock(const struct call *call, unsigned type)
{
    const struct model *model = call->card->facts;
    if (type == CLOCK_VIDEO)
        return model->clock_sm_mhz * 9 / 10;
    return type == CLOCK_MEMORY ? model->clock_mem_mhz : model->clock_sm_mhz;
}

NVML_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, mhz)) {
        if (type >= CLOCK_TYPES)
            call.result = NVML_ERROR_INVALID_ARGUMENT;
        else
            *mhz = type == CLOCK_MEMORY || load_read(&call).sm > 0 ? highest_clock(&call, type) : IDLE_CLOCK_MHZ;
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, mhz)) {
        if (type >= CLOCK_TYPES)
            call.result = NVML_ERROR_INVALID_ARGUMENT;
        else
            *mhz = highest_clock(&call, type);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count, unsigned *mhz)
{
    CALL_CARD(call, device);
    if (call.result == NVML_SUCCESS && list_fits(&call, mhz, count, 1))
        mhz[0] = call.card->facts->clock_mem_mhz;
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory_mhz, unsigned *count,
                                                           unsigned *mhz)
{
    CALL_CARD(call, device);
    if (call.result == NVML_SUCCESS && memory_mhz != call.card->facts->clock_mem_mhz)
        call.result = NVML_ERROR_NOT_FOUND;
    if (call.result == NVML_SUCCESS && list_fits(&call, mhz, count, 2)) {
        mhz[0] = call.card->facts->clock_sm_mhz;
        mhz[1] = IDLE_CLOCK_MHZ;
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned counter, unsigned *kilobytes)
{
    CALL_CARD(call, device);
    if (call_goes_on(&call, kilobytes)) {
        if (counter > 1)
            call.result = NVML_ERROR_INVALID_ARGUMENT;
        else
            *kilobytes = 0;
    }
    return call.result;
}
