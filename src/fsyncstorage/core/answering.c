/* Answers the loads of one reader, in a process that reads.

The twin is local.answering.  `run` is called in a thread of its own, and
leaves the interpreter alone until something comes that is not a load, or until
no more can be answered. */

#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <structmember.h>
#include <sys/socket.h>

#define RECEIVED_AT_ONCE (1 << 14)
/* Bytes of answers that leave together, and of a long record. */
#define PIECE (1 << 16)

typedef struct {
    PyObject_HEAD
    int connection;
    Source *source;
    unsigned long long loads, requests, received, sent;
    /* Bytes that were received, and not answered; of answers, and not sent. */
    unsigned char *in, *out;
    size_t in_begin, in_end, out_size, longest;
} Answering;

/* Why a run ends.  SYSTEM_ERROR: errno says more. */
enum end { SYSTEM_ERROR, CLOSED, ANOTHER, RETIRED, NOT_ALLOWED, CUT };

/* Send what waits: 1, or 0 with errno.  What could not be sent is dropped: to
   send it once more would repeat bytes of an answer. */
static int flush(Answering *self)
{
    size_t at = 0, size = self->out_size;
    ssize_t done;
    self->out_size = 0;
    while (at < size) {
        done = send(self->connection, self->out + at, size - at, MSG_NOSIGNAL);
        if (done > 0)
            at += (size_t)done;
        else if (errno != EINTR)
            return 0;
    }
    self->sent += at;
    return 1;
}

/* Room for so many bytes, which are at most a piece; NULL: they cannot be
   sent. */
static unsigned char *room(Answering *self, size_t size)
{
    unsigned char *to;
    if (self->out_size + size > PIECE && !flush(self))
        return NULL;
    to = self->out + self->out_size;
    self->out_size += size;
    return to;
}

static unsigned char *begin(Answering *self, size_t length, char kind,
                            const unsigned char *number, size_t here)
{
    unsigned char *to = room(self, LENGTH + here);
    if (to) {
        put32(to, (uint32_t)length);
        to[LENGTH] = (unsigned char)kind;
        memcpy(to + LENGTH + 1, number, 4);
    }
    return to;
}

/* Answer a load: 1, or 0 with the reason why this is the end. */
static int answer(Answering *self, const unsigned char *load, enum end *end)
{
    const unsigned char *number = load + 1, *oid = load + KIND_AND_NUMBER;
    const unsigned char *tid = oid + OID;
    uint64_t as_of = source_announced(self->source); /* Before the look-up. */
    Place place;
    unsigned char *to;
    unsigned char last;
    size_t has, size;
    enum found found = source_find(self->source, oid, tid, &place, 1);
    *end = SYSTEM_ERROR;
    self->loads++;
    /* Before anything is said: the server explains why a file is too short. */
    if (found == FOUND_IT && place.has < place.length
        && source_read(self->source, &place, place.length - 1, &last, 1, 1)
           != 1)
        found = NOT_CERTAIN;
    if (found == YOUNGER) {
        if (!(to = begin(self, KIND_AND_NUMBER + 8, 'n', number,
                         KIND_AND_NUMBER + 8)))
            return 0;
        put64(to + LENGTH + KIND_AND_NUMBER, as_of);
        return 1;
    }
    if (found != FOUND_IT) {
        if (!begin(self, KIND_AND_NUMBER, 'w', number, KIND_AND_NUMBER))
            return 0;
        *end = RETIRED;
        return !source_is_retired(self->source);
    }
    has = place.has;
    if (!(to = begin(self, FOUND + (size_t)place.length, 'f', number,
                     FOUND + has)))
        return 0;
    to += LENGTH + KIND_AND_NUMBER;
    put64(to, as_of);
    memcpy(to + 8, place.serial, 8);
    memcpy(to + 16, place.end, 8);
    memcpy(to + 24, place.begin, has);
    while (has < place.length) {
        size = place.length - has < PIECE ? (size_t)place.length - has : PIECE;
        if (!(to = room(self, size)))
            return 0;
        if (source_read(self->source, &place, has, to, size, 1) != 1) {
            self->out_size -= size; /* Nothing was written there. */
            *end = CUT;
            return 0;
        }
        has += size;
    }
    return 1;
}

/* Answer all that has come and can come: why this ends.  ANOTHER: the body of
   another frame begins at `in_begin`, and has `length` bytes. */
