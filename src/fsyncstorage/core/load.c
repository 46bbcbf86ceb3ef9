/* A load by a client's thread: from the server's file where that is on this
   machine, else from the client's cache, else by a free reader, whose answer is
   kept.

Only what is simple, and most frequent, is done here.  What else a reader says
goes to `Reads.replied`.  Whatever else `load` meets, it leaves to its twins
(client.storage, with local, reads, readers, pending and cache), which look at
everything anew; so it has ended what it began. */

#include "client.h"

#include <time.h>
#include <unistd.h>

#define STRING(constant, string) string,
static const char *const strings[] = {NAMES(STRING)};
#undef STRING

PyObject *names[COUNT_OF_NAMES];

int make_names(void)
{
    int name;
    for (name = 0; name < COUNT_OF_NAMES; name++)
        if (!names[name]
            && !(names[name] = PyUnicode_InternFromString(strings[name])))
            return -1;
    return 0;
}

PyObject *its(PyObject *owner, enum name name)
{
    PyObject *value = owner ? PyObject_GetAttr(owner, names[name]) : NULL;
    Py_XDECREF(value);
    return value;
}

uint64_t number(PyObject *owner, enum name name)
{
    PyObject *value = its(owner, name);
    return value ? PyLong_AsUnsignedLongLong(value) : 0;
}

