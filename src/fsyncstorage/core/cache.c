/* The revisions in the client's cache that are current: one is found, or kept.

The twins are client.cache and client.cachefile, whose objects these are. */

#include "client.h"

#include <stdlib.h>

/* A record of the client's cache: check, previous check, kind, length, oid,
   serial, end; then the body.  The check is a CRC-32 of all behind it, begun
   with the position. */
#define CHECK 4
#define OF_KIND 8
#define OF_LENGTH 9
#define OF_OID 13
#define OF_SERIAL 21
#define HEAD 37
/* A check begins with the rest of the position. */
#define MODULUS 0xffffffffu
/* Of the file. */
#define FILE_HEAD 32
/* So many bytes of records are written together. */
#define TOGETHER (1 << 16)

static uint32_t crc_table[8][256];

void make_crc_table(void)
{
    uint32_t value;
    int number, times;
    for (number = 0; number < 256; number++) {
        value = (uint32_t)number;
        for (times = 0; times < 8; times++)
            value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
        crc_table[0][number] = value;
    }
    for (number = 0; number < 256; number++)
        for (times = 1; times < 8; times++) {
            value = crc_table[times - 1][number];
            crc_table[times][number] = value >> 8 ^ crc_table[0][value & 255];
        }
}

static uint32_t crc32_of(const unsigned char *data, size_t size, uint32_t crc)
{
    crc = ~crc;
    for (; size >= 8; size -= 8, data += 8) {
        crc ^= (uint32_t)data[0] | (uint32_t)data[1] << 8
               | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        crc = crc_table[7][crc & 255] ^ crc_table[6][crc >> 8 & 255]
              ^ crc_table[5][crc >> 16 & 255] ^ crc_table[4][crc >> 24]
              ^ crc_table[3][data[4]] ^ crc_table[2][data[5]]
              ^ crc_table[1][data[6]] ^ crc_table[0][data[7]];
    }
    while (size--)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *data++) & 255];
    return ~crc;
}

/* What is in the page cache is read without leaving the interpreter to another
   thread, which would keep it for longer than that takes. */
static ssize_t read_and_wait(int file, unsigned char *to, size_t size,
                             uint64_t position)
{
    int would_wait = 0;
    ssize_t got = read_at(file, to, size, position, 0, &would_wait);
    if (would_wait || (size_t)got < size) {
        Py_BEGIN_ALLOW_THREADS
        got = read_at(file, to, size, position, 1, &would_wait);
        Py_END_ALLOW_THREADS
    }
    return got;
}

/* Where an index (positions) has an object: the bucket, the name there, and the
   position, or None.  With an error, or without a bucket, some are NULL. */
typedef struct {
    PyObject *bucket, *name, *position;
} Entry;

static Entry entry_of(PyObject *index, const unsigned char *oid)
{
    Entry entry = {NULL, NULL, NULL};
    PyObject *get = its(index, BUCKET), *prefix;
    Py_XINCREF(get);
    prefix = PyBytes_FromStringAndSize((const char *)oid, 6);
    entry.name = PyBytes_FromStringAndSize((const char *)oid + 6, 2);
    if (get && prefix && entry.name)
        entry.bucket = PyObject_CallFunctionObjArgs(get, prefix, NULL);
    if (entry.bucket && entry.bucket != Py_None)
        entry.position = PyObject_CallMethodObjArgs(
            entry.bucket, names[GET], entry.name, NULL);
    Py_XDECREF(prefix);
    Py_XDECREF(get);
    return entry;
}

static void let_go(Entry *entry)
{
    Py_XDECREF(entry->bucket);
    Py_XDECREF(entry->name);
    Py_XDECREF(entry->position);
}

/* Data, serial and None, if this is a sound record of the object, of a serial
   before the tid. */
