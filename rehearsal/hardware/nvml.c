/* NVML of a rehearsed VM: what /sys/module/nvidia/nvml says at each call, and no GPU behind it.
 *
 * Signatures, structures, return codes, field ids and value types are those of nvml.h (NVIDIA/go-nvml, gen/nvml)
 * and of nvidia-ml-py 13.615. Only the functions that a look at a node and a job's samples call are there, and nvmlDeviceGetMemoryInfo_v2, which
 * nvidia-ml-py calls by choice. What is used is what the state says, not what a program does. nvmlInit, which nvml.h defines as nvmlInit_v2, is left
 * out on purpose: torch.cuda.device_count() calls it by its old name, and would count these GPUs instead of asking CUDA. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, VERSION_MISMATCH = 25 };
enum { MOST_GPUS = 64, NVIDIA = 0x10de, RECOVERY_ACTION = 230, UNSIGNED_INT = 1 };

typedef struct {
    unsigned domain, bus, device, function, id, lost, remaps_rows, remap_failed, persistent, celsius, recovery;
    unsigned utilization, milliwatts;
    unsigned long long double_bit_errors, clock_reasons, memory, memory_used;
} Gpu;

typedef struct {
    unsigned gpu, memory;
} Utilization;

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory2;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

typedef struct {
    unsigned field, scope;
    long long timestamp, latency_usec;
    int value_type, result;
    union {
        unsigned unsigned_int;
        unsigned long long wide;
    } value;
} FieldValue;

static int initialized;
static Gpu gpus[MOST_GPUS];
static char handles[MOST_GPUS]; /* a GPU's handle is the address of its place here */

/* Return the number of GPUs that the driver counts, or less than 0 without a driver. A driver that hangs never
 * returns, as a real one does not while it waits for the GPU. */
static int read_state(void) {
    int hangs = 0, count = 0;
    FILE *file = fopen("/sys/module/nvidia/nvml", "re");
    if (file == NULL) return -1;
    if (fscanf(file, "hangs %d", &hangs) != 1) hangs = 0;
    for (Gpu *gpu = gpus; count < MOST_GPUS; gpu++, count++)
        if (fscanf(file, " %x:%x:%x.%x %x %u %llu %u %u %llu %u %u %u %u %llu %llu %u", &gpu->domain, &gpu->bus,
                   &gpu->device, &gpu->function, &gpu->id, &gpu->lost, &gpu->double_bit_errors, &gpu->remaps_rows,
                   &gpu->remap_failed, &gpu->clock_reasons, &gpu->persistent, &gpu->celsius, &gpu->recovery,
                   &gpu->utilization, &gpu->memory, &gpu->memory_used, &gpu->milliwatts) != 17)
            break;
    fclose(file);
    while (hangs) pause();
    return count;
}

static int find(const void *handle, const void *out, Gpu **gpu) {
    long place = (const char *)handle - handles;
    if (!initialized) return UNINITIALIZED;
    if (out == NULL || place < 0 || place >= read_state()) return INVALID_ARGUMENT;
    *gpu = &gpus[place];
    return (*gpu)->lost ? GPU_IS_LOST : SUCCESS;
}

int nvmlInit_v2(void) {
    if (read_state() < 0) return DRIVER_NOT_LOADED;
    initialized = 1;
    return SUCCESS;
}

int nvmlShutdown(void) {
    int before = initialized;
    initialized = 0;
    return before ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!initialized) return UNINITIALIZED;
    if (count == NULL) return INVALID_ARGUMENT;
    *count = (unsigned)read_state();
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned place, void **handle) {
    Gpu *gpu;
    int result = find(place < MOST_GPUS ? &handles[place] : NULL, handle, &gpu);
    if (result == SUCCESS) *handle = &handles[place];
    return result;
}

