// A stand-in for libcuda.so.1, for tests on machines without a GPU: the calls that this project makes.
//
// It runs no machine code: what a kernel does is decided by its name (`run`). Work on a stream is done when it is asked
// for. Time is a clock that kernels set forward. A call that is not in `TABLE` is answered as not there. What a real
// driver refuses is refused here as far as this project can get it wrong, and a kernel that touches memory which is not
// mapped breaks the context. After a kernel that never ends, calls that wait for the GPU never return.
#define _GNU_SOURCE
#include <cuda.h>
#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mix.h"

#ifndef TOTAL_MIB
#define TOTAL_MIB 8192
#endif
#ifndef VERSION
#define VERSION 13000
#endif
enum { SMS = 4, L2 = 1 << 20, OPTIN = 227 << 10, DEFAULT_SHARED = 48 << 10, GRAIN = 2 << 20, ARCH = 90, MAX = 256 };

// ---- Handles: objects in one arena, so that any number can be asked whether it is one.

enum kind { DEAD, CONTEXT = 0x54570001, STREAM, EVENT, PAGES, LIBRARY, CODE, FUNCTION, GRAPH, NODE, EXEC };
typedef struct code {
    enum kind kind;
    struct library *library;
    char *name;
    int count;
    size_t offset[MAX], size[MAX], fixed;
    int value[CU_FUNC_ATTRIBUTE_MAX];
    struct function *function;
} code;
typedef struct function {
    enum kind kind;
    code *code;
} function;
typedef struct library {
    enum kind kind;
    int count;
    code **codes;
} library;
typedef struct stream {
    enum kind kind;
    bool hangs;
} stream;
typedef struct event {
    enum kind kind;
    bool recorded, hangs;
    double ns;
} event;
typedef struct pages {
    enum kind kind;
    size_t size;
    int uses;
} pages;
typedef struct node {
    enum kind kind;
    CUgraphNodeType type;
    int place;
    struct graph *graph, *child;
    CUDA_KERNEL_NODE_PARAMS kernel;
    uint8_t *bytes;
    CUlaunchAttributeValue attribute[32];
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_MEMCPY3D copy;
} node;
typedef struct {
    int from, to;
    CUgraphEdgeData data;
} edge;
typedef struct graph {
    enum kind kind;
    int nodes, edges;
    node **node;
    edge *edge;
} graph;
typedef struct exec {
    enum kind kind;
    graph *graph;
    int *order;
} exec;

static char *arena, *arena_end;
enum { ARENA = 1 << 30 };

static void *made(enum kind kind, size_t size) {
    enum kind *object = (enum kind *)arena_end;
    arena_end += (size + 63) / 64 * 64;
    if (arena_end > arena + ARENA) abort();
    *object = kind;
    return object;
}
static bool is(const void *handle, enum kind kind) {
    const char *at = handle;
    return at >= arena && at < arena_end && !((at - arena) % 64) && *(const enum kind *)at == kind;
}
static void *grown(void *list, int count, size_t size) {  // room for one more
    return count & (count - 1) ? list : realloc(list, (count ? 2 * count : 1) * size);
}

// ---- The state of the only context, and of the memory.

typedef struct {
    uint64_t at;
    size_t size;
    bool open;
    enum { MAPPED, ALLOCATED, HOST } of;
    pages *pages;
} area;
static area areas[1 << 14];
static int area_count;
static uint64_t reserved_at, reserved_size, used;
static CUresult broken;
static bool started, current, hung;
static double now_ns;
static int *context;

#define REFUSE_IF(what, error)               \
    do {                                     \
        if (what) return CUDA_ERROR_##error; \
    } while (0)
#define NEED(handle, kind) REFUSE_IF(!is(handle, kind), INVALID_HANDLE)
#define ENTER                                 \
    do {                                      \
        REFUSE_IF(!started, NOT_INITIALIZED); \
        REFUSE_IF(!current, INVALID_CONTEXT); \
        if (broken) return broken;            \
    } while (0)
#define WAIT                  \
    do {                      \
        while (hung) pause(); \
    } while (0)