static PyObject *current(const unsigned char *record, size_t size,
                         uint64_t position, const unsigned char *oid,
                         const unsigned char *tid)
{
    unsigned char serial[8];
    PyObject *data;
    if (record[OF_KIND] != 'D' || get32(record + OF_LENGTH) != size - HEAD
        || memcmp(record + OF_OID, oid, OID)
        || get32(record) != crc32_of(record + CHECK, size - CHECK,
                                     (uint32_t)(position % MODULUS))
        || memcmp(record + OF_SERIAL, tid, 8) >= 0)
        return NULL;
    memcpy(serial, record + OF_SERIAL, 8);
    data = PyBytes_FromStringAndSize((const char *)record + HEAD,
                                     (Py_ssize_t)(size - HEAD));
    /* (A tuple may run Python, which moves the record.) */
    return data ? Py_BuildValue("Ny#O", data, serial, (Py_ssize_t)8, Py_None)
                : NULL;
}

static PyObject *in_tail(PyObject *tail, uint64_t at, uint64_t position,
                         const unsigned char *oid, const unsigned char *tid)
{
    const unsigned char *record = (unsigned char *)PyByteArray_AsString(tail);
    uint64_t has = (uint64_t)PyByteArray_Size(tail);
    if (at > has || has - at < HEAD
        || has - at - HEAD < get32(record + at + OF_LENGTH))
        return NULL;
    record += at;
    return current(record, HEAD + (size_t)get32(record + OF_LENGTH), position,
                   oid, tid);
}

static PyObject *in_file(int file, uint64_t place, uint64_t longest,
                         uint64_t position, const unsigned char *oid,
                         const unsigned char *tid)
{
    unsigned char block[AT_ONCE], *record = block;
    PyObject *result = NULL;
    ssize_t got = read_and_wait(file, block, sizeof block, place);
    size_t size;
    if (got < HEAD || get32(block + OF_LENGTH) > longest)
        return NULL;
    size = HEAD + (size_t)get32(block + OF_LENGTH);
    if (size > (size_t)got) {
        record = malloc(size);
        if (!record)
            return NULL;
        got = read_and_wait(file, record, size, place);
    }
    if (got >= (ssize_t)size)
        result = current(record, size, position, oid, tid);
    if (record != block)
        free(record);
    return result;
}

/* Is no revision known that was current before the tid?  The current one is
   not; the ends of others come behind their tids. */
static int is_missing_before(PyObject *cache, const unsigned char *oid,
                             PyObject *tid)
{
    PyObject *last = its(cache, LAST_TID), *ended = its(cache, ENDED), *found;
    unsigned char bounds[2][OID + 8];
    Py_ssize_t count;
    if (!last || !ended)
        return 0;
    if (memcmp(PyBytes_AsString(tid), PyBytes_AsString(last), 8) > 0)
        return 1;
    memcpy(bounds[0], oid, OID);
    memcpy(bounds[0] + OID, PyBytes_AsString(tid), 8);
    memcpy(bounds[1], oid, OID);
    memset(bounds[1] + OID, 0xff, 8);
    bounds[1][OID] = 0x7f;
    found = PyObject_CallMethod(ended, "keys", "y#y#", bounds[0],
                                (Py_ssize_t)(OID + 8), bounds[1],
                                (Py_ssize_t)(OID + 8));
    count = found ? PyObject_Size(found) : -1;
    Py_XDECREF(found);
    return !count;
}

/* The cache's lock is not taken: nothing is changed here but a count, and what
   is overwritten meanwhile does not check. */