int nvmlDeviceGetPciInfo_v3(const void *handle, PciInfo *info) {
    Gpu *gpu;
    int result = find(handle, info, &gpu);
    if (result != SUCCESS) return result;
    memset(info, 0, sizeof *info);
    info->domain = gpu->domain;
    info->bus = gpu->bus;
    info->device = gpu->device;
    info->pci_device_id = gpu->id << 16 | NVIDIA;
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", gpu->domain, gpu->bus, gpu->device);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", gpu->domain, gpu->bus, gpu->device);
    return SUCCESS;
}

/* error type: 0 corrected, 1 uncorrected; counter type: 0 volatile, 1 aggregate */
int nvmlDeviceGetTotalEccErrors(const void *handle, int error_type, int counter_type, unsigned long long *count) {
    Gpu *gpu;
    int result = find(handle, count, &gpu);
    if (result != SUCCESS) return result;
    if (error_type < 0 || error_type > 1 || counter_type < 0 || counter_type > 1) return INVALID_ARGUMENT;
    *count = error_type == 1 ? gpu->double_bit_errors : 0;
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(const void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    Gpu *gpu;
    int result = find(handle, failed, &gpu);
    if (result != SUCCESS) return result;
    if (corrected == NULL || uncorrected == NULL || pending == NULL) return INVALID_ARGUMENT;
    if (!gpu->remaps_rows) return NOT_SUPPORTED;
    *corrected = *pending = 0;
    *uncorrected = *failed = gpu->remap_failed;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(const void *handle, unsigned long long *reasons) {
    Gpu *gpu;
    int result = find(handle, reasons, &gpu);
    if (result == SUCCESS) *reasons = gpu->clock_reasons;
    return result;
}

/* percent of the last sample period: that a kernel ran, that memory was read or written */
int nvmlDeviceGetUtilizationRates(const void *handle, Utilization *rates) {
    Gpu *gpu;
    int result = find(handle, rates, &gpu);
    if (result == SUCCESS) rates->gpu = rates->memory = gpu->utilization;
    return result;
}

int nvmlDeviceGetMemoryInfo(const void *handle, Memory *memory) {
    Gpu *gpu;
    int result = find(handle, memory, &gpu);
    if (result != SUCCESS) return result;
    if (gpu->memory == 0) return NOT_SUPPORTED;
    memory->total = gpu->memory;
    memory->used = gpu->memory_used;
    memory->free = gpu->memory - gpu->memory_used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(const void *handle, Memory2 *memory) {
    Memory first;
    if (memory != NULL && memory->version != (sizeof *memory | 2U << 24)) return VERSION_MISMATCH;
    int result = nvmlDeviceGetMemoryInfo(handle, memory == NULL ? NULL : &first);
    if (result != SUCCESS) return result;
    memory->total = first.total;
    memory->used = first.used;
    memory->free = first.free;
    memory->reserved = 0;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(const void *handle, unsigned *milliwatts) {
    Gpu *gpu;
    int result = find(handle, milliwatts, &gpu);
    if (result == SUCCESS) *milliwatts = gpu->milliwatts;
    return result;
}

int nvmlDeviceGetPersistenceMode(const void *handle, int *mode) {
    Gpu *gpu;
    int result = find(handle, mode, &gpu);
    if (result == SUCCESS) *mode = (int)gpu->persistent;
    return result;
}

int nvmlDeviceGetTemperature(const void *handle, int sensor, unsigned *celsius) {
    Gpu *gpu;
    int result = find(handle, celsius, &gpu);
    if (result != SUCCESS) return result;
    if (sensor != 0) return INVALID_ARGUMENT;
    *celsius = gpu->celsius;
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(const void *handle, int count, FieldValue *values) {
    Gpu *gpu;
    int result = find(handle, values, &gpu);
    if (result != SUCCESS) return result;
    for (FieldValue *one = values; one < values + count; one++) {
        one->result = one->field == RECOVERY_ACTION ? SUCCESS : NOT_SUPPORTED;
        one->value_type = UNSIGNED_INT;
        one->value.wide = one->field == RECOVERY_ACTION ? gpu->recovery : 0;
    }
    return SUCCESS;
}
