/* The data file of a server, read by its object map.

The twin is format.source, with format.objectmap: it has the reasons.  Any
thread may use a source at any time; what is told of the chunks of the map is
kept in a table that only grows. */

#define _GNU_SOURCE
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#if !(defined(__linux__) && UINTPTR_MAX > 0xffffffffu)
#error "The map needs a 64-bit Linux."
#endif

#ifndef F_GET_SEALS
#define F_GET_SEALS (1024 + 10)
#define F_SEAL_SHRINK 2
#endif
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

/* The map, in words of 8 bytes of this machine. */
enum { MAGIC, CAPACITY, DEVICE, INODE, INSTANCE, END = 6, DURABLE, RETIRED,
       ANNOUNCED };
#define MAGIC_WORD 0x46534d4150000003u /* FSMAP, and the version */
#define DIRECTORY 512
#define CHUNK 512
#define CHUNK_BITS 9
#define MOST_CHUNKS (1u << 22)

/* Of a record: oid, tid, previous position, position of the transaction,
   length of a version's name, length of the data. */
#define HEADER 42
#define TID_AT 8
#define PREVIOUS_AT 16
#define LENGTH_AT 34

/* After so many loads, offer the processor to others. */
#define TURN 64

typedef _Atomic(uint64_t) Word;

struct source {
    PyObject_HEAD
    int file;
    int reads_all;
    Word *words;
    size_t size;
    uint64_t capacity;
    /* The chunks that were seen, by a hash of what they are for: their numbers
       plus 1, or 0.  It has twice as many places as there can be chunks. */
    _Atomic(uint32_t) *table;
    uint64_t mask;
    _Atomic(uint64_t) seen;
    pthread_mutex_t learning;
    _Atomic(unsigned) loads;
};

static uint64_t word(Source *source, size_t number)
{
    return atomic_load_explicit(&source->words[number], memory_order_acquire);
}

int source_is_retired(Source *source)
{
    return word(source, RETIRED) != 0;
}

uint64_t source_announced(Source *source)
{
    return word(source, ANNOUNCED);
}

/* Chunks */

static uint64_t place_of(Source *source, uint64_t prefix)
{
    return (prefix * 0x9e3779b97f4a7c15u) >> 20 & source->mask;
}

/* The number of the chunk plus 1; 0: it was not seen. */
static uint32_t look_up(Source *source, uint64_t prefix)
{
    uint64_t at = place_of(source, prefix);
    uint32_t chunk;
    while ((chunk = atomic_load_explicit(&source->table[at],
                                         memory_order_acquire))) {
        if (word(source, DIRECTORY + chunk - 1) == prefix + 1)
            return chunk;
        at = (at + 1) & source->mask;
    }
    return 0;
}

static void learn(Source *source)
{
    uint64_t seen, prefix, at;
    pthread_mutex_lock(&source->learning);
    seen = atomic_load(&source->seen);
    while (seen < source->capacity
           && (prefix = word(source, DIRECTORY + seen))) {
        at = place_of(source, prefix - 1);
        while (atomic_load(&source->table[at]))
            at = (at + 1) & source->mask;
        atomic_store_explicit(&source->table[at], (uint32_t)++seen,
                              memory_order_release);
    }
    atomic_store(&source->seen, seen);
    pthread_mutex_unlock(&source->learning);
}

/* The position of the newest record of an object; 0: it is not known. */
static uint64_t position_of(Source *source, const unsigned char *oid)
{
    uint64_t number = get64(oid), prefix = number >> CHUNK_BITS, seen;
    uint32_t chunk = look_up(source, prefix);
    if (!chunk) {
        seen = atomic_load(&source->seen);
        if (seen >= source->capacity || !word(source, DIRECTORY + seen))
            return 0;
        learn(source);
        chunk = look_up(source, prefix);
        if (!chunk)
            return 0;
    }
    return word(source, DIRECTORY + source->capacity
                + (uint64_t)CHUNK * (chunk - 1) + (number & (CHUNK - 1)));
}

/* Records */

