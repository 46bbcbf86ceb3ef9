/* What the files of the core share.

The core does in C what a read does most often.  Each of its functions has a
twin in plain Python, which says the same more slowly, and is what to read
first:

    source.c      format.source, and the reader's side of format.objectmap
    answering.c   local.answering
    load.c        a load of client.storage, with client.reads
    exchange.c    client.readers
    cache.c       client.cache and client.cachefile

It takes bytes and descriptors, a client's load the objects of its twins, by
their attributes (client.h).  It checks whatever comes from a socket, a file
or another process before it uses it: lengths, positions, pointers.  Nothing of
Data.fs is mapped into memory, where an error of a disk would be a signal; the
map is, which is sealed against being cut off.

No lock of the interpreter is held while a thread may wait. */

#ifndef FSYNCSTORAGE_CORE_H
#define FSYNCSTORAGE_CORE_H

/* The interface that does not change with releases of Python, as of 3.10. */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#define OID 8
/* Of a frame: its length, then kind and number. */
#define LENGTH 4
#define KIND_AND_NUMBER 5
/* Of a frame with a load, behind the length: kind, number, oid, tid. */
#define LOAD 21
/* Of a found revision, up to the data: kind, number, as of, serial, end. */
#define FOUND 29
/* Bytes of the longest frame, and of the longest record that is read here. */
#define LONGEST (1u << 30)

static inline uint32_t get32(const unsigned char *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16
           | (uint32_t)from[2] << 8 | from[3];
}

static inline void put32(unsigned char *to, uint32_t value)
{
    to[0] = (unsigned char)(value >> 24);
    to[1] = (unsigned char)(value >> 16);
    to[2] = (unsigned char)(value >> 8);
    to[3] = (unsigned char)value;
}

/* A position in an index of positions has six bytes. */
static inline uint64_t get48(const unsigned char *from)
{
    return (uint64_t)from[0] << 40 | (uint64_t)from[1] << 32
           | get32(from + 2);
}

static inline void put48(unsigned char *to, uint64_t value)
{
    to[0] = (unsigned char)(value >> 40);
    to[1] = (unsigned char)(value >> 32);
    put32(to + 2, (uint32_t)value);
}

static inline uint64_t get64(const unsigned char *from)
{
    return (uint64_t)get32(from) << 32 | get32(from + 4);
}

static inline void put64(unsigned char *to, uint64_t value)
{
    put32(to, (uint32_t)(value >> 32));
    put32(to + 4, (uint32_t)value);
}

/* An oid, a serial or a tid; NULL with an error if it is none. */
static inline const unsigned char *eight_bytes(PyObject *object)
{
    if (!PyBytes_Check(object) || PyBytes_Size(object) != 8) {
        PyErr_Format(PyExc_ValueError, "8 bytes, not %R", object);
        return NULL;
    }
    return (const unsigned char *)PyBytes_AsString(object);
}

/* Given by Python (use): the answer where one is not certain, and the class of
   the error for what is no map. */
extern PyObject *uncertain, *not_a_map;

/* source.c */

typedef struct source Source;

/* Bytes of one read: the header of a record, and the data of most. */
#define AT_ONCE 4096

enum found { FOUND_IT, YOUNGER, NOT_CERTAIN, WOULD_WAIT };

typedef struct {
    unsigned char serial[8], end[8];
    /* Of the data; and the first of them, as far as they were read. */
    uint64_t position, length;
    const unsigned char *begin;
    size_t has;
    unsigned char block[AT_ONCE];
} Place;

/* The revision that was current before this tid.  With `wait` 0, WOULD_WAIT
   where the disk would be asked. */
enum found source_find(Source *source, const unsigned char *oid,
                       const unsigned char *tid, Place *place, int wait);
/* Read so many bytes of the data, from `begin` on: 1, 0 if the file does not
   have them, -1 if the disk would be asked and `wait` is 0. */
int source_read(Source *source, const Place *place, uint64_t begin,
                unsigned char *to, size_t size, int wait);
/* Bytes at a position, as many as one read gives; -1 with an error.  With
   `wait` 0, also where the disk would be asked. */
ssize_t read_at(int file, unsigned char *to, size_t size, uint64_t position,
                int wait, int *would_wait);
PyObject *source_load_before(PyObject *source, PyObject *const *oid_and_tid,
                             Py_ssize_t two);
/* Was it opened?  Else an error is set. */
int source_is_ready(Source *source);
int source_is_retired(Source *source);
uint64_t source_announced(Source *source);

extern PyType_Spec source_spec, answering_spec;
extern PyTypeObject *source_type;

/* load.c */

int make_names(void);
void make_crc_table(void);
PyObject *load(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
