/* A stand-in for NVIDIA's libnvidia-ml.so.1 (NVML), for tests: it answers from a text file instead of a driver.
 *
 * Signatures, structure layouts and return codes follow NVIDIA's public nvml.h (releases 11 to 13), as nvidia-ml-py uses
 * them. The state file is named by HANDWASH_FAKE_NVML and is read anew at each call, so a test can change the world while a
 * program looks at it. README.md beside this file has the file's grammar.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 64
#define MAX_MIGS 128
#define MAX_PROCESSES 8192
#define MAX_RULES 128
#define MAX_WORDS 40
#define FOREVER_S 110 /* "for ever" is two minutes at most: nothing of a test outlives it */

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15, OPERATING_SYSTEM = 17, ARGUMENT_VERSION_MISMATCH = 25
};
#define NOT_MIG 0xFFFFFFFFu
#define NOT_AVAILABLE 0xFFFFFFFFFFFFFFFFull

typedef struct { char uuid[96], name[96], serial[32], bus[32]; unsigned minor; uint64_t total, base, used, reserved;
                 int used_is_sum, utilisation, memory_utilisation, mig, temperature, fan, power, power_limit, persistence,
                 compute_mode, encoder, decoder, lost, samples[256], sample_count; } gpu_t;
typedef struct { int gpu; unsigned gi, ci; char uuid[96], name[96]; uint64_t total, used; } mig_t;
typedef struct { int gpu; unsigned pid, gi, ci; uint64_t memory; int kind, while_alive; } process_t;
typedef struct { char what[12], symbol[64]; int number, code, gpu, count, after; double seconds; } rule_t;
typedef struct { char driver[80], version[80]; int cuda, gpu_count, mig_count, process_count, rule_count, layout535;
                 uint64_t holders; gpu_t gpus[MAX_GPUS]; mig_t migs[MAX_MIGS]; process_t processes[MAX_PROCESSES];
                 rule_t rules[MAX_RULES]; } state_t;
enum { COMPUTE, GRAPHICS, MPS };