PyObject *hit(PyObject *cache, PyObject *oid_object, PyObject *tid_object,
              int *is_missing)
{
    const unsigned char *oid = (unsigned char *)PyBytes_AsString(oid_object);
    const unsigned char *tid = (unsigned char *)PyBytes_AsString(tid_object);
    PyObject *file, *tail, *result;
    Entry entry;
    int is_here;
    uint64_t position, tail_at, ring, end, longest;
    int descriptor;
    entry = entry_of(its(cache, CURRENT), oid);
    is_here = entry.position && entry.position != Py_None;
    position = is_here ? get48((unsigned char *)PyBytes_AsString(
                                   entry.position)) : 0;
    let_go(&entry);
    if (!is_here) {
        if (!PyErr_Occurred())
            *is_missing = is_missing_before(cache, oid, tid_object);
        return NULL;
    }
    file = its(cache, ITS_FILE);
    if (!file || file == Py_None)
        return NULL;
    tail = its(file, TAIL);
    tail_at = number(file, TAIL_AT);
    ring = number(file, RING);
    end = number(file, END);
    longest = number(file, LONGEST_BODY);
    descriptor = (int)number(file, DESCRIPTOR);
    if (PyErr_Occurred() || end - position > ring / 4 * 3)
        return NULL; /* An old one is written again. */
    Py_INCREF(file);
    result = position >= tail_at
                 ? in_tail(tail, position - tail_at, position, oid, tid)
                 : in_file(descriptor, FILE_HEAD + position % ring, longest,
                           position, oid, tid);
    /* (While it was read, it may have been closed, and another one opened.) */
    if (result && (number(file, DESCRIPTOR) != (uint64_t)descriptor
                   || set_number(cache, HITS, number(cache, HITS) + 1)))
        Py_CLEAR(result);
    Py_DECREF(file);
    return result;
}

/* Append DATA to what is not written yet; the check of it. */
static uint32_t append(PyObject *tail, uint64_t position, uint32_t previous,
                       const unsigned char *oid, const unsigned char *serial,
                       const unsigned char *data, size_t length)
{
    Py_ssize_t begin = PyByteArray_Size(tail);
    unsigned char *record;
    uint32_t check;
    if (PyByteArray_Resize(tail, begin + HEAD + (Py_ssize_t)length))
        return 0;
    record = (unsigned char *)PyByteArray_AsString(tail) + begin;
    put32(record + CHECK, previous);
    record[OF_KIND] = 'D';
    put32(record + OF_LENGTH, (uint32_t)length);
    memcpy(record + OF_OID, oid, OID);
    memcpy(record + OF_SERIAL, serial, 8);
    memset(record + OF_SERIAL + 8, 0, 8);
    memcpy(record + HEAD, data, length);
    check = crc32_of(record + CHECK, HEAD - CHECK + length,
                     (uint32_t)(position % MODULUS));
    put32(record, check);
    return check;
}

int keep(PyObject *cache, PyObject *oid_object, const unsigned char *serial,
         const unsigned char *data, size_t length)
{
    const unsigned char *oid = (unsigned char *)PyBytes_AsString(oid_object);
    PyObject *file, *tail, *told, *position;
    unsigned char six[6];
    uint64_t end, calls = number(cache, CALLS);
    /* This may run Python: a finaliser that changes the cache. */
    Entry entry = entry_of(its(cache, CURRENT), oid);
    uint32_t check;
    int done = 0;
    file = its(cache, ITS_FILE);
    if (entry.position != Py_None || !file || file == Py_None
        || number(cache, CALLS) != calls)
        goto over;
    end = number(file, END);
    tail = its(file, TAIL);
    told = its(file, TOLD);
    if (PyErr_Occurred() || memcmp(serial, PyBytes_AsString(told), 8) > 0
        || end + HEAD + length > number(file, SEGMENT_END)
        || end >= number(cache, BATCH_END)
        || PyByteArray_Size(tail) >= TOGETHER)
        goto over;
    put48(six, end);
    position = PyBytes_FromStringAndSize((const char *)six, 6);
    if (position) {
        check = append(tail, end, (uint32_t)number(file, LAST_CHECK), oid,
                       serial, data, length);
        done = !PyErr_Occurred() && !set_number(file, LAST_CHECK, check)
               && !set_number(file, END, end + HEAD + length)
               && !PyObject_SetItem(entry.bucket, entry.name, position)
               && !PyList_Append(its(cache, OIDS), oid_object)
               /* Of changes, as in client.cache. */
               && !set_number(cache, CALLS, calls + 1);
    }
    Py_XDECREF(position);
over:
    let_go(&entry);
    return done;
}