ssize_t read_at(int file, unsigned char *to, size_t size, uint64_t position,
                int wait, int *would_wait)
{
    ssize_t got;
    if (position > INT64_MAX - size)
        return 0;
    if (!wait) {
        struct iovec into = {to, size};
        got = syscall(SYS_preadv2, file, &into, 1, (long)position, 0L,
                      RWF_NOWAIT);
        if (got < 0) /* Also where no such flag is known. */
            *would_wait = 1;
        return got;
    }
    do
        got = pread(file, to, size, (off_t)position);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Read the header of a record, and some of what follows: 1, 0 if it is not a
   record of this object, -1 if it would wait. */
static int read_record(Source *source, uint64_t position,
                       const unsigned char *oid, Place *place, int wait)
{
    int would_wait = 0;
    ssize_t got = read_at(source->file, place->block, AT_ONCE, position, wait,
                          &would_wait);
    if (would_wait)
        return -1;
    if (got < HEADER + 8) {
        if (wait)
            return 0;
        return -1; /* The rest may be on the disk. */
    }
    if (memcmp(place->block, oid, OID))
        return 0;
    place->length = get64(place->block + LENGTH_AT);
    place->begin = place->block + HEADER;
    place->has = (size_t)got - HEADER;
    return place->length <= LONGEST;
}

enum found source_find(Source *source, const unsigned char *oid,
                       const unsigned char *tid, Place *place, int wait)
{
    uint64_t end = word(source, END), durable = word(source, DURABLE);
    uint64_t retired = word(source, RETIRED);
    uint64_t position = position_of(source, oid), previous, at, back;
    int is_younger = 0, read;
    if (retired || !position)
        return NOT_CERTAIN;
    if (!source->reads_all) {
        if (end > durable)
            end = durable;
        if (position >= durable)
            return NOT_CERTAIN;
    }
    memset(place->end, 0, 8);
    while (position) {
        read = read_record(source, position, oid, place, wait);
        if (read <= 0)
            return read ? WOULD_WAIT : NOT_CERTAIN;
        previous = get64(place->block + PREVIOUS_AT);
        if (position < end) {
            memcpy(place->serial, place->block + TID_AT, 8);
            if (memcmp(place->serial, tid, 8) < 0) {
                /* A record without data points back to them. */
                for (at = position; !place->length; at = back) {
                    back = get64(place->begin);
                    if (!back || back >= at)
                        return NOT_CERTAIN;
                    read = read_record(source, back, oid, place, wait);
                    if (read <= 0)
                        return read ? WOULD_WAIT : NOT_CERTAIN;
                }
                place->position = at + HEADER;
                if (place->has > place->length)
                    place->has = (size_t)place->length;
                return FOUND_IT;
            }
            memcpy(place->end, place->serial, 8);
            is_younger = 1;
        }
        if (previous >= position)
            return NOT_CERTAIN; /* It must lead backwards. */
        position = previous;
    }
    return is_younger ? YOUNGER : NOT_CERTAIN;
}

int source_read(Source *source, const Place *place, uint64_t begin,
                unsigned char *to, size_t size, int wait)
{
    ssize_t got;
    int would_wait = 0;
    while (size) {
        got = read_at(source->file, to, size, place->position + begin, wait,
                      &would_wait);
        if (would_wait)
            return -1;
        if (got <= 0)
            return wait ? 0 : -1;
        begin += (uint64_t)got;
        to += got;
        size -= (size_t)got;
    }
    return 1;
}

/* The type */

static int fail(const char *why)
{
    PyErr_SetString(not_a_map, why);
    return -1;
}

/* Map the memory of another process, which may be hostile. */
static int map_it(Source *self, int map, const char *instance)
{
    struct stat of_map, of_file;
    int seals;
    uint64_t words;
    if (fstat(map, &of_map) || !S_ISREG(of_map.st_mode))
        return fail("it is no memory");
    seals = fcntl(map, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return fail("it is not sealed");
    words = (uint64_t)of_map.st_size / sizeof(Word);
    if (of_map.st_size < (off_t)(DIRECTORY * sizeof(Word))
        || words > DIRECTORY + (uint64_t)MOST_CHUNKS * (CHUNK + 1))
        return fail("it has another size");
    self->size = (size_t)of_map.st_size;
    self->words = mmap(NULL, self->size, PROT_READ, MAP_SHARED, map, 0);
    if (self->words == MAP_FAILED) {
        self->words = NULL;
        return fail("it cannot be mapped");
    }
    if (word(self, MAGIC) >> 8 != MAGIC_WORD >> 8)
        return fail("it is not an object map");
    if (word(self, MAGIC) != MAGIC_WORD)
        return fail("it is a map of another version");
    if (memcmp((const void *)&self->words[INSTANCE], instance, 16))
        return fail("it is not a map of this server");
    self->capacity = word(self, CAPACITY);
    if (self->capacity > MOST_CHUNKS
        || (DIRECTORY + self->capacity * (CHUNK + 1)) * sizeof(Word)
           != (uint64_t)of_map.st_size)
        return fail("its length is not what it says");
    if (fstat(self->file, &of_file) || !S_ISREG(of_file.st_mode))
        return fail("the data file is no file");
    if (word(self, DEVICE) != (uint64_t)of_file.st_dev
        || word(self, INODE) != (uint64_t)of_file.st_ino)
        return fail("the map is of another file");
    return 0;
}

static int source_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    Source *self = (Source *)object;
    static char *names[] = {"data_file", "object_map", "instance", "of_child",
                            NULL};
    int file, map, reads_all = 0;
    const char *instance;
    Py_ssize_t size;
    uint64_t places = 2;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiy#|p", names, &file,
                                     &map, &instance, &size, &reads_all))
        return -1;
    if (self->words || self->file >= 0 || size != 16) {
        PyErr_SetString(PyExc_ValueError, "an instance has 16 bytes");
        return -1;
    }
    self->file = fcntl(file, F_DUPFD_CLOEXEC, 3);
    if (self->file < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    self->reads_all = reads_all;
    if (map_it(self, map, instance))
        return -1;
    while (places < 2 * self->capacity + 2)
        places *= 2;
    self->mask = places - 1;
    self->table = calloc(places, sizeof *self->table);
    if (!self->table) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static PyObject *source_new(PyTypeObject *type, PyObject *args,
                            PyObject *kwargs)
{
    allocfunc allocate = PyType_GetSlot(type, Py_tp_alloc);
    Source *self = (Source *)allocate(type, 0);
    (void)args, (void)kwargs;
    if (self) {
        self->file = -1;
        pthread_mutex_init(&self->learning, NULL);
    }
    return (PyObject *)self;
}

static void source_dealloc(PyObject *object)
{
    Source *self = (Source *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    if (self->words)
        munmap((void *)self->words, self->size);
    if (self->file >= 0)
        close(self->file);
    free((void *)self->table);
    pthread_mutex_destroy(&self->learning);
    release(object);
    Py_DECREF(type);
}

int source_is_ready(Source *self)
{
    if (!self->table)
        PyErr_SetString(PyExc_ValueError, "the source was not opened");
    return self->table != NULL;
}

static PyObject *revision(Source *self, Place *place)
{
    PyObject *data;
    unsigned char *to;
    int read = 1;
    data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)place->length);
    if (!data)
        return NULL;
    to = (unsigned char *)PyBytes_AsString(data);
    memcpy(to, place->begin, place->has);
    if (place->has < place->length) {
        Py_BEGIN_ALLOW_THREADS
        read = source_read(self, place, place->has, to + place->has,
                           (size_t)place->length - place->has, 1);
        Py_END_ALLOW_THREADS
    }
    if (read != 1) {
        Py_DECREF(data);
        Py_INCREF(uncertain);
        return uncertain;
    }
    if (!get64(place->end))
        return Py_BuildValue("Ny#O", data, place->serial, (Py_ssize_t)8,
                             Py_None);
    return Py_BuildValue("Ny#y#", data, place->serial, (Py_ssize_t)8,
                         place->end, (Py_ssize_t)8);
}