/* A handle is the address of one of these: it stays the same however often the state is read. */
static struct handle { int gpu, mig; } gpu_handles[MAX_GPUS], mig_handles[MAX_MIGS];
static int initialised;
static int rule_calls[MAX_RULES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread state_t *state;

/* ---- the state file ---------------------------------------------------------------------------------------------- */

static const char *value_of(char **words, int count, const char *key, const char *otherwise) {
    size_t length = strlen(key);
    for (int i = 0; i < count; i++)
        if (!strncmp(words[i], key, length) && words[i][length] == '=') return words[i] + length + 1;
    return otherwise;
}

static uint64_t number_of(char **words, int count, const char *key, uint64_t otherwise) {
    const char *text = value_of(words, count, key, NULL);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

static void copy(char *target, size_t size, const char *text) { snprintf(target, size, "%s", text); }

/* Splits at blanks; a double quote anywhere keeps blanks until the next one, and is dropped. */
static int split(char *line, char **words) {
    int count = 0;
    char *read = line, *write = line;
    while (*read && count < MAX_WORDS) {
        while (*read == ' ' || *read == '\t') read++;
        if (!*read || *read == '\n' || *read == '#') break;
        int quoted = 0;
        words[count++] = write;
        for (; *read && *read != '\n' && (quoted || (*read != ' ' && *read != '\t')); read++) {
            if (*read == '"') quoted = !quoted;
            else *write++ = *read;
        }
        if (*read) read++;
        *write++ = '\0';
    }
    return count;
}

static void read_gpu(char **w, int n, int index) {
    gpu_t *g = &state->gpus[index];
    char text[64];
    if (index >= state->gpu_count) state->gpu_count = index + 1;
    snprintf(text, sizeof text, "GPU-00000000-0000-4000-8000-%012x", index);
    copy(g->uuid, sizeof g->uuid, value_of(w, n, "uuid", text));
    copy(g->name, sizeof g->name, value_of(w, n, "name", "NVIDIA A100-SXM4-80GB"));
    copy(g->serial, sizeof g->serial, value_of(w, n, "serial", "1320000000000"));
    snprintf(text, sizeof text, "00000000:%02X:00.0", 0x10 + index);
    copy(g->bus, sizeof g->bus, value_of(w, n, "bus", text));
    g->minor = (unsigned)number_of(w, n, "minor", (uint64_t)index);
    g->total = number_of(w, n, "memory_total", 85899345920ull);
    g->reserved = number_of(w, n, "memory_reserved", 0);
    g->base = number_of(w, n, "memory_base", 0);
    g->used_is_sum = !strcmp(value_of(w, n, "memory_used", "auto"), "auto");
    g->used = number_of(w, n, "memory_used", 0);
    g->utilisation = (int)number_of(w, n, "utilisation", 0);
    g->memory_utilisation = (int)number_of(w, n, "memory_utilisation", 0);
    g->mig = (int)number_of(w, n, "mig", 0);
    g->temperature = (int)number_of(w, n, "temperature", 34);
    g->fan = (int)number_of(w, n, "fan", (uint64_t)-1);
    g->power = (int)number_of(w, n, "power", 57000);
    g->power_limit = (int)number_of(w, n, "power_limit", 400000);
    g->persistence = (int)number_of(w, n, "persistence", 1);
    g->compute_mode = (int)number_of(w, n, "compute_mode", 0);
    g->encoder = (int)number_of(w, n, "encoder", 0);
    g->decoder = (int)number_of(w, n, "decoder", 0);
    g->lost = (int)number_of(w, n, "lost", 0);
    for (const char *p = value_of(w, n, "samples", ""); *p && g->sample_count < 256; ) {
        g->samples[g->sample_count++] = atoi(p);
        p += strcspn(p, ",");
        p += *p == ',';
    }
}

static void read_process(char **w, int n, int gpu) {
    if (state->process_count == MAX_PROCESSES) return;
    process_t *p = &state->processes[state->process_count++];
    const char *kind = value_of(w, n, "kind", "compute");
    p->gpu = gpu;
    p->pid = (unsigned)number_of(w, n, "pid", 0);
    p->memory = number_of(w, n, "memory", 0);
    if (!strcmp(value_of(w, n, "memory", ""), "unavailable")) p->memory = NOT_AVAILABLE;
    p->gi = (unsigned)number_of(w, n, "gi", NOT_MIG);
    p->ci = (unsigned)number_of(w, n, "ci", NOT_MIG);
    p->kind = !strcmp(kind, "mps") ? MPS : !strcmp(kind, "graphics") ? GRAPHICS : COMPUTE;
    p->while_alive = (int)number_of(w, n, "while_alive", 0);
}

static void read_rule(char **w, int n) {
    if (state->rule_count == MAX_RULES || n < 2) return;
    rule_t *r = &state->rules[state->rule_count];
    r->number = state->rule_count++;
    copy(r->what, sizeof r->what, w[0]);
    copy(r->symbol, sizeof r->symbol, w[1]);
    r->code = n > 2 ? atoi(w[2]) : 0;
    r->seconds = n > 2 ? (!strcmp(w[2], "forever") ? FOREVER_S : atof(w[2])) : 0;
    r->gpu = (int)number_of(w, n, "gpu", (uint64_t)-1);
    r->count = (int)number_of(w, n, "count", 0x7fffffff);
    r->after = (int)number_of(w, n, "after", 0);
}

static int read_state(void) {
    const char *path = getenv("HANDWASH_FAKE_NVML");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return OPERATING_SYSTEM;
    if (!state) state = malloc(sizeof *state);
    if (!state) { fclose(file); return OPERATING_SYSTEM; }
    memset(state, 0, sizeof *state);
    copy(state->driver, sizeof state->driver, "550.54.15");
    copy(state->version, sizeof state->version, "12.550.54.15");
    state->cuda = 12040;
    char line[4096], *w[MAX_WORDS];
    while (fgets(line, sizeof line, file)) {
        int n = split(line, w), index = n > 1 ? atoi(w[1]) : 0;
        if (n < 2) continue;
        if (!strcmp(w[0], "driver")) copy(state->driver, sizeof state->driver, w[1]);
        else if (!strcmp(w[0], "nvml")) copy(state->version, sizeof state->version, w[1]);
        else if (!strcmp(w[0], "cuda")) state->cuda = index;
        else if (!strcmp(w[0], "layout535")) state->layout535 = index;
        else if (!strcmp(w[0], "holders")) state->holders = number_of(w, n, "memory", 1ull << 30);
        else if (!strcmp(w[0], "gpu") && index >= 0 && index < MAX_GPUS) read_gpu(w, n, index);
        else if (!strcmp(w[0], "process")) read_process(w, n, index);
        else if (!strcmp(w[0], "mig") && state->mig_count < MAX_MIGS) {
            mig_t *m = &state->migs[state->mig_count++];
            char text[64];
            m->gpu = index;
            m->gi = (unsigned)number_of(w, n, "gi", 1);
            m->ci = (unsigned)number_of(w, n, "ci", 0);
            snprintf(text, sizeof text, "MIG-00000000-0000-4000-8000-%012x", state->mig_count);
            copy(m->uuid, sizeof m->uuid, value_of(w, n, "uuid", text));
            copy(m->name, sizeof m->name, value_of(w, n, "name", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"));
            m->total = number_of(w, n, "memory_total", 10200547328ull);
            m->used = number_of(w, n, "memory_used", 0);
        } else if (!strcmp(w[0], "fault") || !strcmp(w[0], "delay") || !strcmp(w[0], "crash") || !strcmp(w[0], "grow"))
            read_rule(w, n);
    }
    fclose(file);
    return SUCCESS;
}

/* ---- processes: those of the file, and those that hold a device file open ----------------------------------------- */

static int alive(unsigned pid) {
    char path[64], text[512], *close;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return pid && pid < 0x80000000u && kill((pid_t)pid, 0) && errno == EPERM; /* hidepid hides it, not from a driver */
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    close = strrchr(text, ')'); /* proc(5): the state follows the name, which may hold anything */
    return close && close[1] == ' ' && close[2] != 'Z' && close[2] != 'X';
}

/* With a `holders` line, each process that holds /dev/nvidia-uvm and /dev/nvidia<minor> open is on that GPU. */
static void add_holders(void) {
    DIR *proc = opendir("/proc");
    struct dirent *entry, *fd;
    while (proc && (entry = readdir(proc))) {
        char folder[300], path[600], target[256];
        uint64_t minors = 0;
        int uvm = 0;
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        snprintf(folder, sizeof folder, "/proc/%s/fd", entry->d_name);
        DIR *fds = opendir(folder);
        while (fds && (fd = readdir(fds))) {
            snprintf(path, sizeof path, "%s/%s", folder, fd->d_name);
            ssize_t length = readlink(path, target, sizeof target - 1);
            if (length < 0) continue;
            target[length] = '\0';
            if (!strcmp(target, "/dev/nvidia-uvm")) uvm = 1;
            else if (!strncmp(target, "/dev/nvidia", 11) && isdigit((unsigned char)target[11]) && atoi(target + 11) < 64)
                minors |= 1ull << atoi(target + 11);
        }
        if (fds) closedir(fds);
        for (int g = 0; uvm && g < state->gpu_count && state->process_count < MAX_PROCESSES; g++)
            if (state->gpus[g].minor < 64 && minors >> state->gpus[g].minor & 1)
                state->processes[state->process_count++] = (process_t){
                    .gpu = g, .pid = (unsigned)atoi(entry->d_name), .gi = NOT_MIG, .ci = NOT_MIG, .memory = state->holders};
    }
    if (proc) closedir(proc);
}

static void settle_processes(void) {
    int kept = 0;
    for (int i = 0; i < state->process_count; i++)
        if (!state->processes[i].while_alive || alive(state->processes[i].pid))
            state->processes[kept++] = state->processes[i];
    state->process_count = kept;
    if (state->holders) add_holders();
}

/* ---- what each call begins with: the rules of the file ------------------------------------------------------------ */

static void wait_unbroken(double seconds) {
    /* As in a wedged driver, no signal but SIGKILL gets through. */
    sigset_t all, before;
    struct timespec rest = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (nanosleep(&rest, &rest)) {}
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (seconds >= FOREVER_S) _exit(1);
}

static int applies(rule_t *rule, const char *what, const char *symbol, int gpu) {
    if (strcmp(rule->what, what) || (strcmp(rule->symbol, symbol) && strcmp(rule->symbol, "*"))) return 0;
    if (rule->gpu >= 0 && rule->gpu != gpu) return 0;
    int call = rule_calls[rule->number]++;
    return call >= rule->after && call - rule->after < rule->count;
}

static int enter(const char *symbol, int gpu) {
    pthread_mutex_lock(&lock);
    int result = read_state();
    double pause = 0;
    int crash = 0;
    for (int i = 0; !result && i < state->rule_count; i++) {
        rule_t *rule = &state->rules[i];
        if (applies(rule, "delay", symbol, gpu)) pause = rule->seconds;
        if (applies(rule, "crash", symbol, gpu)) crash = 1;
        if (applies(rule, "fault", symbol, gpu)) result = rule->code;
    }
    pthread_mutex_unlock(&lock);
    if (pause > 0) wait_unbroken(pause);
    if (crash) raise(SIGSEGV);
    if (!result && gpu >= 0 && gpu >= state->gpu_count) result = INVALID_ARGUMENT;
    if (!result && gpu >= 0 && state->gpus[gpu].lost) result = GPU_IS_LOST;
    return result;
}

#define BEGIN(gpu) do { int r_ = enter(__func__, gpu); if (r_) return r_; \
                        if (!initialised) return UNINITIALIZED; } while (0)
#define BEGIN_GPU() if (!h) return INVALID_ARGUMENT; BEGIN(h->gpu); gpu_t *g = &state->gpus[h->gpu]; (void)g
#define NO_MIG() do { if (h->mig >= 0) return INVALID_ARGUMENT; } while (0)
typedef struct handle *device_t;

static int put(char *target, unsigned size, const char *text) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(target, text);
    return SUCCESS;
}

/* ---- system ------------------------------------------------------------------------------------------------------ */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int result = enter(__func__, -1);
    if (!result) initialised++;
    return result;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { BEGIN(-1); initialised--; return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 17: return "The operating system has blocked the request";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) { BEGIN(-1); return put(text, size, state->driver); }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { BEGIN(-1); return put(text, size, state->version); }
int nvmlSystemGetCudaDriverVersion(int *version) { BEGIN(-1); *version = state->cuda; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { BEGIN(-1); *version = state->cuda; return SUCCESS; }

int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size) {
    char path[64], name[64] = "";
    BEGIN(-1);
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "re");
    if (!file) return NOT_FOUND;
    if (fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = '\0';
    fclose(file);
    return put(text, size, name);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

int nvmlDeviceGetCount_v2(unsigned *count) { BEGIN(-1); *count = (unsigned)state->gpu_count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *h) {
    BEGIN((int)(index < MAX_GPUS ? index : MAX_GPUS));
    gpu_handles[index] = (struct handle){(int)index, -1};
    *h = &gpu_handles[index];
    return SUCCESS;
}

static int handle_where(device_t *h, const char *text, int by_bus) {
    for (int i = 0; i < state->gpu_count; i++)
        if (!strcasecmp(by_bus ? state->gpus[i].bus : state->gpus[i].uuid, text)) {
            gpu_handles[i] = (struct handle){i, -1};
            *h = &gpu_handles[i];
            return SUCCESS;
        }
    for (int i = 0; !by_bus && i < state->mig_count; i++)
        if (!strcasecmp(state->migs[i].uuid, text)) {
            mig_handles[i] = (struct handle){state->migs[i].gpu, i};
            *h = &mig_handles[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *h) { BEGIN(-1); return handle_where(h, uuid, 0); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device_t *h) { BEGIN(-1); return handle_where(h, bus, 1); }

int nvmlDeviceGetIndex(device_t h, unsigned *index) { BEGIN_GPU(); NO_MIG(); *index = (unsigned)h->gpu; return SUCCESS; }
int nvmlDeviceGetName(device_t h, char *text, unsigned size) {
    BEGIN_GPU();
    return put(text, size, h->mig >= 0 ? state->migs[h->mig].name : g->name);
}
int nvmlDeviceGetUUID(device_t h, char *text, unsigned size) {
    BEGIN_GPU();
    return put(text, size, h->mig >= 0 ? state->migs[h->mig].uuid : g->uuid);
}
int nvmlDeviceGetSerial(device_t h, char *text, unsigned size) { BEGIN_GPU(); return put(text, size, g->serial); }
int nvmlDeviceGetMinorNumber(device_t h, unsigned *minor) { BEGIN_GPU(); *minor = g->minor; return SUCCESS; }

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
int nvmlDeviceGetPciInfo_v3(device_t h, pci_t *pci) {
    BEGIN_GPU();
    memset(pci, 0, sizeof *pci);
    if (sscanf(g->bus, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3) return INVALID_ARGUMENT;
    pci->id = 0x20B210DE;
    pci->subsystem = 0x147F10DE;
    copy(pci->bus_id, sizeof pci->bus_id, g->bus);
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF, pci->device & 0xFF);
    return SUCCESS;
}

static uint64_t used_of(device_t h) {
    if (h->mig >= 0) return state->migs[h->mig].used;
    gpu_t *g = &state->gpus[h->gpu];
    if (!g->used_is_sum) return g->used;
    settle_processes();
    uint64_t sum = g->base;
    for (int i = 0; i < state->process_count; i++)
        if (state->processes[i].gpu == h->gpu && state->processes[i].memory != NOT_AVAILABLE)
            sum += state->processes[i].memory;
    return sum;
}

typedef struct { uint64_t total, free, used; } memory_t;
int nvmlDeviceGetMemoryInfo(device_t h, memory_t *memory) { /* the old call counts what the driver reserves as used */
    BEGIN_GPU();
    memory->total = h->mig >= 0 ? state->migs[h->mig].total : g->total;
    memory->used = used_of(h) + (h->mig >= 0 ? 0 : g->reserved);
    memory->free = memory->used < memory->total ? memory->total - memory->used : 0;
    return SUCCESS;
}

typedef struct { unsigned version; uint64_t total, reserved, free, used; } memory_v2_t;
int nvmlDeviceGetMemoryInfo_v2(device_t h, memory_v2_t *memory) {
    BEGIN_GPU();
    if (memory->version != (sizeof *memory | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    memory->total = h->mig >= 0 ? state->migs[h->mig].total : g->total;
    memory->reserved = h->mig >= 0 ? 0 : g->reserved;
    memory->used = used_of(h);
    uint64_t taken = memory->used + memory->reserved;
    memory->free = taken < memory->total ? memory->total - taken : 0;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device_t h, unsigned rates[2]) {
    BEGIN_GPU();
    if (h->mig >= 0) return NOT_SUPPORTED;
    rates[0] = g->mig ? 0 : (unsigned)g->utilisation; /* with MIG on, drivers answer 0 or "not supported" */
    rates[1] = (unsigned)g->memory_utilisation;
    return SUCCESS;
}

typedef struct { unsigned long long time; union { double d; unsigned ui; unsigned long long ull; } value; } sample_t;
int nvmlDeviceGetSamples(device_t h, int type, unsigned long long since, int *value_type, unsigned *count, sample_t *samples) {
    BEGIN_GPU();
    if (h->mig >= 0 || g->mig || type != 1 /* GPU utilisation */) return NOT_SUPPORTED;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long now_us = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    unsigned found = 0, room = samples ? *count : 0;
    *value_type = 1; /* unsigned int */
    for (int i = 0; i < g->sample_count; i++) { /* one every sixth of a second, the newest last */
        unsigned long long at = now_us - (unsigned long long)(g->sample_count - i) * 166667;
        if (at <= since) continue;
        if (samples) {
            if (found == room) break;
            samples[found].time = at;
            samples[found].value.ull = 0;
            samples[found].value.ui = (unsigned)g->samples[i];
        }
        found++;
    }
    *count = found;
    return found ? SUCCESS : NOT_FOUND;
}

static int unsigned_or_not(unsigned *target, int value) {
    if (value < 0) return NOT_SUPPORTED;
    *target = (unsigned)value;
    return SUCCESS;
}
#define SIMPLE(symbol, field) int symbol(device_t h, unsigned *value) { BEGIN_GPU(); return unsigned_or_not(value, g->field); }
SIMPLE(nvmlDeviceGetFanSpeed, fan)
SIMPLE(nvmlDeviceGetPowerUsage, power)
SIMPLE(nvmlDeviceGetEnforcedPowerLimit, power_limit)
SIMPLE(nvmlDeviceGetPowerManagementLimit, power_limit)
SIMPLE(nvmlDeviceGetPersistenceMode, persistence)
SIMPLE(nvmlDeviceGetComputeMode, compute_mode)

int nvmlDeviceGetTemperature(device_t h, int sensor, unsigned *value) {
    (void)sensor;
    BEGIN_GPU();
    return unsigned_or_not(value, g->temperature);
}
int nvmlDeviceGetEncoderUtilization(device_t h, unsigned *value, unsigned *period) {
    BEGIN_GPU();
    *period = 167000;
    return unsigned_or_not(value, g->encoder);
}
int nvmlDeviceGetDecoderUtilization(device_t h, unsigned *value, unsigned *period) {
    BEGIN_GPU();
    *period = 167000;
    return unsigned_or_not(value, g->decoder);
}
int nvmlDeviceGetPerformanceState(device_t h, unsigned *value) { BEGIN_GPU(); *value = 0; return SUCCESS; }
int nvmlDeviceGetDisplayActive(device_t h, unsigned *value) { BEGIN_GPU(); *value = 0; return SUCCESS; }
int nvmlDeviceGetDisplayMode(device_t h, unsigned *value) { BEGIN_GPU(); *value = 0; return SUCCESS; }
int nvmlDeviceGetClockInfo(device_t h, int type, unsigned *value) { (void)type; BEGIN_GPU(); *value = 1410; return SUCCESS; }
int nvmlDeviceGetMaxClockInfo(device_t h, int type, unsigned *value) { (void)type; BEGIN_GPU(); *value = 1410; return SUCCESS; }
int nvmlDeviceGetPcieThroughput(device_t h, int counter, unsigned *value) { (void)counter; BEGIN_GPU(); *value = 0; return SUCCESS; }
int nvmlDeviceGetTotalEccErrors(device_t h, int error, int counter, unsigned long long *value) {
    (void)error, (void)counter;
    BEGIN_GPU();
    *value = 0;
    return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(device_t h, int *major, int *minor) {
    BEGIN_GPU();
    *major = 8;
    *minor = 0;
    return SUCCESS;
}
int nvmlDeviceGetBAR1MemoryInfo(device_t h, memory_t *memory) {
    BEGIN_GPU();
    *memory = (memory_t){g->total, g->total, 0};
    return SUCCESS;
}
/* The driver model is a matter of Windows. */
int nvmlDeviceGetDriverModel(device_t h, int *current, int *pending) { (void)current, (void)pending; BEGIN_GPU(); return NOT_SUPPORTED; }
int nvmlDeviceGetDriverModel_v2(device_t h, int *current, int *pending) { (void)current, (void)pending; BEGIN_GPU(); return NOT_SUPPORTED; }
/* Only their presence matters to programs that tell the drivers 535.43 to 535.85 from others by it. */
int nvmlDeviceGetConfComputeMemSizeInfo(device_t h, void *memory) { (void)memory; BEGIN_GPU(); return NOT_SUPPORTED; }
int nvmlDeviceGetRunningProcessDetailList(device_t h, void *list) { (void)list; BEGIN_GPU(); return NOT_SUPPORTED; }
int nvmlDeviceGetProcessUtilization(device_t h, void *samples, unsigned *count, unsigned long long since) {
    (void)samples, (void)since;
    BEGIN_GPU();
    *count = 0;
    return NOT_FOUND;
}

/* ---- MIG --------------------------------------------------------------------------------------------------------- */

int nvmlDeviceGetMigMode(device_t h, unsigned *current, unsigned *pending) {
    BEGIN_GPU();
    *current = *pending = (unsigned)g->mig;
    return SUCCESS;
}
int nvmlDeviceIsMigDeviceHandle(device_t h, unsigned *is) { BEGIN_GPU(); *is = h->mig >= 0; return SUCCESS; }
int nvmlDeviceGetMaxMigDeviceCount(device_t h, unsigned *count) { BEGIN_GPU(); *count = g->mig ? 7 : 0; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(device_t h, unsigned index, device_t *mig) {
    BEGIN_GPU();
    for (int i = 0; i < state->mig_count; i++)
        if (state->migs[i].gpu == h->gpu && !index--) {
            mig_handles[i] = (struct handle){h->gpu, i};
            *mig = &mig_handles[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t h, device_t *parent) {
    BEGIN_GPU();
    gpu_handles[h->gpu] = (struct handle){h->gpu, -1};
    *parent = &gpu_handles[h->gpu];
    return SUCCESS;
}
int nvmlDeviceGetGpuInstanceId(device_t h, unsigned *id) {
    BEGIN_GPU();
    if (h->mig < 0) return NOT_FOUND;
    *id = state->migs[h->mig].gi;
    return SUCCESS;
}
int nvmlDeviceGetComputeInstanceId(device_t h, unsigned *id) {
    BEGIN_GPU();
    if (h->mig < 0) return NOT_FOUND;
    *id = state->migs[h->mig].ci;
    return SUCCESS;
}

/* ---- process lists ----------------------------------------------------------------------------------------------- */

typedef struct { unsigned pid; uint64_t memory; } info_v1_t;
typedef struct { unsigned pid; uint64_t memory; unsigned gi, ci; } info_t;
typedef struct { unsigned pid; uint64_t memory; unsigned gi, ci; uint64_t protected_memory; } info_535_t;

static int on_handle(device_t h, const process_t *p) {
    if (p->gpu != h->gpu) return 0;
    return h->mig < 0 || (p->gi == state->migs[h->mig].gi && p->ci == state->migs[h->mig].ci);
}

static int list(const char *symbol, device_t h, int kind, int version, unsigned *count, void *infos) {
    settle_processes();
    unsigned found = 0, room = infos ? *count : 0;
    for (int i = 0; i < state->process_count; i++)
        found += state->processes[i].kind == kind && on_handle(h, &state->processes[i]);
    if (infos)
        for (int i = 0; i < state->rule_count; i++)
            if (applies(&state->rules[i], "grow", symbol, h->gpu)) { /* processes came between the two calls */
                *count = room + 1;
                return INSUFFICIENT_SIZE;
            }
    *count = found;
    if (found > room) return INSUFFICIENT_SIZE;
    unsigned at = 0;
    for (int i = 0; i < state->process_count; i++) {
        const process_t *p = &state->processes[i];
        if (p->kind != kind || !on_handle(h, p)) continue;
        if (version == 3 && state->layout535)
            ((info_535_t *)infos)[at++] = (info_535_t){p->pid, p->memory, p->gi, p->ci, 0};
        else if (version == 1)
            ((info_v1_t *)infos)[at++] = (info_v1_t){p->pid, p->memory};
        else
            ((info_t *)infos)[at++] = (info_t){p->pid, p->memory, p->gi, p->ci};
    }
    return SUCCESS;
}
#define LIST(symbol, kind, version) int symbol(device_t h, unsigned *count, void *infos) { \
    BEGIN_GPU(); return list(__func__, h, kind, version, count, infos); }
LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTE, 1)
LIST(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, 1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, MPS, 1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, 2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, 3)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, 2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, 3)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, 2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, 3)
