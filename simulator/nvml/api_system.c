/* Initialisation, versions, error texts, events: calls about no card in particular. */
#include "call.h"

#include <stdio.h>
#include <string.h>

NVML_API nvmlReturn_t nvmlInit_v2(void)
{
    return call_initialise(__func__);
}

NVML_API nvmlReturn_t nvmlInit(void)
{
    return call_initialise(__func__);
}

NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags; /* "no GPUs" and "no attach" change nothing that can be seen here */
    return call_initialise(__func__);
}

NVML_API nvmlReturn_t nvmlShutdown(void)
{
    return call_shut_down(__func__);
}

NVML_API const char *nvmlErrorString(nvmlReturn_t result)
{
    /* The wording nvidia-smi and nvidia-ml-py show; listed in the NVML API reference. */
    static const char *const texts[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_ALREADY_INITIALIZED] = "Already Initialized",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_INSUFFICIENT_POWER] = "Insufficient External Power",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_ERROR_TIMEOUT] = "Timeout",
        [NVML_ERROR_IRQ_ISSUE] = "Interrupt Request Issue",
        [NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
        [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
        [NVML_ERROR_CORRUPTED_INFOROM] = "Corrupted infoROM",
        [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
        [NVML_ERROR_RESET_REQUIRED] = "GPU requires reset",
        [NVML_ERROR_OPERATING_SYSTEM] = "The operating system has blocked the request",
        [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "Driver/library version mismatch",
        [NVML_ERROR_IN_USE] = "In use by another client",
        [NVML_ERROR_MEMORY] = "Insufficient Memory",
        [NVML_ERROR_NO_DATA] = "No data",
        [NVML_ERROR_VGPU_ECC_NOT_SUPPORTED] =
            "Operation is not available on the vGPU host, since the vGPU has ECC enabled",
        [NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
        [NVML_ERROR_FREQ_NOT_SUPPORTED] = "Frequency Not Supported",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument Version Mismatch",
        [NVML_ERROR_DEPRECATED] = "Deprecated",
        [NVML_ERROR_NOT_READY] = "System Not Ready",
        [NVML_ERROR_GPU_NOT_FOUND] = "GPU Not Found",
        [NVML_ERROR_INVALID_STATE] = "Invalid State",
    };
    size_t number = (size_t)result;
    if (number < sizeof texts / sizeof texts[0] && texts[number] != NULL)
        return texts[number];
    return "Unknown Error";
}

NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    CALL_SYSTEM(call);
    if (call_goes_on(&call, version))
        call.result = copy_text(version, length, call.state->driver.version);
    return call.result;
}

/* Debian's libnvidia-ml1 550.163.01 answers this one before nvmlInit too, and without a kernel module. */
NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    CALL_LIBRARY(call);
    if (call_goes_on(&call, version)) {
        char text[64];
        snprintf(text, sizeof text, "%u.%s", call.state->driver.cuda / 1000, call.state->driver.library);
        call.result = copy_text(version, length, text);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    CALL_SYSTEM(call);
    if (call_goes_on(&call, version))
        *version = (int)call.state->driver.cuda;
    return call.result;
}
NVML_ALIAS(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2, (int *version));

NVML_API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    CALL_SYSTEM(call);
    if (call_goes_on(&call, name)) {
        char path[64], text[1024];
        snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
        FILE *stream = fopen(path, "re");
        size_t size = stream == NULL ? 0 : fread(text, 1, sizeof text - 1, stream);
        if (stream != NULL)
            fclose(stream);
        text[size] = '\0'; /* arguments end in zero bytes, so the text ends after the program's name */
        call.result = size == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
        if (size > 0 && length > 0)
            snprintf(name, length, "%s", text);
    }
    return call.result;
}

NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    CALL_SYSTEM(call);
    if (call_goes_on(&call, count))
        *count = (unsigned)call.state->card_count;
    return call.result;
}
NVML_ALIAS(nvmlDeviceGetCount, nvmlDeviceGetCount_v2, (unsigned *count));

NVML_API nvmlReturn_t nvmlUnitGetCount(unsigned *count)
{
    CALL_SYSTEM(call);
    if (call_goes_on(&call, count))
        *count = 0; /* no S-class units: the answer of every ordinary server */
    return call.result;
}

/* nvidia-smi needs a set; no event ever comes. */
NVML_API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    static char token;
    CALL_SYSTEM(call);
    if (call_goes_on(&call, set))
        *set = (nvmlEventSet_t)(void *)&token;
    return call.result;
}

NVML_API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    CALL_SYSTEM(call);
    call_goes_on(&call, set);
    return call.result;
}