static area *area_of(uint64_t at) {
    for (int i = 0; i < area_count; i++)
        if (areas[i].at <= at && at < areas[i].at + areas[i].size) return areas + i;
    return NULL;
}
static bool there(uint64_t at, size_t size) {
    while (size) {
        area *found = area_of(at);
        if (!found || !found->open) return false;
        size_t rest = found->at + found->size - at;
        if (rest >= size) return true;
        at += rest, size -= rest;
    }
    return true;
}
static void forget(area *one) { *one = areas[--area_count]; }
static void drop(pages *one) {
    if (!--one->uses) used -= one->size, one->kind = DEAD;
}
static CUresult allocated(size_t size, int of, uint64_t *at) {
    REFUSE_IF(!size, INVALID_VALUE);
    REFUSE_IF(of == ALLOCATED && used + size > (uint64_t)TOTAL_MIB << 20, OUT_OF_MEMORY);
    void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REFUSE_IF(found == MAP_FAILED, OUT_OF_MEMORY);
    if (of == ALLOCATED) used += size, memset(found, 0xA5, size);  // nobody clears it
    areas[area_count++] = (area){*at = (uint64_t)found, size, true, of, NULL};
    return CUDA_SUCCESS;
}

// ---- What kernels do.

static uint64_t digested(const uint64_t *words, uint64_t count, uint64_t key) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += tilewright_term(words[i], key, i);
    return sum;
}
static CUresult touched(uint64_t at, size_t size, int align) {
    return at % align ? CUDA_ERROR_MISALIGNED_ADDRESS : there(at, size) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}