static enum end answer_all(Answering *self, uint32_t *length)
{
    size_t left;
    ssize_t got;
    enum end end;
    unsigned char *frame;
    for (;;) {
        frame = self->in + self->in_begin;
        left = self->in_end - self->in_begin;
        if (left >= LENGTH) {
            *length = get32(frame);
            if (*length > self->longest)
                return flush(self) ? NOT_ALLOWED : SYSTEM_ERROR;
            if (left >= LENGTH + *length) {
                self->requests++;
                if (*length != LOAD || frame[LENGTH] != 'L'
                    || !get32(frame + LENGTH + 1))
                    return flush(self) ? ANOTHER : SYSTEM_ERROR;
                self->in_begin += LENGTH + LOAD;
                if (!answer(self, frame + LENGTH, &end))
                    return flush(self) ? end : SYSTEM_ERROR;
                continue;
            }
        }
        if (!flush(self))
            return SYSTEM_ERROR;
        memmove(self->in, frame, left);
        self->in_begin = 0;
        self->in_end = left;
        got = recv(self->connection, self->in + left, RECEIVED_AT_ONCE - left,
                   0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? SYSTEM_ERROR : CLOSED;
        self->in_end += (size_t)got;
        self->received += (size_t)got;
    }
}

static PyObject *answering_run(PyObject *object, PyObject *unused)
{
    Answering *self = (Answering *)object;
    uint32_t length = 0;
    enum end end;
    PyObject *body;
    (void)unused;
    if (!self->in) {
        PyErr_SetString(PyExc_ValueError, "it was not opened");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    errno = 0;
    end = answer_all(self, &length);
    Py_END_ALLOW_THREADS
    switch (end) {
    case ANOTHER:
        body = PyBytes_FromStringAndSize(
            (char *)self->in + self->in_begin + LENGTH, length);
        self->in_begin += LENGTH + length;
        return body;
    case RETIRED:
        Py_RETURN_NONE;
    case CLOSED:
        PyErr_SetString(PyExc_EOFError, "its client has closed it");
        return NULL;
    case NOT_ALLOWED:
        PyErr_Format(PyExc_ValueError, "a frame of %lu bytes",
                     (unsigned long)length);
        return NULL;
    case CUT:
        errno = EIO;
        break;
    case SYSTEM_ERROR:
        break;
    }
    return PyErr_SetFromErrno(PyExc_OSError);
}

static int answering_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    Answering *self = (Answering *)object;
    int connection;
    PyObject *source;
    const char *received;
    Py_ssize_t size, longest;
    static char *names[] = {"connection", "source", "longest", "received",
                            NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iO!ny#", names,
                                     &connection, source_type, &source,
                                     &longest, &received, &size))
        return -1;
    if (!source_is_ready((Source *)source))
        return -1;
    if (self->in || longest < LOAD || longest > RECEIVED_AT_ONCE / 2
        || size > RECEIVED_AT_ONCE) {
        PyErr_SetString(PyExc_ValueError, "so many bytes were received");
        return -1;
    }
    self->in = malloc(RECEIVED_AT_ONCE);
    self->out = malloc(PIECE + AT_ONCE);
    if (!self->in || !self->out) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(self->in, received, (size_t)size);
    self->in_end = (size_t)size;
    self->longest = (size_t)longest;
    self->connection = connection;
    Py_INCREF(source);
    self->source = (Source *)source;
    return 0;
}

static void answering_dealloc(PyObject *object)
{
    Answering *self = (Answering *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    free(self->in);
    free(self->out);
    Py_XDECREF((PyObject *)self->source);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef answering_methods[] = {
    {"run", answering_run, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyMemberDef answering_members[] = {
    {"loads", T_ULONGLONG, offsetof(Answering, loads), READONLY, NULL},
    {"requests", T_ULONGLONG, offsetof(Answering, requests), READONLY, NULL},
    {"received", T_ULONGLONG, offsetof(Answering, received), READONLY, NULL},
    {"sent", T_ULONGLONG, offsetof(Answering, sent), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot answering_slots[] = {
    {Py_tp_init, answering_init},
    {Py_tp_dealloc, answering_dealloc},
    {Py_tp_methods, answering_methods},
    {Py_tp_members, answering_members},
    {0, NULL}};

PyType_Spec answering_spec = {
    "fsyncstorage.core._core.Answering", sizeof(Answering), 0,
    Py_TPFLAGS_DEFAULT, answering_slots};
