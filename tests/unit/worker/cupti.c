/* Stands for CUPTI: a test lays records down, which come back as activity records do, in buffers that it asks for. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef void (*requested)(uint8_t **buffer, size_t *size, size_t *most);
typedef void (*completed)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

static requested ask;
static completed give;
static uint8_t waiting[1 << 16];
static size_t sizes[1024], count, used, dropped;
static uint32_t version = 130001, enabled;
static int failing;

void stand_in_lay(const uint8_t *record, size_t size) {
    memcpy(waiting + used, record, size);
    used += size;
    sizes[count++] = size;
}
void stand_in_drop(size_t records) { dropped += records; }
void stand_in_version(uint32_t number) { version = number; }
void stand_in_fail(int code) { failing = code; }
uint32_t stand_in_enabled(void) { return enabled; }

int cuptiGetVersion(uint32_t *number) { *number = version; return 0; }
int cuptiActivityRegisterCallbacks(requested first, completed second) { ask = first; give = second; return 0; }
int cuptiActivityEnable(int kind) { enabled |= 1u << kind; return failing; }
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *number) {
    *number = dropped;
    dropped = 0;
    return 0;
}

static size_t kept[16][1024];
static uint8_t *handed[16];

/* Two records a buffer, so that there are several; an empty one at the end. */
int cuptiActivityFlushAll(uint32_t flag) {
    size_t at = 0;
    if (flag != 1)
        return 1;
    for (size_t first = 0; first <= count; first += 2) {
        uint8_t *buffer = NULL;
        size_t size = 0, most = 0, valid = 0;
        ask(&buffer, &size, &most);
        if (!buffer)
            return 8;
        handed[first / 2 % 16] = buffer;
        memset(kept[first / 2 % 16], 0, sizeof kept[0]);
        for (size_t number = first; number < count && number < first + 2; number++) {
            memcpy(buffer + valid, waiting + at, sizes[number]);
            kept[first / 2 % 16][number - first] = sizes[number];
            at += sizes[number];
            valid += sizes[number];
        }
        give(NULL, 0, buffer, size, valid);
    }
    count = used = 0;
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    int which = 0;
    for (int number = 0; number < 16; number++)
        if (handed[number] == buffer)
            which = number;
    size_t at = 0, number = 0;
    if (*record && *record >= buffer && *record < buffer + valid) {
        while (buffer + at <= *record)
            at += kept[which][number++];
    }
    if (at >= valid)
        return 12;
    *record = buffer + at;
    return 0;
}
