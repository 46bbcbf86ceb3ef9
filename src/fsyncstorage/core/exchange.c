/* One exchange with a reader: the request for a load, and its answer.

The twin is client.readers. */

#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

/* The memory for a long answer is doubled as it arrives. */
#define FIRST_OF_A_LONG (1 << 20)

/* Of this process: a reply too many is not taken for a later one.  (The twin
   begins with 1.) */
static uint32_t last_number = 1u << 31;

enum came { ALL, SIGNAL, BROKEN };

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
            return errno == EINTR ? SIGNAL : BROKEN;
        *sent += (size_t)done;
    }
    for (;;) {
        wanted = MOST_ANSWERS;
        if (answer->has >= LENGTH) {
            wanted = LENGTH + (size_t)get32(answer->bytes);
            if (wanted > LENGTH + (size_t)LONGEST)
                return BROKEN;
            if (answer->has >= wanted)
                return answer->has == wanted ? ALL : BROKEN;
        }
        if (answer->has == answer->room) {
            size_t room = answer->room < FIRST_OF_A_LONG ? FIRST_OF_A_LONG
                                                         : 2 * answer->room;
            more = answer->bytes == answer->here
                       ? malloc(room) : realloc(answer->bytes, room);
            if (!more)
                return BROKEN;
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
            return errno == EINTR ? SIGNAL : BROKEN;
        if (!done)
            return BROKEN;
        answer->has += (size_t)done;
    }
}

/* Does a reader answer the load of this number so: a revision, that there was
   none, or that it cannot say? */
static int is_answer(const Answer *answer, uint32_t number)
{
    size_t size = answer->has - LENGTH;
    if (size < KIND_AND_NUMBER
        || get32(answer->bytes + LENGTH + 1) != number)
        return 0;
    switch (answer->bytes[LENGTH]) {
    case 'f':
        return size >= FOUND;
    case 'n':
        return size == KIND_AND_NUMBER + 8;
    case 'w':
        return size == KIND_AND_NUMBER;
    }
    return 0;
}

int exchange(int connection, PyObject *oid, PyObject *tid, Answer *answer)
{
    unsigned char request[LENGTH + LOAD];
    size_t sent = 0;
    enum came came;
    uint32_t number = ++last_number;
    if (!number)
        number = ++last_number;
    put32(request, LOAD);
    request[LENGTH] = 'L';
    put32(request + LENGTH + 1, number);
    memcpy(request + LENGTH + KIND_AND_NUMBER, PyBytes_AsString(oid), OID);
    memcpy(request + LENGTH + KIND_AND_NUMBER + OID,
           PyBytes_AsString(tid), 8);
    answer->bytes = answer->here;
    answer->room = MOST_ANSWERS;
    answer->has = 0;
    do {
        Py_BEGIN_ALLOW_THREADS
        came = send_and_receive(connection, request, sizeof request, &sent,
                                answer);
        Py_END_ALLOW_THREADS
        if (came == SIGNAL && PyErr_CheckSignals()) {
            release(answer);
            return -1;
        }
    } while (came == SIGNAL);
    if (came == ALL && is_answer(answer, number))
        return 1;
    release(answer);
    return 0;
}

void release(Answer *answer)
{
    if (answer->bytes != answer->here)
        free(answer->bytes);
}