static void work(uint64_t us) {  // by both clocks; not for long by the host's
    struct timespec start, at;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &at);
    while ((at.tv_sec - start.tv_sec) * 1000000 + (at.tv_nsec - start.tv_nsec) / 1000 <
           (int64_t)(us < 1000 ? us : 1000));
    now_ns += 1000.0 * us;
}
static CUresult run(const code *code, const uint8_t *bytes, stream *on) {
    uint64_t value[4] = {0};
    for (int i = 0; i < code->count && i < 4; i++)
        memcpy(value + i, bytes + code->offset[i], code->size[i] < 8 ? code->size[i] : 8);
    CUresult bad = CUDA_SUCCESS;
    now_ns += 1000;
#define TOUCH(at, size, align) \
    if (!bad) bad = touched(at, size, align)
    if (!strcmp(code->name, "read_all")) {
        TOUCH(value[0], value[1] * 16, 16);
    } else if (!strcmp(code->name, "digest")) {
        TOUCH(value[0], value[1] * 8, 8);
        TOUCH(value[3], 8, 8);
        if (!bad) *(uint64_t *)value[3] += digested((uint64_t *)value[0], value[1], value[2]);
    } else if (!strcmp(code->name, "publish")) {
        TOUCH(value[0], 8, 8);
        TOUCH(value[1], 8, 8);
        if (!bad) *(volatile uint64_t *)value[1] = *(uint64_t *)value[0] | 1, *(uint64_t *)value[0] = 0;
    } else if (!strcmp(code->name, "probe")) {
        TOUCH(value[1], 16, 8);
        if (!bad) ((volatile uint64_t *)value[1])[0] = value[0], ((volatile uint64_t *)value[1])[1] = value[0] / 2;
    } else if (!strcmp(code->name, "fill")) {
        TOUCH(value[0], 4, 4);
        if (!bad) memcpy((void *)value[0], value + 1, 4), work(value[1]);
    } else if (!strcmp(code->name, "trap")) {
        bad = CUDA_ERROR_ILLEGAL_ADDRESS;
    } else if (!strcmp(code->name, "spin")) {
        on->hangs = hung = true;
    }
    return broken = bad;
}
static CUresult launchable(const code *code, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared) {
    REFUSE_IF(!x || !y || !z || !bx || !by || !bz || x > INT32_MAX || y > 65535 || z > 65535, INVALID_VALUE);
    REFUSE_IF((uint64_t)bx * by * bz > 1024 || bz > 64, INVALID_VALUE);
    int most = code->value[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
    REFUSE_IF(shared > (unsigned)most || shared + code->fixed > OPTIN, INVALID_VALUE);
    return CUDA_SUCCESS;
}
static uint8_t *packed(const code *code, void **places) {
    size_t size = 8;
    for (int i = 0; i < code->count; i++)
        if (code->offset[i] + code->size[i] > size) size = code->offset[i] + code->size[i];
    uint8_t *bytes = calloc(1, size);
    for (int i = 0; i < code->count; i++) memcpy(bytes + code->offset[i], places[i], code->size[i]);
    return bytes;
}

// ---- Images: the kernels that a cubin's symbols or PTX's entries name, with their parameters.

static code *coded(library *in, const char *name, size_t length) {
    in->codes = grown(in->codes, in->count, sizeof(code *));
    code *one = in->codes[in->count++] = made(CODE, sizeof(code));
    one->library = in, one->name = strndup(name, length);
    one->value[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    one->value[CU_FUNC_ATTRIBUTE_NUM_REGS] = 16;
    one->value[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    return one;
}
static CUresult read_ptx(library *in, const char *text) {
    for (const char *at = text; (at = strstr(at, ".entry "));) {
        size_t length = strcspn(at += 7, " (\n");
        code *one = coded(in, at, length);
        const char *end = strchr(at, ')'), *param = at + length;
        REFUSE_IF(!end || at[length] != '(', INVALID_PTX);
        for (size_t offset = 0; (param = strstr(param, ".param .")) && param < end; one->count++) {
            size_t size = atoi((param += 8) + 1) / 8, align = size;  // .u64, .b32
            if (!size) align = atoi(param + 6), size = atoi(strchr(param, '[') + 1);  // .align 8 .b8 name[16]
            offset = (offset + align - 1) / align * align;
            one->offset[one->count] = offset, one->size[one->count] = size, offset += size;
        }
    }
    return CUDA_SUCCESS;
}
static CUresult read_cubin(library *in, const char *image) {
    const Elf64_Ehdr *head = (void *)image;
    int arch = (uint8_t)image[EI_ABIVERSION] >= 8 ? head->e_flags >> 8 & 0xFF : head->e_flags & 0xFF;
    REFUSE_IF(head->e_machine != 190, INVALID_IMAGE);
    REFUSE_IF(arch != ARCH, NO_BINARY_FOR_GPU);
    const Elf64_Shdr *sections = (void *)(image + head->e_shoff);
    const char *names = image + sections[head->e_shstrndx].sh_offset;
    for (int s = 0; s < head->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbols = (void *)(image + sections[s].sh_offset);
        for (size_t i = 0; i < sections[s].sh_size / sizeof *symbols; i++) {
            const char *name = image + sections[sections[s].sh_link].sh_offset + symbols[i].st_name;
            if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_other & 0x10)
                coded(in, name, strlen(name));
        }
    }
    for (int c = 0; c < in->count; c++)
        for (int s = 0; s < head->e_shnum; s++) {
            code *one = in->codes[c];
            const char *name = names + sections[s].sh_name;
            if (!strncmp(name, ".nv.shared.", 11) && !strcmp(name + 11, one->name)) one->fixed = sections[s].sh_size;
            if (strncmp(name, ".nv.info.", 9) || strcmp(name + 9, one->name)) continue;
            const uint8_t *at = (void *)(image + sections[s].sh_offset), *end = at + sections[s].sh_size;
            for (; at < end; at += at[0] == 4 ? 4 + (at[2] | at[3] << 8) : 4) {
                if (at[0] != 4 || at[1] != 0x17)
                    continue;  // KPARAM_INFO: u32 index, u16 ordinal, u16 offset, u32 with the size
                uint32_t ordinal = at[8] | at[9] << 8, bits;
                memcpy(&bits, at + 12, 4);
                REFUSE_IF(ordinal >= MAX, INVALID_IMAGE);
                one->offset[ordinal] = at[10] | at[11] << 8, one->size[ordinal] = bits >> 18;
                if ((int)ordinal >= one->count) one->count = ordinal + 1;
            }
        }
    return CUDA_SUCCESS;
}
static CUresult read_image(const void *image, library **out) {
    REFUSE_IF(!image, INVALID_VALUE);
    library *in = made(LIBRARY, sizeof *in);
    bool elf = !memcmp(image,
                       "\x7f"
                       "ELF",
                       4);
    CUresult result = elf                         ? read_cubin(in, image)
                      : strstr(image, ".version") ? read_ptx(in, image)
                                                  : CUDA_ERROR_INVALID_IMAGE;
    for (int i = 0; i < in->count; i++)
        in->codes[i]->value[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = DEFAULT_SHARED - in->codes[i]->fixed;
    *out = in;
    return result;
}
static code *found(library *in, const char *name) {
    for (int i = 0; i < in->count; i++)
        if (!strcmp(in->codes[i]->name, name)) return in->codes[i];
    return NULL;
}
static function *function_of(code *one) {
    if (!one->function) one->function = made(FUNCTION, sizeof(function)), one->function->code = one;
    return one->function;
}
CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    ENTER;
    return read_image(image, (library **)out);
}
CUresult cuLibraryLoadData(CUlibrary *out, const void *image, CUjit_option *a, void **b, unsigned c, CUlibraryOption *d,
                           void **e, unsigned f) {
    ENTER;
    REFUSE_IF(c || f, NOT_SUPPORTED);
    return read_image(image, (library **)out);
}
CUresult cuLibraryUnload(CUlibrary handle) {
    ENTER;
    NEED(handle, LIBRARY);
    WAIT;
    library *in = (void *)handle;
    for (int i = 0; i < in->count; i++) {
        if (in->codes[i]->function) in->codes[i]->function->kind = DEAD;
        in->codes[i]->kind = DEAD;
    }
    in->kind = DEAD;
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
    ENTER;
    NEED(handle, LIBRARY);
    code *one = found((void *)handle, name);
    REFUSE_IF(!one, NOT_FOUND);
    *out = (void *)function_of(one);
    return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name) {
    ENTER;
    NEED(handle, LIBRARY);
    REFUSE_IF(!(*out = (void *)found((void *)handle, name)), NOT_FOUND);
    return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel) {
    ENTER;
    NEED(kernel, CODE);
    *out = (void *)function_of((void *)kernel);
    return CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char **out, CUfunction f) {
    ENTER;
    NEED(f, FUNCTION);
    *out = ((function *)f)->code->name;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *size) {
    ENTER;
    NEED(f, FUNCTION);
    code *one = ((function *)f)->code;
    REFUSE_IF(index >= (size_t)one->count, INVALID_VALUE);
    *offset = one->offset[index];
    if (size) *size = one->size[index];
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *out, CUfunction_attribute which, CUfunction f) {
    ENTER;
    NEED(f, FUNCTION);
    REFUSE_IF(which < 0 || which >= CU_FUNC_ATTRIBUTE_MAX, INVALID_VALUE);
    *out = ((function *)f)->code->value[which];
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute which, int value) {
    ENTER;
    NEED(f, FUNCTION);
    code *one = ((function *)f)->code;
    switch (which) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            REFUSE_IF(value < 0 || value + one->fixed > OPTIN, INVALID_VALUE);
            break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            REFUSE_IF(value < -1 || value > 100, INVALID_VALUE);
            break;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            REFUSE_IF(value != 0 && value != 1, INVALID_VALUE);
            break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    one->value[which] = value;
    return CUDA_SUCCESS;
}

// ---- Device and context.

CUresult cuInit(unsigned flags) {
    REFUSE_IF(flags, INVALID_VALUE);
    if (started) return CUDA_SUCCESS;
    arena = arena_end = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REFUSE_IF(arena == MAP_FAILED, OUT_OF_MEMORY);
    return started = true, CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *out) {
    *out = VERSION;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *out, int number) {
    REFUSE_IF(!started, NOT_INITIALIZED);
    REFUSE_IF(number, INVALID_DEVICE);
    *out = 0;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid *out, CUdevice device) {
    REFUSE_IF(device, INVALID_DEVICE);
    for (int i = 0; i < 16; i++) out->bytes[i] = (char)(0xF0 + i);
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute which, CUdevice device) {
    REFUSE_IF(device, INVALID_DEVICE);
    switch ((int)which) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = ARCH / 10; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *out = ARCH % 10; break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *out = SMS; break;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *out = L2; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *out = OPTIN; break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
    REFUSE_IF(!started, NOT_INITIALIZED);
    REFUSE_IF(device, INVALID_DEVICE);
    if (!context) context = made(CONTEXT, sizeof *context);
    *out = (void *)context;
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext handle) {
    if (handle) { REFUSE_IF(!is(handle, CONTEXT), INVALID_CONTEXT); }
    current = handle;
    return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) {
    ENTER;
    WAIT;
    return CUDA_SUCCESS;
}
CUresult cuCtxResetPersistingL2Cache(void) {
    ENTER;
    return CUDA_SUCCESS;
}
CUresult cuProfilerStart(void) {
    ENTER;
    return CUDA_SUCCESS;
}
CUresult cuProfilerStop(void) {
    ENTER;
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(size_t *free, size_t *total) {
    ENTER;
    *total = (size_t)TOTAL_MIB << 20, *free = *total - used;
    return CUDA_SUCCESS;
}

// ---- Memory.

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t align, CUdeviceptr wish, unsigned long long flags) {
    ENTER;
    REFUSE_IF(!size || size % GRAIN || flags || (align & (align - 1)), INVALID_VALUE);
    REFUSE_IF(reserved_at, NOT_SUPPORTED);  // more than one range
    void *got =
        mmap((void *)wish, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED) got = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REFUSE_IF(got == MAP_FAILED, OUT_OF_MEMORY);
    *out = reserved_at = (uint64_t)got, reserved_size = size;
    return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr at, size_t size) {
    ENTER;
    REFUSE_IF(!reserved_at || at != reserved_at || size != reserved_size, INVALID_VALUE);
    reserved_at = 0;
    return munmap((void *)at, size) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
    ENTER;
    REFUSE_IF(!size || size % GRAIN || flags || !prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED, INVALID_VALUE);
    REFUSE_IF(prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->location.id, INVALID_DEVICE);
    REFUSE_IF(used + size > (uint64_t)TOTAL_MIB << 20, OUT_OF_MEMORY);
    pages *one = made(PAGES, sizeof *one);
    one->size = size, one->uses = 1, used += size;
    *out = (uint64_t)one;
    return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER;
    REFUSE_IF(!is((void *)handle, PAGES), INVALID_VALUE);
    drop((pages *)handle);
    return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    ENTER;
    pages *one = (pages *)handle;
    REFUSE_IF(!is(one, PAGES) || size != one->size || offset || flags || at % GRAIN, INVALID_VALUE);
    REFUSE_IF(at < reserved_at || at + size > reserved_at + reserved_size, INVALID_VALUE);
    for (int i = 0; i < area_count; i++)
        REFUSE_IF(areas[i].at < at + size && at < areas[i].at + areas[i].size, INVALID_VALUE);
    one->uses++;
    areas[area_count++] = (area){at, size, false, MAPPED, one};
    return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *access, size_t count) {
    ENTER;
    area *one = area_of(at);
    REFUSE_IF(count != 1 || !access || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE || access->location.id,
              INVALID_VALUE);
    REFUSE_IF(!one || one->of != MAPPED || one->at != at || one->size != size, INVALID_VALUE);
    one->open = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return mprotect((void *)at, size, one->open ? PROT_READ | PROT_WRITE : PROT_NONE) ? CUDA_ERROR_OUT_OF_MEMORY
                                                                                      : CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr at, size_t size) {
    ENTER;
    area *one = area_of(at);
    REFUSE_IF(!one || one->of != MAPPED || one->at != at || one->size != size, INVALID_VALUE);
    WAIT;
    madvise((void *)at, size, MADV_DONTNEED);
    mprotect((void *)at, size, PROT_NONE);
    drop(one->pages), forget(one);
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr *out, size_t size) {
    ENTER;
    return allocated(size, ALLOCATED, (uint64_t *)out);
}
CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags) {
    ENTER;
    REFUSE_IF(flags & ~7u, INVALID_VALUE);
    return allocated(size, HOST, (uint64_t *)out);
}
CUresult cuMemFree(CUdeviceptr at) {
    ENTER;
    if (!at) return CUDA_SUCCESS;
    area *one = area_of(at);
    REFUSE_IF(!one || one->of != ALLOCATED || one->at != at, INVALID_VALUE);
    WAIT;
    munmap((void *)at, one->size);
    used -= one->size, forget(one);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
    ENTER;
    REFUSE_IF(!from || !there(to, size), INVALID_VALUE);
    WAIT;
    memcpy((void *)to, from, size);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size) {
    ENTER;
    REFUSE_IF(!to || !there(from, size), INVALID_VALUE);
    WAIT;
    memcpy(to, (void *)from, size);
    return CUDA_SUCCESS;
}
CUresult cuMemsetD8(CUdeviceptr at, unsigned char value, size_t size) {
    ENTER;
    REFUSE_IF(!there(at, size), INVALID_VALUE);
    WAIT;
    memset((void *)at, value, size);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream on) {
    ENTER;
    NEED(on, STREAM);
    REFUSE_IF(!there(to, size) || !there(from, size), INVALID_VALUE);
    if (!((stream *)on)->hangs) memmove((void *)to, (void *)from, size), now_ns += 1000;
    return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t size, CUstream on) {
    ENTER;
    NEED(on, STREAM);
    REFUSE_IF(!there(at, size), INVALID_VALUE);
    if (!((stream *)on)->hangs) memset((void *)at, value, size), now_ns += 1000;
    return CUDA_SUCCESS;
}

// ---- Streams and events.

CUresult cuStreamCreate(CUstream *out, unsigned flags) {
    ENTER;
    REFUSE_IF(flags > 1, INVALID_VALUE);
    *out = made(STREAM, sizeof(stream));
    return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream on) {
    ENTER;
    NEED(on, STREAM);
    return ((stream *)on)->hangs ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *out, unsigned flags) {
    ENTER;
    REFUSE_IF(flags > 7, INVALID_VALUE);
    *out = made(EVENT, sizeof(event));
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent handle, CUstream on) {
    ENTER;
    NEED(handle, EVENT);
    NEED(on, STREAM);
    event *one = (void *)handle;
    one->recorded = true, one->hangs = ((stream *)on)->hangs, one->ns = now_ns;
    return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float *out, CUevent start, CUevent end) {
    ENTER;
    NEED(start, EVENT);
    NEED(end, EVENT);
    event *a = (void *)start, *b = (void *)end;
    REFUSE_IF(!a->recorded || !b->recorded, INVALID_HANDLE);
    REFUSE_IF(a->hangs || b->hangs, NOT_READY);
    *out = (float)((b->ns - a->ns) / 1e6);
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream on, void **places, void **extra) {
    ENTER;
    NEED(f, FUNCTION);
    NEED(on, STREAM);
    const code *one = ((function *)f)->code;
    REFUSE_IF(extra || (one->count && !places), INVALID_VALUE);
    CUresult refused = launchable(one, x, y, z, bx, by, bz, shared);
    if (refused || ((stream *)on)->hangs) return refused;
    uint8_t *bytes = packed(one, places);
    run(one, bytes, (void *)on);  // an error shows in the next call
    free(bytes);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **places, void **extra) {
    return cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                          c->sharedMemBytes, c->hStream, places, extra);
}

