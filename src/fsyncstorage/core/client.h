/* What a load by a client's thread shares among its files. */

#ifndef FSYNCSTORAGE_CLIENT_H
#define FSYNCSTORAGE_CLIENT_H

#include "core.h"

/* exchange.c */

/* Of a found revision. */
#define AS_OF_AT 5
#define SERIAL_AT 13
#define END_AT 21

/* Most answers fit. */
#define MOST_ANSWERS (1 << 14)

typedef struct {
    unsigned char *bytes; /* `here`, or allocated */
    size_t room, has;
    unsigned char here[MOST_ANSWERS];
} Answer;

/* Ask a reader for an object: 1, a frame that answers this, which the caller
   releases; 0, the connection must not be used again; -1 likewise, with an
   error, which a signal's handler has raised. */
int exchange(int connection, PyObject *oid, PyObject *tid, Answer *answer);
void release(Answer *answer);

/* cache.c */

/* The revision that is current in a client's cache and was so before the tid;
   NULL if there is none, it is not simple, or with an error. */
PyObject *hit(PyObject *cache, PyObject *oid, PyObject *tid, int *is_missing);

/* Keep a revision as current, if its serial was told to the file, and so is
   not above the cache's last tid (or all of it was ended before): 1; 0 if it
   is not simple, and nothing is changed, or with an error: then the cache may
   be half changed.  The caller has the cache's lock. */
int keep(PyObject *cache, PyObject *oid, const unsigned char *serial,
         const unsigned char *data, size_t length);

/* Of what the core cannot use. */
#define NO_DESCRIPTOR 0x7fffffff

/* load.c: attributes of objects of Python */

#define NAMES(NAME) \
    NAME(CACHE, "_cache") \
    NAME(READS, "_reads") \
    NAME(LOCAL, "_local") \
    NAME(SOURCE, "source") \
    NAME(LOCAL_COUNTS, "_local_counts") \
    NAME(IS_DUE, "is_due") \
    NAME(LOAD_TIMES, "_load_times") \
    NAME(ADD, "add") \
    NAME(ANSWERED, "answered") \
    NAME(GENERATION, "_generation") \
    NAME(READERS, "_readers") \
    NAME(FREE, "_free") \
    NAME(POP, "pop") \
    NAME(WAITING, "_waiting") \
    NAME(IS_CLOSED, "_is_closed") \
    NAME(GIVE_BACK, "give_back") \
    NAME(DROP, "drop") \
    NAME(SINCE, "since") \
    NAME(CURRENT, "_current") \
    NAME(BUCKET, "_bucket") \
    NAME(GET, "get") \
    NAME(ENDED, "_ended") \
    NAME(LAST_TID, "_last_tid") \
    NAME(HITS, "_hits") \
    NAME(ITS_FILE, "_file") \
    NAME(DESCRIPTOR, "descriptor") \
    NAME(TAIL, "_tail") \
    NAME(TAIL_AT, "_tail_at") \
    NAME(END, "end") \
    NAME(SEGMENT_END, "_segment_end") \
    NAME(LAST_CHECK, "_check") \
    NAME(TOLD, "told") \
    NAME(OIDS, "_oids") \
    NAME(BATCH_END, "_batch_end") \
    NAME(CALLS, "_calls") \
    NAME(LOCK, "_lock") \
    NAME(ACQUIRE, "acquire") \
    NAME(RELEASE, "release") \
    NAME(EMPTY, "_empty") \
    NAME(LOADS, "_loads") \
    NAME(BEGIN, "begin") \
    NAME(PENDING, "pending") \
    NAME(ITS_GENERATION, "generation") \
    NAME(OVERTAKEN, "overtaken") \
    NAME(DONE, "done") \
    NAME(PROCESS, "_process") \
    NAME(RING, "ring") \
    NAME(LONGEST_BODY, "longest")

#define CONSTANT(constant, string) constant,
enum name { NAMES(CONSTANT) COUNT_OF_NAMES };
#undef CONSTANT

extern PyObject *names[COUNT_OF_NAMES];

/* An attribute; NULL with an error, or if there is no owner.  The owner keeps
   it alive until Python runs the next time. */
PyObject *its(PyObject *owner, enum name name);
/* An attribute that is no negative number. */
uint64_t number(PyObject *owner, enum name name);
int set_number(PyObject *owner, enum name name, uint64_t value);

#endif
