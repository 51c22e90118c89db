/* The devices that the stand-in has, and what they say of themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/gpu_double/gpu_double.h"

static _Thread_local int current_device;

int double_device(void)
{
    return current_device;
}

void double_make_current(int device)
{
    current_device = device;
}

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? atoi(text) : otherwise;
}

static int device_count(void)
{
    const int count = number("SBP_DOUBLE_DEVICES", 4);
    return count < DOUBLE_DEVICES ? count : DOUBLE_DEVICES;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    MAY_FAIL("cudaGetDeviceCount", cudaErrorInsufficientDriver);
    *count = device_count();
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
    MAY_FAIL("cudaSetDevice", cudaErrorDevicesUnavailable);
    if (device < 0 || device >= device_count())
        return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    FORBID("cudaGetDevice");
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    MAY_FAIL("cudaDeviceGetAttribute", cudaErrorInvalidDevice);
    (void)device;
    const bool is_shared = attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin;
    *value = is_shared ? number("SBP_DOUBLE_SHARED", DOUBLE_SHARED_BYTES) : DOUBLE_MULTIPROCESSORS;
    return is_shared || attribute == cudaDevAttrMultiProcessorCount ? cudaSuccess
                                                                    : cudaErrorInvalidValue;
}

cudaError_t cudaDeviceGetPCIBusId(char *address, int length, int device)
{
    MAY_FAIL("cudaDeviceGetPCIBusId", cudaErrorInvalidDevice);
    (void)snprintf(address, (size_t)length, "0000:%02x:00.0",
                   0x10 + number("SBP_DOUBLE_FIRST", 0) + device);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    MAY_FAIL("cudaGetDeviceProperties", cudaErrorInvalidDevice);
    (void)device;
    memset(properties, 0, sizeof *properties);
    (void)snprintf(properties->name, sizeof properties->name, "%s", DOUBLE_NAME);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    MAY_FAIL("cudaMemGetInfo", cudaErrorIllegalAddress);
    *total_bytes = DOUBLE_MEMORY_BYTES;
    *free_bytes = *total_bytes - double_used_bytes();
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    FORBID("cudaDeviceGetDefaultMemPool");
    (void)device;
    *pool = NULL;
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    MAY_FAIL("cudaMemPoolSetAttribute", cudaErrorNotSupported);
    (void)pool, (void)value;
    return attribute == cudaMemPoolAttrReleaseThreshold ||
                   attribute == cudaMemPoolReuseAllowInternalDependencies
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    FORBID("cudaDriverGetVersion");
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    FORBID("cudaRuntimeGetVersion");
    *version = CUDART_VERSION;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorNotPermitted:
        return "operation not permitted";
    default:
        return "another error of the stand-in";
    }
}