#include "graphs.c"

// ---- What is there, from which version of CUDA on in this form.

#define HAVE(name, since) {#name, since, (void *)name}
static const struct {
    const char *name;
    int since;
    void *at;
} TABLE[] = {
    HAVE(cuInit, 2000),
    HAVE(cuDriverGetVersion, 2020),
    HAVE(cuDeviceGet, 2000),
    HAVE(cuDeviceGetUuid, 11040),
    HAVE(cuDeviceGetAttribute, 2000),
    HAVE(cuDevicePrimaryCtxRetain, 7000),
    HAVE(cuCtxSetCurrent, 4000),
    HAVE(cuCtxSynchronize, 2000),
    HAVE(cuCtxResetPersistingL2Cache, 11000),
    HAVE(cuProfilerStart, 4000),
    HAVE(cuProfilerStop, 4000),
    HAVE(cuMemGetInfo, 3020),
    HAVE(cuMemAddressReserve, 10020),
    HAVE(cuMemAddressFree, 10020),
    HAVE(cuMemCreate, 10020),
    HAVE(cuMemRelease, 10020),
    HAVE(cuMemMap, 10020),
    HAVE(cuMemSetAccess, 10020),
    HAVE(cuMemUnmap, 10020),
    HAVE(cuMemAlloc, 3020),
    HAVE(cuMemHostAlloc, 2020),
    HAVE(cuMemFree, 3020),
    HAVE(cuMemcpyHtoD, 3020),
    HAVE(cuMemcpyDtoH, 3020),
    HAVE(cuMemsetD8, 3020),
    HAVE(cuMemcpyDtoDAsync, 3020),
    HAVE(cuMemsetD8Async, 3020),
    HAVE(cuStreamCreate, 2000),
    HAVE(cuStreamQuery, 2000),
    HAVE(cuEventCreate, 2000),
    HAVE(cuEventRecord, 2000),
    HAVE(cuEventElapsedTime, 2000),
    HAVE(cuModuleLoadData, 2000),
    HAVE(cuModuleGetFunction, 2000),
    HAVE(cuLibraryLoadData, 12000),
    HAVE(cuLibraryUnload, 12000),
    HAVE(cuLibraryGetKernel, 12000),
    HAVE(cuKernelGetFunction, 12000),
    HAVE(cuFuncGetName, 12030),
    HAVE(cuFuncGetParamInfo, 12040),
    HAVE(cuFuncGetAttribute, 2020),
    HAVE(cuFuncSetAttribute, 9000),
    HAVE(cuLaunchKernel, 4000),
    HAVE(cuLaunchKernelEx, 11060),
    HAVE(cuGraphCreate, 10000),
    HAVE(cuGraphDestroy, 10000),
    HAVE(cuGraphAddKernelNode, 12000),
    HAVE(cuGraphAddMemsetNode, 10000),
    HAVE(cuGraphAddMemcpyNode, 10000),
    HAVE(cuGraphAddEmptyNode, 10000),
    HAVE(cuGraphAddChildGraphNode, 10000),
    HAVE(cuGraphAddDependencies, 12030),
    HAVE(cuGraphGetNodes, 10000),
    HAVE(cuGraphGetEdges, 12030),
    HAVE(cuGraphNodeGetType, 10000),
    HAVE(cuGraphChildGraphNodeGetGraph, 10000),
    HAVE(cuGraphMemsetNodeGetParams, 10000),
    HAVE(cuGraphMemcpyNodeGetParams, 10000),
    HAVE(cuGraphKernelNodeGetParams, 12000),
    HAVE(cuGraphKernelNodeGetAttribute, 11000),
    HAVE(cuGraphKernelNodeSetAttribute, 11000),
    HAVE(cuGraphInstantiateWithFlags, 11040),
    {"cuGraphInstantiate", 12000, (void *)cuGraphInstantiateWithFlags},
    HAVE(cuGraphUpload, 11010),
    HAVE(cuGraphLaunch, 10000),
    HAVE(cuGraphExecDestroy, 10000),
};
CUresult cuGetProcAddress(const char *name, void **out, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *status) {
    *out = NULL;
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++)
        if (!strcmp(TABLE[i].name, name) && version >= TABLE[i].since) *out = TABLE[i].at;
    if (status) *status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
