/* A library with NVML's functions and two GPUs, one of which is lost, for the tests of its readers. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_info;
typedef struct {
    unsigned int field, scope;
    long long timestamp, latency;
    int type, status;
    union { unsigned int number; unsigned long long large; } value;
} field_value;

static int first;

int nvmlInit_v2(void) { return INIT_STATUS; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    if (index == 1) return 15;
    *device = &first;
    return 0;
}
int nvmlDeviceGetPciInfo_v3(void *device, pci_info *info) {
    if (device != &first) return 2;
    strcpy(info->bus_id, "0000000A:00:00.0");
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count) {
    if (device != &first || type != 1 || counter != 0) return 2;
    if (ECC_STATUS) return ECC_STATUS;
    *count = 5000000000ULL;
    return 0;
}
int nvmlDeviceGetRemappedRows(void *device, unsigned int *corrected, unsigned int *lost, unsigned int *pending,
                              unsigned int *failed) {
    (void)device;
    *corrected = 7, *lost = 8, *pending = 0, *failed = 1;
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    (void)device;
    *reasons = 0x40;
    return 0;
}
typedef struct { unsigned int gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory_info;
int nvmlDeviceGetUtilizationRates(void *device, utilization *rates) {
    if (device != &first) return 2;
    rates->gpu = 97, rates->memory = 40;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory_info *memory) {
    if (device != &first) return 2;
    memory->total = 85899345920ULL, memory->free = 1ULL << 30, memory->used = 84825604096ULL;
    return 0;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts) {
    if (device != &first) return 2;
    if (ECC_STATUS) return 3;
    *milliwatts = 690123;
    return 0;
}
int nvmlDeviceGetPersistenceMode(void *device, int *mode) { (void)device; *mode = 1; return 0; }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *degrees) {
    (void)device;
    if (sensor != 0) return 2;
    *degrees = 55;
    return 0;
}
int nvmlDeviceGetFieldValues(void *device, int count, field_value *values) {
    (void)device;
    if (count != 1 || values->field != 230) return 2;
    values->status = 0;
    values->value.number = 2;
    return 0;
}