int set_number(PyObject *owner, enum name name, uint64_t value)
{
    PyObject *number = PyLong_FromUnsignedLongLong(value);
    int failed = !number || PyObject_SetAttr(owner, names[name], number);
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

/* Call a method whose result does not matter, also after an error, which
   stays. */
static int call(PyObject *owner, enum name method, PyObject *argument)
{
    PyObject *type, *value, *traceback, *result = NULL;
    PyErr_Fetch(&type, &value, &traceback);
    if (owner)
        result = PyObject_CallMethodObjArgs(owner, names[method], argument,
                                            NULL);
    Py_XDECREF(result);
    if (type) {
        PyErr_Clear();
        PyErr_Restore(type, value, traceback);
    }
    return result ? 0 : -1;
}

/* What is needed while Python runs, which could end it. */
typedef struct {
    PyObject *client, *cache, *reads, *readers, *free, *reader;
    /* The load (client.pending), until it was ended. */
    PyObject *load;
} Used;

static PyObject *owned(PyObject *owner, enum name name)
{
    PyObject *value = its(owner, name);
    Py_XINCREF(value);
    return value;
}

static void release_all(Used *used)
{
    Py_XDECREF(used->cache);
    Py_XDECREF(used->reads);
    Py_XDECREF(used->readers);
    Py_XDECREF(used->free);
    Py_XDECREF(used->reader);
    Py_XDECREF(used->load);
}

/* Is there a free reader that the core can use, in this process? */
static int is_ready(Used *used)
{
    Py_ssize_t size;
    used->reads = owned(used->client, READS);
    if (!used->reads || used->reads == Py_None)
        return 0;
    used->readers = owned(used->reads, READERS);
    used->free = owned(used->readers, FREE);
    if (!used->free)
        return 0;
    size = PyList_Size(used->free);
    return size > 0
           && number(PyList_GetItem(used->free, size - 1), DESCRIPTOR)
              != NO_DESCRIPTOR
           && number(its(used->cache, ITS_FILE), PROCESS)
              == (uint64_t)getpid();
}

/* Note the load, and take a reader for it: 1; 0 if another thread loads this
   object, or has taken the reader; -1 with an error. */
static int begin(Used *used, PyObject *oid, PyObject *tid)
{
    PyObject *pending, *last;
    if (call(its(used->cache, LOCK), ACQUIRE, NULL))
        return -1;
    pending = its(used->cache, PENDING);
    if (pending
        && !PyDict_GetItemWithError(its(pending, LOADS), oid)
        && !PyErr_Occurred()) {
        last = owned(used->cache, LAST_TID);
        used->load = PyObject_CallMethodObjArgs(
            pending, names[BEGIN], oid, tid, last,
            its(used->reads, GENERATION), NULL);
        Py_XDECREF(last);
        /* (Another thread may have taken the last one.) */
        if (used->load && PyList_Size(used->free) > 0)
            used->reader = PyObject_CallMethodObjArgs(used->free, names[POP],
                                                      NULL);
    }
    if (call(its(used->cache, LOCK), RELEASE, NULL) || PyErr_Occurred())
        return -1;
    return used->reader != NULL;
}

/* Keep what was found, and end the load, if that is simple: 1, or 0; -1 with
   an error. */
static int kept(Used *used, PyObject *oid, const unsigned char *body,
                size_t size)
{
    PyObject *pending;
    int answer = 0;
    if (call(its(used->cache, LOCK), ACQUIRE, NULL))
        return -1;
    pending = its(used->cache, PENDING);
    if (its(used->load, DONE) == Py_None
        && its(used->load, OVERTAKEN) == Py_False
        && number(used->load, ITS_GENERATION)
           == number(pending, ITS_GENERATION))
        answer = keep(used->cache, oid, body + SERIAL_AT, body + FOUND,
                      size - FOUND);
    if (PyErr_Occurred()) {
        call(used->cache, EMPTY, NULL); /* It may be half changed. */
        answer = -1;
    }
    if (answer > 0 && call(pending, END, used->load))
        answer = -1;
    if (call(its(used->cache, LOCK), RELEASE, NULL))
        return -1;
    if (answer > 0)
        Py_CLEAR(used->load);
    return answer;
}

/* What loadBefore returns for this answer; NULL with an error. */
static PyObject *taken(Used *used, PyObject *oid, const Answer *answer)
{
    const unsigned char *body = answer->bytes + LENGTH;
    size_t size = answer->has - LENGTH;
    PyObject *since = its(used->load, SINCE);
    int is_kept = 0;
    if (!since)
        return NULL;
    if (body[0] == 'f' && !get64(body + END_AT)
        && memcmp(body + AS_OF_AT, PyBytes_AsString(since), 8) >= 0)
        is_kept = kept(used, oid, body, size);
    if (is_kept < 0)
        return NULL;
    if (is_kept)
        return Py_BuildValue("y#y#O", body + FOUND, (Py_ssize_t)(size - FOUND),
                             body + SERIAL_AT, (Py_ssize_t)8, Py_None);
    return PyObject_CallMethod(used->reads, "replied", "Oy#", used->load, body,
                               (Py_ssize_t)size);
}

/* As Readers.give_back.  No other thread of Python runs between these steps.
 */
static int give_back(Used *used)
{
    if (number(used->readers, WAITING) || number(used->readers, IS_CLOSED))
        return call(used->readers, GIVE_BACK, used->reader);
    return PyList_Append(used->free, used->reader);
}

static PyObject *asked(Used *used, PyObject *oid, PyObject *tid)
{
    Answer answer;
    PyObject *revision = NULL;
    int came = begin(used, oid, tid);
    if (came > 0)
        came = exchange((int)number(used->reader, DESCRIPTOR), oid, tid,
                        &answer);
    if (came > 0) {
        /* Before the stream may be asked, which takes longer. */
        if (!give_back(used))
            revision = taken(used, oid, &answer);
        release(&answer);
    } else if (used->reader)
        call(used->readers, DROP, used->reader);
    /* Threads that wait for this load go on. */
    if (used->load && call(used->cache, ANSWERED, used->load))
        Py_CLEAR(revision);
    return revision;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* What the server's file has; NULL if that is not certain; `uncertain` if the
   twin has to take the time of this load, or to look for another map.  A last
   tid that is seen before the cache has published it does no harm: the
   transaction is in the file. */
static PyObject *locally(Used *used, PyObject *const *oid_and_tid)
{
    PyObject *local = its(used->client, LOCAL), *source, *counts, *found;
    const char *tid = PyBytes_AsString(oid_and_tid[1]), *last;
    if (!local || local == Py_None
        || number(local, PROCESS) != (uint64_t)getpid())
        return NULL;
    counts = its(used->client, LOCAL_COUNTS);
    last = PyBytes_AsString(its(used->cache, LAST_TID));
    if (get64((const unsigned char *)tid)
        > get64((const unsigned char *)last) + 1)
        return NULL;
    source = owned(local, SOURCE);
    if (!source || Py_TYPE(source) != source_type) {
        Py_XDECREF(source);
        return NULL;
    }
    if (its(counts, IS_DUE) == Py_True) {
        Py_DECREF(source);
        Py_INCREF(uncertain);
        return uncertain;
    }
    found = source_load_before(source, oid_and_tid, 2);
    if (found == uncertain) {
        if (!source_is_retired((Source *)source))
            Py_CLEAR(found); /* Else the twin looks for the next map. */
    } else if (found && call(its(used->client, LOCAL_COUNTS), ANSWERED, NULL))
        Py_CLEAR(found);
    Py_DECREF(source);
    return found;
}

PyObject *load(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Used used = {0};
    PyObject *revision, *seconds;
    int is_missing = 0;
    double begun;
    (void)module;
    if (count != 3 || !eight_bytes(args[1]) || !eight_bytes(args[2])) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a client, an oid and a tid");
        return NULL;
    }
    used.client = args[0];
    used.cache = owned(args[0], CACHE);
    if (!used.cache)
        return NULL;
    revision = locally(&used, args + 1);
    if (!revision && !PyErr_Occurred())
        revision = hit(used.cache, args[1], args[2], &is_missing);
    if (is_missing && is_ready(&used)) {
        begun = now();
        revision = asked(&used, args[1], args[2]);
        if (revision) {
            seconds = PyFloat_FromDouble(now() - begun);
            if (!seconds || call(its(args[0], LOAD_TIMES), ADD, seconds))
                Py_CLEAR(revision);
            Py_XDECREF(seconds);
        }
    }
    release_all(&used);
    if (!revision && !PyErr_Occurred()) {
        Py_INCREF(uncertain);
        return uncertain;
    }
    return revision;
}