PyObject *source_load_before(PyObject *object, PyObject *const *args,
                             Py_ssize_t count)
{
    Source *self = (Source *)object;
    const unsigned char *oid, *tid;
    enum found found;
    Place place;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "an oid and a tid");
        return NULL;
    }
    if (!source_is_ready(self) || !(oid = eight_bytes(args[0]))
        || !(tid = eight_bytes(args[1])))
        return NULL;
    if (atomic_fetch_add(&self->loads, 1) % TURN == TURN - 1)
        sched_yield();
    /* What is in the page cache takes a microsecond: another thread would keep
       the interpreter for longer. */
    found = source_find(self, oid, tid, &place, 0);
    if (found == WOULD_WAIT) {
        Py_BEGIN_ALLOW_THREADS
        found = source_find(self, oid, tid, &place, 1);
        Py_END_ALLOW_THREADS
    }
    if (found == FOUND_IT)
        return revision(self, &place);
    if (found == YOUNGER)
        Py_RETURN_NONE;
    Py_INCREF(uncertain);
    return uncertain;
}

static PyObject *source_prefetch(PyObject *object, PyObject *oids)
{
    Source *self = (Source *)object;
    PyObject *others, *oid;
    const unsigned char *number;
    Py_ssize_t at;
    uint64_t position;
    if (!source_is_ready(self))
        return NULL;
    if (!PyList_Check(oids)) {
        PyErr_SetString(PyExc_TypeError, "a list of oids");
        return NULL;
    }
    others = PyList_New(0);
    for (at = 0; others && at < PyList_Size(oids); at++) {
        oid = PyList_GetItem(oids, at);
        if (oid == Py_None) /* A new object. */
            continue;
        if (!(number = eight_bytes(oid))) {
            Py_CLEAR(others);
            break;
        }
        position = position_of(self, number);
        if (!source_is_retired(self) && position
            && position < word(self, DURABLE)) {
            Py_BEGIN_ALLOW_THREADS /* It may wait for a place in a queue. */
            posix_fadvise(self->file, (off_t)(position & ~4095ull), 8192,
                          POSIX_FADV_WILLNEED);
            Py_END_ALLOW_THREADS
        } else if (PyList_Append(others, oid))
            Py_CLEAR(others);
    }
    return others;
}

static PyObject *get_is_retired(PyObject *object, void *closure)
{
    Source *self = (Source *)object;
    (void)closure;
    return source_is_ready(self) ? PyBool_FromLong(source_is_retired(self))
                                 : NULL;
}

static PyMethodDef source_methods[] = {
    {"load_before", (PyCFunction)(void (*)(void))source_load_before,
     METH_FASTCALL, NULL},
    {"prefetch", source_prefetch, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef source_properties[] = {
    {"is_retired", get_is_retired, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot source_slots[] = {
    {Py_tp_new, source_new},
    {Py_tp_init, source_init},
    {Py_tp_dealloc, source_dealloc},
    {Py_tp_methods, source_methods},
    {Py_tp_getset, source_properties},
    {0, NULL}};

PyType_Spec source_spec = {
    "fsyncstorage.core._core.Source", sizeof(Source), 0, Py_TPFLAGS_DEFAULT,
    source_slots};
