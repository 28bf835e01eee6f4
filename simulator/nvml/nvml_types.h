/* The binary interface of NVML that clients of libnvidia-ml.so.1 rely on.
 *
 * Written from the public API reference (docs.nvidia.com, NVML API) and from what clients pass, not copied from nvml.h.
 * Names are NVML's own so that the reference can be read beside the code. Every size is asserted: a client passes us
 * memory it laid out itself. Functions have no prototypes here because no program is compiled against this file.
 */
#ifndef GPUSIM_NVML_TYPES_H
#define GPUSIM_NVML_TYPES_H

#include <stddef.h>
#include <stdint.h>

#define NVML_API __attribute__((visibility("default")))

/* The same function under an older name. */
#define NVML_ALIAS(old_name, new_name, arguments) \
    NVML_API nvmlReturn_t old_name arguments __attribute__((alias(#new_name)))

#define ASSERT_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " must be " #bytes " bytes")

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_ALREADY_INITIALIZED = 5,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_INSUFFICIENT_POWER = 8,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_IRQ_ISSUE = 11,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_CORRUPTED_INFOROM = 14,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_DEPRECATED = 26,
    NVML_ERROR_NOT_READY = 27,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_INVALID_STATE = 29,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

/* Handles are opaque to clients and never pointers to memory here: see handle.h. */
typedef struct gpusim_device *nvmlDevice_t;
typedef struct gpusim_gpu_instance *nvmlGpuInstance_t;
typedef struct gpusim_compute_instance *nvmlComputeInstance_t;
typedef struct gpusim_event_set *nvmlEventSet_t;

/* A version word is the size of the structure with the version in the top byte. */
#define NVML_VERSION_OF(word) ((word) >> 24)

typedef struct {
    char busIdLegacy[16];
    uint32_t domain, bus, device;
    uint32_t pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
ASSERT_SIZE(nvmlPciInfo_t, 68);

typedef struct {
    uint32_t version;
    uint32_t domain, bus, device;
    uint32_t pciDeviceId, pciSubSystemId;
    uint32_t baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_t;
ASSERT_SIZE(nvmlPciInfoExt_t, 64);

typedef struct {
    uint64_t total, free, used;
} nvmlMemory_t;
ASSERT_SIZE(nvmlMemory_t, 24);

typedef struct {
    uint32_t version;
    uint64_t total, reserved, free, used;
} nvmlMemory_v2_t;
ASSERT_SIZE(nvmlMemory_v2_t, 40);

typedef struct {
    uint64_t bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;
ASSERT_SIZE(nvmlBAR1Memory_t, 24);

typedef struct {
    uint32_t gpu, memory;
} nvmlUtilization_t;
ASSERT_SIZE(nvmlUtilization_t, 8);

typedef struct {
    uint32_t pid;
    uint64_t usedGpuMemory;
} nvmlProcessInfo_v1_t;
ASSERT_SIZE(nvmlProcessInfo_v1_t, 16);

typedef struct {
    uint32_t pid;
    uint64_t usedGpuMemory;
    uint32_t gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
ASSERT_SIZE(nvmlProcessInfo_t, 24);

typedef struct {
    uint32_t pid;
    uint64_t timeStamp;
    uint32_t smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
ASSERT_SIZE(nvmlProcessUtilizationSample_t, 32);

typedef struct {
    uint32_t version;
    uint32_t sensorType;
    int32_t temperature;
} nvmlTemperature_t;
ASSERT_SIZE(nvmlTemperature_t, 12);

typedef union {
    double real;
    uint32_t word;
    uint64_t quad;
} nvmlValue_t;
ASSERT_SIZE(nvmlValue_t, 8);

typedef struct {
    uint32_t fieldId, scopeId;
    int64_t timestamp, latencyUsec;
    uint32_t valueType, nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;
ASSERT_SIZE(nvmlFieldValue_t, 40);

typedef struct {
    uint32_t multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    uint64_t memorySizeMB;
} nvmlDeviceAttributes_t;
ASSERT_SIZE(nvmlDeviceAttributes_t, 40);

typedef struct {
    uint32_t start, size;
} nvmlGpuInstancePlacement_t;
ASSERT_SIZE(nvmlGpuInstancePlacement_t, 8);
typedef nvmlGpuInstancePlacement_t nvmlComputeInstancePlacement_t;

typedef struct {
    uint32_t id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    uint64_t memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;
ASSERT_SIZE(nvmlGpuInstanceProfileInfo_t, 48);

typedef struct {
    uint32_t version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    uint64_t memorySizeMB;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;
ASSERT_SIZE(nvmlGpuInstanceProfileInfo_v2_t, 152);

typedef struct {
    uint32_t version, id, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount, encoderCount,
        jpegCount, ofaCount;
    uint64_t memorySizeMB;
    char name[96];
    uint32_t capabilities;
} nvmlGpuInstanceProfileInfo_v3_t;
ASSERT_SIZE(nvmlGpuInstanceProfileInfo_v3_t, 152);

typedef struct {
    nvmlDevice_t device;
    uint32_t id, profileId;
    nvmlGpuInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;
ASSERT_SIZE(nvmlGpuInstanceInfo_t, 24);

typedef struct {
    uint32_t id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
        sharedEncoderCount, sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;
ASSERT_SIZE(nvmlComputeInstanceProfileInfo_t, 36);

typedef struct {
    uint32_t version;
    nvmlComputeInstanceProfileInfo_t v1;
    char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;
ASSERT_SIZE(nvmlComputeInstanceProfileInfo_v2_t, 136);

typedef struct {
    nvmlComputeInstanceProfileInfo_v2_t v2;
    uint32_t capabilities;
} nvmlComputeInstanceProfileInfo_v3_t;
ASSERT_SIZE(nvmlComputeInstanceProfileInfo_v3_t, 140);

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    uint32_t id, profileId;
    nvmlComputeInstancePlacement_t placement;
} nvmlComputeInstanceInfo_t;
ASSERT_SIZE(nvmlComputeInstanceInfo_t, 32);

#endif
