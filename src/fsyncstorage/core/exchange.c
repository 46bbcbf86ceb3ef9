/* What a client's thread does for a load: one exchange with a reader, or one
   read of its cache.

The twins are client.readers and client.cachefile. */

#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Most answers fit. */
#define MOST (1 << 14)
/* The memory for a longer one is doubled as it arrives. */
#define FIRST_OF_A_LONG (1 << 20)

typedef struct {
    unsigned char *bytes; /* `here`, or allocated */
    size_t room, has;
    unsigned char here[MOST];
} Answer;

enum came { ALL, SIGNAL, CLOSED, TOO_LONG, NO_MEMORY, SYSTEM_ERROR };

/* Send, and receive one frame.  It may be called again after a SIGNAL. */
static enum came send_and_receive(int connection, const unsigned char *request,
                                  size_t size, size_t *sent, Answer *answer)
{
    ssize_t done;
    size_t wanted;
    unsigned char *more;
    while (*sent < size) {
        done = send(connection, request + *sent, size - *sent, MSG_NOSIGNAL);
        if (done < 0)
            return errno == EINTR ? SIGNAL : SYSTEM_ERROR;
        *sent += (size_t)done;
    }
    for (;;) {
        wanted = MOST;
        if (answer->has >= LENGTH) {
            wanted = LENGTH + (size_t)get32(answer->bytes);
            if (wanted > LENGTH + (size_t)LONGEST)
                return TOO_LONG;
            if (answer->has >= wanted)
                return answer->has == wanted ? ALL : TOO_LONG;
        }
        if (answer->has == answer->room) {
            size_t room = answer->room < FIRST_OF_A_LONG ? FIRST_OF_A_LONG
                                                         : 2 * answer->room;
            more = answer->bytes == answer->here
                       ? malloc(room) : realloc(answer->bytes, room);
            if (!more)
                return NO_MEMORY;
            if (answer->bytes == answer->here)
                memcpy(more, answer->here, answer->has);
            answer->bytes = more;
            answer->room = room;
        }
        if (wanted > answer->room || answer->has < LENGTH)
            wanted = answer->room;
        done = recv(connection, answer->bytes + answer->has,
                    wanted - answer->has, 0);
        if (done < 0)
            return errno == EINTR ? SIGNAL : SYSTEM_ERROR;
        if (!done)
            return CLOSED;
        answer->has += (size_t)done;
    }
}

static PyObject *taken(const Answer *answer, uint32_t number)
{
    const unsigned char *body = answer->bytes + LENGTH;
    size_t size = answer->has - LENGTH;
    if (size >= FOUND && body[0] == 'f' && get32(body + 1) == number)
        return Py_BuildValue(
            "y#y#y#y#", body + 5, (Py_ssize_t)8, body + 13, (Py_ssize_t)8,
            body + 21, (Py_ssize_t)8, body + FOUND,
            (Py_ssize_t)(size - FOUND));
    return PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)size);
}

PyObject *exchange(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    unsigned char request[LENGTH + LOAD];
    const unsigned char *oid, *tid;
    unsigned long number;
    long connection;
    size_t sent = 0;
    enum came came;
    PyObject *result = NULL;
    Answer answer;
    (void)module;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "connection, number, oid, tid");
        return NULL;
    }
    connection = PyLong_AsLong(args[0]);
    number = PyLong_AsUnsignedLong(args[1]);
    if (PyErr_Occurred() || !(oid = eight_bytes(args[2]))
        || !(tid = eight_bytes(args[3])))
        return NULL;
    put32(request, LOAD);
    request[LENGTH] = 'L';
    put32(request + LENGTH + 1, (uint32_t)number);
    memcpy(request + LENGTH + KIND_AND_NUMBER, oid, OID);
    memcpy(request + LENGTH + KIND_AND_NUMBER + OID, tid, 8);
    answer.bytes = answer.here;
    answer.room = MOST;
    answer.has = 0;
    do {
        Py_BEGIN_ALLOW_THREADS
        came = send_and_receive((int)connection, request, sizeof request,
                                &sent, &answer);
        Py_END_ALLOW_THREADS
        /* A signal's handler of Python may raise. */
    } while (came == SIGNAL && !PyErr_CheckSignals());
    switch (came) {
    case ALL:
        result = taken(&answer, (uint32_t)number);
        break;
    case SIGNAL:
        break;
    case CLOSED:
        PyErr_SetString(PyExc_EOFError, "the server has closed it");
        break;
    case TOO_LONG:
        PyErr_SetString(PyExc_ValueError, "no frame, or more than one");
        break;
    case NO_MEMORY:
        PyErr_NoMemory();
        break;
    case SYSTEM_ERROR:
        PyErr_SetFromErrno(PyExc_OSError);
        break;
    }
    if (answer.bytes != answer.here)
        free(answer.bytes);
    return result;
}

/* A record of the client's cache: check, previous check, kind, length, oid,
   serial, end; then the body.  The check is a CRC-32 of all behind it, begun
   with the position. */
#define CHECK 4
#define KIND_AT 8
#define LENGTH_AT 9
#define OID_AT 13
#define SERIAL_AT 21
#define HEAD 37

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

/* The revision in the cache's file at this place: data and serial; None if
   there is no sound one of this object. */
PyObject *cached(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    unsigned char block[AT_ONCE];
    const unsigned char *oid, *record = block;
    PyObject *bytes = NULL, *result = NULL;
    long file;
    long long place;
    unsigned long begun, longest;
    size_t size;
    ssize_t got;
    (void)module;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError,
                        "file, place, begin of the check, longest, oid");
        return NULL;
    }
    file = PyLong_AsLong(args[0]);
    place = PyLong_AsLongLong(args[1]);
    begun = PyLong_AsUnsignedLong(args[2]);
    longest = PyLong_AsUnsignedLong(args[3]);
    if (PyErr_Occurred() || !(oid = eight_bytes(args[4])))
        return NULL;
    got = read_and_wait((int)file, block, sizeof block, (uint64_t)place);
    if (got < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    if (got < HEAD || get32(block + LENGTH_AT) > longest)
        Py_RETURN_NONE;
    size = HEAD + (size_t)get32(block + LENGTH_AT);
    if (size > (size_t)got) {
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (!bytes)
            return NULL;
        record = (const unsigned char *)PyBytes_AsString(bytes);
        got = read_and_wait((int)file,
                            (unsigned char *)PyBytes_AsString(bytes), size,
                            (uint64_t)place);
        if (got < 0) {
            Py_DECREF(bytes);
            return PyErr_SetFromErrno(PyExc_OSError);
        }
    }
    if ((size_t)got >= size && record[KIND_AT] == 'D'
        && get32(record + LENGTH_AT) == size - HEAD
        && !memcmp(record + OID_AT, oid, OID)
        && get32(record) == crc32_of(record + CHECK, size - CHECK,
                                     (uint32_t)begun))
        result = Py_BuildValue("y#y#", record + HEAD,
                               (Py_ssize_t)(size - HEAD), record + SERIAL_AT,
                               (Py_ssize_t)8);
    else
        result = (Py_INCREF(Py_None), Py_None);
    Py_XDECREF(bytes);
    return result;
}
