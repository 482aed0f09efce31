/* Thread cancellation. A thread that unwound in the middle of the library would leave a mutex
 * locked, or the driver's role taken. So no call of the library is a cancellation point. Code that
 * may reach a cancellation point of the system runs between these two calls; a request to cancel
 * then waits until the thread has left. */
#ifndef BASE_CANCEL_H
#define BASE_CANCEL_H

#include <pthread.h>

static inline int cancel_disable(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void cancel_restore(int before) {
    pthread_setcancelstate(before, NULL);
}

#endif
